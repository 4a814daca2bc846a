//! Changes of a job: edit, pause, resume, delete. Each is one transaction, which takes the job's planned slot back and plans what is right from now
//! on. A tick in between makes it conflict, or conflicts with it: both write the slot's due row and read the job's.

use std::sync::Arc;

use compline_core::Timestamp;
use compline_core::ids::{JobId, TenantId};
use compline_core::job::{Cleared, JobRun, JobState};
use compline_core::ledger::{Change as Done, SkipReason};
use compline_core::schedule::Schedule;
use compline_store::backend::Read;
use compline_store::tables::job::{self, JobRow};
use compline_store::tables::ledger::{self, Mark};
use compline_store::tables::request::Made;
use compline_store::{StoreError, Tx};

use super::idempotency::{Earlier, Idempotency, earlier, remember};
use super::plan::{Moment, first_behind, note_finished, plan_from, withdraw};
use crate::ctx::{Ctx, ParsedJob};
use crate::metrics::Skipped;
use crate::passes::rezone;

/// Which job is to change, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct JobRequest<'a> {
    /// Who asks.
    pub tenant: &'a TenantId,
    /// Which.
    pub id: JobId,
    /// The request's key, if it has one.
    pub idempotency: Option<&'a Idempotency>,
}

/// What is to become of it.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// Its schedule rests: the planned slot is taken back, and slots until it is resumed are left out. What is queued or runs goes on.
    Pause,
    /// Its schedule goes on with the first slot that is still to come.
    Resume,
    /// It ends. Nothing of it is queued or claimed any more; its history stays readable.
    Delete,
    /// It gets another definition.
    Edit {
        /// The revision that the new definition was made from.
        base: u64,
        /// The new definition.
        new: &'a ParsedJob,
    },
}

/// It is as was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Whether an earlier request with the same key did it.
    pub replayed: bool,
    /// Slots that it left out, by why.
    pub skipped: Skipped,
}

/// Why a job did not change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such job.
    #[error("there is no such job")]
    Unknown,
    /// It was deleted.
    #[error("the job is deleted")]
    Deleted,
    /// It was edited since the new definition was made.
    #[error("the job is at revision {0} by now")]
    Moved(u64),
    /// The key belongs to another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Changes a job. A change that is made already is none: repeating one is safe.
pub async fn change(ctx: &Ctx, request: JobRequest<'_>, change: Change<'_>) -> Result<Changed, ChangeError> {
    let now = ctx.env.now();
    let changed =
        ctx.store.transact(|tx| async move { change_in(ctx, &tx, request, change, now).await }).await?.value?;
    ctx.metrics.skipped(&changed.skipped);
    Ok(changed)
}

/// A job as a transaction that changes it reads it.
pub(super) struct Seen {
    pub(super) row: JobRow,
    pub(super) parsed: Arc<ParsedJob>,
}

/// Reads a job so that whatever changes it before the commit makes that commit conflict.
pub(super) async fn seen(ctx: &Ctx, tx: &Tx, request: JobRequest<'_>) -> Result<Option<Seen>, StoreError> {
    let Some(row) = job::get(tx, request.id, Read::Serializable).await? else { return Ok(None) };
    let parsed = ctx.jobs.parsed(request.id, &row)?;
    Ok((parsed.job.tenant == *request.tenant).then_some(Seen { row, parsed }))
}

async fn change_in(
    ctx: &Ctx,
    tx: &Tx,
    request: JobRequest<'_>,
    change: Change<'_>,
    now: Timestamp,
) -> Result<Result<Changed, ChangeError>, StoreError> {
    match earlier(tx, request.tenant, request.idempotency, now).await? {
        Some(Earlier::Same(Made::Job(id))) if id == request.id => {
            // An earlier run of this very transaction is no earlier request.
            return Ok(Ok(Changed { replayed: !tx.maybe_committed(), ..Changed::default() }));
        }
        Some(_) => return Ok(Err(ChangeError::KeyReused)),
        None => {}
    }
    let Some(seen) = seen(ctx, tx, request).await? else { return Ok(Err(ChangeError::Unknown)) };
    let run = job::get_run(tx, request.id, Read::Serializable).await?.unwrap_or_default();
    let mut moment = Moment::at(now);
    match (change, seen.row.state) {
        (Change::Pause | Change::Resume | Change::Edit { .. }, JobState::Deleted) => {
            return Ok(Err(ChangeError::Deleted));
        }
        (Change::Pause, JobState::Active) => pause(tx, request.id, &seen, run, now).await?,
        (Change::Resume, JobState::Paused) => resume(ctx, tx, request.id, &seen, run, &mut moment).await?,
        (Change::Delete, JobState::Active | JobState::Paused) => {
            delete(tx, request.id, &seen, run, &mut moment).await?
        }
        (Change::Pause, JobState::Paused)
        | (Change::Resume, JobState::Active)
        | (Change::Delete, JobState::Deleted) => {}
        (Change::Edit { base, new }, JobState::Active | JobState::Paused) => {
            if seen.row.revision != base {
                // An earlier run of this transaction may have made the edit.
                let made = tx.maybe_committed() && seen.row.revision == base + 1 && seen.parsed.job == new.job;
                return Ok(if made { Ok(Changed::default()) } else { Err(ChangeError::Moved(seen.row.revision)) });
            }
            edit(ctx, tx, &seen, new, run, &mut moment).await?;
        }
    }
    remember(tx, request.tenant, request.idempotency, Made::Job(request.id), now)?;
    Ok(Ok(Changed { replayed: false, skipped: moment.skipped }))
}

