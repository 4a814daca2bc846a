//! Planning a job's next slot outside of a tick. A job has at most one planned slot, and whoever plans another takes that one back first.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Execution, State};
use compline_core::ids::JobId;
use compline_core::job::JobRun;
use compline_core::ledger::SkipReason;
use compline_core::schedule::Schedule;
use compline_core::tick::planned_slot;
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::queue::{ByTime, Due};
use compline_store::tables::{execution, finished, history, job, ledger, queue};
use compline_store::{StoreError, Tx};

use crate::ctx::{Ctx, ParsedJob};
use crate::loops::LOOK_AHEAD;
use crate::metrics::Skipped;
use crate::passes::{cancel, rezone};

/// How many slots of a job may be cancelled ahead of their time.
pub const TAKEN_MAX: usize = 1_000;

/// How many slots are looked at together for one that is free.
const FREE_AT_ONCE: usize = 128;

/// For so long a slot that was cancelled ahead of its time is remembered as such once its time is over: longer than clocks may differ.
const TAKEN_FOR: Duration = Duration::from_secs(3_600);

/// Plans the slot that follows `slot`, in the transaction that takes `slot` out of the plan: the job's schedule goes on without it.
pub async fn plan_next(
    ctx: &Ctx,
    tx: &Tx,
    parsed: &ParsedJob,
    mut run: JobRun,
    slot: Timestamp,
) -> Result<(), StoreError> {
    let now = ctx.env.now();
    run.taken.retain(|taken| *taken + TAKEN_FOR > now);
    run.taken.push(slot);
    run.planned_after = Some(slot);
    plan_from(ctx, tx, parsed, run, parsed.timetable().after(slot)).await
}

/// The first slot of a job behind an instant. What was to run at once has none.
pub fn first_behind(parsed: &ParsedJob, instant: Timestamp) -> Option<Timestamp> {
    match &*parsed.schedule {
        Schedule::Now => None,
        Schedule::Once(at) => Some(Timestamp::from(*at)).filter(|at| *at > instant),
        Schedule::Cron { .. } => parsed.timetable().after(instant),
    }
}

/// Writes what the job's policies read, with `first` or the first slot behind it as the one to come, and plans that. A slot that has an execution
/// already keeps it and is passed over: one that was cancelled ahead of its time, or that a clock ahead of this one let run.
pub async fn plan_from(
    ctx: &Ctx,
    tx: &Tx,
    parsed: &ParsedJob,
    run: JobRun,
    first: Option<Timestamp>,
) -> Result<(), StoreError> {
    let planned = match first.filter(|_| !parsed.timetable().is_used_up(run.starts)) {
        Some(first) => first_free(ctx, tx, parsed, first).await?,
        None => None,
    };
    let reached = run.next.map(|next| next.slot).max(run.paused_from).max(run.reached);
    let reached = reached.filter(|reached| planned.as_ref().is_some_and(|planned| planned.slot < *reached));
    // A job that was finished before has its note already.
    let had_more = run.next.is_some() || run.paused_from.is_some();
    let next = planned.as_ref().map(planned_slot);
    let zones = rezone::planned_by(ctx, tx, &parsed.schedule, parsed.job.id.shard(ctx.shards)).await?;
    job::put_run(tx, parsed.job.id, &JobRun { next, reached, paused_from: None, zones, ..run })?;
    match &planned {
        Some(planned) => write_planned(tx, parsed, planned, ctx.env.now()),
        None if had_more => {
            note_finished(tx, parsed.job.id, ctx.env.now());
            Ok(())
        }
        None => Ok(()),
    }
}

