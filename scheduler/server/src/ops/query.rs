//! What the API reads: jobs and executions, page by page. Reads are snapshots; what they show may be a moment stale.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::Execution;
use compline_core::ids::{ExecutionId, JobId, TenantId};
use compline_core::job::{JobRun, JobState};
use compline_core::timetable::Timetable;
use compline_store::backend::Read;
use compline_store::tables::execution::{self, LogLine};
use compline_store::tables::history::{self, Entry, Listing};
use compline_store::tables::job::{self, JobRow};
use compline_store::tables::request::Made;
use compline_store::{StoreError, Tx};

use crate::ctx::{Ctx, ParsedJob};
use crate::ops::create::Created;
use crate::ops::idempotency::{self, Earlier, Idempotency};
use crate::passes::retain;

/// A filter looks at so many rows for one page; a page may then be short and have a next one all the same.
pub const SCANNED_MAX: usize = 2_000;
/// How many fires an answer to a creation shows.
const FIRST_FIRES: usize = 5;
/// How many rows one transaction reads.
const BATCH: usize = 256;

/// A job as it stands.
#[derive(Debug, Clone)]
pub struct JobSeen {
    /// Its identifier.
    pub id: JobId,
    /// From 1; raised by every edit.
    pub revision: u64,
    /// Whether its schedule goes on.
    pub state: JobState,
    /// Its definition.
    pub parsed: Arc<ParsedJob>,
    /// Where its schedule stands.
    pub run: JobRun,
}

impl JobSeen {
    /// The next planned instants, at most `count`.
    pub fn next_fires(&self, count: usize) -> Vec<Timestamp> {
        let first = self.run.next.map(|next| next.slot);
        let timetable = Timetable { taken: &self.run.taken, ..self.parsed.timetable() };
        timetable.fires(first, self.run.starts).take(count).collect()
    }

    /// The first planned instants from its creation on, at most `count`.
    pub fn first_fires(&self, count: usize) -> Vec<Timestamp> {
        let timetable = self.parsed.timetable();
        timetable.fires(timetable.first(self.parsed.job.created_at), 0).take(count).collect()
    }

    /// Why its schedule is at its end, if it is: `max_runs`, `ends_at`, or `schedule` where that has no slot left of its own.
    pub fn finished_reason(&self) -> Option<&'static str> {
        let bounds = &self.parsed.job.bounds;
        if self.state != JobState::Active || self.run.next.is_some() {
            return None;
        }
        Some(if self.parsed.timetable().is_used_up(self.run.starts) {
            "max_runs"
        } else if bounds.ends_at.is_some_and(|end| self.parsed.schedule.next_after(end.to_utc()).is_some()) {
            "ends_at"
        } else {
            "schedule"
        })
    }

    /// The word for its state: a job without a slot to come is finished.
    pub fn state_name(&self) -> &'static str {
        match (self.state, self.run.next) {
            (JobState::Active, Some(_)) => "ACTIVE",
            (JobState::Active, None) => "FINISHED",
            (JobState::Paused, _) => "PAUSED",
            (JobState::Deleted, _) => "DELETED",
        }
    }
}

/// A page and where the next one begins.
#[derive(Debug, Clone)]
pub struct Found<T, P> {
    /// The rows.
    pub items: Vec<T>,
    /// The position behind which the next page begins; `None` if nothing is left.
    pub next: Option<P>,
}

/// A tenant's job.
pub async fn job(ctx: &Ctx, tenant: &TenantId, id: JobId) -> Result<Option<JobSeen>, StoreError> {
    let committed = ctx.store.transact(|tx| async move {
        let row = job::get(&tx, id, Read::Snapshot).await?;
        let run = job::get_run(&tx, id, Read::Snapshot).await?;
        seen(ctx, id, row, run)
    });
    Ok(committed.await?.value.filter(|seen| seen.parsed.job.tenant == *tenant))
}

