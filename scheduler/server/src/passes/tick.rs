//! tick(shard): queue what is due, and plan each recurring job's next slot in the same commit.

use compline_core::Timestamp;
use compline_core::execution::{Cause, Execution, Owed, State};
use compline_core::ids::{ExecutionId, JobId, SessionId, ShardId};
use compline_core::job::{Job, JobRun, JobState};
use compline_core::tick::{
    Action, Advance, Change, Decision, DueItem, JobView, Plan, Snapshot, partition_of, plan, planned_slot,
};
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::execution::ExecutionRow;
use compline_store::tables::queue::{ByTime, Due, Part, Ready, ZONE_DEFAULT};
use compline_store::tables::{execution, finished, history, job, lease, ledger, queue};
use compline_store::{StoreError, TransactOptions, Tx};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{in_batches, overlap, rezone};
use crate::ctx::{Ctx, ParsedJob};
use crate::metrics::Skipped;
use crate::ops::plan::first_free;

/// What a pass did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// How many executions went to their lanes.
    pub queued: usize,
    /// How many ended without having run.
    pub ended: usize,
    /// How many executions were found late, and set aside.
    pub set_aside: usize,
    /// The lanes to which something is owed now that was due.
    pub owed: BTreeSet<String>,
    /// The slots planned next, and the rows that are left to the next pass.
    pub planned: Vec<Due>,
    /// Slots that will not run, by why.
    pub skipped: Skipped,
    /// Whether the session lost the shard. Then nothing was written.
    pub lost: bool,
}

/// Handles the given rows of one of a shard's queues, which were read ahead and are only a hint: the commit depends on each of them, on each job, and on
/// the lease. Rows that are not due yet by `now` are left alone.
pub async fn tick(
    ctx: &Ctx,
    session: SessionId,
    shard: ShardId,
    from: ByTime<'_>,
    rows: &[Due],
    now: Timestamp,
) -> Result<Ticked, StoreError> {
    let pass = |options, begin, end| tick_batch(ctx, session, shard, from, &rows[begin..end], now, options);
    let batches = in_batches(rows, pass).await?;
    let mut total = Ticked::default();
    for batch in batches {
        total.queued += batch.queued;
        total.ended += batch.ended;
        total.set_aside += batch.set_aside;
        total.owed.extend(batch.owed);
        total.planned.extend(batch.planned);
        for (reason, count) in batch.skipped {
            *total.skipped.entry(reason).or_default() += count;
        }
        total.lost |= batch.lost;
    }
    Ok(total)
}

async fn tick_batch(
    ctx: &Ctx,
    session: SessionId,
    shard: ShardId,
    from: ByTime<'_>,
    rows: &[Due],
    now: Timestamp,
    options: TransactOptions,
) -> Result<Ticked, StoreError> {
    let committed = ctx
        .store
        .transact_with(options, |tx| async move {
            // Read serializably, so that a new owner makes this commit conflict: a ticker that lost its lease changes nothing.
            if lease::get(&tx, shard).await?.is_none_or(|lease| lease.owner != session) {
                return Ok(Ticked { lost: true, ..Ticked::default() });
            }
            let there = from.has(&tx, rows).await?;
            // A row that was read ahead and has gone since was handled by another: its execution may wait for a later time by now.
            let rows: Vec<Due> = rows.iter().zip(there).filter(|(_, there)| *there).map(|(row, _)| *row).collect();
            let seen = read(ctx, &tx, from, &rows).await?;
            let plan = plan(&seen.snapshot, now);
            let ticked = write(ctx, &tx, from, &plan, &seen).await?;
            Ok(Ticked { skipped: skipped(&plan, &seen), ..ticked })
        })
        .await?;
    let Ticked { queued, ended, set_aside, .. } = committed.value;
    ctx.metrics.ticked(queued, ended, set_aside);
    ctx.metrics.skipped(&committed.value.skipped);
    Ok(committed.value)
}

/// What a batch read: what is planned from, and what is needed beside that to write the plan.
struct Seen {
    snapshot: Snapshot,
    jobs: BTreeMap<JobId, Arc<ParsedJob>>,
    /// Rows of executions that are not due themselves, and that the plan may change.
    others: BTreeMap<ExecutionId, ExecutionRow>,
}

