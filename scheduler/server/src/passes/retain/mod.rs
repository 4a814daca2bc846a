//! Retention: what is older than the retention age goes, and of a busy job what is more than its share. Idempotent passes, run now and then by
//! whoever ticks a shard, in small steps.
//!
//! - [`drop_old`]: hour buckets. One without open executions goes whole; one that still has some loses what has ended.
//! - [`trim_asked`]: the histories of jobs that were added to often, by count.
//! - [`forget_finished`]: jobs whose schedule is over, once nothing of them is left.
//! - [`forget_requests`]: idempotency keys.
//!
//! Everything that names an execution goes in the commit that removes it, or, within a bucket that is marked as being dropped, before.

mod buckets;
mod jobs;
mod trim;

use std::time::Duration;

use compline_core::Timestamp;

pub use buckets::{Known, drop_old, leaving};
pub use jobs::{forget_finished, forget_requests};
pub use trim::trim_asked;

/// How many rows one step handles.
const STEP: usize = 256;
/// Between two steps others have their turn.
const BREATH: Duration = Duration::from_millis(2);

/// How long history is kept, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// An execution is kept for so long after its planned instant (one that was asked for: after the request).
    pub age: Duration,
    /// Of a job's executions that have ended and did not fail, so many are kept, the newest.
    pub runs_per_job: usize,
    /// Of a job's failed executions, so many are kept, the newest.
    pub failures_per_job: usize,
    /// How often the passes run.
    pub every: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: Duration::from_secs(30 * 86_400),
            runs_per_job: 10_000,
            failures_per_job: 1_000,
            every: Duration::from_secs(60),
        }
    }
}

impl Retention {
    /// The first hour that is not old: what lies in buckets before it may go.
    pub fn first_kept_hour(&self, now: Timestamp) -> u32 {
        let hour = now.saturating_sub(self.age).timestamp().max(0) / 3_600;
        u32::try_from(hour).unwrap_or(u32::MAX)
    }
}

async fn breathe() {
    tokio::time::sleep(BREATH).await;
}
