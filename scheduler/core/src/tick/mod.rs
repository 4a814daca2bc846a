//! What one pass over a shard's due slots decides. It decides everything and touches nothing.
//!
//! A slot that is due is queued, skipped or dropped, and a recurring job's next slot is planned with it, at dispatch and never at completion,
//! so that a slow run does not push its schedule. The plan is rich enough to explain itself.

mod misfire;
mod overlap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use misfire::{Verdict, judge, too_late};
use overlap::{Admission, At};
pub use overlap::{Counted, Gate, WAITING_MAX};

use crate::Timestamp;
use crate::execution::{Cause, Event, Execution, IllegalTransition, Owed, State};
use crate::ids::{ExecutionId, JobId, ShardCount};
use crate::job::{Bounds, JobRun, JobState, LATE_GRACE, Misfire, NextSlot, Overlap};
use crate::ledger::SkipReason;
use crate::schedule::Schedule;
use crate::timetable::Timetable;

/// What a pass read about the rows that are due.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The rows, in the order of their due times.
    pub items: Vec<DueItem>,
    /// The live and waiting executions of those jobs among them that have an overlap rule, or had one.
    pub gates: BTreeMap<JobId, Gate>,
    /// Whether these are the rows of what is owed; else of what is to come.
    pub owed: bool,
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
    /// What happens to slots while earlier executions are live.
    pub overlap: Overlap,
    /// The window over which starts are spread.
    pub splay: Duration,
    /// From when, until when and how often it runs.
    pub bounds: Bounds,
    /// Where its schedule stands.
    pub run: JobRun,
}

/// What a pass will write.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One decision per due row, in the same order.
    pub decisions: Vec<Decision>,
}

/// What happens to one due row. The row itself goes, unless it is [`Action::Later`].
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The execution that the row named.
    pub id: ExecutionId,
    /// When it was due.
    pub due: Timestamp,
    /// Its job; `None` if there is none.
    pub job: Option<JobId>,
    /// What happens to it.
    pub action: Action,
    /// What happens to other executions of its job, because of the overlap rule.
    pub changes: Vec<Change>,
}

/// What happens to an execution because another one of its job came or went.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// It waited, and goes to its lane.
    Release {
        /// Its row until now.
        before: Execution,
        /// Its row from now on.
        after: Execution,
    },
    /// It ends: its place was taken, its job is over, or the rule ends what is live.
    End {
        /// Its row until now.
        before: Execution,
        /// Its row from now on.
        after: Execution,
    },
    /// It runs, and is asked to stop.
    Stop {
        /// Its row until now.
        before: Execution,
        /// Its row from now on.
        after: Execution,
    },
    /// It waits, and a later pass is to look at it.
    Wake {
        /// Which.
        id: ExecutionId,
        /// When it was due.
        due: Timestamp,
    },
    /// It was said to wait, and does not.
    Forget {
        /// Which.
        id: ExecutionId,
        /// When it was due.
        due: Timestamp,
    },
}

/// What happens to the execution of a due row.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing waits behind this row: an edit or an earlier pass came first.
    Drop(Stale),
    /// The row stays, and the next pass decides about it.
    Later,
    /// It is late, and waits among what is owed until there is room for it.
    Owe {
        /// Its row from now on.
        execution: Execution,
        /// What its job's schedule does next; `None` if that goes on no sooner than this slot does, or if this moves no schedule.
        advance: Option<Advance>,
    },
    /// It goes to its lane.
    Queue {
        /// Its row from now on.
        execution: Execution,
        /// What its job's schedule does next; `None` for a retry, which moves no schedule.
        advance: Option<Advance>,
    },
    /// It waits until an earlier execution of its job has ended.
    Wait {
        /// Its row from now on.
        execution: Execution,
        /// What its job's schedule does next; `None` for what somebody asked for.
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
    /// It waits for an earlier execution still, and whoever ends that wakes it again.
    Held,
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
    let mut gates = snapshot.gates.clone();
    let mut decided = BTreeSet::new();
    let due = snapshot.items.iter().filter(|item| item.due <= now);
    let decisions = due.map(|item| {
        let mut changes = Vec::new();
        // What this pass queues it cannot end as well: a rule that ends others decides about one row of its job at a time.
        let one_at_a_time = item.job.as_ref().filter(|job| job.overlap.ends_others());
        let action = if one_at_a_time.is_some_and(|job| !decided.insert(job.id)) {
            Action::Later
        } else {
            decide(snapshot, &mut gates, item, now, &mut changes)
        };
        Decision { id: item.id, due: item.due, job: item.job.as_ref().map(|job| job.id), action, changes }
    });
    Plan { decisions: decisions.collect() }
}