fn seen(ctx: &Ctx, id: JobId, row: Option<JobRow>, run: Option<JobRun>) -> Result<Option<JobSeen>, StoreError> {
    let Some(row) = row else { return Ok(None) };
    let parsed = ctx.jobs.parsed(id, &row)?;
    let run = run.unwrap_or_default();
    Ok(Some(JobSeen { id, revision: row.revision, state: row.state, parsed, run }))
}

/// What the request with this key and body created, if it came before and is remembered still.
pub async fn created_earlier(
    ctx: &Ctx,
    tenant: &TenantId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Created>, StoreError> {
    let earlier =
        ctx.store.transact(|tx| async move { idempotency::earlier(&tx, tenant, Some(idempotency), now).await });
    let Some(Earlier::Same(Made::Job(job_id))) = earlier.await?.value else { return Ok(None) };
    let slots = job(ctx, tenant, job_id).await?.map(|seen| seen.first_fires(FIRST_FIRES));
    Ok(Some(Created { job_id, replayed: true, next_fires: slots.unwrap_or_default() }))
}

/// A tenant's jobs that `keep` wants, newest first, from behind `before`.
pub async fn jobs(
    ctx: &Ctx,
    tenant: &TenantId,
    before: Option<JobId>,
    limit: usize,
    keep: impl Fn(&JobSeen) -> bool,
) -> Result<Found<JobSeen, JobId>, StoreError> {
    let (mut items, mut position, mut scanned) = (Vec::new(), before, 0);
    loop {
        let batch = ctx.store.transact(|tx| job_batch(ctx, tx, tenant, position)).await?.value;
        let last_batch = batch.len() < BATCH;
        for (id, seen) in batch {
            position = Some(id);
            scanned += 1;
            items.extend(seen.filter(|seen| keep(seen)));
            if items.len() == limit {
                return Ok(Found { items, next: position });
            }
        }
        if last_batch {
            return Ok(Found { items, next: None });
        }
        if scanned >= SCANNED_MAX {
            return Ok(Found { items, next: position });
        }
    }
}

async fn job_batch(
    ctx: &Ctx,
    tx: Tx,
    tenant: &TenantId,
    before: Option<JobId>,
) -> Result<Vec<(JobId, Option<JobSeen>)>, StoreError> {
    let ids = job::list(&tx, tenant, before, BATCH).await?;
    let rows = job::get_many(&tx, &ids, Read::Snapshot).await?;
    let runs = job::get_runs(&tx, &ids, Read::Snapshot).await?;
    let all = ids.iter().zip(rows).zip(runs);
    let read = |id: JobId, row: Result<_, _>, run: Result<_, _>| seen(ctx, id, row?, run?);
    Ok(all.map(|((id, row), run)| (*id, ctx.readable(read(*id, row, run)).flatten())).collect())
}

/// An execution and the definition of its job, if that is still there.
#[derive(Debug, Clone)]
pub struct ExecutionSeen {
    /// The execution.
    pub execution: Execution,
    /// Its job.
    pub job: Option<Arc<ParsedJob>>,
}

/// A tenant's execution.
pub async fn execution(ctx: &Ctx, tenant: &TenantId, id: ExecutionId) -> Result<Option<ExecutionSeen>, StoreError> {
    let committed = ctx.store.transact(|tx| async move {
        let Some(row) = execution::get(&tx, id, Read::Snapshot).await? else { return Ok(None) };
        if row.execution.state.is_terminal() && !retain::leaving(ctx, &tx, &[id]).await?.is_empty() {
            return Ok(None);
        }
        let job_row = job::get(&tx, row.execution.job, Read::Snapshot).await?;
        let job = job_row.map(|job_row| ctx.jobs.parsed(row.execution.job, &job_row)).transpose()?;
        Ok(Some(ExecutionSeen { execution: row.execution, job }))
    });
    let seen = committed.await?.value;
    Ok(seen.filter(|seen| seen.job.as_ref().is_none_or(|parsed| parsed.job.tenant == *tenant)))
}

/// The log of an execution: each attempt's lines.
pub async fn log(ctx: &Ctx, id: ExecutionId) -> Result<Vec<(u32, Vec<LogLine>)>, StoreError> {
    Ok(ctx.store.transact(|tx| async move { execution::log(&tx, id).await }).await?.value)
}

/// The part of a listing that is wanted.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Continue behind this key of the listing.
    pub before: Option<Bytes>,
    /// Only from this instant on.
    pub from: Option<Timestamp>,
    /// Only before this instant.
    pub until: Option<Timestamp>,
    /// How many at the most.
    pub limit: usize,
}

