//! Rule `retained`: what may be removed, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use compline_core::execution::{Execution, State};
use compline_core::ids::{ExecutionId, JobId};
use compline_core::job::JobState;

use super::rows::Commit;
use super::{Checked, Moment, Oracle, broken, ensure};

/// So long at the most before it removes some a pass has counted the executions of a job.
const COUNTED_BEFORE: Duration = Duration::from_secs(40);

impl Oracle {
    /// Whether all of an execution's hour is past the retention age.
    fn is_old(&self, id: ExecutionId, moment: &Moment<'_>) -> bool {
        let end = i64::from(id.bucket_hour() + 1) * 3_600;
        compline_core::Timestamp::from_unix_seconds(end) + self.world.shape.retention.age <= moment.wall
    }

    /// How many of its job's ended executions of its kind are no older, removed ones included: by their slot, as the history is sorted, or by
    /// their id, as the failures are. Two can have one slot, when somebody asked for it once more.
    fn newer(&self, id: ExecutionId, moment: &Moment<'_>) -> usize {
        let Some(row) = self.executions.get(&id) else { return 0 };
        let failed = matches!(row.execution.state, State::Failed { .. });
        let newer = self.executions.values().filter(|other| {
            let other = &other.execution;
            other.job == row.execution.job
                && other.id != id
                && (other.slot >= row.execution.slot || other.id > id)
                && self.was_lately(other, failed, moment)
        });
        newer.count()
    }

    /// Whether an execution is among the failures (or not), or was when whoever removes others counted: that is no one transaction, and its node
    /// may have been frozen in between.
    fn was_lately(&self, execution: &Execution, failed: bool, moment: &Moment<'_>) -> bool {
        match execution.state {
            State::Failed { at, .. } => failed || at + COUNTED_BEFORE >= moment.wall,
            _ if failed => {
                let redriven = self.redriven.get(&execution.id).and_then(|all| all.last());
                redriven.is_some_and(|at| *at + COUNTED_BEFORE >= moment.landed.at)
            }
            _ => true,
        }
    }

    pub(super) fn check_retention(&mut self, commit: &Commit, moment: &Moment<'_>) -> Checked {
        // What an owner takes back was never to be kept.
        let kept = |id: &&ExecutionId| !self.is_withdrawn(**id, commit);
        let removed: BTreeSet<ExecutionId> = commit.removed.iter().filter(kept).copied().collect();
        let unlisted: Vec<ExecutionId> = commit.unlisted.iter().filter(kept).copied().collect();
        for id in removed.iter().chain(&unlisted) {
            let Some(row) = self.executions.get(id) else {
                return broken("retained", format!("{id} was removed, and never was there"));
            };
            let ended = row.execution.state.is_terminal() && !commit.executions.contains_key(id);
            ensure(ended, "retained", || format!("an open execution was removed: {row:?}"))?;
            let retention = self.world.shape.retention;
            let share = match row.execution.state {
                State::Failed { .. } => retention.failures_per_job,
                _ => retention.runs_per_job,
            };
            let may_go = self.is_old(*id, moment) || (removed.contains(id) && self.newer(*id, moment) >= share);
            ensure(may_go, "retained", || {
                format!(
                    "{id} was removed at {}, with {} newer ones of its job: {row:?}",
                    moment.wall,
                    self.newer(*id, moment)
                )
            })?;
        }
        for id in removed {
            ensure(self.removed.insert(id), "retained", || format!("{id} was removed twice"))?;
            let beside_open = self.open.get(&(id.shard(), id.bucket_hour())).is_some_and(|open| *open > 0);
            self.seen.removed += 1;
            self.seen.removed_beside_open += u64::from(beside_open);
        }
        Ok(())
    }

    /// A job goes when its schedule is over and nothing of it is left.
    pub(super) fn check_forgotten(&mut self, job: JobId) -> Checked {
        let left =
            self.executions.values().find(|row| row.execution.job == job && !self.removed.contains(&row.execution.id));
        ensure(self.jobs.contains_key(&job) && left.is_none(), "retained", || {
            format!("{job} was removed, and this is left of it: {left:?}")
        })?;
        let over = self.state_of(job) == Some(JobState::Deleted) || self.is_used_up(job);
        // Past what has its execution already, or lies in a stretch that is accounted for.
        let to_come = self.model(job).filter(|_| !over).and_then(|model| self.to_come(job, &model));
        ensure(to_come.is_none(), "retained", || format!("{job} was removed, and {to_come:?} is to come"))?;
        self.seen.forgotten += 1;
        Ok(())
    }
}