fn decide(
    snapshot: &Snapshot,
    gates: &mut BTreeMap<JobId, Gate>,
    item: &DueItem,
    now: Timestamp,
    changes: &mut Vec<Change>,
) -> Action {
    let (Some(execution), Some(job)) = (&item.execution, &item.job) else { return Action::Drop(Stale::Gone) };
    let at = At { job, now, partitions: snapshot.partitions };
    // It is in the other queue: whoever put it there, or took it back, came first.
    if snapshot.owed != matches!(execution.state, State::Owed(_)) && waits_for_its_time(&execution.state) {
        return Action::Drop(Stale::NotWaiting);
    }
    let late = !snapshot.owed && now.saturating_since(item.due) > LATE_GRACE;
    let mut uncounted = Gate::default();
    let gate = gates.get_mut(&job.id).unwrap_or(&mut uncounted);
    gate.settle(&at, changes);
    match &execution.state {
        State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. })
            if execution.cause == Cause::Schedule =>
        {
            if job.run.next.is_none_or(|next| next.execution != item.id) {
                return Action::Drop(Stale::Superseded);
            }
            decide_slot(snapshot, execution, &at, late, gate, changes)
        }
        State::Pending { .. } | State::Retrying { .. } | State::Owed(_) if job.state == JobState::Deleted => {
            end(execution, &cancel_deleted(now), None)
        }
        State::Pending { .. } | State::Retrying { .. } if late => owe(execution, now, None),
        State::Owed(owed) if execution.cause == Cause::Schedule && owed.passed && !owed.again => {
            decide_passed(execution, owed, &at, gate, changes)
        }
        // A try of what is live already, and what tells of a failure, which is another task.
        State::Retrying { .. } | State::Owed(Owed { again: true, .. }) if execution.counted => queue(execution, &at),
        State::Pending { .. } | State::Retrying { .. } | State::Owed(_)
            if matches!(execution.cause, Cause::Failure { .. }) =>
        {
            queue(execution, &at)
        }
        State::Pending { .. } | State::Retrying { .. } | State::Owed(_) => admit(execution, &at, gate, changes),
        State::Waiting { .. } => Action::Drop(Stale::Held),
        State::Queued(_)
        | State::Running(_)
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Skipped { .. } => Action::Drop(Stale::NotWaiting),
    }
}

fn waits_for_its_time(state: &State) -> bool {
    matches!(state, State::Pending { .. } | State::Retrying { .. } | State::Owed(_))
}

/// Sets an execution aside, with its job's schedule if that goes on without it.
fn owe(execution: &Execution, now: Timestamp, advance: Option<Advance>) -> Action {
    let event = Event::Owe { at: now, passed: advance.is_some() };
    or_stale(execution.apply(&event), |execution| Action::Owe { execution, advance })
}

/// What moves no schedule goes to its lane, if the overlap rule of its job lets it.
fn admit(execution: &Execution, at: &At<'_>, gate: &mut Gate, changes: &mut Vec<Change>) -> Action {
    match gate.admit(execution, at, changes) {
        Admission::Queue { execution, .. } => Action::Queue { execution, advance: None },
        Admission::Wait { execution, .. } => Action::Wait { execution, advance: None },
        Admission::Skip(execution) => Action::End { execution, advance: None },
        Admission::Stale => Action::Drop(Stale::NotWaiting),
    }
}

/// Decides about an owed slot that its job's schedule has gone on without. It was chosen to run; whether it still may is asked again.
fn decide_passed(
    execution: &Execution,
    owed: &Owed,
    at: &At<'_>,
    gate: &mut Gate,
    changes: &mut Vec<Change>,
) -> Action {
    let At { job, now, .. } = *at;
    let cleared = job.run.cleared.filter(|cleared| execution.slot <= cleared.until).map(|cleared| cleared.reason);
    let reason = if job.state == JobState::Paused { Some(SkipReason::Paused) } else { cleared };
    if let Some(reason) = reason {
        let words = format!("it was owed still when its job was {}, and does not run any more", reason.as_str());
        return end(execution, &skip(now, reason, words), None);
    }
    if let Some(words) = too_late(job, owed.due, now) {
        return end(execution, &skip(now, SkipReason::Misfire, words), None);
    }
    admit(execution, at, gate, changes)
}

fn queue(execution: &Execution, at: &At<'_>) -> Action {
    or_stale(execution.apply(&at.queue(&execution.id)), |execution| Action::Queue { execution, advance: None })
}