/// The executions of a listing that `keep` wants, newest first. A row that is gone is passed over; the cursor goes on behind it.
pub async fn executions(
    ctx: &Ctx,
    listing: Listing<'_>,
    window: Window,
    keep: impl Fn(&Execution) -> bool,
) -> Result<Found<ExecutionSeen, Bytes>, StoreError> {
    let (mut items, mut position, mut scanned) = (Vec::new(), window.before.clone(), 0);
    loop {
        let page = history::Page { before: position.clone(), from: window.from, until: window.until, limit: BATCH };
        let page = &page;
        let batch = ctx.store.transact(|tx| execution_batch(ctx, tx, listing, page)).await?.value;
        let last_batch = batch.len() < BATCH;
        for (entry, seen) in batch {
            position = Some(entry.key);
            scanned += 1;
            items.extend(seen.filter(|seen| keep(&seen.execution)));
            if items.len() == window.limit {
                return Ok(Found { items, next: position });
            }
        }
        if last_batch {
            return Ok(Found { items, next: None });
        }
        if scanned >= SCANNED_MAX {
            return Ok(Found { items, next: position });
        }
    }
}

async fn execution_batch(
    ctx: &Ctx,
    tx: Tx,
    listing: Listing<'_>,
    page: &history::Page,
) -> Result<Vec<(Entry, Option<ExecutionSeen>)>, StoreError> {
    let entries = listing.page(&tx, page).await?;
    let ids: Vec<ExecutionId> = entries.iter().map(|entry| entry.execution).collect();
    let rows = execution::get_many(&tx, &ids, Read::Snapshot).await?;
    let leaving = retain::leaving(ctx, &tx, &ids).await?;
    let stays = |execution: &Execution| !(execution.state.is_terminal() && leaving.contains(&execution.id));
    let rows: Vec<Option<Execution>> =
        rows.into_iter().map(|row| ctx.readable(row).flatten().map(|row| row.execution).filter(stays)).collect();
    let mut job_ids: Vec<JobId> = rows.iter().flatten().map(|execution| execution.job).collect();
    job_ids.sort_unstable();
    job_ids.dedup();
    let job_rows = job::get_many(&tx, &job_ids, Read::Snapshot).await?;
    let parse = |(id, row): (&JobId, Result<Option<JobRow>, StoreError>)| {
        let row = ctx.readable(row).flatten()?;
        Some((*id, ctx.readable(ctx.jobs.parsed(*id, &row))?))
    };
    let jobs: HashMap<JobId, Arc<ParsedJob>> = job_ids.iter().zip(job_rows).filter_map(parse).collect();
    let with_job = |execution: Execution| ExecutionSeen { job: jobs.get(&execution.job).cloned(), execution };
    Ok(entries.into_iter().zip(rows).map(|(entry, row)| (entry, row.map(with_job))).collect())
}

/// Whether the store answers.
pub async fn store_answers(ctx: &Ctx) -> Result<(), StoreError> {
    let probe = JobId::from_bytes([0; JobId::BYTES]);
    ctx.store.transact(|tx| async move { job::get(&tx, probe, Read::Snapshot).await.map(drop) }).await?;
    Ok(())
}