async fn read(ctx: &Ctx, tx: &Tx, from: ByTime<'_>, rows: &[Due]) -> Result<Seen, StoreError> {
    let ids: Vec<_> = rows.iter().map(|row| row.execution).collect();
    let job_ids: Vec<_> = rows.iter().map(|row| row.job).collect();
    let executions = execution::get_many(tx, &ids, Read::Snapshot).await?;
    let job_rows = job::get_many(tx, &job_ids, Read::Snapshot).await?;
    let runs = job::get_runs(tx, &job_ids, Read::Snapshot).await?;
    let mut seen = Seen {
        snapshot: Snapshot {
            items: Vec::with_capacity(rows.len()),
            gates: BTreeMap::new(),
            owed: matches!(from, ByTime::Owed(_)),
            partitions: ctx.partitions,
            shards: ctx.shards,
        },
        jobs: BTreeMap::new(),
        others: BTreeMap::new(),
    };
    let outdated = rezone::is_outdated(ctx, tx).await?;
    for (((row, execution), job_row), run) in rows.iter().zip(executions).zip(job_rows).zip(runs) {
        // An unreadable row stops itself, not its neighbours: its due row stays, and it is counted at every pass.
        let (Some(execution), Some(job_row), Some(run)) =
            (ctx.readable(execution), ctx.readable(job_row), ctx.readable(run))
        else {
            continue;
        };
        from.depend_on(tx, row.at, row.execution);
        tx.depend_on(&job::key(row.job));
        let Some(job_row) = job_row else {
            seen.snapshot.items.push(DueItem { id: row.execution, due: row.at, execution: None, job: None });
            continue;
        };
        let Some(parsed) = ctx.readable(ctx.jobs.parsed(row.job, &job_row)) else { continue };
        let execution = execution.map(|row| row.execution);
        // By older zone data neither this slot nor the next one is right: it stays for a scheduler whose data is newer.
        if outdated && parsed.schedule.follows_zone_data() && execution.as_ref().is_some_and(is_planned) {
            continue;
        }
        seen.add_gate(ctx, tx, &parsed.job, execution.as_ref()).await?;
        let view = view(&parsed, job_row.state, run.unwrap_or_default());
        seen.jobs.insert(row.job, parsed);
        seen.snapshot.items.push(DueItem { id: row.execution, due: row.at, execution, job: Some(view) });
    }
    Ok(seen)
}

fn is_planned(execution: &Execution) -> bool {
    execution.cause == Cause::Schedule
        && matches!(execution.state, State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. }))
}

fn view(parsed: &ParsedJob, state: JobState, run: JobRun) -> JobView {
    let Job { id, misfire, overlap, splay, bounds, .. } = parsed.job;
    JobView { id, state, schedule: parsed.schedule.clone(), misfire, overlap, splay, bounds, run }
}

impl Seen {
    /// Reads who is live and who waits, once for each job that counts that; one that has had a rule may still have somebody waiting.
    async fn add_gate(
        &mut self,
        ctx: &Ctx,
        tx: &Tx,
        job: &Job,
        execution: Option<&Execution>,
    ) -> Result<(), StoreError> {
        let waits = execution.is_some_and(|execution| matches!(execution.state, State::Waiting { .. }));
        if (job.overlap.live_max().is_some() || waits) && !self.snapshot.gates.contains_key(&job.id) {
            let gate = overlap::read_gate(ctx, tx, job.id, job.overlap, &mut self.others).await?;
            self.snapshot.gates.insert(job.id, gate);
        }
        Ok(())
    }
}

/// The slots that a plan leaves out.
fn skipped(plan: &Plan, seen: &Seen) -> Skipped {
    let mut skipped = Skipped::new();
    let mut add = |execution: &Execution| {
        if let State::Skipped { reason, .. } = execution.state {
            *skipped.entry(reason).or_default() += 1;
        }
    };
    for decision in &plan.decisions {
        for change in &decision.changes {
            if let Change::End { after, .. } = change {
                add(after);
            }
        }
        if let Action::End { execution, .. } = &decision.action {
            add(execution);
        }
    }
    for Decision { job, action, .. } in &plan.decisions {
        let advance = match action {
            Action::Queue { advance, .. } | Action::Wait { advance, .. } | Action::End { advance, .. } => advance,
            Action::Owe { advance, .. } => advance,
            Action::Drop(_) | Action::Later => continue,
        };
        if let Some(missed) = advance.as_ref().and_then(|advance| advance.missed.as_ref())
            && let Some(parsed) = job.as_ref().and_then(|job| seen.jobs.get(job))
        {
            *skipped.entry(missed.reason).or_default() += parsed.slots_between(missed.from, missed.until);
        }
    }
    skipped
}

