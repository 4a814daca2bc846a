//! trigger and backfill: executions outside of a job's schedule, which they leave as it is.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Cause, Execution};
use compline_core::ids::{ExecutionId, RequestId, TenantId};
use compline_core::job::JobState;
use compline_store::backend::Read;
use compline_store::tables::execution;
use compline_store::tables::request::{self, Made};
use compline_store::{StoreError, Tx};

use super::change::{ChangeError, JobRequest, seen};
use super::idempotency::{Earlier, Idempotency, earlier, remember};
use super::plan::write_planned;
use crate::ctx::{Ctx, ParsedJob};
use crate::passes::BATCH_MAX;

/// How many slots one backfill fills at the most.
pub const BACKFILL_SLOTS_MAX: usize = 10_000;

/// An execution that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triggered {
    /// Which.
    pub execution: ExecutionId,
    /// Whether an earlier request with the same key asked for it.
    pub replayed: bool,
}

/// Runs a job once, now, paused or not. Repeating it with the same key is safe, and so is a retry of the transaction without one: the execution's
/// id is a function of what is made before it.
pub async fn trigger(ctx: &Ctx, request: JobRequest<'_>) -> Result<Triggered, ChangeError> {
    let now = ctx.env.now();
    let asked = request_id(ctx, request.tenant, request.idempotency);
    ctx.store.transact(|tx| async move { trigger_in(ctx, &tx, request, asked, now).await }).await?.value
}

fn request_id(ctx: &Ctx, tenant: &TenantId, idempotency: Option<&Idempotency>) -> RequestId {
    match idempotency {
        Some(idempotency) => RequestId::of_key(tenant, &idempotency.key),
        None => RequestId::new(ctx.env.random_u128()),
    }
}

async fn trigger_in(
    ctx: &Ctx,
    tx: &Tx,
    request: JobRequest<'_>,
    asked: RequestId,
    now: Timestamp,
) -> Result<Result<Triggered, ChangeError>, StoreError> {
    match earlier(tx, request.tenant, request.idempotency, now).await? {
        Some(Earlier::Same(Made::Execution(execution))) => {
            return Ok(Ok(Triggered { execution, replayed: !tx.maybe_committed() }));
        }
        Some(_) => return Ok(Err(ChangeError::KeyReused)),
        None => {}
    }
    let Some(seen) = seen(ctx, tx, request).await? else { return Ok(Err(ChangeError::Unknown)) };
    let id = ExecutionId::of_request(request.id, now, request.id.shard(ctx.shards), asked, now);
    // An earlier run of this transaction may have made it, and it may be over by now.
    if execution::get(tx, id, Read::Serializable).await?.is_none() {
        if seen.row.state == JobState::Deleted {
            return Ok(Err(ChangeError::Deleted));
        }
        write_planned(tx, &seen.parsed, &Execution::planned(id, request.id, now, now, Cause::Trigger), now)?;
        remember(tx, request.tenant, request.idempotency, Made::Execution(id), now)?;
    }
    Ok(Ok(Triggered { execution: id, replayed: false }))
}

/// A stretch of a job's past whose slots are to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Slots from this instant on.
    pub from: Timestamp,
    /// Slots before this one.
    pub to: Timestamp,
}

/// What a backfill did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backfilled {
    /// How many slots lie in the stretch. Each has an execution of its own now.
    pub slots: usize,
    /// The first of them.
    pub first: Option<Timestamp>,
    /// The last of them.
    pub last: Option<Timestamp>,
    /// Whether an earlier request with the same key began it.
    pub replayed: bool,
}

/// Why a backfill was not done, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// There are more slots than one request may fill.
    #[error("there are more than {BACKFILL_SLOTS_MAX} slots between these instants")]
    TooMany,
    /// As for any change.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl From<StoreError> for BackfillError {
    fn from(error: StoreError) -> Self {
        Self::Change(error.into())
    }
}