/// The execution of the first slot from `first` on that has none yet.
pub(crate) async fn first_free(
    ctx: &Ctx,
    tx: &Tx,
    parsed: &ParsedJob,
    first: Timestamp,
) -> Result<Option<Execution>, StoreError> {
    let timetable = parsed.timetable();
    let mut slots = std::iter::successors(Some(first), |slot| timetable.after(*slot));
    // Nearly always the first is free; if a clock was hours ahead, thousands are not.
    let mut at_once = 1;
    loop {
        let planned: Vec<_> = slots.by_ref().take(at_once).map(|slot| timetable.execution(slot, ctx.shards)).collect();
        let ids: Vec<_> = planned.iter().map(|execution| execution.id).collect();
        let rows = execution::get_many(tx, &ids, Read::Serializable).await?;
        // One that cannot be read is there.
        let free = rows.into_iter().position(|row| matches!(row, Ok(None)));
        if let Some(free) = free {
            return Ok(planned.into_iter().nth(free));
        }
        if planned.len() < at_once {
            return Ok(None);
        }
        at_once = FREE_AT_ONCE;
    }
}

/// Notes that a job has no slot to come: it goes once its history is gone.
pub fn note_finished(tx: &Tx, job: JobId, now: Timestamp) {
    finished::put(tx, u32::try_from(now.timestamp() / 3_600).unwrap_or_default(), job);
}

/// Takes the planned slot of a job back: it leaves no trace, for its time has not come, and it may be planned again. Returns its instant.
pub async fn withdraw(tx: &Tx, parsed: &ParsedJob, run: &JobRun) -> Result<Option<Timestamp>, StoreError> {
    let Some(next) = run.next else { return Ok(None) };
    let row = execution::get(tx, next.execution, Read::Serializable).await?;
    let row = row.map(|row| row.execution);
    if let Some(planned) = row.filter(|row| matches!(row.state, State::Pending { .. } | State::Owed(_))) {
        cancel::leave_place(tx, &planned);
        execution::remove(tx, planned.id);
        execution::add_open(tx, planned.id.shard(), planned.id.bucket_hour(), -1);
        history::remove(tx, &parsed.job.tenant, &planned);
    }
    Ok(Some(next.slot))
}

/// The moment of a change, and the slots that it leaves out, for whoever counts them once it is committed.
#[derive(Debug)]
pub struct Moment {
    /// When it is.
    pub now: Timestamp,
    /// How many slots do not run, by why.
    pub skipped: Skipped,
}

impl Moment {
    /// This moment.
    pub fn at(now: Timestamp) -> Self {
        Self { now, skipped: Skipped::new() }
    }

    /// Accounts for the slots that a pause left out, which ends now, or goes on with another schedule: from the one on that was planned when it
    /// began.
    pub fn close_pause(&mut self, tx: &Tx, parsed: &ParsedJob, run: &JobRun) -> Result<(), StoreError> {
        self.leave_out(tx, parsed, run.paused_from, SkipReason::Paused)
    }

    /// Writes down that the slots from `first` up to now do not run. One that is still to come is not left out: it is not planned, or planned anew.
    pub fn leave_out(
        &mut self,
        tx: &Tx,
        parsed: &ParsedJob,
        first: Option<Timestamp>,
        reason: SkipReason,
    ) -> Result<(), StoreError> {
        let Some(first) = first.filter(|first| *first <= self.now) else { return Ok(()) };
        // The microsecond after now: keys know no less.
        let until = self.now + Duration::from_micros(1);
        // What had one slot has left out that one.
        *self.skipped.entry(reason).or_default() += parsed.slots_between(first, until).max(1);
        ledger::add_range(tx, parsed.job.id, first, until, reason)
    }
}

/// Writes a new execution that waits for its time, and wakes the ticker if that is soon.
pub fn write_planned(tx: &Tx, parsed: &ParsedJob, planned: &Execution, now: Timestamp) -> Result<(), StoreError> {
    execution::put(tx, planned)?;
    execution::add_open(tx, planned.id.shard(), planned.id.bucket_hour(), 1);
    history::add(tx, &parsed.job.tenant, planned);
    let due = Due { at: queue::due_instant(planned_slot(planned).due), execution: planned.id, job: planned.job };
    ByTime::Due.put(tx, &due)?;
    // A ticker may have read ahead while this transaction took its time, so the job's own clock is not taken at its word.
    if due.at <= now + 2 * LOOK_AHEAD {
        Bell::Shard(planned.id.shard()).ring(tx);
    }
    Ok(())
}
