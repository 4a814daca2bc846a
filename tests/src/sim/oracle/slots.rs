//! Rules `acknowledged`, `one-per-slot`, `next-slot` and `misfire`: which executions there may be.

use std::collections::BTreeSet;

use compline_core::Timestamp;
use compline_core::execution::{Cause, Execution, State};
use compline_core::ids::{ExecutionId, JobId};
use compline_core::job::JobState;
use compline_core::ledger::SkipReason;
use compline_store::tables::execution::ExecutionRow;

use super::changes::Owned;
use super::rows::Commit;
use super::{Checked, Moment, Oracle, broken, ensure};
use crate::sim::model::JobModel;

impl Oracle {
    pub(super) fn check_jobs(&mut self, commit: &Commit, moment: &Moment<'_>) -> Checked {
        for (id, row) in &commit.jobs {
            let Some(row) = row else {
                self.check_forgotten(*id)?;
                continue;
            };
            if self.jobs.contains_key(id) {
                self.check_change(*id, row, commit, moment)?;
                continue;
            }
            ensure(row.state == JobState::Active && row.revision == 1, "acknowledged", || {
                format!("{id} begins as {row:?}")
            })?;
            let asked = self.world.record.lock().asked.get(id).cloned();
            let Some(model) = asked else { return broken("acknowledged", format!("nobody asked for {id}")) };
            match row.definition() {
                Ok(job) if job == model.job(*id) => {}
                other => return broken("acknowledged", format!("{id} should be {model:?}, and is {other:?}")),
            }
            self.jobs.insert(*id, Owned::new(model, moment.landed.at));
            self.seen.jobs += 1;
        }
        Ok(())
    }

    /// New slots and stretches against the schedule.
    pub(super) fn check_slots(&mut self, commit: &Commit, moment: &Moment<'_>) -> Checked {
        for (job, stretch) in &commit.stretches {
            if stretch.reason != SkipReason::Misfire {
                self.check_left_out(*job, stretch, commit)?;
                continue;
            }
            self.check_stretch(*job, stretch.from, stretch.until, commit, moment)?;
        }
        let born = commit.executions.values().map(|row| &row.execution);
        for execution in born.filter(|execution| !self.executions.contains_key(&execution.id)).collect::<Vec<_>>() {
            match execution.cause {
                Cause::Schedule => self.check_slot(execution)?,
                Cause::Trigger => self.check_asked_for(execution)?,
                // Rule `told`.
                Cause::Failure { .. } => {}
            }
        }
        Ok(())
    }

    /// Slots that are passed over in one go. Rule `misfire` judges each of them, together with the planned one before them.
    fn check_stretch(
        &mut self,
        job: JobId,
        from: Timestamp,
        until: Timestamp,
        commit: &Commit,
        moment: &Moment<'_>,
    ) -> Checked {
        let Some(model) = self.model(job) else {
            return broken("next-slot", format!("a stretch of {job}, an unknown job"));
        };
        let expected = self.to_come(job, &model);
        ensure(expected == Some(from), "next-slot", || {
            format!("a stretch of {job} begins at {from}, and the slot to come is {expected:?}")
        })?;
        let passed = commit.executions.values().map(|row| &row.execution).any(|execution| {
            let skipped = matches!(execution.state, State::Skipped { reason: SkipReason::Misfire, .. });
            execution.job == job && skipped && execution.slot < from
        });
        ensure(passed && until <= moment.wall, "misfire", || {
            format!("{job} passes over {from} to {until} at {}, and no planned slot of it", moment.wall)
        })?;
        self.stretches.entry(job).or_default().push((from, until));
        self.seen.stretches += 1;
        Ok(())
    }

    fn check_slot(&mut self, execution: &Execution) -> Checked {
        let Execution { id, job, slot, .. } = *execution;
        let Some(model) = self.model(job) else {
            return broken("one-per-slot", format!("{id} is of {job}, an unknown job"));
        };
        ensure(id == ExecutionId::of_slot(job, slot, job.shard(self.world.shards())), "one-per-slot", || {
            format!("{id} is not the id of {job} at {slot}")
        })?;
        if let Some(other) = self.by_slot.get(&(job, slot)) {
            return broken("one-per-slot", format!("{job} at {slot} has two executions: {other} and {id}"));
        }
        let expected = self.to_come(job, &model);
        ensure(expected == Some(slot), "next-slot", || {
            format!("{id} of {job} is planned for {slot}, and the schedule says {expected:?}: {model:?}")
        })?;
        self.newest.insert(job, slot);
        self.by_slot.insert((job, slot), id);
        Ok(())
    }

    /// The slot that a job's schedule comes to next.
    pub(super) fn to_come(&self, job: JobId, model: &JobModel) -> Option<Timestamp> {
        let mut slot = match self.newest.get(&job) {
            Some(newest) => model.after(*newest),
            None => model.first(),
        };
        // Behind a stretch the schedule goes on at its end, and behind what was cancelled ahead of its time with what follows.
        while let Some(at) = slot
            && (self.stretches.get(&job).is_some_and(|all| all.iter().any(|(from, until)| *from <= at && at < *until))
                || self.by_slot.contains_key(&(job, at)))
        {
            slot = model.after(at);
        }
        slot
    }

    /// An execution's first row.
    pub(super) fn check_birth(&mut self, row: &ExecutionRow, commit: &Commit) -> Checked {
        let execution = &row.execution;
        let due = match execution.state {
            State::Pending { due } => due,
            _ => return broken("one-per-slot", format!("it begins as {execution:?}")),
        };
        let handed = execution.instead.is_none() || matches!(execution.cause, Cause::Failure { .. });
        ensure(execution.attempts.is_empty() && execution.output.is_none() && handed, "one-per-slot", || {
            format!("it begins as {execution:?}")
        })?;
        self.check_due(execution, due)?;
        ensure(commit.listed.contains(&execution.id), "listed", || {
            format!("{} is not listed under its job", execution.id)
        })
    }

    /// After every commit a job has the next slot planned, if its schedule has one, and no other.
    pub(super) fn check_next_planned(&self, commit: &Commit) -> Checked {
        let touched = commit.executions.values().map(|row| row.execution.job);
        let named = commit.jobs.iter().map(|(job, _)| *job).chain(commit.runs.iter().map(|(job, _)| *job));
        for job in touched.chain(named).collect::<BTreeSet<_>>() {
            let pending: Vec<_> = self.pending.get(&job).into_iter().flatten().collect();
            let newest = self.newest.get(&job).copied();
            let used_up = self.is_used_up(job);
            let to_come = self.model(job).filter(|_| !used_up).and_then(|model| self.to_come(job, &model));
            let right = match self.state_of(job) {
                Some(JobState::Active) => {
                    let planned = pending.len() == 1 && !used_up;
                    newest.is_some() && (planned || (pending.is_empty() && to_come.is_none()))
                }
                Some(JobState::Paused | JobState::Deleted) => pending.is_empty(),
                None => false,
            };
            ensure(right, "next-slot", || {
                format!(
                    "{job} has these slots planned: {pending:?}; its newest is {newest:?}, and {to_come:?} is to come"
                )
            })?;
            let told =
                commit.runs.iter().find(|(id, _)| *id == job).map(|(_, run)| run.as_ref().and_then(|run| run.next));
            if let Some(told) = told {
                ensure(told.map(|next| next.execution).as_ref() == pending.first().copied(), "next-slot", || {
                    format!("{job} is said to have {told:?} next, and has {pending:?}")
                })?;
            }
        }
        Ok(())
    }
}
