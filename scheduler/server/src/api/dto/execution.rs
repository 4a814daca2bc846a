//! Executions, their attempts and their logs.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One slot (or one manual trigger) of a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ExecutionView {
    /// Its identifier: the same for every attempt.
    pub execution_id: String,
    /// The job that it belongs to.
    pub job_id: String,
    /// What it runs; `null` once its job is gone.
    pub task: Option<TaskOfExecution>,
    /// The planned instant.
    #[schema(format = DateTime)]
    pub slot: String,
    /// `PENDING`, `QUEUED`, `RUNNING`, `RETRYING`, `COMPLETED`, `FAILED`, `CANCELLED` or `SKIPPED`.
    pub status: String,
    /// When it is due, while it waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// Since when it is to stop, while it still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub cancel_requested_at: Option<String>,
    /// Its attempts, oldest first; the one that runs has no end yet.
    pub attempts: Vec<AttemptView>,
    /// What it answered: JSON; text that is no JSON as a string; other bytes as `{"base64": …}`.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Box<RawValue>>,
    /// Why it ended without having done its work.
    pub reason: Option<String>,
}

/// The version that an execution runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskOfExecution {
    /// The task's name.
    pub name: String,
    /// The version.
    pub digest: String,
}

/// One run of an execution on an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// From 1.
    pub number: u32,
    /// The node that runs it.
    pub node: String,
    /// The fence that it runs under.
    pub fence: String,
    /// When it was queued.
    #[schema(format = DateTime)]
    pub queued_at: String,
    /// When it started; unknown if its worker was lost.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// When it ended.
    #[schema(format = DateTime)]
    pub finished_at: Option<String>,
    /// From the promised start to the actual one.
    pub start_lag_ms: Option<u64>,
    /// How it ended.
    pub outcome: Option<OutcomeView>,
    /// What it used.
    pub cost: Option<CostView>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutcomeView {
    /// `ok`, `error`, `trap`, `out-of-fuel`, `timed-out`, `memory-limit`, `output-limit`, `exit`, `cancelled`, `worker-lost` or
    /// `host-error`.
    pub kind: String,
    /// Of `error`: whether another attempt can help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// What happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of `trap`: where, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backtrace: Vec<String>,
    /// Of `exit`: the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

/// What an attempt used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CostView {
    /// Units of work, comparable within one wasmtime version.
    pub fuel: u64,
    /// Wall time, rounded up.
    pub wall_ms: u64,
    /// The most memory at any moment.
    pub memory_peak_bytes: u64,
    /// Calls into the host.
    pub host_calls: u64,
}

/// One line of a run's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLineView {
    /// The attempt that wrote it.
    pub attempt: u32,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// The line.
    pub message: String,
}
