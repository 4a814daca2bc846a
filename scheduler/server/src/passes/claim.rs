//! claim(session, n): take up to n executions from the lanes that a node serves, only of components that it has compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compline_core::execution::{Event, Execution, State};
use compline_core::ids::{ClaimId, ExecutionId, Fence, JobId, SessionId, TaskDigest};
use compline_core::job::JobState;
use compline_store::backend::Read;
use compline_store::tables::queue::{self, Part, Ready, ZONE_DEFAULT};
use compline_store::tables::{execution, job, running, session};
use compline_store::{Stamp, StoreError, TransactOptions, Tx};

use super::parts::LaneParts;
use super::{BATCH_MAX, overlap, readable_jobs};
use crate::ctx::{Ctx, ParsedJob};

/// How many rows that cannot be taken a claim steps over in one part.
const STEPPED_OVER_MAX: usize = 1_024;

/// Who claims, and what.
pub struct ClaimRequest<'a> {
    /// The node.
    pub node: &'a str,
    /// Its session.
    pub session: SessionId,
    /// The lanes that it serves, in the order of its preference, each with the parts to take from, in that order.
    pub lanes: &'a [LaneParts],
    /// How many executions at the most.
    pub limit: usize,
    /// How many of them may be such as were owed. They come only when nothing else waits.
    pub owed_max: usize,
    /// Minted once per claim, so that a run after an unknown result finds what an earlier one took.
    pub claim: ClaimId,
    /// Whether the node can run a component now.
    pub can_run: &'a (dyn Fn(&TaskDigest) -> bool + Sync),
}

/// An execution that the session now holds.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The execution, running.
    pub execution: Execution,
    /// The right to report on it.
    pub fence: Fence,
    /// Its job.
    pub job: Arc<ParsedJob>,
}

/// What a claim got.
#[derive(Debug, Default)]
pub struct ClaimOutcome {
    /// What the session holds now.
    pub claimed: Vec<Claimed>,
    /// Components that wait to be run, and that this node cannot run yet.
    pub missing: BTreeSet<TaskDigest>,
    /// Whether something that was owed was left where it is, because no more of it may be taken.
    pub owed_left: bool,
    /// Whether the session is over. Then nothing was claimed.
    pub session_over: bool,
}

/// Claims. When others take the same rows first, it tries fewer.
pub async fn claim(ctx: &Ctx, request: &ClaimRequest<'_>) -> Result<ClaimOutcome, StoreError> {
    let mut limit = request.limit.min(BATCH_MAX);
    loop {
        let options = TransactOptions { conflicts_max: (limit > 1).then_some(2) };
        match claim_once(ctx, request, limit, options).await {
            Err(StoreError::Conflict | StoreError::TooLarge { what: "transaction", .. }) if limit > 1 => limit /= 2,
            other => return other,
        }
    }
}

async fn claim_once(
    ctx: &Ctx,
    request: &ClaimRequest<'_>,
    limit: usize,
    options: TransactOptions,
) -> Result<ClaimOutcome, StoreError> {
    let committed = ctx
        .store
        .transact_with(options, |tx| async move {
            if !session::is_current(&tx, request.node, request.session).await? {
                return Ok((ClaimOutcome { session_over: true, ..ClaimOutcome::default() }, Vec::new()));
            }
            if tx.maybe_committed()
                && let Some(taken) = already_taken(ctx, &tx, request).await?
            {
                return Ok((ClaimOutcome { claimed: taken, ..ClaimOutcome::default() }, Vec::new()));
            }
            take(ctx, &tx, request, limit).await
        })
        .await?;
    let (mut outcome, indexes) = committed.value;
    // The fences of what this commit took: they are known only now.
    if let Some(stamp) = committed.stamp {
        for (claimed, index) in outcome.claimed.iter_mut().zip(indexes) {
            claimed.fence = Fence::new(ctx.incarnation, stamp.with_index(index).0);
            if let State::Running(running) = &mut claimed.execution.state {
                running.fence = claimed.fence;
            }
        }
    }
    ctx.metrics.claimed(outcome.claimed.len());
    Ok(outcome)
}

/// What an earlier run of this claim took; `None`: it was not committed. What of that cannot be read is left where it is, and counted.
async fn already_taken(ctx: &Ctx, tx: &Tx, request: &ClaimRequest<'_>) -> Result<Option<Vec<Claimed>>, StoreError> {
    let (mut taken, mut committed) = (Vec::new(), false);
    let mut last = None;
    loop {
        // Serializable: an earlier run that lands only now must make this one conflict.
        let rows = running::of_session(tx, request.session, last, BATCH_MAX, Read::Serializable).await?;
        let Some((end, _)) = rows.last() else { break };
        last = Some(*end);
        let rows: Vec<_> = rows.into_iter().filter_map(|(_, row)| ctx.readable(row)).collect();
        let ours: Vec<_> = rows.iter().filter(|row| row.claim == request.claim).collect();
        let ids: Vec<ExecutionId> = ours.iter().map(|row| row.execution).collect();
        committed |= !ours.is_empty();
        let executions = execution::get_many(tx, &ids, Read::Serializable).await?;
        let executions = executions.into_iter().map(|row| ctx.readable(row).flatten().map(|row| row.execution));
        let executions: Vec<_> = executions.collect();
        let job_ids: Vec<JobId> = executions.iter().flatten().map(|execution| execution.job).collect();
        let mut jobs = readable_jobs(ctx, tx, &job_ids).await?.into_iter();
        for (row, execution) in ours.into_iter().zip(executions) {
            let Some(execution) = execution else { continue };
            let Some(job) = jobs.next().flatten() else { continue };
            taken.push(Claimed { execution, fence: row.fence, job });
        }
    }
    Ok(committed.then_some(taken))
}

