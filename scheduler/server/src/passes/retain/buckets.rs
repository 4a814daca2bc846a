//! Old buckets, dropped in steps.
//!
//! A bucket whose counter says that nothing is open is marked first; from then on what has ended in it is gone for readers. Each step reads the
//! counter and the rows that it removes serializably, so that whatever wakes one of them up again (a redrive) either conflicts or comes first.
//! A bucket that was marked and has open executions after all is taken for what it is: the mark goes, and what is open is listed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::{Execution, State};
use compline_core::ids::{ExecutionId, JobId, ShardId};
use compline_store::backend::Read;
use compline_store::tables::{bucket, execution, history};
use compline_store::{StoreError, Tx};

use super::{STEP, breathe};
use crate::ctx::{Ctx, ParsedJob};
use crate::passes::readable_jobs;

/// How many buckets are looked up at once.
const BUCKETS: usize = 64;
/// How many entries of one job's hour are looked at in one step.
const ENTRIES: usize = 512;

/// The counters of buckets that were swept and keep open executions: while one stands still nothing in its bucket has ended. A hint that is
/// lost with the process.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<u32, i64>);

/// Drops a shard's old buckets. Returns how many executions were removed.
pub async fn drop_old(ctx: &Ctx, shard: ShardId, now: Timestamp, known: &mut Known) -> Result<usize, StoreError> {
    let until = ctx.retention.first_kept_hour(now);
    let (mut last, mut removed) = (None, 0);
    loop {
        let read = ctx.store.transact(|tx| async move { bucket::before(&tx, shard, until, last, BUCKETS).await });
        let buckets = read.await?.value;
        let Some((newest, _)) = buckets.last() else { return Ok(removed) };
        last = Some(*newest);
        for (hour, open) in buckets {
            let Some(open) = ctx.readable(open) else { continue };
            if open != 0 && known.0.get(&hour) == Some(&open) {
                continue;
            }
            removed += drop_bucket(ctx, shard, hour).await?;
            if open == 0 {
                known.0.remove(&hour)
            } else {
                known.0.insert(hour, open)
            };
        }
    }
}

/// Which of these executions lie in buckets that are being dropped: what has ended of them is gone.
pub async fn leaving(ctx: &Ctx, tx: &Tx, ids: &[ExecutionId]) -> Result<BTreeSet<ExecutionId>, StoreError> {
    let kept = ctx.retention.first_kept_hour(ctx.env.now());
    let old: Vec<ExecutionId> = ids.iter().copied().filter(|id| id.bucket_hour() < kept).collect();
    let dropping = bucket::are_dropping(tx, &old, Read::Snapshot).await?;
    Ok(old.into_iter().zip(dropping).filter(|(_, dropping)| *dropping).map(|(id, _)| id).collect())
}

async fn drop_bucket(ctx: &Ctx, shard: ShardId, hour: u32) -> Result<usize, StoreError> {
    let begun = ctx.store.transact(|tx| async move { begin(&tx, shard, hour).await }).await?.value;
    let mut sweep = Sweep { shard, hour, begun, last: None, unlisted: BTreeSet::new(), removed: 0 };
    loop {
        let sweeping = &sweep;
        let step = ctx.store.transact(|tx| async move { step(ctx, &tx, sweeping).await }).await?.value;
        sweep.removed += step.removed;
        sweep.unlisted.extend(step.unlisted);
        match step.next {
            Next::Behind(key) => sweep.last = Some(key),
            // Somebody woke up what was to go: from the front again, with care.
            Next::Anew => {
                sweep.begun = Begun::WithCare { relist: true };
                (sweep.last, sweep.unlisted) = (None, BTreeSet::new());
            }
            Next::Nothing => break,
        }
        breathe().await;
    }
    ctx.store.transact(|tx| async move { end(&tx, shard, hour).await }).await?;
    Ok(sweep.removed)
}

/// How a bucket is swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Nothing in it is open, and the mark is up.
    Whole,
    /// Something in it is open, and stays. `relist`: an earlier sweep may have removed its entries from listings.
    WithCare { relist: bool },
}

struct Sweep {
    shard: ShardId,
    hour: u32,
    begun: Begun,
    last: Option<Bytes>,
    /// Jobs all of whose entries in this hour are gone.
    unlisted: BTreeSet<JobId>,
    removed: usize,
}

struct Step {
    next: Next,
    removed: usize,
    unlisted: BTreeSet<JobId>,
}

enum Next {
    Behind(Bytes),
    Anew,
    Nothing,
}

async fn begin(tx: &Tx, shard: ShardId, hour: u32) -> Result<Begun, StoreError> {
    let open = execution::open_in(tx, shard, hour, Read::Serializable).await?;
    let marked = bucket::is_dropping(tx, shard, hour, Read::Serializable).await?;
    if open.unwrap_or(0) == 0 {
        if !marked {
            bucket::set_dropping(tx, shard, hour);
        }
        return Ok(Begun::Whole);
    }
    if marked {
        bucket::clear_dropping(tx, shard, hour);
    }
    Ok(Begun::WithCare { relist: marked })
}

