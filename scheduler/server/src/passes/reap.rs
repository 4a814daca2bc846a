//! reap: end the sessions of dead nodes, then give back what they held.
//!
//! Who is dead is judged by what [`crate::fleet`] saw.

use std::collections::BTreeSet;

use compline_core::execution::{Event, State};
use compline_core::ids::SessionId;
use compline_core::tick::partition_of;
use compline_store::backend::Read;
use compline_store::tables::running::RunningRow;
use compline_store::tables::{cancel, execution, running, session};
use compline_store::{StoreError, Tx};

use super::{BATCH_MAX, in_batches, readable_jobs, wait_again};
use crate::ctx::Ctx;
use crate::fleet::NodeSeen;

/// Ends the session of a node, so that its late claims and reports conflict or are refused. Nothing happens if the node has begun another since
/// it was seen, or has beaten.
pub async fn end_session(ctx: &Ctx, seen: &NodeSeen) -> Result<bool, StoreError> {
    let NodeSeen { node, rows, .. } = seen;
    let committed = ctx
        .store
        .transact(|tx| async move {
            let dead = session::bytes_of(&tx, node, Read::Serializable).await?.as_ref() == Some(rows);
            if dead {
                session::clear(&tx, node);
            }
            Ok(dead)
        })
        .await?;
    Ok(committed.value)
}

/// Gives back what sessions hold that are over. Whoever ended them may have died in between, so this asks the store, not the caller.
/// Returns how many executions were given back. While there is a session that this build cannot read nothing is: it may be the holder.
pub async fn give_back_orphans(ctx: &Ctx) -> Result<usize, StoreError> {
    let (holders, current) = ctx
        .store
        .transact(|tx| async move {
            let mut holders: BTreeSet<SessionId> = running::sessions(&tx).await?.into_iter().collect();
            holders.extend(cancel::sessions(&tx).await?);
            let nodes = session::list(&tx, Read::Snapshot).await?;
            let current = nodes.into_iter().map(|row| Some(ctx.readable(row.session)?.id));
            Ok((holders, current.collect::<Option<BTreeSet<SessionId>>>()))
        })
        .await?
        .value;
    let Some(current) = current else { return Ok(0) };
    let mut given_back = 0;
    for session in holders.into_iter().filter(|session| !current.contains(session)) {
        given_back += give_back(ctx, session).await?;
    }
    Ok(given_back)
}

async fn give_back(ctx: &Ctx, session: SessionId) -> Result<usize, StoreError> {
    let mut total = 0;
    let mut last = None;
    loop {
        let rows = ctx
            .store
            .transact(|tx| async move { running::of_session(&tx, session, last, BATCH_MAX, Read::Snapshot).await })
            .await?
            .value;
        let Some((end, _)) = rows.last() else { break };
        last = Some(*end);
        let rows: Vec<RunningRow> = rows.into_iter().filter_map(|(_, row)| ctx.readable(row)).collect();
        let rows = &rows;
        let batches = in_batches(rows, |options, begin, end| async move {
            let rows = &rows[begin..end];
            let committed = ctx
                .store
                .transact_with(options, |tx| async move { give_back_rows(ctx, &tx, session, rows).await })
                .await?;
            Ok(committed.value)
        })
        .await?;
        total += batches.into_iter().sum::<usize>();
    }
    // Nobody is told to stop any more. Blind: what it runs no longer, it cannot be told to stop again.
    let forget = ctx.store.transact(|tx| async move {
        if !cancel::of_session(&tx, session, 1).await?.is_empty() {
            cancel::clear_session(&tx, session);
        }
        Ok(())
    });
    forget.await?;
    Ok(total)
}

async fn give_back_rows(ctx: &Ctx, tx: &Tx, session: SessionId, rows: &[RunningRow]) -> Result<usize, StoreError> {
    let ids: Vec<_> = rows.iter().map(|row| row.execution).collect();
    let executions = execution::get_many(tx, &ids, Read::Serializable).await?;
    let mut lost = Vec::with_capacity(rows.len());
    for (row, execution) in rows.iter().zip(executions) {
        let Some(current) = ctx.readable(execution) else { continue };
        match current.map(|row| row.execution) {
            Some(current) if matches!(&current.state, State::Running(held) if held.fence == row.fence) => {
                lost.push(current)
            }
            // Whatever the execution became meanwhile, the dead session holds it no longer.
            _ => running::clear(tx, session, row.execution),
        }
    }
    let job_ids: Vec<_> = lost.iter().map(|current| current.job).collect();
    let jobs = readable_jobs(ctx, tx, &job_ids).await?;
    let now = ctx.env.now();
    let mut given_back = 0;
    for (current, parsed) in lost.into_iter().zip(jobs) {
        // Without its job it cannot be given back: its running row stays, so that a later pass finds it.
        let Some(parsed) = parsed else { continue };
        let partition = partition_of(&current.id, ctx.partitions);
        let Ok(next) = current.apply(&Event::Lost { at: now, partition }) else { continue };
        running::clear(tx, session, current.id);
        wait_again(ctx, tx, session, &next, &parsed).await?;
        given_back += 1;
    }
    Ok(given_back)
}
