//! Jobs whose schedule is over, and idempotency keys.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::job::{JobRun, JobState};
use compline_store::backend::Read;
use compline_store::tables::history::{Listing, Page};
use compline_store::tables::job::JobRow;
use compline_store::tables::{finished, job, request};
use compline_store::{StoreError, Tx};

use super::{STEP, breathe};
use crate::ctx::Ctx;
use crate::ops::idempotency::IDEMPOTENCY_TTL;

/// Beyond the time for which a key is promised to be remembered, for requests under way.
const REQUEST_SLACK: Duration = Duration::from_secs(60);

/// Removes jobs whose schedule is over, or that were deleted, once none of their executions is left. Returns how many.
pub async fn forget_finished(ctx: &Ctx, now: Timestamp) -> Result<usize, StoreError> {
    let until = ctx.retention.first_kept_hour(now);
    let (mut last, mut removed) = (None, 0);
    loop {
        let notes = ctx.store.transact(|tx| async move { finished::before(&tx, until, last, STEP).await }).await?.value;
        for (hour, job) in &notes {
            let (hour, job) = (*hour, *job);
            let forgotten = ctx.store.transact(|tx| async move { forget(ctx, &tx, hour, job, until).await });
            removed += usize::from(forgotten.await?.value);
        }
        last = notes.last().copied();
        if notes.len() < STEP {
            return Ok(removed);
        }
        breathe().await;
    }
}

async fn forget(ctx: &Ctx, tx: &Tx, hour: u32, id: JobId, first_kept: u32) -> Result<bool, StoreError> {
    let row: Result<Option<JobRow>, StoreError> =
        job::get_many(tx, &[id], Read::Serializable).await?.pop().unwrap_or(Ok(None));
    let run: Result<Option<JobRun>, StoreError> =
        job::get_runs(tx, &[id], Read::Serializable).await?.pop().unwrap_or(Ok(None));
    // One that cannot be read stays, and is found by `admin check`.
    let (Some(row), Some(run)) = (ctx.readable(row), ctx.readable(run)) else { return Ok(false) };
    let Some(row) = row else {
        finished::clear(tx, hour, id);
        return Ok(false);
    };
    let Some(parsed) = ctx.readable(ctx.jobs.parsed(id, &row)) else { return Ok(false) };
    let goes_on = run.is_some_and(|run| run.next.is_some());
    let later = match row.state {
        // Its schedule was changed, and goes on: when that ends, there is another note.
        JobState::Active if goes_on => None,
        JobState::Paused => Some(first_kept),
        JobState::Active | JobState::Deleted => {
            // What was triggered after the schedule's end, or is open still, keeps its job.
            let page = Page { limit: 1, ..Page::default() };
            match Listing::OfJob(id).page_to_depend_on(tx, &page).await?.first() {
                Some(entry) => Some(entry.execution.bucket_hour().max(first_kept)),
                None => {
                    job::remove(tx, &parsed.job);
                    finished::clear(tx, hour, id);
                    return Ok(true);
                }
            }
        }
    };
    finished::clear(tx, hour, id);
    if let Some(later) = later {
        finished::put(tx, later, id);
    }
    Ok(false)
}

/// Forgets idempotency keys that are older than they are promised to be remembered. Returns how many.
pub async fn forget_requests(ctx: &Ctx, now: Timestamp) -> Result<usize, StoreError> {
    let until = now.saturating_sub(IDEMPOTENCY_TTL + REQUEST_SLACK);
    let mut removed = 0;
    loop {
        let forgotten = ctx.store.transact(|tx| async move { request::forget_before(&tx, until, STEP).await });
        let (looked_at, forgotten) = forgotten.await?.value;
        removed += forgotten;
        if looked_at < STEP {
            return Ok(removed);
        }
        breathe().await;
    }
}
