//! What one pass over a shard's due slots decides. It decides everything and touches nothing.
//!
//! A slot that is due is queued, skipped or dropped, and a recurring job's next slot is planned with it, at dispatch and never at completion,
//! so that a slow run does not push its schedule. The plan is rich enough to explain itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::Timestamp;
use crate::execution::{Cause, Event, Execution, IllegalTransition, State};
use crate::ids::{ExecutionId, JobId, ShardCount};
use crate::job::{JobRun, JobState, Misfire, NextSlot};
use crate::ledger::SkipReason;
use crate::schedule::Schedule;
use crate::time::duration;

/// What a pass read about the rows that are due.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The rows, in the order of their due times.
    pub items: Vec<DueItem>,
    /// How many parts each lane has.
    pub partitions: u8,
    /// How many shards the store has.
    pub shards: ShardCount,
}

/// One due row and what belongs to it.
#[derive(Debug, Clone)]
pub struct DueItem {
    /// The execution that the row names.
    pub id: ExecutionId,
    /// When it is due.
    pub due: Timestamp,
    /// The execution's row; `None` if there is none.
    pub execution: Option<Execution>,
    /// Its job; `None` if there is none.
    pub job: Option<JobView>,
}

/// What the plan must know of a job.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The job.
    pub id: JobId,
    /// Whether its schedule goes on.
    pub state: JobState,
    /// Its schedule, parsed.
    pub schedule: Arc<Schedule>,
    /// What happens to late slots.
    pub misfire: Misfire,
    /// Where its schedule stands.
    pub run: JobRun,
}

/// What a pass will write.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One decision per due row, in the same order.
    pub decisions: Vec<Decision>,
}

/// What happens to one due row. In every case the row itself goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The execution that the row named.
    pub id: ExecutionId,
    /// When it was due.
    pub due: Timestamp,
    /// What happens to it.
    pub action: Action,
}

/// What happens to the execution of a due row.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing waits behind this row: an edit or an earlier pass came first.
    Drop(Stale),
    /// It goes to its lane.
    Queue {
        /// Its row from now on.
        execution: Execution,
        /// What its job's schedule does next; `None` for a retry, which moves no schedule.
        advance: Option<Advance>,
    },
    /// It ends without having run.
    End {
        /// Its row from now on.
        execution: Execution,
        /// What its job's schedule does next.
        advance: Option<Advance>,
    },
}

/// Why a due row has nothing behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// There is no such execution, or no such job.
    Gone,
    /// The execution is past waiting.
    NotWaiting,
    /// The job's schedule has moved on to another slot.
    Superseded,
}

/// How a job's schedule moves on.
#[derive(Debug, Clone, PartialEq)]
pub struct Advance {
    /// What the job's policies read from now on.
    pub run: JobRun,
    /// The row of the next slot, if there is one.
    pub next: Option<Execution>,
    /// The slots passed over, which get no row of their own.
    pub missed: Option<Missed>,
}

/// A stretch of slots that will not run, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// The first slot of the stretch.
    pub from: Timestamp,
    /// The stretch's end: no slot at or after it is meant.
    pub until: Timestamp,
    /// Why they do not.
    pub reason: SkipReason,
}

/// Decides about every item that is due by `now`. Items that are not due yet are left out of the plan.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let due = snapshot.items.iter().filter(|item| item.due <= now);
    let decisions =
        due.map(|item| Decision { id: item.id, due: item.due, action: decide(snapshot, item, now) }).collect();
    Plan { decisions }
}

fn decide(snapshot: &Snapshot, item: &DueItem, now: Timestamp) -> Action {
    let (Some(execution), Some(job)) = (&item.execution, &item.job) else { return Action::Drop(Stale::Gone) };
    let partition = partition_of(&item.id, snapshot.partitions);
    let queue = Event::Queue { at: now, partition };
    match &execution.state {
        State::Pending { .. } if execution.cause == Cause::Schedule => {
            if job.run.next.is_none_or(|next| next.execution != item.id) {
                return Action::Drop(Stale::Superseded);
            }
            decide_slot(snapshot, execution, job, now, &queue)
        }
        State::Pending { .. } | State::Retrying { .. } => {
            if job.state == JobState::Deleted {
                return end(execution, &cancel(now), None);
            }
            or_stale(execution.apply(&queue), |execution| Action::Queue { execution, advance: None })
        }
        State::Waiting { .. }
        | State::Queued(_)
        | State::Running(_)
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Skipped { .. } => Action::Drop(Stale::NotWaiting),
    }
}

