//! cancel: what waits ends at once, what runs is told to stop, in one transaction with the request's key.

use compline_core::Timestamp;
use compline_core::execution::{Cause, Event, Owed, State};
use compline_core::ids::{ExecutionId, TenantId};
use compline_store::backend::Read;
use compline_store::tables::execution::ExecutionRow;
use compline_store::tables::request::Made;
use compline_store::tables::{execution, job};
use compline_store::{StoreError, Tx};

use super::idempotency::{Earlier, Idempotency, earlier, remember};
use super::plan::{TAKEN_MAX, plan_next};
use super::query::ExecutionSeen;
use crate::ctx::Ctx;
use crate::passes::cancel;

/// What an execution says that was cancelled by a request.
const REASON: &str = "it was cancelled";

/// An execution to cancel.
#[derive(Debug, Clone, Copy)]
pub struct CancelRequest<'a> {
    /// Who asks.
    pub tenant: &'a TenantId,
    /// Which.
    pub id: ExecutionId,
    /// The request's key, if it has one.
    pub idempotency: Option<&'a Idempotency>,
}

/// What became of the request.
#[derive(Debug, Clone)]
pub struct Cancelled {
    /// The execution: CANCELLED, or RUNNING and told to stop.
    pub seen: ExecutionSeen,
    /// Whether an earlier request with the same key did it.
    pub replayed: bool,
}

/// Why nothing was cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// There is no such execution.
    #[error("there is no such execution")]
    Unknown,
    /// It ended before.
    #[error("it is over")]
    Over(Box<ExecutionSeen>),
    /// So many slots of its job are cancelled ahead of their time that no more can be.
    #[error("{TAKEN_MAX} slots of its job are cancelled already ahead of their time")]
    Crowded,
    /// The key belongs to another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Cancels an execution.
///
/// What waits is CANCELLED when this returns; the schedule of its job goes on with the slot that follows. What runs is told to stop, which its
/// node does within a second, and what it does not finish until then it does not try again. Repeating the request changes nothing.
pub async fn cancel(ctx: &Ctx, request: CancelRequest<'_>) -> Result<Cancelled, CancelError> {
    let now = ctx.env.now();
    let committed = ctx.store.transact(|tx| async move { cancel_in(ctx, &tx, request, now).await });
    committed.await?.value
}

async fn cancel_in(
    ctx: &Ctx,
    tx: &Tx,
    request: CancelRequest<'_>,
    now: Timestamp,
) -> Result<Result<Cancelled, CancelError>, StoreError> {
    let CancelRequest { tenant, id, idempotency } = request;
    let earlier = earlier(tx, tenant, idempotency, now).await?;
    if earlier.is_some_and(|earlier| earlier != Earlier::Same(Made::Execution(id))) {
        return Ok(Err(CancelError::KeyReused));
    }
    let Some(row) = execution::get(tx, id, Read::Serializable).await? else { return Ok(Err(CancelError::Unknown)) };
    let job_id = row.execution.job;
    let Some(job_row) = job::get(tx, job_id, Read::Serializable).await? else { return Ok(Err(CancelError::Unknown)) };
    let parsed = ctx.jobs.parsed(job_id, &job_row)?;
    if parsed.job.tenant != *tenant {
        return Ok(Err(CancelError::Unknown));
    }
    // An earlier run of this very transaction is no earlier request.
    let replayed = earlier.is_some() && !tx.maybe_committed();
    let seen = |row: ExecutionRow| ExecutionSeen { execution: row.execution, job: Some(parsed.clone()) };
    match &row.execution.state {
        // Cancelled is what was wanted, whoever did it.
        State::Cancelled { .. } => return Ok(Ok(Cancelled { seen: seen(row), replayed })),
        _ if earlier.is_some() => return Ok(Ok(Cancelled { seen: seen(row), replayed })),
        _ => {}
    }
    let run = match (&row.execution.state, row.execution.cause) {
        (State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. }), Cause::Schedule) => {
            job::get_run(tx, job_id, Read::Serializable).await?
        }
        _ => None,
    };
    if run.as_ref().is_some_and(|run| run.taken.len() >= TAKEN_MAX) {
        return Ok(Err(CancelError::Crowded));
    }
    let event = Event::Cancel { at: now, reason: REASON.to_owned() };
    let Ok(after) = cancel::apply(tx, &row, &event).await? else {
        return Ok(Err(CancelError::Over(Box::new(seen(row)))));
    };
    if let Some(run) = run {
        plan_next(ctx, tx, &parsed, run, row.execution.slot).await?;
    }
    remember(tx, tenant, idempotency, Made::Execution(id), now)?;
    let row = ExecutionRow { execution: after, ..row.clone() };
    Ok(Ok(Cancelled { seen: seen(row), replayed }))
}