async fn pause(tx: &Tx, id: JobId, seen: &Seen, run: JobRun, now: Timestamp) -> Result<(), StoreError> {
    mark(tx, id, seen.row.revision, now, Done::Paused)?;
    let paused_from = withdraw(tx, &seen.parsed, &run).await?;
    job::put(tx, id, &seen.row.in_state(JobState::Paused));
    job::put_run(tx, id, &JobRun { next: None, paused_from, ..run })
}

async fn resume(
    ctx: &Ctx,
    tx: &Tx,
    id: JobId,
    seen: &Seen,
    run: JobRun,
    moment: &mut Moment,
) -> Result<(), StoreError> {
    let now = moment.now;
    mark(tx, id, seen.row.revision, now, Done::Resumed)?;
    moment.close_pause(tx, &seen.parsed, &run)?;
    job::put(tx, id, &seen.row.in_state(JobState::Active));
    let next = first_behind(&seen.parsed, now);
    plan_from(ctx, tx, &seen.parsed, JobRun { planned_after: Some(now), ..cleared(run, now, SkipReason::Paused) }, next)
        .await
}

async fn delete(tx: &Tx, id: JobId, seen: &Seen, run: JobRun, moment: &mut Moment) -> Result<(), StoreError> {
    let now = moment.now;
    mark(tx, id, seen.row.revision, now, Done::Deleted)?;
    let planned = withdraw(tx, &seen.parsed, &run).await?;
    moment.leave_out(tx, &seen.parsed, planned, SkipReason::Ended)?;
    moment.close_pause(tx, &seen.parsed, &run)?;
    if planned.is_some() || run.paused_from.is_some() {
        note_finished(tx, id, now);
    }
    job::put(tx, id, &seen.row.in_state(JobState::Deleted));
    job::put_run(tx, id, &JobRun { next: None, paused_from: None, ..run })
}

/// A new definition counts from now on: no slot that is over runs by it, and the planned slot of the old one goes. If the slots stay what they
/// were, so does the planned one.
async fn edit(
    ctx: &Ctx,
    tx: &Tx,
    seen: &Seen,
    new: &ParsedJob,
    run: JobRun,
    moment: &mut Moment,
) -> Result<(), StoreError> {
    let now = moment.now;
    let (old, id) = (&seen.parsed.job, new.job.id);
    let revision = seen.row.revision + 1;
    job::put(tx, id, &JobRow::new(revision, seen.row.state, &new.job)?);
    mark(tx, id, revision, now, Done::Edited { schedule_before: old.schedule.clone() })?;
    let other_slots = old.schedule != new.job.schedule || old.bounds != new.job.bounds;
    if seen.row.state == JobState::Paused {
        if other_slots {
            moment.close_pause(tx, &seen.parsed, &run)?;
            let paused_from = first_of(new, now);
            job::put_run(tx, id, &JobRun { paused_from, ..cleared(run, now, SkipReason::Edited) })?;
        }
        return Ok(());
    }
    let other_due = old.splay != new.job.splay && run.next.is_some();
    if other_slots || (other_due && !rezone::is_planned_by_own(ctx, &new.schedule, &run)) {
        let planned = withdraw(tx, &seen.parsed, &run).await?;
        moment.leave_out(tx, &seen.parsed, planned, SkipReason::Edited)?;
        let run = if other_slots { cleared(run, now, SkipReason::Edited) } else { run };
        plan_from(ctx, tx, new, JobRun { planned_after: Some(now), ..run }, first_of(new, now)).await?;
    } else if other_due {
        // The same slot, due at another time.
        let slot = withdraw(tx, &seen.parsed, &run).await?;
        plan_from(ctx, tx, new, run, slot).await?;
    }
    Ok(())
}

/// The slots up to now that are owed do not run any more.
fn cleared(run: JobRun, now: Timestamp, reason: SkipReason) -> JobRun {
    JobRun { cleared: Some(Cleared { until: now, reason }), ..run }
}

fn mark(tx: &Tx, id: JobId, revision: u64, at: Timestamp, change: Done) -> Result<(), StoreError> {
    ledger::add_mark(tx, id, &Mark { at, revision, change })
}

/// The first slot of a definition that counts from `now` on.
fn first_of(new: &ParsedJob, now: Timestamp) -> Option<Timestamp> {
    match &*new.schedule {
        Schedule::Now => Some(now),
        Schedule::Once(_) | Schedule::Cron { .. } => first_behind(new, now),
    }
}
