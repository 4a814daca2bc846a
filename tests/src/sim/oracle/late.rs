//! Rules `misfire`, `spread` and `bounds`: which planned slots run, when they are due, and how many of them there may be.

use std::collections::BTreeMap;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Cause, Execution, Owed, State};
use compline_core::ids::JobId;
use compline_core::job::MisfirePolicy;
use compline_core::ledger::SkipReason;

use super::executions::Step;
use super::rows::Commit;
use super::{Checked, Oracle, broken, ensure};
use crate::sim::model::JobModel;

/// Who is no later than this is not late yet: a change of schedulers costs no slot.
const GRACE: Duration = Duration::from_secs(10);

/// What is known of a job's schedule beyond its model.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// How far behind its slot an execution was due once, and how far it might have been at the most: the same share for every slot.
    share: Option<(Duration, Duration)>,
    /// How many slots were admitted: those that ran, or wait for others.
    starts: u64,
    /// Slots up to here were late together, and those that were left of them then are all to run.
    chosen_until: Option<Timestamp>,
}

/// Between two bounds: the share is known no better than the due time that it was seen in.
type Between = (Timestamp, Timestamp);

impl Course {
    fn due(&self, model: &JobModel, slot: Timestamp) -> Between {
        let window = model.window(slot);
        let Some((delay, of)) = self.share.filter(|_| !window.is_zero()) else { return (slot, slot + window) };
        let scaled = |micros: u128| {
            let scaled = micros * window.as_micros() / of.as_micros().max(1);
            Duration::from_micros(u64::try_from(scaled).unwrap_or(u64::MAX))
        };
        (slot + scaled(delay.as_micros()), slot + scaled(delay.as_micros() + 1) + Duration::from_micros(1))
    }
}

impl Oracle {
    fn course(&mut self, job: JobId) -> &mut Course {
        self.courses.entry(job).or_default()
    }

    /// A planned slot is due at its instant, or later by a share of its window that is the job's own.
    pub(super) fn check_due(&mut self, execution: &Execution, due: Timestamp) -> Checked {
        let Some(model) = self.model(execution.job).filter(|_| execution.cause == Cause::Schedule) else {
            return Ok(());
        };
        let (slot, window) = (execution.slot, model.window(execution.slot));
        if window.is_zero() {
            return ensure(due == slot, "spread", || format!("nothing is spread of {execution:?}"));
        }
        let course = self.course(execution.job);
        let (earliest, latest) = course.due(&model, slot);
        ensure(slot <= due && due < slot + window && earliest <= due && due <= latest, "spread", || {
            format!("of {earliest} to {latest}, by {course:?} within {window:?}: {execution:?}")
        })?;
        let delay = due.saturating_since(slot);
        // The wider the window, the better is the share known.
        if course.share.is_none_or(|(_, of)| of < window) {
            course.share = Some((delay, window));
        }
        self.seen.spread += u64::from(!delay.is_zero());
        Ok(())
    }

    /// How many slots behind this one were due by an instant: at least, and at most. One that was cancelled ahead of its time counts no more.
    fn newer_due(&self, job: JobId, model: &JobModel, slot: Timestamp, at: Timestamp) -> (usize, usize) {
        let none = Course::default();
        let course = self.courses.get(&job).unwrap_or(&none);
        let (mut least, mut most) = (0, 0);
        let mut next = model.after(slot);
        while let Some(newer) = next.filter(|newer| *newer <= at) {
            let (earliest, latest) = course.due(model, newer);
            most += usize::from(earliest <= at);
            least += usize::from(latest <= at && !self.by_slot.contains_key(&(job, newer)));
            next = model.after(newer);
        }
        (least, most)
    }

    /// A planned slot that a tick lets run, or wait, at this instant: it is not so late that it may not.
    pub(super) fn check_on_time(&self, step: &Step<'_>, at: Timestamp) -> Checked {
        let execution = step.before;
        let Some(due) = planned_due(execution) else { return Ok(()) };
        let Some(model) = self.model(execution.job).filter(|_| execution.cause == Cause::Schedule) else {
            return Ok(());
        };
        if is_passed(&execution.state) {
            // It was chosen already: of the newer ones none takes its place.
            return ensure(late_of(due, at) <= model.misfire.lateness_max(), "misfire", || {
                format!("it ran at {at}, under {:?}: {execution:?}", model.misfire)
            });
        }
        // Whoever sets it aside goes by newer data perhaps, and plans nothing by it yet.
        let model = JobModel { data: self.data_of(step.commit)?, ..model };
        let late = late_of(due, at);
        let (newer, _) = self.newer_due(execution.job, &model, execution.slot, at);
        let chosen = self.courses.get(&execution.job).and_then(|course| course.chosen_until);
        let right = match model.misfire.policy {
            MisfirePolicy::Skip => late <= GRACE,
            MisfirePolicy::RunLatest => late <= model.misfire.deadline && (late <= GRACE || newer == 0),
            MisfirePolicy::RunAll => {
                let capped = newer >= model.misfire.cap as usize && chosen.is_none_or(|until| until < execution.slot);
                late <= model.misfire.deadline && !capped
            }
        };
        ensure(right, "misfire", || {
            format!("{late:?} late, with {newer} newer ones due, it ran under {:?}: {execution:?}", model.misfire)
        })
    }

