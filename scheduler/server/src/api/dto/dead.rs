//! Dead letters: what is answered about them, and what may be asked of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::execution::{LogLineView, OutcomeView, TaskOfExecution};
use crate::json::Body;

/// An execution that failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterView {
    /// The execution.
    pub execution_id: String,
    /// Its job.
    pub job_id: String,
    /// What its job was called then.
    pub job_name: Option<String>,
    /// What it ran.
    pub task: TaskOfExecution,
    /// The lane that it died in.
    pub lane: String,
    /// The planned instant.
    #[schema(format = DateTime)]
    pub slot: String,
    /// When it failed for good.
    #[schema(format = DateTime)]
    pub failed_at: String,
    /// `exhausted` (its attempts are used up), `permanent` (the task said so) or `poison` (its worker was lost too often).
    pub kind: String,
    /// Why, in a sentence.
    pub reason: String,
    /// How its last attempt ended.
    pub outcome: Option<OutcomeView>,
    /// How many attempts there were.
    pub attempts: u32,
    /// The last lines that its last attempt said, on standard error or through the log.
    pub log_tail: Vec<LogLineView>,
}

/// Which dead letters are meant: either `executions`, or all that fit `lane` and `job`. At least one field is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadSelection {
    /// These executions; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<String>>,
    /// Those of this lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Those of this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// All of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// Of a bulk no more than so many, the oldest; 1,000 unless given, 10,000 at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How many of a redriven bulk become due in a second, so that they do not crowd out what is due; 100 unless given. Without meaning
    /// when letters are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
}

impl Body for DeadSelection {
    const LISTS: &'static [&'static str] = &["executions"];
}

/// What became of the selected dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadOutcome {
    /// How many were redriven, or dropped.
    pub done: u32,
    /// Those that were not, and why.
    pub refused: Vec<DeadRefusal>,
    /// When the last of a redriven bulk is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub last_due_at: Option<String>,
    /// Whether there are more that fit: repeat the request for them.
    pub more: bool,
}

/// A dead letter that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadRefusal {
    /// The execution.
    pub execution_id: String,
    /// Why.
    pub reason: String,
}