async fn write(ctx: &Ctx, tx: &Tx, from: ByTime<'_>, plan: &Plan, seen: &Seen) -> Result<Ticked, StoreError> {
    let mut ticked = Ticked::default();
    let mut lanes = BTreeSet::new();
    let mut open: BTreeMap<(ShardId, u32), i64> = BTreeMap::new();
    for Decision { id, due, job, action, changes } in &plan.decisions {
        let parsed = job.as_ref().and_then(|job| seen.jobs.get(job));
        if let (Action::Later, Some(parsed)) = (action, parsed) {
            ticked.planned.push(Due { at: *due, execution: *id, job: parsed.job.id });
            continue;
        }
        from.clear(tx, *due, *id);
        // Without its job nothing can be decided but that the row goes.
        let Some(parsed) = parsed else { continue };
        let changed = overlap::write_changes(ctx, tx, changes, parsed, &seen.others)?;
        ticked.queued += changed.queued;
        ticked.ended += changed.ended;
        if changed.queued > 0 {
            lanes.insert(parsed.job.lane.as_str());
        }
        let (execution, advance) = match action {
            Action::Drop(_) | Action::Later => continue,
            Action::Owe { execution, advance } => {
                put_owed(tx, execution, &parsed.job.lane)?;
                ticked.owed.insert(parsed.job.lane.clone());
                ticked.set_aside += 1;
                (execution, advance)
            }
            Action::Queue { execution, advance } => {
                enqueue(ctx, tx, execution, parsed)?;
                overlap::enter(tx, execution);
                lanes.insert(parsed.job.lane.as_str());
                ticked.queued += 1;
                (execution, advance)
            }
            Action::Wait { execution, advance } => {
                execution::put(tx, execution)?;
                overlap::enter(tx, execution);
                (execution, advance)
            }
            Action::End { execution, advance } => {
                execution::put(tx, execution)?;
                // A retry of a deleted job was live.
                overlap::leave(tx, execution).await?;
                *open.entry((id.shard(), id.bucket_hour())).or_default() -= 1;
                ticked.ended += 1;
                (execution, advance)
            }
        };
        if let Some(advance) = advance
            && let Some(next) = write_advance(ctx, tx, execution, advance, parsed).await?
        {
            *open.entry((next.execution.shard(), next.execution.bucket_hour())).or_default() += 1;
            ticked.planned.push(next);
        }
    }
    for ((shard, hour), delta) in open {
        execution::add_open(tx, shard, hour, delta);
    }
    for lane in lanes {
        Bell::Lane(lane).ring(tx);
    }
    Ok(ticked)
}

/// Writes a queued execution and its place in its lane, both under one stamp of this commit.
pub(super) fn enqueue(ctx: &Ctx, tx: &Tx, execution: &Execution, parsed: &ParsedJob) -> Result<(), StoreError> {
    let index = tx.next_stamp_index();
    let lane = parsed.job.lane.as_str();
    let mut execution = execution.clone();
    let mut owed = false;
    if let State::Queued(queued) = &mut execution.state {
        lane.clone_into(&mut queued.lane);
        owed = queued.owed;
    }
    let part = Part { lane, owed, zone: ZONE_DEFAULT, partition: partition_of(&execution.id, ctx.partitions) };
    execution::put_stamped(tx, &execution, ctx.incarnation, index)?;
    let digest = execution.task(&parsed.job).digest;
    part.push(tx, &Ready { execution: execution.id, job: execution.job, digest }, index)
}

/// Writes an execution that is owed, and its place.
fn put_owed(tx: &Tx, execution: &Execution, lane: &str) -> Result<(), StoreError> {
    let mut execution = execution.clone();
    if let State::Owed(owed) = &mut execution.state {
        lane.clone_into(&mut owed.lane);
        let row = Due { at: queue::due_instant(owed.due), execution: execution.id, job: execution.job };
        ByTime::Owed(lane).put(tx, &row)?;
    }
    execution::put(tx, &execution)
}

async fn write_advance(
    ctx: &Ctx,
    tx: &Tx,
    execution: &Execution,
    advance: &Advance,
    parsed: &ParsedJob,
) -> Result<Option<Due>, StoreError> {
    let mut next = advance.next.clone();
    if let Some(planned) = &next
        && advance.run.reached.is_some()
    {
        next = first_free(ctx, tx, parsed, planned.slot).await?;
    }
    let planned = next.as_ref().map(planned_slot);
    let mut run = JobRun { next: planned, ..advance.run.clone() };
    let until = advance.missed.as_ref().map(|missed| missed.until.saturating_sub(Duration::from_nanos(1)));
    run.planned_after = Some(until.map_or(execution.slot, |until| until.max(execution.slot)));
    if parsed.schedule.follows_zone_data() {
        run.zones = ctx.env.zones().version().clone();
    }
    job::put_run(tx, execution.job, &run)?;
    if let Some(missed) = &advance.missed {
        ledger::add_range(tx, execution.job, missed.from, missed.until, missed.reason)?;
    }
    let (Some(next), Some(planned)) = (&next, &planned) else {
        finished::put(tx, execution.id.bucket_hour(), execution.job);
        return Ok(None);
    };
    execution::put(tx, next)?;
    history::add(tx, &parsed.job.tenant, next);
    let due = Due { at: queue::due_instant(planned.due), execution: next.id, job: next.job };
    ByTime::Due.put(tx, &due)?;
    Ok(Some(due))
}