/// Gives each slot of a stretch an execution, whether the slot had one before or not: as many transactions as it needs, oldest slot first. Broken
/// off in the middle, it is taken up again by the same request with the same key, which makes what is missing and nothing twice.
pub async fn backfill(ctx: &Ctx, request: JobRequest<'_>, stretch: Stretch) -> Result<Backfilled, BackfillError> {
    let now = ctx.env.now();
    let asked = request_id(ctx, request.tenant, request.idempotency);
    let begun = ctx.store.transact(|tx| async move { begin(ctx, &tx, request, stretch, now).await }).await?.value;
    let Begun { slots, requested, done, replayed } = begun?;
    let filled =
        Backfilled { slots: slots.len(), first: slots.first().copied(), last: slots.last().copied(), replayed };
    if done {
        return Ok(filled);
    }
    let planned: Vec<Execution> = slots
        .iter()
        .enumerate()
        .map(|(index, slot)| {
            let id = ExecutionId::of_request(request.id, *slot, request.id.shard(ctx.shards), asked, requested);
            // A microsecond apart, so that the oldest is due first.
            let due = requested + Duration::from_micros(index as u64);
            Execution::planned(id, request.id, *slot, due, Cause::Trigger)
        })
        .collect();
    for batch in planned.chunks(BATCH_MAX / 2) {
        ctx.store.transact(|tx| async move { fill(ctx, &tx, request, batch, now).await }).await?.value?;
    }
    let made = Made::Backfilled(request.id);
    let close =
        ctx.store.transact(|tx| async move { remember(&tx, request.tenant, request.idempotency, made, requested) });
    close.await?;
    Ok(filled)
}

struct Begun {
    slots: Vec<Timestamp>,
    requested: Timestamp,
    /// Whether an earlier request made all of them. What is gone since is not made again.
    done: bool,
    replayed: bool,
}

async fn begin(
    ctx: &Ctx,
    tx: &Tx,
    request: JobRequest<'_>,
    stretch: Stretch,
    now: Timestamp,
) -> Result<Result<Begun, BackfillError>, StoreError> {
    let earlier = earlier(tx, request.tenant, request.idempotency, now).await?;
    let done = match earlier {
        None => false,
        Some(Earlier::Same(Made::Backfill(id))) if id == request.id => false,
        Some(Earlier::Same(Made::Backfilled(id))) if id == request.id => true,
        Some(_) => return Ok(Err(ChangeError::KeyReused.into())),
    };
    let Some(seen) = seen(ctx, tx, request).await? else { return Ok(Err(ChangeError::Unknown.into())) };
    if seen.row.state == JobState::Deleted && !done {
        return Ok(Err(ChangeError::Deleted.into()));
    }
    let Some(slots) = slots_of(&seen.parsed, stretch) else { return Ok(Err(BackfillError::TooMany)) };
    let mut requested = now;
    match (earlier, request.idempotency) {
        // What was begun before keeps its ids.
        (Some(_), Some(idempotency)) => {
            let row = request::get(tx, request.tenant, &idempotency.key).await?;
            requested = row.map_or(now, |row| row.at);
        }
        _ => remember(tx, request.tenant, request.idempotency, Made::Backfill(request.id), now)?,
    }
    Ok(Ok(Begun { slots, requested, done, replayed: earlier.is_some() && !tx.maybe_committed() }))
}

/// The slots of a stretch; `None` if they are too many.
fn slots_of(parsed: &ParsedJob, stretch: Stretch) -> Option<Vec<Timestamp>> {
    let timetable = parsed.timetable();
    let first = timetable.at_or_after(stretch.from);
    let slots: Vec<_> = std::iter::successors(first, |slot| timetable.after(*slot))
        .take_while(|slot| *slot < stretch.to)
        .take(BACKFILL_SLOTS_MAX + 1)
        .collect();
    (slots.len() <= BACKFILL_SLOTS_MAX).then_some(slots)
}

async fn fill(
    ctx: &Ctx,
    tx: &Tx,
    request: JobRequest<'_>,
    batch: &[Execution],
    now: Timestamp,
) -> Result<Result<(), ChangeError>, StoreError> {
    let Some(seen) = seen(ctx, tx, request).await? else { return Ok(Err(ChangeError::Unknown)) };
    if seen.row.state == JobState::Deleted {
        return Ok(Err(ChangeError::Deleted));
    }
    let ids: Vec<ExecutionId> = batch.iter().map(|planned| planned.id).collect();
    let known = execution::get_many(tx, &ids, Read::Serializable).await?;
    for (planned, known) in batch.iter().zip(known) {
        if known?.is_none() {
            write_planned(tx, &seen.parsed, planned, now)?;
        }
    }
    Ok(Ok(()))
}