/// Decides about the next slot of a job's schedule.
fn decide_slot(snapshot: &Snapshot, execution: &Execution, job: &JobView, now: Timestamp, queue: &Event) -> Action {
    let stop = JobRun { next: None, ..job.run.clone() };
    match job.state {
        JobState::Deleted => {
            return end(execution, &cancel(now), Some(Advance { run: stop, next: None, missed: None }));
        }
        // What a pause leaves out is not missed: a resume plans anew.
        JobState::Paused => {
            let skip = Event::Skip { at: now, reason: SkipReason::Paused, detail: "its job is paused".to_owned() };
            return end(execution, &skip, Some(Advance { run: stop, next: None, missed: None }));
        }
        JobState::Active => {}
    }
    let Kept { first: kept, until } = kept(job, execution.slot, now);
    if kept == Some(execution.slot) {
        let next = after(job, execution.slot);
        let advance = advance(snapshot, job, next, job.run.starts + 1, None);
        return or_stale(execution.apply(queue), |execution| Action::Queue { execution, advance: Some(advance) });
    }
    // The whole stretch that is too late goes in one step, so that a long outage is a few writes.
    let second = after(job, execution.slot);
    let missed =
        second.filter(|second| *second < until).map(|from| Missed { from, until, reason: SkipReason::Misfire });
    let skip = Event::Skip {
        at: now,
        reason: SkipReason::Misfire,
        detail: format!(
            "misfire: {} late; slots over {} late, and of the others all but the newest {}, do not run",
            duration::format(now.saturating_since(execution.slot)),
            duration::format(job.misfire.deadline),
            job.misfire.cap,
        ),
    };
    end(execution, &skip, Some(advance(snapshot, job, kept, job.run.starts, missed)))
}

/// What the misfire policy leaves of a job's slots.
struct Kept {
    /// The first slot that still runs; it may be one that is not due yet. `None`: there is none any more.
    first: Option<Timestamp>,
    /// All slots before this one are too late.
    until: Timestamp,
}

/// Which slots from `slot` on still run: those within the deadline, and of those that are due the newest `cap`.
fn kept(job: &JobView, slot: Timestamp, now: Timestamp) -> Kept {
    let Misfire { deadline, cap, .. } = job.misfire;
    let horizon = now.saturating_sub(deadline);
    let first = if slot >= horizon {
        Some(slot)
    } else {
        after(job, horizon.saturating_sub(Duration::from_nanos(1)).max(slot))
    };
    // Slots are at least a second apart, so no more than so many are due; most late jobs need no counting.
    let due_max = |first: &Timestamp| now.saturating_since(*first).as_secs().saturating_add(1);
    let Some(first) = first.filter(|first| *first <= now && due_max(first) > u64::from(cap)) else {
        return Kept { first, until: horizon };
    };
    let mut newest = VecDeque::with_capacity(cap as usize + 1);
    let mut next = Some(first);
    while let Some(due) = next.filter(|next| *next <= now) {
        newest.push_back(due);
        if newest.len() > cap as usize {
            newest.pop_front();
        }
        next = after(job, due);
    }
    let first = newest.pop_front().or(next);
    Kept { first, until: first.unwrap_or(horizon) }
}

/// The slot of a job that follows an instant and has no execution yet.
fn after(job: &JobView, instant: Timestamp) -> Option<Timestamp> {
    let mut slot = job.schedule.next_after(instant.to_utc())?;
    while job.run.taken.contains(&slot.into()) {
        slot = job.schedule.next_after(slot)?;
    }
    Some(slot.into())
}

/// The job's schedule when its next slot is `next`.
fn advance(
    snapshot: &Snapshot,
    job: &JobView,
    next: Option<Timestamp>,
    starts: u64,
    missed: Option<Missed>,
) -> Advance {
    let next = next.map(|slot| first_execution(job.id, slot, snapshot.shards));
    Advance { run: JobRun { next: next.as_ref().map(planned_slot), starts, ..job.run.clone() }, next, missed }
}

/// The row of a planned slot of a job's schedule.
pub fn first_execution(job: JobId, slot: Timestamp, shards: ShardCount) -> Execution {
    Execution::planned(ExecutionId::of_slot(job, slot, job.shard(shards)), job, slot, slot, Cause::Schedule)
}

/// Where a job's schedule stands when this planned row is next.
pub fn planned_slot(execution: &Execution) -> NextSlot {
    let due = match &execution.state {
        State::Pending { due } => *due,
        _ => execution.slot,
    };
    NextSlot { slot: execution.slot, due, execution: execution.id }
}

/// The part of its lane that an execution waits in: spread evenly, and the same for every attempt.
pub fn partition_of(id: &ExecutionId, partitions: u8) -> u8 {
    id.as_bytes()[ExecutionId::BYTES - 1] % partitions.max(1)
}

fn cancel(now: Timestamp) -> Event {
    Event::Cancel { at: now, reason: "its job was deleted".to_owned() }
}

fn end(execution: &Execution, event: &Event, advance: Option<Advance>) -> Action {
    or_stale(execution.apply(event), |execution| Action::End { execution, advance })
}

fn or_stale(applied: Result<Execution, IllegalTransition>, action: impl FnOnce(Execution) -> Action) -> Action {
    applied.map_or(Action::Drop(Stale::NotWaiting), action)
}
