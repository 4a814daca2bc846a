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
    /// What happens to a slot while an earlier one still runs. This version knows `allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// A window over which starts are spread. This version knows `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splay: Option<String>,
    /// What happens after an attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryBody>,
    /// What one attempt may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
    /// A task that is told of a failure for good. This version has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub on_failure: Option<Box<RawValue>>,
    /// Words by which its owner finds it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Whether it starts paused. This version knows `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl Body for JobRequest {
    const LISTS: &'static [&'static str] = &["parameters", "on_failure", "retry.delays"];
}

/// What happens to slots that could not run on time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MisfireBody {
    /// Which of them run. This version knows `run_all`: all, oldest first, up to the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Slots later than this do not run; `1h` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// How many of them run at the most, the newest ones; 1000 unless given, 100000 at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
}

/// What happens after an attempt that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryBody {
    /// One retry per entry, that long after the failure before it. An empty list means no retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<Vec<String>>,
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
    /// What happens to a slot while an earlier one still runs.
    pub overlap: String,
    /// A window over which starts are spread.
    pub splay: String,
    /// What happens after an attempt that failed.
    pub retry: RetryBody,
    /// What one attempt may use.
    pub limits: LimitsBody,
    /// Words by which its owner finds it again.
    pub labels: BTreeMap<String, String>,
    /// Whether it was created paused.
    pub paused: bool,
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
    /// How many of its slots were queued so far.
    pub starts: u64,
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
