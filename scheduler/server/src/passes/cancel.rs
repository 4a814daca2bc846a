//! cancel: what waits ends in the caller's own transaction; who runs something is told to stop it, and the node of that session finds out.

use compline_core::execution::{Event, Execution, IllegalTransition, Queued, State};
use compline_core::ids::SessionId;
use compline_store::tables::cancel::{self, CancelRow};
use compline_store::tables::execution::{self, ExecutionRow};
use compline_store::tables::queue::{self, ByTime, Part, ZONE_DEFAULT};
use compline_store::tables::running;
use compline_store::{StoreError, Tx};

use super::beat::Held;
use super::{BATCH_MAX, overlap};
use crate::ctx::Ctx;

/// Applies [`Event::Cancel`] or [`Event::Terminate`] to an execution and writes all that follows from it, in the caller's transaction.
///
/// `row` must have been read serializably in that transaction, so that a claim, a report or a tick in between wins. What waited is CANCELLED then and has no place any more. What runs is still RUNNING after a cancel, and its node
/// stops it within a second; it is CANCELLED after a terminate, and what its node reports comes too late. An execution that is over is refused
/// and nothing is written.
///
/// The slot that a job's schedule has next is planned elsewhere: whoever cancels that one plans its successor in the same transaction.
pub async fn apply(
    tx: &Tx,
    row: &ExecutionRow,
    event: &Event,
) -> Result<Result<Execution, IllegalTransition>, StoreError> {
    let before = &row.execution;
    let after = match before.apply(event) {
        Ok(after) => after,
        Err(illegal) => return Ok(Err(illegal)),
    };
    // Told again what it was told before.
    if after == *before {
        return Ok(Ok(after));
    }
    write(tx, row, &after)?;
    if after.state.is_terminal() {
        overlap::leave(tx, before).await?;
    }
    Ok(Ok(after))
}

/// Writes an execution that was ended or asked to stop, and takes it from its place in its lane or with its session.
pub(super) fn write(tx: &Tx, row: &ExecutionRow, after: &Execution) -> Result<(), StoreError> {
    let before = &row.execution;
    match &before.state {
        State::Pending { .. } | State::Retrying { .. } | State::Owed(_) => leave_place(tx, before),
        State::Queued(Queued { lane, owed, partition, .. }) => {
            Part { lane, owed: *owed, zone: ZONE_DEFAULT, partition: *partition }.take(tx, row.stamp);
        }
        State::Running(running) => {
            cancel::put(tx, before.id, running)?;
            if after.state.is_terminal() {
                running::clear(tx, running.session, before.id);
            }
        }
        State::Waiting { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Skipped { .. } => {}
    }
    match &after.state {
        State::Running(running) => execution::put_running(tx, after, running)?,
        _ => {
            execution::put(tx, after)?;
            execution::add_open(tx, after.id.shard(), after.id.bucket_hour(), -1);
        }
    }
    Ok(())
}

/// Takes an execution that waits for its time, or is owed, out of its queue.
pub(crate) fn leave_place(tx: &Tx, waits: &Execution) {
    match &waits.state {
        State::Pending { due } | State::Retrying { due } => {
            ByTime::Due.clear(tx, queue::due_instant(*due), waits.id);
        }
        State::Owed(owed) => ByTime::Owed(&owed.lane).clear(tx, queue::due_instant(owed.due), waits.id),
        _ => {}
    }
}

/// What a session is to stop of what it holds. Rows of attempts that it does not hold, and does not wait for, are cleared.
///
/// `held` is asked after the rows were read: what a claim that was answered in between took is held by then.
pub async fn asked(ctx: &Ctx, session: SessionId, held: impl FnOnce() -> Held) -> Result<Vec<CancelRow>, StoreError> {
    let read = ctx.store.transact(|tx| async move { cancel::of_session(&tx, session, BATCH_MAX).await });
    let rows: Vec<CancelRow> = read.await?.value.into_iter().filter_map(|row| ctx.readable(row)).collect();
    if rows.is_empty() {
        return Ok(rows);
    }
    let held = held();
    let (asked, unheld): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| held.fences.contains(&row.fence) || held.claims.contains(&row.claim));
    if !unheld.is_empty() {
        let unheld = &unheld;
        let cleared = ctx.store.transact(|tx| async move {
            for row in unheld {
                cancel::clear_seen(&tx, session, row).await?;
            }
            Ok(())
        });
        cleared.await?;
    }
    Ok(asked)
}
