//! What requests and answers look like: one struct per JSON object. The command line reads answers with the same structs.

mod dead;
mod execution;
mod fleet;
mod job;
mod ledger;
mod schedule;
mod task;

use compline_core::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::Body;

pub use dead::{DeadLetterView, DeadOutcome, DeadRefusal, DeadSelection};
pub use execution::{AttemptView, CostView, ExecutionView, LogLineView, OutcomeView, TaskOfExecution};
pub use fleet::{ClockView, LaneView, NodeView};
pub use job::{
    BackfillRequest, BackfillView, ExponentialBody, JobCreated, JobDefinition, JobDeleted, JobListItem, JobRequest,
    JobView, LimitsBody, MisfireBody, OnFailureBody, OnFailureView, RetryBody, TaskOfJob,
};
pub use ledger::LedgerItem;
pub use schedule::{FireView, PreviewRequest, PreviewView, ScheduleBody};
pub use task::{TaskVersionView, TaskView};

/// The body of a request that has nothing to say: it may be left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl Body for Nothing {
    const LISTS: &'static [&'static str] = &[];
}

/// A page of a listing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page begins; `null` on the last one. A page may be short, or empty, and still have a next one.
    pub next_cursor: Option<String>,
}

/// An instant as answers write it.
pub fn instant(at: Timestamp) -> String {
    compline_core::time::instant::format(at.to_utc())
}
