//! Dead letters for the API: listing them, and letting a selection run again or go.

use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, TenantId};
use compline_store::StoreError;
use compline_store::tables::dead::{self, DeadLetter, Entry};

use super::query::{Found, SCANNED_MAX};
use crate::ctx::Ctx;
use crate::passes::redrive::{Answer, Wanted, drop_letters, redrive};

/// How many rows one transaction reads.
const BATCH: usize = 100;

/// Which dead letters are meant.
#[derive(Debug, Clone, Copy)]
pub struct Filter<'a> {
    /// Whose.
    pub tenant: &'a TenantId,
    /// Of this lane; of all lanes if `None`.
    pub lane: Option<&'a str>,
    /// Of this job.
    pub job: Option<JobId>,
}

/// A dead letter, and where it is.
#[derive(Debug)]
pub struct Letter {
    /// The lane that it died in.
    pub lane: String,
    /// When.
    pub at: Timestamp,
    /// What is known of it.
    pub letter: DeadLetter,
}

/// Dead letters, oldest first within their lane, from behind `behind`. Looks at a bounded number of rows.
pub async fn list(
    ctx: &Ctx,
    filter: Filter<'_>,
    behind: Option<Bytes>,
    limit: usize,
) -> Result<Found<Letter, Bytes>, StoreError> {
    let (mut items, mut position, mut scanned) = (Vec::new(), behind, 0);
    loop {
        let behind = &position;
        let read = ctx.store.transact(|tx| async move { dead::page(&tx, filter.lane, behind.as_ref(), BATCH).await });
        let entries = read.await?.value;
        let last_batch = entries.len() < BATCH;
        scanned += entries.len();
        for Entry { key, lane, at, letter, .. } in entries {
            position = Some(key);
            let Some(letter) = ctx.readable(letter) else { continue };
            if letter.tenant == *filter.tenant && filter.job.is_none_or(|job| job == letter.execution.job) {
                items.push(Letter { lane, at, letter });
            }
            if items.len() == limit {
                return Ok(Found { items, next: position });
            }
        }
        if last_batch {
            return Ok(Found { items, next: None });
        }
        if scanned >= SCANNED_MAX.max(limit) {
            return Ok(Found { items, next: position });
        }
    }
}

/// What was done to a selection.
#[derive(Debug, Default)]
pub struct Done {
    /// Which executions were meant, and what became of each.
    pub answers: Vec<(ExecutionId, Answer)>,
    /// When the last of them is due.
    pub last_due: Option<Timestamp>,
}

/// Lets executions run again, `per_second` of them in each second from now on.
pub async fn redrive_spread(ctx: &Ctx, ids: &[ExecutionId], per_second: u32) -> Result<Done, StoreError> {
    let now = ctx.env.now();
    let at = |index: usize| {
        let millis = index as u64 * 1_000 / u64::from(per_second.max(1));
        now + Duration::from_millis(millis)
    };
    let wanted: Vec<Wanted> =
        ids.iter().enumerate().map(|(index, id)| Wanted { execution: *id, at: at(index) }).collect();
    let answers = redrive(ctx, &wanted).await?;
    let last_due = wanted.iter().zip(&answers).filter(|(_, answer)| **answer == Answer::Done).map(|(wish, _)| wish.at);
    Ok(Done { last_due: last_due.max(), answers: ids.iter().copied().zip(answers).collect() })
}

/// Drops the dead letters of executions.
pub async fn drop_all(ctx: &Ctx, ids: &[ExecutionId]) -> Result<Done, StoreError> {
    let answers = drop_letters(ctx, ids).await?;
    Ok(Done { answers: ids.iter().copied().zip(answers).collect(), last_due: None })
}
