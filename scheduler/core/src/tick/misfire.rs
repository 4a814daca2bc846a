//! Which slots still run that nobody queued in time.

use std::collections::VecDeque;
use std::time::Duration;

use super::{JobView, NextSlot};
use crate::Timestamp;
use crate::job::{LATE_GRACE, MisfirePolicy};
use crate::time::duration;
use crate::timetable::Timetable;

const TICK: Duration = Duration::from_nanos(1);

/// What the misfire rule makes of a job's planned slot.
pub(super) enum Verdict {
    /// It runs.
    Run {
        /// See [`crate::job::JobRun::owed_until`].
        owed_until: Option<Timestamp>,
    },
    /// It is too late, and so is all up to `until`.
    Pass {
        /// The first slot that still runs; it may be one that is not due yet. `None`: there is none any more.
        next: Option<Timestamp>,
        /// No slot at or after this one is meant.
        until: Timestamp,
        /// See [`crate::job::JobRun::owed_until`].
        owed_until: Option<Timestamp>,
        /// Why, in a sentence.
        reason: String,
    },
}

/// A job's slots from the one on that it has planned. That one is due when it was planned to be, whatever the schedule says by now: its zone data
/// may be newer.
struct Planned<'a> {
    table: Timetable<'a>,
    slot: Timestamp,
    due: Timestamp,
}

impl Planned<'_> {
    fn due(&self, slot: Timestamp) -> Timestamp {
        if slot == self.slot { self.due } else { self.table.due(slot) }
    }
}

/// Judges the slot that a job has planned, which is due by `now`.
pub(super) fn judge(job: &JobView, NextSlot { slot, due, .. }: NextSlot, now: Timestamp) -> Verdict {
    let planned = Planned { table: job.timetable(), slot, due };
    let horizon = now.saturating_sub(job.misfire.lateness_max());
    let first = within(&planned, horizon);
    let known = job.run.owed_until.filter(|until| slot <= *until);
    let kept = match (first, job.misfire.policy) {
        // What was chosen once is not counted again, so that a long catching-up costs the same at every slot.
        (Some(first), MisfirePolicy::RunAll) if known.is_none() => newest(&planned, first, now, job.misfire.cap),
        (Some(first), MisfirePolicy::RunLatest) => latest(&planned, first, now),
        (first, _) => first,
    };
    let owed_until = known.or_else(|| kept.filter(|kept| Some(*kept) != first).map(|_| now));
    if kept == Some(slot) {
        return Verdict::Run { owed_until };
    }
    // Without a choice among those within the deadline the stretch ends at the deadline, and not at a slot that may be far ahead.
    let until = match kept {
        Some(kept) if kept < horizon || kept != first.unwrap_or(kept) => kept,
        Some(_) | None => horizon,
    };
    Verdict::Pass { next: kept, until, owed_until, reason: reason(job, due, now) }
}

/// Why a slot that was due then does not run any more, if it is too late for that.
pub(super) fn too_late(job: &JobView, due: Timestamp, now: Timestamp) -> Option<String> {
    (now.saturating_since(due) > job.misfire.lateness_max()).then(|| reason(job, due, now))
}

/// The first slot from `slot` on that was due at `horizon` or later.
fn within(planned: &Planned<'_>, horizon: Timestamp) -> Option<Timestamp> {
    let Planned { table, slot, due } = *planned;
    if due >= horizon {
        return Some(slot);
    }
    let before = horizon.saturating_sub(TICK).max(slot);
    // No slot is due after its successor's instant, so of those before the horizon only the last can be due behind it.
    let last = (!table.splay.is_zero()).then(|| table.newest(slot, before)).flatten();
    last.filter(|last| table.due(*last) >= horizon).or_else(|| table.after(before))
}

/// The first of the newest `cap` slots that are due, or `first` if there are no more than so many.
fn newest(planned: &Planned<'_>, first: Timestamp, now: Timestamp, cap: u32) -> Option<Timestamp> {
    // Slots are at least a second apart, so no more than so many are due; most late jobs need no counting.
    if now.saturating_since(first).as_secs() < u64::from(cap) {
        return Some(first);
    }
    let mut newest = VecDeque::with_capacity(cap as usize + 1);
    let mut next = Some(first);
    while let Some(slot) = next.filter(|slot| *slot <= now && planned.due(*slot) <= now) {
        newest.push_back(slot);
        if newest.len() > cap as usize {
            newest.pop_front();
        }
        next = planned.table.after(slot);
    }
    newest.pop_front().or(next)
}

/// If the planned slot is late, the newest that is due; else the planned one.
fn latest(planned: &Planned<'_>, first: Timestamp, now: Timestamp) -> Option<Timestamp> {
    if first > now || now.saturating_since(planned.due) <= LATE_GRACE {
        return Some(first);
    }
    let table = &planned.table;
    let newest = table.newest(first, now).unwrap_or(first);
    if planned.due(newest) <= now {
        return Some(newest);
    }
    Some(table.newest(first, newest.saturating_sub(TICK)).unwrap_or(first))
}

fn reason(job: &JobView, due: Timestamp, now: Timestamp) -> String {
    let late = duration::format(now.saturating_since(due));
    let deadline = duration::format(job.misfire.lateness_max());
    match job.misfire.policy {
        MisfirePolicy::RunAll => format!(
            "misfire: {late} late; slots over {deadline} late, and of the others all but the newest {}, do not run",
            job.misfire.cap
        ),
        MisfirePolicy::RunLatest => {
            format!("misfire: {late} late; of late slots only the newest runs, and none over {deadline} late")
        }
        MisfirePolicy::Skip => format!("misfire: {late} late; slots over {deadline} late do not run"),
    }
}
