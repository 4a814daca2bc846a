//! redrive(batch) and drop(batch): what happens to dead letters when somebody has looked at them.
//!
//! A redriven execution keeps its id and its history, and its attempts begin to count anew. A dead letter outlives its bucket: if the
//! execution's row is gone by then, it comes back from the letter.

use std::collections::{BTreeMap, BTreeSet};

use compline_core::Timestamp;
use compline_core::execution::{Event, Execution, State};
use compline_core::ids::{ExecutionId, ShardId};
use compline_core::job::JobState;
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::queue::{self, ByTime, Due};
use compline_store::tables::{dead, execution, history, job};
use compline_store::{StoreError, TransactOptions, Tx};
use parking_lot::Mutex;

use super::in_batches;
use crate::ctx::Ctx;

/// An execution that was attempted so often is not tried again: its row would outgrow the store's limit.
pub const ATTEMPTS_MAX: usize = 200;

/// An execution to run again.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Which.
    pub execution: ExecutionId,
    /// When: those of a bulk are spread, so that they do not crowd out what is due.
    pub at: Timestamp,
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It waits to run again, or the letter is dropped.
    Done,
    /// There is no such execution, or no dead letter of it.
    Unknown,
    /// It is not failed: it was redriven before, or never failed for good.
    NotFailed,
    /// Its job was deleted, or is gone.
    NoJob,
    /// It was attempted [`ATTEMPTS_MAX`] times.
    TooOften,
}

/// Lets executions that failed for good run again. The answers are in the order of the wishes. Repeating it is harmless: what waits or runs by
/// then is left alone.
pub async fn redrive(ctx: &Ctx, wanted: &[Wanted]) -> Result<Vec<Answer>, StoreError> {
    let batches = in_batches(wanted, |options, begin, end| redrive_batch(ctx, &wanted[begin..end], options)).await?;
    Ok(batches.into_iter().flatten().collect())
}

/// How often each execution of a batch had begun anew when the first run of its transaction saw it failed. A later run that finds it otherwise
/// comes after one that was committed after all, whatever the execution has become since.
type Begun = Mutex<BTreeMap<ExecutionId, u32>>;

async fn redrive_batch(ctx: &Ctx, wanted: &[Wanted], options: TransactOptions) -> Result<Vec<Answer>, StoreError> {
    let begun = &Begun::default();
    let committed = ctx
        .store
        .transact_with(options, |tx| async move {
            let mut shards = BTreeSet::new();
            let mut answers = Vec::with_capacity(wanted.len());
            for wish in wanted {
                answers.push(redrive_one(ctx, &tx, wish, begun, &mut shards).await?);
            }
            for shard in shards {
                Bell::Shard(shard).ring(&tx);
            }
            Ok(answers)
        })
        .await?;
    Ok(committed.value)
}

async fn redrive_one(
    ctx: &Ctx,
    tx: &Tx,
    wish: &Wanted,
    begun: &Begun,
    shards: &mut BTreeSet<ShardId>,
) -> Result<Answer, StoreError> {
    let letter = dead::get(tx, wish.execution).await?;
    let row = execution::get(tx, wish.execution, Read::Serializable).await?;
    let restored = row.is_none();
    let known = row.map(|row| row.execution).or_else(|| letter.as_ref().map(|(_, letter)| letter.execution.clone()));
    let Some(failed) = known else { return Ok(Answer::Unknown) };
    // An earlier run of this transaction may have been committed after all. It may have failed again since, and is not to run once more.
    if tx.maybe_committed() && begun.lock().get(&wish.execution).is_some_and(|times| *times != failed.forgiven) {
        return Ok(Answer::Done);
    }
    if failed.attempts.len() >= ATTEMPTS_MAX {
        return Ok(Answer::TooOften);
    }
    let Ok(next) = failed.apply(&Event::Redrive { at: wish.at }) else { return Ok(Answer::NotFailed) };
    let Some(job_row) = job::get(tx, failed.job, Read::Serializable).await? else { return Ok(Answer::NoJob) };
    if job_row.state == JobState::Deleted {
        return Ok(Answer::NoJob);
    }
    let parsed = ctx.jobs.parsed(failed.job, &job_row)?;
    begun.lock().insert(wish.execution, failed.forgiven);
    execution::put(tx, &next)?;
    execution::add_open(tx, next.id.shard(), next.id.bucket_hour(), 1);
    history::remove_failed(tx, &parsed.job.tenant, &next);
    if restored {
        history::add(tx, &parsed.job.tenant, &next);
    }
    if let Some((place, _)) = letter {
        dead::clear(tx, &place, next.id);
    }
    ByTime::Due.put(tx, &due_row(&next, wish.at))?;
    shards.insert(next.id.shard());
    Ok(Answer::Done)
}

fn due_row(next: &Execution, fallback: Timestamp) -> Due {
    let at = match &next.state {
        State::Retrying { due } => *due,
        _ => fallback,
    };
    Due { at: queue::due_instant(at), execution: next.id, job: next.job }
}

/// Drops dead letters. The executions stay failed in their histories, for as long as those last.
pub async fn drop_letters(ctx: &Ctx, executions: &[ExecutionId]) -> Result<Vec<Answer>, StoreError> {
    let batches = in_batches(executions, |options, begin, end| {
        let executions = &executions[begin..end];
        async move {
            let found = &Mutex::default();
            let committed =
                ctx.store.transact_with(options, |tx| async move { drop_some(&tx, executions, found).await });
            Ok(committed.await?.value)
        }
    })
    .await?;
    Ok(batches.into_iter().flatten().collect())
}

/// `found` remembers the letters that an earlier run of this transaction may have dropped.
async fn drop_some(
    tx: &Tx,
    executions: &[ExecutionId],
    found: &Mutex<BTreeSet<ExecutionId>>,
) -> Result<Vec<Answer>, StoreError> {
    let mut answers = Vec::with_capacity(executions.len());
    for id in executions {
        answers.push(match dead::get(tx, *id).await? {
            Some((place, _)) => {
                dead::clear(tx, &place, *id);
                found.lock().insert(*id);
                Answer::Done
            }
            None if tx.maybe_committed() && found.lock().contains(id) => Answer::Done,
            None => Answer::Unknown,
        });
    }
    Ok(answers)
}
