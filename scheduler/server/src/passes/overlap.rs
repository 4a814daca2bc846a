//! A job's live and waiting executions: read by ticks, kept by whoever begins or ends one.

use std::collections::BTreeMap;

use compline_core::execution::{Execution, State};
use compline_core::ids::{ExecutionId, JobId};
use compline_core::job::Overlap;
use compline_core::tick::{Change, Counted, Gate, WAITING_MAX};
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::execution::ExecutionRow;
use compline_store::tables::live::{self, Waiting};
use compline_store::tables::queue::{ByTime, Due};
use compline_store::tables::{execution, queue};
use compline_store::{StoreError, Tx};

use super::cancel;
use super::tick::enqueue;
use crate::ctx::{Ctx, ParsedJob};

/// The most executions of one job that are counted as live.
pub const LIVE_MAX: u32 = 1_000;
/// How many that wait one pass lets go on, per job.
const RELEASED_MAX: usize = 16;

/// The gate of a job, with the rows of executions that a plan may change.
pub(super) async fn read_gate(
    ctx: &Ctx,
    tx: &Tx,
    job: JobId,
    overlap: Overlap,
    rows: &mut BTreeMap<ExecutionId, ExecutionRow>,
) -> Result<Gate, StoreError> {
    let live = live::of_job(tx, job, LIVE_MAX as usize + 1).await?;
    let (waiting, unreadable) = live::waiting(tx, job, WAITING_MAX + 1).await?;
    for error in unreadable {
        let _: Option<()> = ctx.readable(Err(error));
    }
    let ends = overlap.ends_others();
    let replaces = matches!(overlap, Overlap::CancelOther | Overlap::BufferOne);
    let replaced = waiting.iter().skip(RELEASED_MAX).filter(|waiting| replaces && waiting.scheduled);
    let first = waiting.iter().take(RELEASED_MAX);
    let mut ids: Vec<ExecutionId> = first.chain(replaced.take(RELEASED_MAX)).map(|waiting| waiting.execution).collect();
    ids.extend(live.iter().filter(|_| ends));
    // Serializable: a claim or a report in between decides what can be ended still.
    for (id, row) in ids.iter().zip(execution::get_many(tx, &ids, Read::Serializable).await?) {
        rows.extend(ctx.readable(row).flatten().map(|row| (*id, row)));
    }
    let row = |id: &ExecutionId| rows.get(id).map(|row| row.execution.clone());
    let live = live.iter().map(|id| Counted {
        id: *id,
        due: compline_core::Timestamp::EPOCH,
        scheduled: false,
        execution: row(id).filter(|_| ends),
    });
    // One that was asked for and could not be read is left alone, and does not keep those behind it from going on.
    let readable =
        waiting.iter().filter(|waiting| !ids.contains(&waiting.execution) || rows.contains_key(&waiting.execution));
    let waiting = readable.map(|waiting| Counted {
        id: waiting.execution,
        due: waiting.due,
        scheduled: waiting.scheduled,
        execution: row(&waiting.execution),
    });
    Ok(Gate { live: live.collect(), waiting: waiting.collect() })
}

/// Writes what a plan does to other executions of a job.
pub(super) fn write_changes(
    ctx: &Ctx,
    tx: &Tx,
    changes: &[Change],
    parsed: &ParsedJob,
    rows: &BTreeMap<ExecutionId, ExecutionRow>,
) -> Result<Changed, StoreError> {
    let mut changed = Changed::default();
    for change in changes {
        match change {
            Change::Release { before, after } => {
                leave_quietly(tx, before);
                enter(tx, after);
                enqueue(ctx, tx, after, parsed)?;
                changed.queued += 1;
            }
            Change::End { before, after } | Change::Stop { before, after } => {
                let Some(row) = rows.get(&before.id) else { continue };
                cancel::write(tx, row, after)?;
                if after.state.is_terminal() {
                    leave_quietly(tx, before);
                    changed.ended += 1;
                }
            }
            Change::Wake { id, due } => {
                wake(tx, &Waiting { job: parsed.job.id, due: *due, execution: *id, scheduled: true })?;
            }
            Change::Forget { id, due } => {
                live::clear_waiting(tx, &Waiting { job: parsed.job.id, due: *due, execution: *id, scheduled: true });
                ByTime::Due.clear(tx, *due, *id);
            }
        }
    }
    Ok(changed)
}

/// How many executions changes queued, and how many they ended.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) queued: usize,
    pub(super) ended: usize,
}

/// Notes that an execution is queued or waits, if its job counts.
pub(super) fn enter(tx: &Tx, execution: &Execution) {
    match &execution.state {
        _ if !execution.counted => {}
        State::Waiting { .. } => live::put_waiting(tx, &as_waiting(execution)),
        _ => live::put(tx, execution.job, execution.id),
    }
}

/// Notes that an execution neither is live nor waits any more, and wakes who waits for that. `before` is its row until now.
///
/// Everything that ends an execution calls this in its own transaction. Nothing is done for jobs that do not count.
pub(super) async fn leave(tx: &Tx, before: &Execution) -> Result<(), StoreError> {
    if !before.counted {
        return Ok(());
    }
    leave_quietly(tx, before);
    if let Some(first) = live::first_waiting(tx, before.job, WAITING_MAX).await? {
        wake(tx, &first)?;
    }
    Ok(())
}

fn leave_quietly(tx: &Tx, before: &Execution) {
    if let State::Waiting { .. } = before.state {
        let waiting = as_waiting(before);
        live::clear_waiting(tx, &waiting);
        // It may have been woken.
        ByTime::Due.clear(tx, waiting.due, waiting.execution);
    } else if before.counted {
        live::clear(tx, before.job, before.id);
    }
}

/// Lets a tick look at an execution that waits. Waking it again writes the same row.
fn wake(tx: &Tx, waiting: &Waiting) -> Result<(), StoreError> {
    ByTime::Due.put(tx, &Due { at: waiting.due, execution: waiting.execution, job: waiting.job })?;
    Bell::Shard(waiting.execution.shard()).ring(tx);
    Ok(())
}

fn as_waiting(execution: &Execution) -> Waiting {
    let due = match &execution.state {
        State::Waiting { due, .. } => *due,
        _ => execution.slot,
    };
    Waiting {
        job: execution.job,
        due: queue::due_instant(due),
        execution: execution.id,
        scheduled: execution.is_of_schedule(),
    }
}
