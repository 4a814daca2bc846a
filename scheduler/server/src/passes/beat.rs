//! A node's session: begun once, proved alive by a counter, and what it holds but does not run given back.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use compline_core::execution::Event;
use compline_core::ids::{ClaimId, Fence, SessionId};
use compline_core::tick::partition_of;
use compline_store::backend::Read;
use compline_store::tables::running::RunningRow;
use compline_store::tables::session::{Beat, Session};
use compline_store::tables::{cancel, execution, running, session};
use compline_store::{StoreError, Tx};

use super::{BATCH_MAX, in_batches, readable_jobs, rezone, wait_again};
use crate::ctx::Ctx;

/// The rows of a node as they were seen: its session's bytes and its beat's.
pub type NodeRows = (Bytes, Option<Bytes>);

/// A node's rows as they are now; `None`: it has no session.
pub async fn rows_of(ctx: &Ctx, node: &str) -> Result<Option<NodeRows>, StoreError> {
    let read = ctx.store.transact(|tx| async move { session::bytes_of(&tx, node, Read::Snapshot).await });
    Ok(read.await?.value)
}

/// Begins a session of a node, whose rows were seen to be these: what is there ends with it. `false`: they have changed, or the session may have
/// begun and be over already, so the caller looks again and begins another one.
pub async fn begin(ctx: &Ctx, node: &str, session: &Session, replaces: Option<&NodeRows>) -> Result<bool, StoreError> {
    let begun = ctx
        .store
        .transact(|tx| async move {
            // A run of this transaction that lands late, when the session is over or another has begun, must conflict and not bring it back.
            let current = session::bytes_of(&tx, node, Read::Serializable).await?;
            if tx.maybe_committed() {
                let begun = session::get(&tx, node, Read::Serializable).await.ok().flatten();
                return Ok(begun.is_some_and(|current| current.id == session.id));
            }
            if current.as_ref() != replaces {
                return Ok(false);
            }
            session::clear(&tx, node);
            session::begin(&tx, node, session)?;
            // Whoever plans slots brings its zone data, for all.
            if session.has_role("scheduler") || session.has_role("api") {
                rezone::bring(ctx, &tx).await?;
            }
            Ok(true)
        })
        .await?;
    Ok(begun.value)
}

/// What a node says of itself with a beat.
#[derive(Debug, Clone)]
pub struct Pulse {
    /// How often it has beaten in this session, this time included.
    pub counter: u64,
    /// How long the beat before this one took, if it was answered.
    pub before_took: Option<Duration>,
    /// How many attempts it runs, by lane.
    pub running: Vec<(String, u32)>,
}

/// Moves a node's counter. `false`: the session is over, and the node stops what it runs.
pub async fn beat(ctx: &Ctx, node: &str, session: SessionId, pulse: &Pulse) -> Result<bool, StoreError> {
    let committed = ctx
        .store
        .transact(|tx| async move {
            let current = session::is_current(&tx, node, session).await?;
            if current {
                // A beat that lands late conflicts with those after it: a counter that went back could seem to others to have stood still.
                session::bytes_of(&tx, node, Read::Serializable).await?;
                let beat = Beat {
                    counter: pulse.counter,
                    wall: ctx.env.now(),
                    before_took_micros: pulse.before_took.map(|took| took.as_micros() as u64),
                    running: pulse.running.clone(),
                };
                session::put_beat(&tx, node, &beat)?;
            }
            Ok(current)
        })
        .await?;
    Ok(committed.value)
}

/// Ends a session by its own wish, after what it held was given back.
pub async fn end(ctx: &Ctx, node: &str, session: SessionId) -> Result<(), StoreError> {
    ctx.store
        .transact(|tx| async move {
            if session::is_current(&tx, node, session).await? {
                session::clear(&tx, node);
                cancel::clear_session(&tx, session);
            }
            Ok(())
        })
        .await?;
    Ok(())
}

/// What a node knows that it holds.
#[derive(Debug, Default, Clone)]
pub struct Held {
    /// The fences under which it runs something, or will: an execution alone does not tell an attempt from the one before it, whose report may
    /// still be on its way.
    pub fences: BTreeSet<Fence>,
    /// The claims whose answer it still waits for: what they took is not known yet.
    pub claims: BTreeSet<ClaimId>,
}

/// Gives back the running rows of a session that its node does not hold: a claim whose answer never arrived. Returns how many.
///
/// `held` is asked after the rows were read: a claim that was answered in between is held by then, while what was held before says nothing of
/// a claim that began since.
pub async fn hand_back_unheld(
    ctx: &Ctx,
    node: &str,
    session: SessionId,
    held: impl FnOnce() -> Held,
) -> Result<usize, StoreError> {
    let mut unheld: Vec<RunningRow> = Vec::new();
    let mut last = None;
    loop {
        let rows = ctx
            .store
            .transact(|tx| async move { running::of_session(&tx, session, last, BATCH_MAX, Read::Snapshot).await })
            .await?
            .value;
        let Some((end, _)) = rows.last() else { break };
        last = Some(*end);
        unheld.extend(rows.into_iter().filter_map(|(_, row)| ctx.readable(row)));
    }
    let held = held();
    unheld.retain(|row| !held.fences.contains(&row.fence) && !held.claims.contains(&row.claim));
    hand_back(ctx, node, session, &unheld).await
}

/// Gives rows of a session back to their lanes, as if they had not been claimed. Returns how many were.
pub async fn hand_back(ctx: &Ctx, node: &str, session: SessionId, rows: &[RunningRow]) -> Result<usize, StoreError> {
    let batches = in_batches(rows, |options, begin, end| async move {
        let rows = &rows[begin..end];
        let committed = ctx
            .store
            .transact_with(options, |tx| async move {
                if !session::is_current(&tx, node, session).await? {
                    return Ok(0);
                }
                hand_back_rows(ctx, &tx, session, rows).await
            })
            .await?;
        Ok(committed.value)
    })
    .await?;
    Ok(batches.into_iter().sum())
}

async fn hand_back_rows(ctx: &Ctx, tx: &Tx, session: SessionId, rows: &[RunningRow]) -> Result<usize, StoreError> {
    let ids: Vec<_> = rows.iter().map(|row| row.execution).collect();
    let executions = execution::get_many(tx, &ids, Read::Serializable).await?;
    let held: Vec<_> =
        rows.iter().zip(executions).filter_map(|(row, read)| Some((row, ctx.readable(read)??))).collect();
    let job_ids: Vec<_> = held.iter().map(|(_, current)| current.execution.job).collect();
    let jobs = readable_jobs(ctx, tx, &job_ids).await?;
    let now = ctx.env.now();
    let mut given_back = 0;
    for ((row, current), parsed) in held.into_iter().zip(jobs) {
        let Some(parsed) = parsed else { continue };
        let partition = partition_of(&row.execution, ctx.partitions);
        let Ok(next) = current.execution.apply(&Event::HandBack { fence: row.fence, at: now, partition }) else {
            continue;
        };
        running::clear(tx, session, row.execution);
        wait_again(ctx, tx, session, &next, &parsed).await?;
        given_back += 1;
    }
    Ok(given_back)
}
