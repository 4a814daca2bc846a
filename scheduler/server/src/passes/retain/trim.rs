//! Histories of busy jobs, trimmed by count: of each kind of end the newest so many stay. What is open is never counted and never goes.

use std::collections::BTreeSet;

use compline_core::execution::State;
use compline_core::ids::{ExecutionId, JobId, ShardId};
use compline_store::backend::Read;
use compline_store::tables::history::{self, Listing, Page};
use compline_store::tables::{bucket, execution, ledger, trim};
use compline_store::{StoreError, Tx};

use super::breathe;
use crate::ctx::Ctx;
use crate::passes::{in_batches, readable_jobs};

/// How many jobs one pass trims.
const JOBS: usize = 256;
/// How many entries of a listing one transaction reads.
const ENTRIES: usize = 1_000;
/// How many rows of a job's ledger one pass looks at.
const LEDGER_ROWS: usize = 256;
/// How many executions of a job one pass removes. What is left then is for the next one.
const SURPLUS_MAX: usize = 2_048;

/// Trims the histories of a shard's jobs that were asked for. Returns how many executions were removed.
pub async fn trim_asked(ctx: &Ctx, shard: ShardId) -> Result<usize, StoreError> {
    let asked = ctx.store.transact(|tx| async move { trim::asked(&tx, shard, JOBS).await }).await?.value;
    let mut removed = 0;
    for job in asked {
        removed += trim_job(ctx, shard, job).await?;
        breathe().await;
    }
    Ok(removed)
}

async fn trim_job(ctx: &Ctx, shard: ShardId, job: JobId) -> Result<usize, StoreError> {
    let old = ctx.env.now().saturating_sub(ctx.retention.age);
    // From before the histories are read: whoever asks from now on asks anew.
    ctx.store
        .transact(|tx| async move {
            trim::done(&tx, shard, job);
            ledger::forget_before(&tx, job, old, LEDGER_ROWS).await.map(drop)
        })
        .await?;
    let retention = ctx.retention;
    let failed = newest_first(ctx, Listing::FailedOfJob(job), retention.failures_per_job).await?;
    let is_failed: BTreeSet<ExecutionId> = failed.kept.iter().chain(&failed.surplus).copied().collect();
    let others = surplus_of_others(ctx, job, &is_failed).await?;
    let more = failed.more || others.more;
    let mut removed = 0;
    for (surplus, failed) in [(&failed.surplus, true), (&others.surplus, false)] {
        let batches = in_batches(surplus, |options, begin, end| async move {
            let ids = &surplus[begin..end];
            let remove = ctx.store.transact_with(options, |tx| async move { remove(ctx, &tx, job, ids, failed).await });
            Ok(remove.await?.value)
        });
        removed += batches.await?.into_iter().sum::<usize>();
    }
    if more {
        ctx.store
            .transact(|tx| async move {
                trim::ask(&tx, shard, job);
                Ok(())
            })
            .await?;
    }
    Ok(removed)
}

#[derive(Default)]
struct Counted {
    kept: Vec<ExecutionId>,
    /// Those behind what is kept, newest first.
    surplus: Vec<ExecutionId>,
    /// Whether there is more than one pass takes.
    more: bool,
}

/// A listing, told apart into its newest `keep` and the rest.
async fn newest_first(ctx: &Ctx, listing: Listing<'_>, keep: usize) -> Result<Counted, StoreError> {
    let mut counted = Counted::default();
    let mut before = None;
    loop {
        let page = Page { before: before.take(), limit: ENTRIES, ..Page::default() };
        let page = &page;
        let entries = ctx.store.transact(|tx| async move { listing.page(&tx, page).await }).await?.value;
        before = entries.last().filter(|_| entries.len() == ENTRIES).map(|entry| entry.key.clone());
        for entry in entries {
            if counted.kept.len() < keep {
                counted.kept.push(entry.execution);
            } else if counted.surplus.len() < SURPLUS_MAX {
                counted.surplus.push(entry.execution);
            } else {
                counted.more = true;
                return Ok(counted);
            }
        }
        if before.is_none() {
            return Ok(counted);
        }
    }
}

/// Of a job's executions that did not fail, those behind the newest so many. The listing is by slot, so that an execution asked for late for an
/// early slot counts as old.
async fn surplus_of_others(ctx: &Ctx, job: JobId, failed: &BTreeSet<ExecutionId>) -> Result<Counted, StoreError> {
    // Failures lie between them, and are not counted.
    let keep = ctx.retention.runs_per_job + failed.len();
    let Counted { kept, surplus, more } = newest_first(ctx, Listing::OfJob(job), keep).await?;
    let others = |ids: Vec<ExecutionId>| ids.into_iter().filter(|id| !failed.contains(id)).collect::<Vec<_>>();
    let (mut kept, surplus) = (others(kept), others(surplus));
    let mut behind = kept.split_off(kept.len().min(ctx.retention.runs_per_job));
    behind.extend(surplus);
    Ok(Counted { kept, surplus: behind, more })
}

/// Removes those of a job's executions that have ended, with everything that names them. One that has failed since it was counted among the others,
/// or was run again since it was counted among the failures, is of another kind now and stays.
async fn remove(ctx: &Ctx, tx: &Tx, job: JobId, ids: &[ExecutionId], failed: bool) -> Result<usize, StoreError> {
    let rows = execution::get_many(tx, ids, Read::Serializable).await?;
    let Some(parsed) = readable_jobs(ctx, tx, &[job]).await?.pop().flatten() else { return Ok(0) };
    let mut removed = 0;
    for row in rows {
        let Some(execution) = ctx.readable(row).flatten().map(|row| row.execution) else { continue };
        let is_failed = matches!(execution.state, State::Failed { .. });
        if execution.job != job || !execution.state.is_terminal() || is_failed != failed {
            continue;
        }
        bucket::clear_one(tx, execution.id).await?;
        history::remove_of_job(tx, &execution);
        history::remove_of_tenant(tx, &parsed.job.tenant, execution.id, execution.id);
        if is_failed {
            history::remove_failed(tx, &parsed.job.tenant, &execution);
        }
        removed += 1;
    }
    Ok(removed)
}