    /// A planned slot that is passed over at this instant, and those behind it up to the end of its stretch: each is late by its job's words.
    pub(super) fn check_skipped(&mut self, step: &Step<'_>, at: Timestamp) -> Checked {
        let execution = step.before;
        let (Some(due), Some(model)) = (planned_due(execution), self.model(execution.job)) else {
            return broken("misfire", format!("{execution:?} was passed over"));
        };
        if is_passed(&execution.state) {
            self.seen.skipped += 1;
            return ensure(late_of(due, at) > model.misfire.lateness_max() && at <= step.wall(), "misfire", || {
                format!("it was passed over at {at}, under {:?}: {execution:?}", model.misfire)
            });
        }
        let stretches = step.commit.stretches.iter();
        let stretch = stretches.filter(|(job, stretch)| *job == execution.job && stretch.reason == SkipReason::Misfire);
        let until = stretch.map(|(_, stretch)| stretch.until).max();
        let head_is_late = at.saturating_since(due) > GRACE;
        let (mut chose, mut slot) = (false, Some(execution.slot));
        while let Some(passed) = slot.filter(|slot| *slot == execution.slot || until.is_some_and(|until| *slot < until))
        {
            let none = Course::default();
            let course = self.courses.get(&execution.job).unwrap_or(&none);
            let due = if passed == execution.slot { due } else { course.due(&model, passed).0 };
            let too_late = |longest: Duration| at.saturating_since(due) > longest;
            let (_, newer) = self.newer_due(execution.job, &model, passed, at);
            let (right, chosen) = match model.misfire.policy {
                MisfirePolicy::Skip => (too_late(GRACE), false),
                MisfirePolicy::RunLatest => (too_late(model.misfire.deadline) || (head_is_late && newer > 0), false),
                MisfirePolicy::RunAll => {
                    let capped =
                        newer >= model.misfire.cap as usize && course.chosen_until.is_none_or(|until| until < passed);
                    (too_late(model.misfire.deadline) || capped, !too_late(model.misfire.deadline))
                }
            };
            ensure(right && at <= step.wall(), "misfire", || {
                format!(
                    "{passed} was passed over at {at} with {newer} newer ones due, under {:?}: {execution:?}",
                    model.misfire
                )
            })?;
            chose |= chosen;
            slot = model.after(passed);
        }
        if chose {
            self.course(execution.job).chosen_until = Some(at);
        }
        self.seen.skipped += 1;
        match model.misfire.policy {
            MisfirePolicy::Skip => self.seen.skipped_by_skip += 1,
            MisfirePolicy::RunLatest => self.seen.skipped_by_latest += 1,
            MisfirePolicy::RunAll => self.seen.skipped_by_cap += u64::from(chose),
        }
        Ok(())
    }

    /// Counts the slots that this commit admits. One that takes the place of a waiting one is not counted again.
    pub(super) fn count_starts(&mut self, commit: &Commit) -> Checked {
        let mut admitted: BTreeMap<JobId, (i64, Timestamp)> = BTreeMap::new();
        for after in commit.executions.values().map(|row| &row.execution) {
            let Some(before) = self.executions.get(&after.id).map(|row| &row.execution) else { continue };
            if before.cause != Cause::Schedule {
                continue;
            }
            let more = match (&before.state, &after.state) {
                (before, State::Queued(_) | State::Waiting { .. }) if is_planned(before) => 1,
                (before, State::Owed(Owed { passed: true, .. })) if is_planned(before) => 1,
                (State::Waiting { .. }, State::Skipped { reason: SkipReason::Overlap, .. }) => -1,
                _ => 0,
            };
            if more != 0 {
                let (sum, newest) = admitted.entry(after.job).or_insert((0, after.slot));
                (*sum, *newest) = (*sum + more, after.slot.max(*newest));
            }
        }
        for (job, (more, newest)) in admitted {
            let starts = self.course(job).starts.saturating_add_signed(more);
            self.course(job).starts = starts;
            let max = self.model(job).and_then(|model| model.bounds.max_runs);
            ensure(max.is_none_or(|max| starts <= max), "bounds", || {
                format!("{job} may have {max:?} runs, and has had {starts}")
            })?;
            if max == Some(starts)
                && let Some(owned) = self.jobs.get_mut(&job)
            {
                // It has no slot behind this one.
                owned.spend_span(newest + Duration::from_micros(1));
                self.seen.used_up += 1;
            }
        }
        Ok(())
    }

    /// How many slots of a job were admitted.
    pub(super) fn starts(&self, job: JobId) -> u64 {
        self.courses.get(&job).map_or(0, |course| course.starts)
    }

    /// Whether a job has had all its runs.
    pub(super) fn is_used_up(&self, job: JobId) -> bool {
        self.model(job).is_some_and(|model| model.is_used_up(self.starts(job)))
    }
}

/// Whether a slot has not been admitted yet, be it in time or late.
fn is_planned(state: &State) -> bool {
    matches!(state, State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. }))
}

/// Whether a slot is owed and its job's schedule went on.
fn is_passed(state: &State) -> bool {
    matches!(state, State::Owed(Owed { passed: true, again: false, .. }))
}

fn late_of(due: Timestamp, at: Timestamp) -> Duration {
    at.saturating_since(due)
}

/// When such a slot is due.
fn planned_due(execution: &Execution) -> Option<Timestamp> {
    match execution.state {
        State::Pending { due } | State::Owed(Owed { again: false, due, .. }) => Some(due),
        _ => None,
    }
}