/// Decides about the next slot of a job's schedule.
fn decide_slot(
    snapshot: &Snapshot,
    execution: &Execution,
    at: &At<'_>,
    late: bool,
    gate: &mut Gate,
    changes: &mut Vec<Change>,
) -> Action {
    let At { job, now, .. } = *at;
    let stop = Advance { run: JobRun { next: None, ..job.run.clone() }, next: None, missed: None };
    match job.state {
        JobState::Deleted => return end(execution, &cancel_deleted(now), Some(stop)),
        // What a pause leaves out is not missed: a resume plans anew.
        JobState::Paused => {
            return end(execution, &skip(now, SkipReason::Paused, "its job is paused".to_owned()), Some(stop));
        }
        JobState::Active => {}
    }
    if job.timetable().is_used_up(job.run.starts) {
        let words = format!("ended: its job has had its {} runs (`max_runs`)", job.run.starts);
        return end(execution, &skip(now, SkipReason::Ended, words), Some(stop));
    }
    let after = |starts, owed_until| {
        let next = job.timetable().after(execution.slot);
        Some(advance(snapshot, job, next, JobRun { next: None, starts, owed_until, ..job.run.clone() }, None))
    };
    match judge(job, planned_slot(execution), now) {
        Verdict::Run { owed_until } if late => {
            owe(execution, now, job.goes_past_owed().then(|| after(job.run.starts + 1, owed_until)).flatten())
        }
        Verdict::Run { owed_until } => match gate.admit(execution, at, changes) {
            Admission::Queue { execution, replaced } => {
                Action::Queue { execution, advance: after((job.run.starts + 1).saturating_sub(replaced), owed_until) }
            }
            Admission::Wait { execution, replaced } => {
                Action::Wait { execution, advance: after((job.run.starts + 1).saturating_sub(replaced), owed_until) }
            }
            Admission::Skip(execution) => Action::End { execution, advance: after(job.run.starts, owed_until) },
            Admission::Stale => Action::Drop(Stale::NotWaiting),
        },
        Verdict::Pass { next, until, owed_until, reason } => {
            // The whole stretch that is too late goes in one step, so that a long outage is a few writes.
            let second = job.timetable().after(execution.slot).filter(|second| *second < until);
            let missed = second.map(|from| Missed { from, until, reason: SkipReason::Misfire });
            let run = JobRun { next: None, owed_until, ..job.run.clone() };
            let advance = advance(snapshot, job, next, run, missed);
            end(execution, &skip(now, SkipReason::Misfire, reason), Some(advance))
        }
    }
}

/// The job's schedule when its next slot is `next`, unless it has had all its runs.
fn advance(
    snapshot: &Snapshot,
    job: &JobView,
    next: Option<Timestamp>,
    run: JobRun,
    missed: Option<Missed>,
) -> Advance {
    let table = job.timetable();
    let next = next.filter(|_| !table.is_used_up(run.starts)).map(|slot| table.execution(slot, snapshot.shards));
    // What was owed is behind once a slot after it is planned.
    let owed_until = run.owed_until.filter(|until| next.as_ref().is_some_and(|next| next.slot <= *until));
    let reached = run.reached.filter(|reached| next.as_ref().is_some_and(|next| next.slot < *reached));
    Advance { run: JobRun { next: next.as_ref().map(planned_slot), owed_until, reached, ..run }, next, missed }
}

/// Where a job's schedule stands when this planned row is next.
pub fn planned_slot(execution: &Execution) -> NextSlot {
    let due = match &execution.state {
        State::Pending { due } | State::Owed(Owed { due, .. }) => *due,
        _ => execution.slot,
    };
    NextSlot { slot: execution.slot, due, execution: execution.id }
}

/// The part of its lane that an execution waits in: spread evenly, and the same for every attempt.
pub fn partition_of(id: &ExecutionId, partitions: u8) -> u8 {
    id.as_bytes()[ExecutionId::BYTES - 1] % partitions.max(1)
}

impl JobView {
    /// Whether the schedule goes on while slots of it are owed, so that what is due now waits for none of them: its slots have nothing to do with
    /// each other.
    pub fn goes_past_owed(&self) -> bool {
        self.overlap == Overlap::Allow && self.bounds.max_runs.is_none()
    }

    /// Its slots.
    pub fn timetable(&self) -> Timetable<'_> {
        Timetable {
            job: self.id,
            schedule: &self.schedule,
            bounds: self.bounds,
            splay: self.splay,
            taken: &self.run.taken,
        }
    }
}

fn cancel_deleted(now: Timestamp) -> Event {
    Event::Cancel { at: now, reason: "its job was deleted".to_owned() }
}

fn skip(now: Timestamp, reason: SkipReason, detail: String) -> Event {
    Event::Skip { at: now, reason, detail }
}

fn end(execution: &Execution, event: &Event, advance: Option<Advance>) -> Action {
    or_stale(execution.apply(event), |execution| Action::End { execution, advance })
}

fn or_stale(applied: Result<Execution, IllegalTransition>, action: impl FnOnce(Execution) -> Action) -> Action {
    applied.map_or(Action::Drop(Stale::NotWaiting), action)
}
