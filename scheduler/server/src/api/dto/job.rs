//! Jobs: what is asked for, and what is answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::execution::ExecutionView;
use super::schedule::ScheduleBody;
use crate::json::Body;

/// A job to create. Only `task` and `schedule` are required; a field that is `null` has its default.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// What its owner calls it. Not unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "nightly-billing")]
    pub name: Option<String>,
    /// What it runs: `name` (the version pushed last), `name@tag` or `sha256:…`. The version is fixed when the job is created.
    #[schema(example = "billing@stable")]
    pub task: String,
    /// When it runs.
    pub schedule: ScheduleBody,
    /// What it hands to the task: any JSON, at most 64 KiB, checked against the task's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Box<RawValue>>,
    /// The queue that its executions wait in; `default` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// What happens to slots that could not run on time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfire: Option<MisfireBody>,
    /// What happens to a slot while an earlier execution of the job is live, that is queued, running or about to be tried again: `allow` (it
    /// runs beside it; the default), `skip`, `buffer_one` (it waits; a newer slot takes its place), `buffer_all` (it waits, behind others),
    /// `cancel_other` (the live one is asked to stop, and it waits for that), `terminate_other` (the live one ends at once). What somebody
    /// triggers waits where a slot would be skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "allow")]
    pub overlap: Option<String>,
    /// With `allow`: how many executions may be live at once, from 1 to 1,000. Slots beyond that wait, at most 1,000 of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// A window over which starts are spread: a job's delay in it is fixed, and ends before the next slot. Nothing is early, and what was promised
    /// counts from the delayed time. `0s` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0s")]
    pub splay: Option<String>,
    /// Of `CRON`: no slot before this instant (RFC 3339; without an offset it is read in the schedule's zone).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<String>,
    /// Of `CRON`: no slot after this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// Of `CRON`: how many slots run at the most. Those that are skipped don't count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u64>,
    /// What happens after an attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryBody>,
    /// What one attempt may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
    /// A task that runs once for each execution that has failed for good, so that its owner is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailureBody>,
    /// Words by which its owner finds it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Whether its schedule rests until it is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl Body for JobRequest {
    const LISTS: &'static [&'static str] = &["parameters", "on_failure.parameters", "retry.delays"];
}

/// What happens to slots that could not run on time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MisfireBody {
    /// Which of them run: `run_all` (all, oldest first, up to the deadline and the cap; the default), `run_latest` (if one is late, of all that
    /// are due only the newest), `skip` (none). A slot is late if it was not queued within 10 s of its due time, because no scheduler ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Slots later than this do not run; `1h` unless given. `skip` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Of `run_all`: how many of them run at the most, the newest ones; 1000 unless given, 100000 at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
}

/// What happens after an attempt that failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryBody {
    /// One retry per entry, that long after the failure before it. An empty list means no retry. `["10s","1m","10m"]` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<Vec<String>>,
    /// Delays that grow, in place of `delays`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponential: Option<ExponentialBody>,
    /// How many attempts there are in all, from 1 to 21. With `delays`, a shorter list's last delay is repeated; as many as the list says unless
    /// given. With `exponential`, 4 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// Delays that grow by a constant factor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExponentialBody {
    /// The delay before the second attempt; `10s` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// What each delay is multiplied by to get the next one, from 1 to 100; 2 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// No delay is longer; `10m` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<String>,
    /// Whether each delay is drawn evenly between nothing and what it would be; `true` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<bool>,
}

/// A task that runs once for each execution that has failed for good. It is handed
/// `{"failure":{"execution_id":…,"job_id":…,"job_name":…,"task":{…},"slot":…,"failed_at":…,"kind":…,"reason":…,"attempts":…,"outcome":{…},"log_tail":[…]},"parameters":…}`.
/// It runs as an execution of the same job, with its retries and limits; its own failure is recorded and tells nobody.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OnFailureBody {
    /// What runs: `name`, `name@tag` or `sha256:…`. The version is fixed when the job is created or edited.
    #[schema(example = "notify")]
    pub task: String,
    /// What it is handed beside the failure: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Box<RawValue>>,
}

/// What one attempt may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsBody {
    /// Units of work; 1,000,000,000 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// All memories of the run together; 64 MiB unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// From its start to its end; `30s` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// A job was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobCreated {
    /// Its identifier.
    pub job_id: String,
    /// The next planned instants.
    pub next_fires: Vec<String>,
}