type Taken = (ClaimOutcome, Vec<u16>);

async fn take(ctx: &Ctx, tx: &Tx, request: &ClaimRequest<'_>, limit: usize) -> Result<Taken, StoreError> {
    let mut taken = Taken::default();
    for lane in request.lanes {
        take_from(ctx, tx, request, lane, false, limit, &mut taken).await?;
    }
    if taken.0.claimed.len() == limit {
        return Ok(taken);
    }
    let limit = limit.min(taken.0.claimed.len() + request.owed_max);
    for lane in request.lanes {
        // One read for a lane that owes nothing, instead of one for each part.
        if queue::owed_in(tx, &lane.lane, 1).await? == 0 {
            continue;
        }
        take_from(ctx, tx, request, lane, true, limit, &mut taken).await?;
        taken.0.owed_left |= taken.0.claimed.len() == limit;
    }
    Ok(taken)
}

async fn take_from(
    ctx: &Ctx,
    tx: &Tx,
    request: &ClaimRequest<'_>,
    LaneParts { lane, parts }: &LaneParts,
    owed: bool,
    limit: usize,
    (outcome, indexes): &mut Taken,
) -> Result<(), StoreError> {
    for partition in parts {
        let wanted = limit - outcome.claimed.len();
        if wanted == 0 {
            break;
        }
        let part = Part { lane, owed, zone: ZONE_DEFAULT, partition: *partition };
        let rows = choose(ctx, tx, request, part, wanted, &mut outcome.missing).await?;
        take_rows(ctx, tx, request, part, &rows, outcome, indexes).await?;
    }
    Ok(())
}

/// The first rows of a part that this node can run. What it cannot run yet, or cannot read, is stepped over, up to a bound, so that it does not
/// stand in the way of what is behind it.
async fn choose(
    ctx: &Ctx,
    tx: &Tx,
    request: &ClaimRequest<'_>,
    part: Part<'_>,
    wanted: usize,
    missing: &mut BTreeSet<TaskDigest>,
) -> Result<Vec<(Stamp, Ready)>, StoreError> {
    let mut chosen = Vec::new();
    let mut last = None;
    let mut left = wanted + STEPPED_OVER_MAX;
    loop {
        let limit = (wanted - chosen.len()).min(left);
        let rows = part.first(tx, last, limit).await?;
        let read = rows.len();
        last = rows.last().map(|(stamp, _)| *stamp);
        for (stamp, ready) in rows {
            let Some(ready) = ctx.readable(ready) else { continue };
            if (request.can_run)(&ready.digest) {
                chosen.push((stamp, ready));
            } else {
                missing.insert(ready.digest);
            }
        }
        left -= read;
        if read < limit || chosen.len() == wanted || left == 0 {
            return Ok(chosen);
        }
    }
}

async fn take_rows(
    ctx: &Ctx,
    tx: &Tx,
    request: &ClaimRequest<'_>,
    part: Part<'_>,
    rows: &[(Stamp, Ready)],
    outcome: &mut ClaimOutcome,
    indexes: &mut Vec<u16>,
) -> Result<(), StoreError> {
    let ids: Vec<_> = rows.iter().map(|(_, ready)| ready.execution).collect();
    let job_ids: Vec<_> = rows.iter().map(|(_, ready)| ready.job).collect();
    let executions = execution::get_many(tx, &ids, Read::Snapshot).await?;
    let job_rows = job::get_many(tx, &job_ids, Read::Snapshot).await?;
    let now = ctx.env.now();
    let mut ended: BTreeMap<_, i64> = BTreeMap::new();
    for (((stamp, ready), execution), job_row) in rows.iter().zip(executions).zip(job_rows) {
        let (Some(row), Some(job_row)) = (ctx.readable(execution), ctx.readable(job_row)) else { continue };
        let job_row = job_row.filter(|job| job.state != JobState::Deleted);
        let job = match job_row.map(|job_row| ctx.jobs.parsed(ready.job, &job_row)) {
            None => None,
            // What cannot be read keeps its place.
            Some(parsed) => match ctx.readable(parsed) {
                Some(parsed) => Some(parsed),
                None => continue,
            },
        };
        // Whoever takes the row, whatever for, is the only one.
        part.take(tx, *stamp);
        let Some(row) = row.filter(|row| row.stamp == *stamp) else { continue };
        tx.depend_on(&job::key(ready.job));
        let Some(job) = job else {
            let cancel = Event::Cancel { at: now, reason: "its job was deleted".to_owned() };
            if let Ok(cancelled) = row.execution.apply(&cancel) {
                execution::put(tx, &cancelled)?;
                *ended.entry((cancelled.id.shard(), cancelled.id.bucket_hour())).or_default() -= 1;
                overlap::leave(tx, &row.execution).await?;
            }
            continue;
        };
        let event =
            Event::Claim { at: now, session: request.session, node: request.node.to_owned(), claim: request.claim };
        let Ok(running) = row.execution.apply(&event) else { continue };
        let index = tx.next_stamp_index();
        execution::put_stamped(tx, &running, ctx.incarnation, index)?;
        running::put(tx, request.session, running.id, request.claim, ctx.incarnation, index);
        indexes.push(index);
        outcome.claimed.push(Claimed { execution: running, fence: Fence::UNSET, job });
    }
    for ((shard, hour), delta) in ended {
        execution::add_open(tx, shard, hour, delta);
    }
    Ok(())
}
