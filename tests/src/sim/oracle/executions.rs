//! Rules `machine`, `early`, `claim`, `stale` and `give-back`: how an execution goes from commit to commit.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Attempt, Cause, Execution, Outcome, Owed, Queued, Running, State};
use compline_core::job::Overlap;
use compline_core::ledger::SkipReason;
use compline_store::tables::execution::ExecutionRow;
use tokio::time::Instant;

use super::rows::{Commit, Place};
use super::{Checked, Ending, Moment, Oracle, broken, ensure};
use crate::sim::model::JobModel;

/// After so many lost workers an execution is poison.
const LOST_MAX: usize = 3;

/// What is later than this is owed.
const GRACE: Duration = Duration::from_secs(10);

/// An execution before and after a commit.
pub(super) struct Step<'a> {
    pub(super) before: &'a Execution,
    pub(super) after: &'a Execution,
    pub(super) commit: &'a Commit,
    moment: &'a Moment<'a>,
}

impl Step<'_> {
    /// When the commit landed.
    pub(super) fn at(&self) -> Instant {
        self.moment.landed.at
    }

    /// What the clock shows then that is ahead most.
    pub(super) fn wall(&self) -> compline_core::Timestamp {
        self.moment.wall
    }
}

impl Oracle {
    pub(super) fn check_transition(
        &mut self,
        before: &ExecutionRow,
        after: &ExecutionRow,
        commit: &Commit,
        moment: &Moment<'_>,
    ) -> Checked {
        let step = Step { before: &before.execution, after: &after.execution, commit, moment };
        let (before, after) = (step.before, step.after);
        let same = before.id == after.id
            && before.job == after.job
            && before.slot == after.slot
            && before.cause == after.cause;
        ensure(same, "one-per-slot", || format!("{before:?} became {after:?}"))?;
        ensure(after.attempts.starts_with(&before.attempts), "machine", || {
            format!("attempts that had ended changed: {before:?} became {after:?}")
        })?;
        let new = &after.attempts[before.attempts.len()..];
        match (&before.state, &after.state, new) {
            (State::Pending { due } | State::Retrying { due }, State::Queued(queued), []) => {
                self.check_may_go_on(before, "queued")?;
                ensure(queued.due == *due && queued.at >= *due && moment.wall >= *due, "early", || {
                    format!("queued at {}, due at {due}: {after:?}", moment.wall)
                })?;
                self.check_on_time(&step, queued.at)?;
                self.check_ticker(&step)
            }
            (State::Pending { due } | State::Retrying { due }, State::Owed(owed), []) => {
                self.check_owed(&step, *due, owed)
            }
            (State::Owed(owed), State::Queued(queued), []) => {
                self.check_may_go_on(before, "queued")?;
                ensure(queued.owed && queued.due == owed.due && queued.at >= owed.since, "owed", || {
                    format!("{before:?} became {after:?}")
                })?;
                self.check_on_time(&step, queued.at)?;
                self.seen.paid += 1;
                self.check_ticker(&step)
            }
            (State::Pending { .. } | State::Owed(_), State::Skipped { at, reason: SkipReason::Misfire, .. }, []) => {
                self.check_skipped(&step, *at)?;
                self.check_ticker(&step)
            }
            (State::Pending { .. } | State::Owed(_) | State::Waiting { .. }, State::Skipped { reason, at, .. }, []) => {
                if *reason == SkipReason::Overlap {
                    self.check_on_time(&step, *at)?;
                }
                self.check_skip_reason(&step, *reason)?;
                self.check_ticker(&step)
            }
            (
                State::Pending { due } | State::Retrying { due } | State::Owed(Owed { due, .. }),
                State::Waiting { due: kept, since },
                [],
            ) => {
                self.check_may_go_on(before, "held")?;
                ensure(kept == due && since >= due && moment.wall >= *due, "early", || {
                    format!("held at {}, due at {due}: {after:?}", moment.wall)
                })?;
                self.check_on_time(&step, *since)?;
                self.check_held(&step)?;
                self.check_ticker(&step)
            }
            (State::Waiting { since, .. }, State::Queued(queued), []) => {
                self.check_may_go_on(before, "queued")?;
                ensure(queued.due == queued.at && queued.at >= *since, "early", || {
                    format!("{before:?} became {after:?}")
                })?;
                self.check_ticker(&step)
            }
            // The same slot by the new words as by the old ones; it may be spread otherwise.
            (
                State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. }),
                State::Pending { due },
                [],
            ) => {
                let changed = commit.marks.iter().any(|(job, _)| *job == after.job);
                let only_due = Execution { state: before.state.clone(), ..after.clone() } == *before;
                ensure(changed && only_due, "machine", || format!("{before:?} became {after:?}"))?;
                self.check_due(after, *due)
            }
            (
                State::Pending { .. }
                | State::Owed(_)
                | State::Waiting { .. }
                | State::Queued(_)
                | State::Retrying { .. },
                State::Cancelled { .. },
                [],
            ) => {
                self.seen.cancelled += 1;
                self.check_cancel(&step)
            }
            (State::Running(running), State::Running(told), []) => {
                self.seen.stopped += 1;
                let only_told = running.stop.is_none() && Running { stop: None, ..told.clone() } == *running;
                ensure(only_told, "machine", || format!("{before:?} became {after:?}"))?;
                self.check_cancel(&step)
            }
            (State::Failed { .. }, State::Retrying { due }, []) => self.check_redriven(&step, *due),
            (State::Queued(queued), State::Running(running), []) => self.check_claim(&step, queued, running),
            (State::Running(running), State::Queued(_) | State::Cancelled { .. }, []) => {
                self.check_given_back(&step, running)?;
                self.check_hand_back(&step, running)
            }
            (State::Running(running), State::Queued(_) | State::Failed { .. } | State::Cancelled { .. }, [attempt])
                if attempt.outcome == Outcome::WorkerLost =>
            {
                self.check_given_back(&step, running)?;
                self.check_lost(&step, running, attempt)
            }
            (State::Running(running), State::Cancelled { .. }, [attempt]) if attempt.started_at.is_none() => {
                self.check_terminated(&step, running, attempt)
            }
            (
                State::Running(running),
                State::Completed { .. } | State::Failed { .. } | State::Retrying { .. } | State::Cancelled { .. },
                [attempt],
            ) => self.check_report(&step, running, attempt),
            _ => broken("machine", format!("{before:?} became {after:?}")),
        }
    }

    pub(super) fn check_ticker(&self, step: &Step<'_>) -> Checked {
        let author = self.author(step.commit)?;
        let shard = step.before.id.shard();
        let owner = self.actors.owner(shard);
        ensure(owner.is_some_and(|owner| self.actors.is_of(owner, author)), "lease", || {
            format!("{} ticked shard {}, which is {owner:?}'s: {:?}", self.name(author), shard.0, step.after)
        })?;
        let planned = step.before.cause == Cause::Schedule
            && matches!(
                step.before.state,
                State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. })
            );
        if planned { self.check_up_to_date(step.before.job, step.commit) } else { Ok(()) }
    }

    /// Rule `owed`: what is set aside is late, and the lanes are not flooded with it.
    fn check_owed(&mut self, step: &Step<'_>, due: Timestamp, owed: &Owed) -> Checked {
        let again = matches!(step.before.state, State::Retrying { .. });
        let late = owed.since.saturating_since(due) > GRACE && owed.since <= step.moment.wall;
        // Of slots that have nothing to do with each other none waits for one that is owed.
        let apart = |model: JobModel| model.overlap == Overlap::Allow && model.bounds.max_runs.is_none();
        let scheduled = step.before.cause == Cause::Schedule && !again;
        let passed = scheduled && self.model(step.before.job).is_some_and(apart);
        ensure(owed.due == due && owed.again == again && owed.passed == passed && late, "owed", || {
            format!("at {}, {:?} became {:?}", step.moment.wall, step.before, step.after)
        })?;
        self.seen.passed += u64::from(passed);
        self.check_on_time(step, owed.since)?;
        self.seen.owed += 1;
        self.check_ticker(step)
    }

    /// What was owed is so again when it is given back.
    fn check_given_back(&mut self, step: &Step<'_>, running: &Running) -> Checked {
        let State::Queued(queued) = &step.after.state else { return Ok(()) };
        self.seen.owed_back += u64::from(queued.owed);
        ensure(queued.owed == running.owed, "owed", || format!("{:?} became {:?}", step.before, step.after))
    }

    /// What is in a lane of what was owed is no more than each scheduler may bring.
    pub(super) fn check_owed_room(&self, commit: &Commit) -> Checked {
        let lane = commit.placed.iter().find_map(|place| match place {
            Place::Ready { lane, owed: true, .. } => Some(lane),
            _ => None,
        });
        let Some(lane) = lane else { return Ok(()) };
        let shape = &self.world.shape;
        let (there, most) = (self.places.owed_in(lane), shape.owed_ready_max * shape.nodes.len());
        ensure(there <= most + self.seen.owed_back as usize, "owed", || {
            format!("{there} that were owed wait in {lane}, of {most} at the most")
        })
    }

    fn check_claim(&mut self, step: &Step<'_>, queued: &Queued, running: &Running) -> Checked {
        let id = step.after.id;
        self.check_acts(running.session, step.commit, "claim", &format!("{id} was claimed"))?;
        self.check_may_go_on(step.before, "claimed")?;
        let kept = running.due == queued.due && running.queued_at == queued.at && running.owed == queued.owed;
        // The claimer's clock may be behind the ticker's.
        let claimed_at = running.claimed_at + self.world.shape.clock_spread();
        ensure(kept && claimed_at >= queued.at && claimed_at >= queued.due, "early", || {
            format!("{:?} became {:?}", step.before, step.after)
        })?;
        ensure(self.actors.node(running.session) == Some(&running.node), "claim", || {
            format!("another node's: {:?}", step.after)
        })?;
        let stamp = &step.moment.landed.stamp.0;
        let of_this_commit = running.fence.as_bytes()[4..4 + stamp.len()] == *stamp;
        let fresh = !self.granted.contains_key(&running.fence);
        let greater = step.before.attempts.iter().all(|attempt| attempt.fence < running.fence);
        ensure(of_this_commit && fresh && greater, "claim", || {
            format!("the fence {} was granted by commit {stamp:?}: {:?}", running.fence, step.after)
        })?;
        self.granted.insert(running.fence, (id, running.session, step.moment.landed.at));
        self.seen.claimed += 1;
        Ok(())
    }

    fn check_hand_back(&mut self, step: &Step<'_>, running: &Running) -> Checked {
        let id = step.after.id;
        self.check_acts(running.session, step.commit, "give-back", &format!("{id} was handed back"))?;
        check_waits_again(step, running)?;
        let at = step.moment.landed.at;
        let record = self.world.record.lock();
        let runs =
            record.runs.iter().find(|run| run.fence == running.fence && run.ended.is_none_or(|ended| ended > at));
        ensure(runs.is_none(), "give-back", || format!("{id} was handed back by its holder, who runs it: {runs:?}"))?;
        drop(record);
        self.over.insert(running.fence, (at, Ending::HandedBack));
        self.seen.handed_back += 1;
        Ok(())
    }

    fn check_lost(&mut self, step: &Step<'_>, running: &Running, attempt: &Attempt) -> Checked {
        let id = step.after.id;
        check_attempt(step, running, attempt)?;
        ensure(attempt.outcome == Outcome::WorkerLost && attempt.started_at.is_none(), "machine", || {
            format!("{:?} became {:?}", step.before, step.after)
        })?;
        ensure(!self.actors.is_current(running.session), "give-back", || {
            format!("{id} was taken from {} of {}, which lasts", running.session, running.node)
        })?;
        let since = self.attempts_since_redrive(step.after);
        let lost = since.filter(|attempt| attempt.outcome == Outcome::WorkerLost).count();
        let failed = matches!(step.after.state, State::Failed { .. });
        let poison = lost >= LOST_MAX && running.stop.is_none();
        ensure(failed == poison, "machine", || format!("after {lost} lost workers: {:?}", step.after))?;
        if !failed {
            check_waits_again(step, running)?;
        }
        self.check_failed_listed(step)?;
        self.over.insert(running.fence, (step.moment.landed.at, Ending::Lost));
        self.seen.lost += 1;
        self.seen.poisoned += u64::from(failed);
        Ok(())
    }

    fn check_report(&mut self, step: &Step<'_>, running: &Running, attempt: &Attempt) -> Checked {
        let id = step.after.id;
        self.check_acts(running.session, step.commit, "stale", &format!("a report on {id} was recorded"))?;
        check_attempt(step, running, attempt)?;
        let record = self.world.record.lock();
        let run = record.runs.get(attempt.cost.fuel as usize);
        ensure(run.is_some_and(|run| run.execution == id && run.fence == running.fence), "stale", || {
            format!(
                "a report was recorded under the fence {} that is of another run, {run:?}: {:?}",
                running.fence, step.after
            )
        })?;
        ensure(run.is_some_and(|run| run.outcome.as_ref() == Some(&attempt.outcome)), "stale", || {
            format!("{run:?} was recorded as {attempt:?}")
        })?;
        drop(record);
        let started = attempt.started_at.unwrap_or(compline_core::Timestamp::EPOCH);
        ensure(
            started + self.world.shape.clock_spread() >= running.due
                && started >= running.claimed_at
                && attempt.finished_at >= started,
            "early",
            || format!("{attempt:?} of {running:?}"),
        )?;
        self.check_verdict(step, running, attempt)?;
        self.check_failed_listed(step)?;
        self.over.insert(running.fence, (step.moment.landed.at, Ending::Reported));
        Ok(())
    }

    /// What follows from an outcome, by the client's own words.
    fn check_verdict(&mut self, step: &Step<'_>, running: &Running, attempt: &Attempt) -> Checked {
        let Some(model) = self.model(step.after.job) else {
            return broken("machine", format!("of an unknown job: {:?}", step.after));
        };
        let since = self.attempts_since_redrive(step.after);
        let counted = since.filter(|attempt| attempt.outcome != Outcome::WorkerLost).count();
        let hopeless = matches!(attempt.outcome, Outcome::Error { retryable: false, .. });
        let delay = model.retry.after_failure(counted).filter(|_| !hopeless);
        let told = running.stop.is_some();
        let right = match (&step.after.state, &attempt.outcome, delay) {
            (State::Completed { .. }, Outcome::Ok, _) => true,
            (_, Outcome::Ok, _) | (State::Completed { .. }, ..) => false,
            // Who is told to stop is not tried again.
            (State::Cancelled { .. }, Outcome::Cancelled, _) => told,
            (_, Outcome::Cancelled, _) => false,
            (after, _, Some(_)) if told => matches!(after, State::Cancelled { .. }),
            (State::Retrying { due }, _, Some((shortest, longest))) => {
                let drawn = due.saturating_since(attempt.finished_at);
                self.seen.jittered += u64::from(drawn < longest);
                shortest <= drawn && drawn <= longest && attempt.finished_at <= *due
            }
            (State::Failed { .. }, _, None) => true,
            _ => false,
        };
        ensure(right, "early", || format!("with the retries {:?}: {:?}", model.retry, step.after))?;
        self.seen.retried += u64::from(matches!(step.after.state, State::Retrying { .. }));
        Ok(())
    }

    fn check_failed_listed(&self, step: &Step<'_>) -> Checked {
        let failed = matches!(step.after.state, State::Failed { .. });
        ensure(failed == step.commit.failed.contains(&step.after.id), "listed", || {
            format!("{} is {} and the listing of failures does not agree", step.after.id, step.after.state.name())
        })
    }
}

/// What was taken from its worker waits in its lane again, or is over if it was told to stop.
fn check_waits_again(step: &Step<'_>, running: &Running) -> Checked {
    let right = match (&step.after.state, &running.stop) {
        (State::Queued(queued), None) => queued.due == running.due,
        (State::Cancelled { reason, .. }, Some(stop)) => *reason == stop.reason,
        _ => false,
    };
    ensure(right, "machine", || format!("{:?} became {:?}", step.before, step.after))
}

/// An attempt that ends is the one that the claim began.
fn check_attempt(step: &Step<'_>, running: &Running, attempt: &Attempt) -> Checked {
    let right = attempt.number as usize == step.after.attempts.len()
        && attempt.fence == running.fence
        && attempt.node == running.node
        && attempt.due == running.due
        && attempt.queued_at == running.queued_at;
    ensure(right, "stale", || format!("{:?} became {:?}", step.before, step.after))
}