/// The task version that a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskOfJob {
    /// The task's name; empty if the job names a digest alone.
    pub name: String,
    /// What the job's owner wrote.
    pub reference: String,
    /// The version that it meant when the job was created.
    pub digest: String,
}

/// The task that is told of a job's failures.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OnFailureView {
    /// The task's version.
    pub task: TaskOfJob,
    /// What it is handed beside the failure.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Box<RawValue>>,
}

/// A job's definition, with every default filled in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobDefinition {
    /// What its owner calls it.
    pub name: Option<String>,
    /// What it runs.
    pub task: TaskOfJob,
    /// When it runs.
    pub schedule: ScheduleBody,
    /// What it hands to the task.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Box<RawValue>>,
    /// The queue that its executions wait in.
    pub lane: String,
    /// What happens to slots that could not run on time.
    pub misfire: MisfireBody,
    /// What happens to a slot while an earlier execution is live.
    pub overlap: String,
    /// How many executions may be live at once, if that is limited.
    pub max_concurrent: Option<u32>,
    /// A window over which starts are spread.
    pub splay: String,
    /// No slot before this instant.
    #[schema(format = DateTime)]
    pub starts_at: Option<String>,
    /// No slot after this instant.
    #[schema(format = DateTime)]
    pub ends_at: Option<String>,
    /// How many slots run at the most.
    pub max_runs: Option<u64>,
    /// What happens after an attempt that failed.
    pub retry: RetryBody,
    /// What one attempt may use.
    pub limits: LimitsBody,
    /// The task that runs for each execution that has failed for good.
    pub on_failure: Option<OnFailureView>,
    /// Words by which its owner finds it again.
    pub labels: BTreeMap<String, String>,
    /// Whether its schedule rests until it is resumed.
    pub paused: bool,
}

/// A stretch of a job's past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackfillRequest {
    /// Slots from this instant on.
    #[schema(format = DateTime, example = "2026-11-01T00:00:00Z")]
    pub from: String,
    /// Slots before this one, which is not in the future.
    #[schema(format = DateTime, example = "2026-11-02T00:00:00Z")]
    pub to: String,
}

impl Body for BackfillRequest {
    const LISTS: &'static [&'static str] = &[];
}

/// A stretch was filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackfillView {
    /// The job.
    pub job_id: String,
    /// How many slots lie in the stretch: each has an execution of its own now.
    pub executions: u64,
    /// The first of them.
    #[schema(format = DateTime)]
    pub first_slot: Option<String>,
    /// The last of them.
    #[schema(format = DateTime)]
    pub last_slot: Option<String>,
}

/// A job was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDeleted {
    /// Its identifier.
    pub job_id: String,
    /// `DELETED`.
    pub state: String,
    /// How many of its executions waited and are cancelled.
    pub cancelled: u64,
    /// How many of them run and are told to stop.
    pub stopping: u64,
}

/// A job with all that is known about it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    /// Its identifier.
    pub job_id: String,
    /// `ACTIVE`, `PAUSED`, `DELETED`, or `FINISHED` once no slot is left.
    pub state: String,
    /// From 1; raised by every edit.
    pub revision: u64,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Its definition.
    pub definition: JobDefinition,
    /// How many of its slots were queued so far, or wait for an earlier execution to end.
    pub starts: u64,
    /// Why it is `FINISHED`: `max_runs`, `ends_at`, or `schedule` if that has no slot left of its own.
    pub finished_reason: Option<String>,
    /// The version of the time-zone data that its next slot was planned by; absent if it follows no zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tzdb: Option<String>,
    /// The next planned instants.
    pub next_fires: Vec<String>,
    /// Its newest executions.
    pub recent_executions: Vec<ExecutionView>,
}

/// A job in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobListItem {
    /// Its identifier.
    pub job_id: String,
    /// What its owner calls it.
    pub name: Option<String>,
    /// `ACTIVE`, `PAUSED`, `DELETED`, or `FINISHED` once no slot is left.
    pub state: String,
    /// What it runs.
    pub task: TaskOfJob,
    /// When it runs.
    pub schedule: ScheduleBody,
    /// The queue that its executions wait in.
    pub lane: String,
    /// Words by which its owner finds it again.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// The next planned instant, if there is one.
    #[schema(format = DateTime)]
    pub next_fire: Option<String>,
}
