//! sweep: cancel what a deleted job still has waiting, in bounded batches.
//!
//! The deletion itself is one transaction, and from then on tick and claim cancel whatever of the job they meet. This pass only saves them the
//! trouble, and reaches what nobody would meet: executions in a lane that no node serves.

use compline_core::execution::{Event, State};
use compline_core::ids::{ExecutionId, JobId};
use compline_store::backend::Read;
use compline_store::tables::execution;
use compline_store::tables::history::{Listing, Page};
use compline_store::{StoreError, Tx};

use super::{BATCH_MAX, cancel, in_batches};
use crate::ctx::Ctx;

/// What a sweep did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// How many executions waited and are cancelled.
    pub cancelled: usize,
    /// How many run and are told to stop.
    pub told: usize,
}

/// Cancels every execution of a job that waits; with `stop_running`, what runs is told to stop. Repeating it is harmless.
pub async fn sweep(ctx: &Ctx, job: JobId, stop_running: bool) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let mut before = None;
    loop {
        let page = Page { before: before.clone(), limit: BATCH_MAX, ..Page::default() };
        let page = &page;
        let read = ctx.store.transact(|tx| async move {
            let entries = Listing::OfJob(job).page(&tx, page).await?;
            let ids: Vec<ExecutionId> = entries.iter().map(|entry| entry.execution).collect();
            let rows = execution::get_many(&tx, &ids, Read::Snapshot).await?;
            let open = rows.into_iter().filter_map(|row| {
                let row = ctx.readable(row)??;
                (!row.execution.state.is_terminal()).then_some(row.execution.id)
            });
            Ok((entries.last().map(|entry| entry.key.clone()), open.collect::<Vec<_>>()))
        });
        let (last, open) = read.await?.value;
        let Some(last) = last else { return Ok(swept) };
        before = Some(last);
        let open = &open;
        let batches = in_batches(open, |options, begin, end| async move {
            let ids = &open[begin..end];
            let cancelled =
                ctx.store.transact_with(options, |tx| async move { cancel_open(ctx, &tx, ids, stop_running).await });
            Ok(cancelled.await?.value)
        });
        for batch in batches.await? {
            swept.cancelled += batch.cancelled;
            swept.told += batch.told;
        }
    }
}

async fn cancel_open(ctx: &Ctx, tx: &Tx, ids: &[ExecutionId], stop_running: bool) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let event = Event::Cancel { at: ctx.env.now(), reason: "its job was deleted".to_owned() };
    for row in execution::get_many(tx, ids, Read::Serializable).await? {
        let Some(Some(row)) = ctx.readable(row) else { continue };
        if !stop_running && matches!(row.execution.state, State::Running(_)) {
            continue;
        }
        match cancel::apply(tx, &row, &event).await? {
            Ok(after) if after.state.is_terminal() => swept.cancelled += 1,
            Ok(_) => swept.told += 1,
            // It ended meanwhile.
            Err(_) => {}
        }
    }
    Ok(swept)
}
