//! The passes: idempotent transactions that handle many executions in one commit. Each is driven by a loop of its node and takes no input
//! but what the store says and who asks.

pub mod beat;
pub mod cancel;
pub mod claim;
pub mod complete;
mod failure;
pub mod lease;
pub mod overlap;
pub mod owed;
pub mod parts;
pub mod reap;
pub mod redrive;
pub mod retain;
pub mod rezone;
pub mod sweep;
pub mod tick;

use std::future::Future;
use std::sync::Arc;

use compline_core::execution::{Execution, State};
use compline_core::ids::{JobId, SessionId};
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::job::{self, JobRow};
use compline_store::tables::{cancel as cancel_row, execution};
use compline_store::{StoreError, TransactOptions, Tx};

use crate::ctx::{Ctx, ParsedJob};

/// How many executions one transaction handles at the most.
pub const BATCH_MAX: usize = 256;

/// A batch that met others so often is cut in two.
const BATCH_CONFLICTS: TransactOptions = TransactOptions { conflicts_max: Some(2) };

/// Runs `pass` over `items` in batches. A batch that conflicts or is too large is halved and tried again, down to one item, which is tried
/// until it commits.
async fn in_batches<T, R, F, Fut>(items: &[T], mut pass: F) -> Result<Vec<R>, StoreError>
where
    F: FnMut(TransactOptions, usize, usize) -> Fut,
    Fut: Future<Output = Result<R, StoreError>>,
{
    let mut results = Vec::with_capacity(items.len().div_ceil(BATCH_MAX));
    let mut waiting: Vec<(usize, usize)> =
        (0..items.len()).step_by(BATCH_MAX).map(|at| (at, items.len().min(at + BATCH_MAX))).rev().collect();
    while let Some((begin, end)) = waiting.pop() {
        let options = if end - begin > 1 { BATCH_CONFLICTS } else { TransactOptions { conflicts_max: None } };
        match pass(options, begin, end).await {
            Ok(result) => results.push(result),
            Err(StoreError::Conflict | StoreError::TooLarge { what: "transaction", .. }) if end - begin > 1 => {
                let middle = begin + (end - begin) / 2;
                waiting.push((middle, end));
                waiting.push((begin, middle));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(results)
}

/// Writes an execution that was taken from a session, or given back by it: it waits in its lane again, or is over.
async fn wait_again(
    ctx: &Ctx,
    tx: &Tx,
    session: SessionId,
    next: &Execution,
    parsed: &ParsedJob,
) -> Result<(), StoreError> {
    if let State::Queued(_) = next.state {
        tick::enqueue(ctx, tx, next, parsed)?;
        Bell::Lane(&parsed.job.lane).ring(tx);
        return Ok(());
    }
    execution::put(tx, next)?;
    execution::add_open(tx, next.id.shard(), next.id.bucket_hour(), -1);
    match next.state {
        State::Failed { .. } => failure::record_failure(tx, parsed, next, &[])?,
        // It was asked to stop.
        _ => cancel_row::clear(tx, session, next.id),
    }
    overlap::leave(tx, next).await
}

/// The parsed job of each of these; `None` where the row is missing or cannot be read, which is counted. One bad row stops itself, not the
/// batch that it is in.
async fn readable_jobs(ctx: &Ctx, tx: &Tx, ids: &[JobId]) -> Result<Vec<Option<Arc<ParsedJob>>>, StoreError> {
    let rows = job::get_many(tx, ids, Read::Snapshot).await?;
    let parse = |(id, row): (&JobId, _)| {
        let row: JobRow = ctx.readable(row)??;
        ctx.readable(ctx.jobs.parsed(*id, &row))
    };
    Ok(ids.iter().zip(rows).map(parse).collect())
}
