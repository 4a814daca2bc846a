//! Rule `overlap`: what may be live at once, and who waits for it. What is live is counted from the executions themselves.

use std::collections::BTreeSet;

use compline_core::execution::{Attempt, Cause, Execution, Outcome, Owed, Running, State};
use compline_core::ids::{ExecutionId, JobId};
use compline_core::job::{JobState, Overlap};
use compline_core::ledger::SkipReason;
use compline_store::tables::live::Row;
use compline_store::tables::queue;

use super::executions::Step;
use super::rows::Commit;
use super::{Checked, Ending, Oracle, broken, ensure};

/// The executions that count for a job's rule, as of the last commit.
#[derive(Debug, Default)]
pub(super) struct Counted {
    live: BTreeSet<ExecutionId>,
    waiting: BTreeSet<ExecutionId>,
    /// What the rows of the store say.
    rows: BTreeSet<Row>,
}

impl Oracle {
    fn overlap_of(&self, job: JobId) -> Overlap {
        self.jobs.get(&job).map(|owned| owned.model.overlap).unwrap_or_default()
    }

    /// Makes what a commit did to executions and to the rows that count them the model's own.
    pub(super) fn count(&mut self, commit: &Commit) {
        for (row, is_there) in &commit.live {
            let (Row::Live(job, _) | Row::Waiting(compline_store::tables::live::Waiting { job, .. })) = row;
            let counted = self.counted.entry(*job).or_default();
            let _ = if *is_there { counted.rows.insert(*row) } else { counted.rows.remove(row) };
        }
        for row in commit.executions.values() {
            let Execution { id, job, state, .. } = &row.execution;
            if self.overlap_of(*job).live_max().is_none() {
                continue;
            }
            let counted = self.counted.entry(*job).or_default();
            counted.live.remove(id);
            counted.waiting.remove(id);
            match state {
                State::Waiting { .. } => counted.waiting.insert(*id),
                // Asked for again after its failure, it is not admitted yet.
                State::Queued(_)
                | State::Running(_)
                | State::Retrying { .. }
                | State::Owed(Owed { again: true, .. })
                    if row.execution.counted =>
                {
                    counted.live.insert(*id)
                }
                _ => false,
            };
        }
    }

    /// After every commit no more are live than the rule allows, no more wait than may, and nobody waits for nothing.
    pub(super) fn check_counted(&self, commit: &Commit) -> Checked {
        for job in commit.executions.values().map(|row| row.execution.job).collect::<BTreeSet<_>>() {
            let overlap = self.overlap_of(job);
            let (Some(max), Some(counted)) = (overlap.live_max(), self.counted.get(&job)) else { continue };
            ensure(counted.live.len() <= max as usize, "overlap", || {
                format!("{job} may have {max} live under {overlap:?}, and has {:?}", counted.live)
            })?;
            let of_schedule = counted.waiting.iter().filter(|id| self.is_scheduled(**id)).count();
            let allowed = match overlap {
                Overlap::Skip | Overlap::TerminateOther => 0,
                Overlap::BufferOne | Overlap::CancelOther => 1,
                Overlap::Allow | Overlap::AllowUpTo(_) | Overlap::BufferAll => usize::MAX,
            };
            ensure(of_schedule <= allowed, "overlap", || {
                format!("{job} has {of_schedule} slots waiting under {overlap:?}: {:?}", counted.waiting)
            })?;
            let woken = || counted.waiting.iter().any(|id| self.places.is_due(*id));
            ensure(counted.waiting.is_empty() || counted.live.len() == max as usize || woken(), "overlap", || {
                format!("{:?} of {job} wait for nothing: {:?} are live", counted.waiting, counted.live)
            })?;
            self.check_live_rows(job, counted)?;
        }
        Ok(())
    }

    /// The rows by which ticks decide say what is so.
    fn check_live_rows(&self, job: JobId, counted: &Counted) -> Checked {
        let said = |wanted: fn(&Row) -> Option<ExecutionId>| counted.rows.iter().filter_map(wanted).collect();
        let live: BTreeSet<ExecutionId> = said(|row| match row {
            Row::Live(_, id) => Some(*id),
            Row::Waiting(_) => None,
        });
        let waiting: BTreeSet<ExecutionId> = said(|row| match row {
            Row::Waiting(waiting) => Some(waiting.execution),
            Row::Live(..) => None,
        });
        ensure(live == counted.live && waiting == counted.waiting, "overlap", || {
            format!("{job} is said to have {live:?} live and {waiting:?} waiting, and has {counted:?}")
        })
    }

    fn is_scheduled(&self, id: ExecutionId) -> bool {
        let scheduled = self.executions.get(&id).is_some_and(|row| row.execution.cause == Cause::Schedule);
        // What somebody asked for once more is not the schedule's any longer.
        scheduled && !self.was_redriven(id)
    }