/// The counter goes with the last row. What cannot be read keeps its bucket, and is found by `admin check`.
async fn end(tx: &Tx, shard: ShardId, hour: u32) -> Result<(), StoreError> {
    let open = execution::open_in(tx, shard, hour, Read::Serializable).await?;
    if open.unwrap_or(0) == 0 && bucket::rows(tx, shard, hour, None, 1).await?.is_empty() {
        bucket::forget(tx, shard, hour);
    }
    Ok(())
}

/// An execution that goes, and its job.
type Leaving = (Execution, Arc<ParsedJob>);

async fn step(ctx: &Ctx, tx: &Tx, sweep: &Sweep) -> Result<Step, StoreError> {
    let open = execution::open_in(tx, sweep.shard, sweep.hour, Read::Serializable).await?.unwrap_or(0);
    if sweep.begun == Begun::Whole && open != 0 {
        bucket::clear_dropping(tx, sweep.shard, sweep.hour);
        return Ok(Step { next: Next::Anew, removed: 0, unlisted: BTreeSet::new() });
    }
    let rows = bucket::rows(tx, sweep.shard, sweep.hour, sweep.last.as_ref(), STEP).await?;
    let full = rows.len() == STEP;
    let next = rows.last().filter(|_| full).map_or(Next::Nothing, |(key, _)| Next::Behind(key.clone()));
    let executions: Vec<Option<Execution>> =
        rows.into_iter().map(|(_, row)| ctx.readable(row).map(|row| row.execution)).collect();
    let job_ids: Vec<JobId> = executions.iter().flatten().map(|execution| execution.job).collect();
    let mut jobs = readable_jobs(ctx, tx, &job_ids).await?.into_iter();
    // In the order of the rows; `None` stays: what is open, what cannot be read, and what has no job that says whose it is.
    let mut leaving: Vec<Option<Leaving>> = Vec::with_capacity(executions.len());
    for execution in executions {
        let Some(execution) = execution else {
            leaving.push(None);
            continue;
        };
        let job = jobs.next().flatten();
        match job {
            Some(job) if execution.state.is_terminal() => leaving.push(Some((execution, job))),
            job => {
                if let (Some(job), Begun::WithCare { relist: true }) = (job, sweep.begun) {
                    history::add(tx, &job.job.tenant, &execution);
                }
                leaving.push(None);
            }
        }
    }
    let mut unlisted = BTreeSet::new();
    if sweep.begun == Begun::Whole {
        let jobs: BTreeSet<JobId> = leaving.iter().flatten().map(|(execution, _)| execution.job).collect();
        let fresh = jobs.difference(&sweep.unlisted).map(|job| clear_hour_of_job(tx, sweep, *job));
        let cleared = futures::future::try_join_all(fresh).await?;
        unlisted.extend(cleared.into_iter().flatten());
    }
    let mut removed = 0;
    for span in leaving.split(Option::is_none) {
        let span: Vec<&Leaving> = span.iter().flatten().collect();
        removed += span.len();
        clear_span(tx, sweep, &unlisted, &span);
    }
    Ok(Step { next, removed, unlisted })
}

/// Removes a job's entries of the bucket's hour, as ranges. Returns the job if none is left.
async fn clear_hour_of_job(tx: &Tx, sweep: &Sweep, job: JobId) -> Result<Option<JobId>, StoreError> {
    let (from, until) = hour_of(sweep.hour);
    let entries = history::of_job_between(tx, job, from, until, ENTRIES).await?;
    let full = entries.len() == ENTRIES;
    // A backfill of this hour that was asked for later lies in another bucket.
    let ours = |id: &ExecutionId| id.bucket_hour() == sweep.hour && id.shard() == sweep.shard;
    for run in entries.split(|entry| !ours(&entry.execution)) {
        if let (Some(first), Some(last)) = (run.first(), run.last()) {
            history::clear_entries(tx, &first.key, &last.key);
        }
    }
    Ok((!full).then_some(job))
}

fn hour_of(hour: u32) -> (Timestamp, Timestamp) {
    let at = |hour: u32| Timestamp::from_unix_seconds(i64::from(hour) * 3_600);
    (at(hour), at(hour + 1))
}

/// Removes executions that lie side by side, and what names them.
fn clear_span(tx: &Tx, sweep: &Sweep, unlisted: &BTreeSet<JobId>, span: &[&Leaving]) {
    let (Some((first, _)), Some((last, _))) = (span.first(), span.last()) else { return };
    bucket::clear_span(tx, first.id, last.id);
    let (from, until) = hour_of(sweep.hour);
    for (execution, job) in span {
        let in_hour = from <= execution.slot && execution.slot < until;
        let gone = unlisted.contains(&execution.job) || sweep.unlisted.contains(&execution.job);
        if !(in_hour && gone) {
            history::remove_of_job(tx, execution);
        }
        if let State::Failed { .. } = execution.state {
            history::remove_failed(tx, &job.job.tenant, execution);
        }
    }
    // Of one shard and second, a tenant's entries lie side by side too.
    for same_second in span.chunk_by(|(left, _), (right, _)| left.id.bucket_second() == right.id.bucket_second()) {
        let mut tenants: BTreeMap<_, (ExecutionId, ExecutionId)> = BTreeMap::new();
        for (execution, job) in same_second {
            tenants.entry(&job.job.tenant).or_insert((execution.id, execution.id)).1 = execution.id;
        }
        for (tenant, (first, last)) in tenants {
            history::remove_of_tenant(tx, tenant, first, last);
        }
    }
}
