//! Rules `letter`, `told` and `redriven`: what follows when an execution has failed for good, and what its owner does about it.

use std::collections::{BTreeMap, BTreeSet};

use compline_core::Timestamp;
use compline_core::execution::{Cause, Execution, Outcome, State};
use compline_core::ids::ExecutionId;
use compline_core::job::JobState;
use compline_store::tables::dead::{DeadKind, DeadLetter, Place};
use tokio::time::Instant;

use super::executions::Step;
use super::rows::Commit;
use super::{Checked, Oracle, broken, ensure};
use crate::sim::model::{JobModel, told_task};

/// The dead letters that there are.
#[derive(Debug, Default)]
pub(super) struct Letters {
    /// By execution: where, and what.
    there: BTreeMap<ExecutionId, Vec<(Place, DeadLetter)>>,
    /// Where each is said to be.
    places: BTreeMap<ExecutionId, Place>,
    /// Those that a client dropped, with when.
    dropped: BTreeMap<ExecutionId, Vec<Instant>>,
}

impl Oracle {
    /// The executions that fail for good in this commit.
    fn failing<'a>(&self, commit: &'a Commit) -> impl Iterator<Item = &'a Execution> {
        let was = |id: &ExecutionId| {
            self.executions.get(id).is_some_and(|row| matches!(row.execution.state, State::Failed { .. }))
        };
        let failed = commit.executions.values().map(|row| &row.execution);
        let failed = failed.filter(|execution| matches!(execution.state, State::Failed { .. }));
        failed.filter(move |execution| !was(&execution.id)).collect::<Vec<_>>().into_iter()
    }

    /// A failure leaves one letter in its commit; a letter goes when its execution runs again, or when a client drops it.
    pub(super) fn check_letters(&mut self, commit: &Commit, at: Instant) -> Checked {
        let failing: BTreeMap<ExecutionId, &Execution> =
            self.failing(commit).map(|execution| (execution.id, execution)).collect();
        let mut touched: BTreeSet<ExecutionId> = failing.keys().copied().collect();
        for (id, place, letter) in &commit.letters {
            touched.insert(*id);
            let Some(letter) = letter else {
                self.check_letter_goes(*id, commit, at)?;
                self.letters.there.entry(*id).or_default().retain(|(known, _)| known != place);
                continue;
            };
            let Some(failed) = failing.get(id) else {
                return broken("letter", format!("{letter:?} was laid down, and nothing failed"));
            };
            self.check_letter(failed, place, letter)?;
            self.letters.there.entry(*id).or_default().push((place.clone(), letter.clone()));
            self.seen.letters += 1;
        }
        for (id, place) in &commit.letter_places {
            touched.insert(*id);
            match place {
                Some(place) => drop(self.letters.places.insert(*id, place.clone())),
                None => drop(self.letters.places.remove(id)),
            }
        }
        for id in touched {
            let there = self.letters.there.get(&id).map_or(&[][..], Vec::as_slice);
            let place = self.letters.places.get(&id);
            let right = match there {
                [] => place.is_none() && !failing.contains_key(&id),
                [(at, _)] => place == Some(at),
                _ => false,
            };
            ensure(right, "letter", || format!("{id} has {there:?}, said to be at {place:?}"))?;
        }
        self.check_told(commit, &failing)
    }

    fn check_letter_goes(&mut self, id: ExecutionId, commit: &Commit, at: Instant) -> Checked {
        let redriven =
            commit.executions.get(&id).is_some_and(|row| matches!(row.execution.state, State::Retrying { .. }));
        if redriven {
            return Ok(());
        }
        let by = self.name(self.author(commit)?);
        let asked = by.starts_with("client") && self.world.record.lock().dropped.contains(&id);
        self.letters.dropped.entry(id).or_default().push(at);
        self.seen.dropped += 1;
        ensure(asked, "letter", || format!("{by} dropped the letter of {id}, which nobody asked for"))
    }

    fn check_letter(&self, failed: &Execution, place: &Place, letter: &DeadLetter) -> Checked {
        let kind = match failed.attempts.last().map(|attempt| &attempt.outcome) {
            Some(Outcome::WorkerLost) => DeadKind::Poison,
            Some(Outcome::Error { retryable: false, .. }) => DeadKind::Permanent,
            _ => DeadKind::Exhausted,
        };
        let failed_at = |at: Timestamp| matches!(failed.state, State::Failed { at: failed, .. } if failed == at);
        // An edit may have moved the job to another lane while this one ran.
        let record = self.world.record.lock();
        let edits = record.edits.get(&failed.job).into_iter().flatten();
        let lanes: BTreeSet<&str> =
            record.asked.get(&failed.job).into_iter().chain(edits).map(|job| job.lane).collect();
        let right = letter.execution == *failed
            && letter.kind == kind
            && letter.task.digest == self.digest_of(failed)
            && failed_at(place.at)
            && lanes.contains(place.lane.as_str());
        ensure(right, "letter", || format!("{failed:?} left, at {place:?}, {letter:?}"))
    }

    /// The task that a job names is run once per failure, in the commit that fails it, and its own failure tells nobody.
    fn check_told(&mut self, commit: &Commit, failing: &BTreeMap<ExecutionId, &Execution>) -> Checked {
        let born = commit.executions.values().map(|row| &row.execution);
        let born = born.filter(|execution| !self.executions.contains_key(&execution.id));
        let mut told: BTreeMap<ExecutionId, Vec<&Execution>> = BTreeMap::new();
        for execution in born {
            if let Cause::Failure { of } = execution.cause {
                told.entry(of).or_default().push(execution);
            }
        }
        for (of, executions) in &told {
            ensure(failing.contains_key(of), "told", || format!("{of} did not fail here, and yet {executions:?}"))?;
        }
        for failed in failing.values() {
            let tells = self.model(failed.job).is_some_and(|model| model.tells);
            let expected = usize::from(tells && !matches!(failed.cause, Cause::Failure { .. }));
            let made = told.get(&failed.id).map_or(&[][..], Vec::as_slice);
            ensure(made.len() == expected && made.iter().all(|made| tells_of(made, failed)), "told", || {
                format!("{failed:?} failed, its job tells somebody: {tells}, and this was made: {made:?}")
            })?;
            self.seen.told += made.len() as u64;
            self.seen.not_told_twice += u64::from(tells && expected == 0);
        }
        Ok(())
    }

    /// What failed for good runs again because a client asked for it, at the time that is its own among those of the request.
    pub(super) fn check_redriven(&mut self, step: &Step<'_>, due: Timestamp) -> Checked {
        let (before, after) = (step.before, step.after);
        let by = self.name(self.author(step.commit)?);
        let fits = |ids: &[ExecutionId], per_second: u32, begun: Timestamp| {
            let index = ids.iter().position(|id| *id == after.id);
            index.is_some_and(|index| {
                // So many in each second, the first at once.
                let millis = due.saturating_since(begun).as_millis() as u64;
                begun <= due && millis == index as u64 * 1_000 / u64::from(per_second)
            })
        };
        let record = self.world.record.lock();
        let fitting =
            |(_, redrive): &(usize, &crate::sim::world::Redrive)| fits(&redrive.ids, redrive.per_second, redrive.begun);
        let request = record.redrives.iter().enumerate().find(fitting).map(|(number, _)| number);
        drop(record);
        let asked = request.is_some_and(|request| self.redriven_by.insert((request, after.id)));
        let state = self.state_of(after.job);
        let begins_anew =
            after.forgiven as usize == before.attempts.len() && !after.counted && after.instead == before.instead;
        let owned = matches!(state, Some(JobState::Active | JobState::Paused));
        ensure(by.starts_with("client") && asked && begins_anew && owned, "redriven", || {
            format!("{by} made {after:?} of {before:?}, asked for once: {asked}, while its job was {state:?}")
        })?;
        let restored = self.removed.remove(&after.id);
        let listed = step.commit.unfailed.contains(&after.id) && (!restored || step.commit.listed.contains(&after.id));
        ensure(listed, "redriven", || format!("the listings do not tell that {} runs again", after.id))?;
        self.forgiven.insert(after.id, before.attempts.len());
        self.redriven.entry(after.id).or_default().push(step.at());
        self.seen.redriven += 1;
        self.seen.restored += u64::from(restored);
        Ok(())
    }

    /// The attempts that count since an execution last began anew.
    pub(super) fn attempts_since_redrive<'a>(
        &self,
        execution: &'a Execution,
    ) -> impl Iterator<Item = &'a compline_core::execution::Attempt> + use<'a> {
        execution.attempts.iter().skip(self.forgiven.get(&execution.id).copied().unwrap_or(0))
    }

    /// Whether somebody asked that this one run again.
    pub(super) fn was_redriven(&self, id: ExecutionId) -> bool {
        self.forgiven.contains_key(&id)
    }

    /// What clients were answered about letters holds, and what failed for good is there to be looked at.
    pub(super) fn check_letter_answers(&self) -> Checked {
        for answer in &self.world.record.lock().letter_answers {
            let by_then = |at: &Instant| *at <= answer.at;
            let redriven = self.redriven.get(&answer.execution).is_some_and(|all| all.iter().any(by_then));
            let dropped = self.letters.dropped.get(&answer.execution).is_some_and(|all| all.iter().any(by_then));
            let right = redriven || (answer.dropped && dropped);
            ensure(right, "letter", || format!("{answer:?} was given, and it is not so"))?;
        }
        let failed = self.executions.values().filter(|row| matches!(row.execution.state, State::Failed { .. }));
        for id in failed.map(|row| row.execution.id) {
            let there = self.letters.there.get(&id).is_some_and(|letters| !letters.is_empty());
            ensure(there || self.letters.dropped.contains_key(&id), "letter", || {
                format!("{id} failed without a letter")
            })?;
        }
        Ok(())
    }

    /// The component that an execution runs.
    pub(super) fn digest_of(&self, execution: &Execution) -> compline_core::ids::TaskDigest {
        match execution.cause {
            Cause::Failure { .. } => told_task(),
            Cause::Schedule | Cause::Trigger => crate::sim::model::task(),
        }
    }

    pub(super) fn model(&self, job: compline_core::ids::JobId) -> Option<JobModel> {
        self.jobs.get(&job).map(|owned| owned.model.clone())
    }
}

/// Whether an execution hands a failure to the task that is to be told.
fn tells_of(made: &Execution, failed: &Execution) -> bool {
    let State::Failed { at, .. } = failed.state else { return false };
    let at_once = matches!(made.state, State::Pending { due } if due == at);
    let names_it = |input: &[u8]| String::from_utf8_lossy(input).contains(&failed.id.to_string());
    let instead = made.instead.as_ref().is_some_and(|it| it.task.digest == told_task() && names_it(&it.input));
    at_once && instead && made.job == failed.job && made.slot == failed.slot && made.attempts.is_empty()
}