    /// Whether another execution of the same job was live before the commit, or is from it on.
    fn another_is_live(&self, commit: &Commit, execution: &Execution) -> bool {
        let was =
            self.counted.get(&execution.job).is_some_and(|counted| counted.live.iter().any(|id| *id != execution.id));
        let mut others = commit.executions.values().map(|row| &row.execution);
        was || others.any(|other| {
            let is_another = other.job == execution.job && other.id != execution.id;
            is_another && other.counted && matches!(other.state, State::Queued(_))
        })
    }

    /// An execution begins to wait: something was live, or the rule puts others before it.
    pub(super) fn check_held(&mut self, step: &Step<'_>) -> Checked {
        self.seen.held += 1;
        let overlap = self.overlap_of(step.after.job);
        let waits = self.counted.get(&step.after.job).is_some_and(|counted| !counted.waiting.is_empty());
        ensure(
            overlap.live_max().is_some()
                && (self.another_is_live(step.commit, step.after) || waits)
                && step.after.counted,
            "overlap",
            || format!("nothing is live under {overlap:?}, and yet {:?}", step.after),
        )
    }

    /// A slot is left out because of others.
    pub(super) fn check_left_to_others(&mut self, step: &Step<'_>) -> Checked {
        let overlap = self.overlap_of(step.before.job);
        let waited = matches!(step.before.state, State::Waiting { .. });
        let right = self.is_scheduled(step.before.id)
            && match overlap {
                Overlap::Skip => !waited && self.another_is_live(step.commit, step.before),
                // A newer slot of this commit took its place.
                Overlap::BufferOne | Overlap::CancelOther => {
                    let newer = step.commit.executions.values().map(|row| &row.execution).filter(|other| {
                        other.job == step.before.job
                            && other.slot > step.before.slot
                            && matches!(other.state, State::Waiting { .. } | State::Queued(_))
                    });
                    waited && newer.count() > 0
                }
                Overlap::Allow | Overlap::AllowUpTo(_) | Overlap::BufferAll | Overlap::TerminateOther => false,
            };
        self.seen.overlapped += 1;
        ensure(right, "overlap", || format!("under {overlap:?} {:?} became {:?}", step.before, step.after))
    }

    /// Whether a tick may end or stop this one because another slot of its job came.
    pub(super) fn is_ended_by_rule(&self, step: &Step<'_>) -> bool {
        let overlap = self.overlap_of(step.before.job);
        let came = step.commit.executions.values().map(|row| &row.execution).any(|other| {
            other.job == step.before.job
                && other.id != step.before.id
                && matches!(other.state, State::Waiting { .. } | State::Queued(_))
        });
        let terminates = step.after.state.is_terminal() && matches!(step.before.state, State::Running(_));
        came && match overlap {
            Overlap::CancelOther => !terminates,
            Overlap::TerminateOther => step.after.state.is_terminal(),
            _ => false,
        }
    }

    /// A run is ended in the middle.
    pub(super) fn check_terminated(&mut self, step: &Step<'_>, running: &Running, attempt: &Attempt) -> Checked {
        ensure(attempt.outcome == Outcome::Cancelled && self.is_ended_by_rule(step), "overlap", || {
            format!("{:?} became {:?}", step.before, step.after)
        })?;
        self.check_ticker(step)?;
        self.over.insert(running.fence, (step.at(), Ending::Lost));
        self.seen.terminated += 1;
        Ok(())
    }

    /// Why a slot was skipped decides what must be so.
    pub(super) fn check_skip_reason(&mut self, step: &Step<'_>, reason: SkipReason) -> Checked {
        match reason {
            SkipReason::Overlap => self.check_left_to_others(step),
            SkipReason::Paused => {
                if matches!(step.before.state, State::Owed(_)) {
                    return self.check_cleared(step, reason);
                }
                let waited = matches!(step.before.state, State::Waiting { .. });
                let paused = self.state_of(step.before.job) == Some(JobState::Paused);
                ensure(waited && paused, "paused", || format!("{:?} became {:?}", step.before, step.after))
            }
            SkipReason::Edited => self.check_cleared(step, reason),
            SkipReason::Ended => ensure(self.is_used_up(step.before.job), "bounds", || {
                format!("its job has runs left: {:?} became {:?}", step.before, step.after)
            }),
            other => broken("overlap", format!("skipped for {other:?}: {:?}", step.after)),
        }
    }

    /// What waits for others has a due row only while it is woken, and that one is at its due time.
    pub(super) fn is_wake_of(state: &State, at: compline_core::Timestamp) -> bool {
        matches!(state, State::Waiting { due, .. } if at == queue::due_instant(*due))
    }
}
