//! reap: end the sessions of dead nodes, then give back what they held.
//!
//! Liveness is a counter judged on the observer's own monotonic clock. No wall clock is compared between nodes, and a new observer waits one
//! whole TTL before it judges anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use compline_core::execution::{Event, State};
use compline_core::ids::SessionId;
use compline_core::tick::partition_of;
use compline_store::backend::Read;
use compline_store::tables::running::RunningRow;
use compline_store::tables::session::Session;
use compline_store::tables::{cancel, execution, running, session};
use compline_store::{StoreError, Tx};
use tokio::time::Instant;

use super::{BATCH_MAX, in_batches, readable_jobs, wait_again};
use crate::ctx::Ctx;

/// What one node saw of the others' counters, and since when they stand still.
#[derive(Debug, Default)]
pub struct Observer {
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    session: SessionId,
    beat: u64,
    since: Instant,
}

/// A node as the store has it, and for how long its counter has stood still under these eyes.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Its name.
    pub node: String,
    /// Its session.
    pub session: Session,
    /// Its counter.
    pub beat: u64,
    /// For how long its counter has stood still.
    pub still_for: Duration,
}

impl Observer {
    /// Looks at all nodes.
    pub async fn observe(&mut self, ctx: &Ctx) -> Result<Vec<NodeView>, StoreError> {
        // A counter stood still at least until the read began, and moved at the latest when it ended: an observer that was itself stopped in
        // between, or that the store kept waiting, must not take that time for the others' silence.
        let began = Instant::now();
        let nodes = ctx.store.transact(|tx| async move { session::list(&tx, Read::Snapshot).await }).await?.value;
        let ended = Instant::now();
        let mut views = Vec::with_capacity(nodes.len());
        let mut seen = BTreeMap::new();
        for (node, session, beat) in nodes {
            let since = match self.seen.remove(&node) {
                Some(before) if before.session == session.id && before.beat == beat => before.since,
                _ => ended,
            };
            let still_for = began.saturating_duration_since(since);
            views.push(NodeView { node: node.clone(), session: session.clone(), beat, still_for });
            seen.insert(node, Seen { session: session.id, beat, since });
        }
        self.seen = seen;
        Ok(views)
    }
}

/// Ends the session of a node, so that its late claims and reports conflict or are refused. Nothing happens if the node has begun another since
/// it was seen, or has beaten.
pub async fn end_session(ctx: &Ctx, seen: &NodeView) -> Result<bool, StoreError> {
    let NodeView { node, session, beat, .. } = seen;
    let committed = ctx
        .store
        .transact(|tx| async move {
            let dead = session::is_current(&tx, node, session.id).await?
                && session::beat(&tx, node, Read::Serializable).await? == *beat;
            if dead {
                session::clear(&tx, node);
            }
            Ok(dead)
        })
        .await?;
    Ok(committed.value)
}

/// Gives back what sessions hold that are over. Whoever ended them may have died in between, so this asks the store, not the caller.
/// Returns how many executions were given back.
pub async fn give_back_orphans(ctx: &Ctx) -> Result<usize, StoreError> {
    let (holders, current) = ctx
        .store
        .transact(|tx| async move {
            let mut holders: BTreeSet<SessionId> = running::sessions(&tx).await?.into_iter().collect();
            holders.extend(cancel::sessions(&tx).await?);
            let nodes = session::list(&tx, Read::Snapshot).await?;
            let current: BTreeSet<SessionId> = nodes.iter().map(|(_, session, _)| session.id).collect();
            Ok((holders, current))
        })
        .await?
        .value;
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
        let Some(end) = rows.last() else { break };
        last = Some(end.execution);
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
        wait_again(ctx, tx, session, &next, &parsed)?;
        given_back += 1;
    }
    Ok(given_back)
}
