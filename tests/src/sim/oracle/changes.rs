//! Rules `change`, `paused` and `asked-for`: what owners do to their jobs.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Cause, Execution, Owed, State};
use compline_core::ids::{ExecutionId, JobId, RequestId, TenantId};
use compline_core::job::JobState;
use compline_core::ledger::{Change, SkipReason};
use compline_store::tables::job::JobRow;
use compline_store::tables::ledger::{Mark, Stretch};
use tokio::time::Instant;

use super::executions::Step;
use super::rows::Commit;
use super::{Checked, Moment, Oracle, broken, ensure};
use crate::sim::model::JobModel;
use crate::sim::world::Kind;
use crate::sim::zones::Data;

/// A job as its row says, and which slots are to be accounted for.
#[derive(Debug)]
pub(super) struct Owned {
    /// When it was created.
    pub(super) landed: Instant,
    pub(super) state: JobState,
    pub(super) revision: u64,
    /// What its owner means by now.
    pub(super) model: JobModel,
    /// Whose slots count when.
    pub(super) spans: Vec<Span>,
    /// Owed slots up to here that the schedule went on without do not run, and why.
    cleared: Option<(Timestamp, SkipReason)>,
    /// Every state that it was in, from when.
    states: Vec<(JobState, Instant)>,
}

/// A stretch of time in which the slots of one model count.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) model: JobModel,
    /// Only slots after this; `None`: from the first.
    pub(super) after: Option<Timestamp>,
    /// Only slots before this.
    pub(super) until: Option<Timestamp>,
    /// Whether that is because the job had all its runs by then: nothing moves it further.
    pub(super) spent: bool,
}

/// A stretch ends so long after the instant that it reaches up to.
pub(super) const GRAIN: Duration = Duration::from_micros(1);

impl Owned {
    pub(super) fn new(model: JobModel, landed: Instant) -> Self {
        let spans = vec![Span { model: model.clone(), after: None, until: None, spent: false }];
        let states = vec![(JobState::Active, landed)];
        Self { landed, state: JobState::Active, revision: 1, model, spans, cleared: None, states }
    }

    pub(super) fn close_span(&mut self, until: Timestamp) {
        if let Some(span) = self.spans.last_mut().filter(|span| !span.spent) {
            span.until = Some(until);
        }
    }

    /// The job has had all its runs with the slot before this instant.
    pub(super) fn spend_span(&mut self, until: Timestamp) {
        self.close_span(until);
        if let Some(span) = self.spans.last_mut() {
            span.spent = true;
        }
    }

    fn was(&self, state: JobState, by: Instant) -> bool {
        self.states.iter().any(|(known, at)| *known == state && *at <= by)
    }
}

impl Oracle {
    pub(super) fn state_of(&self, job: JobId) -> Option<JobState> {
        self.jobs.get(&job).map(|owned| owned.state)
    }

    /// A job's row that is written again.
    pub(super) fn check_change(&mut self, id: JobId, row: &JobRow, commit: &Commit, moment: &Moment<'_>) -> Checked {
        let (by, data) = (self.name(self.author(commit)?), self.data_of(commit)?);
        let marks: Vec<&Mark> = commit.marks.iter().filter(|(job, _)| *job == id).map(|(_, mark)| mark).collect();
        let [mark] = marks[..] else {
            return broken("change", format!("{by} wrote {id} with these marks: {marks:?}"));
        };
        let starts = self.starts(id);
        let Some(owned) = self.jobs.get_mut(&id) else { return Ok(()) };
        ensure(by.starts_with("client") && mark.at <= moment.wall && mark.revision == row.revision, "change", || {
            format!("{by} wrote {id} as {row:?} with {mark:?}")
        })?;
        let withdrawn = commit.removed.iter().filter_map(|removed| self.executions.get(removed));
        let withdrawn = withdrawn.map(|row| &row.execution).find(|execution| execution.job == id).map(|row| row.slot);
        let end = mark.at + GRAIN;
        let same = row.revision == owned.revision;
        let (kind, legal) = match (&mark.change, owned.state, row.state) {
            (Change::Paused, JobState::Active, JobState::Paused) => {
                // Slots that the pause leaves out are accounted for when it ends.
                owned.close_span(withdrawn.map_or(end, |slot| slot.min(end)));
                self.seen.paused += 1;
                (Kind::Pause, same)
            }
            (Change::Resumed, JobState::Paused, JobState::Active) => {
                let used_up = owned.model.is_used_up(starts);
                if owned.model.is_zoned() && owned.model.data != data {
                    owned.close_span(end);
                    owned.model.data = data;
                    let until = used_up.then_some(end);
                    owned.spans.push(Span { model: owned.model.clone(), after: Some(mark.at), until, spent: used_up });
                } else if let Some(span) = owned.spans.last_mut().filter(|_| !used_up) {
                    (span.until, span.spent) = (None, false);
                }
                owned.cleared = Some((mark.at, SkipReason::Paused));
                self.newest.insert(id, mark.at);
                self.seen.resumed += 1;
                (Kind::Resume, same)
            }
            (Change::Deleted, JobState::Active | JobState::Paused, JobState::Deleted) => {
                owned.close_span(end);
                self.seen.deleted += 1;
                (Kind::Delete { stop_running: false }, same)
            }
            (Change::Edited { schedule_before }, before, after) if before == after && before != JobState::Deleted => {
                let Ok(definition) = row.definition() else { return broken("change", format!("{id}: {row:?}")) };
                let edits = self.world.record.lock().edits.get(&id).cloned().unwrap_or_default();
                let edit = edits.into_iter().find(|edit| edit.job(id) == definition);
                let Some(edit) = edit else { return broken("change", format!("nobody asked for {definition:?}")) };
                // What is due at other times by other zone data is planned anew.
                let moved = before == JobState::Active
                    && edit.splay != owned.model.splay
                    && edit.is_zoned()
                    && owned.model.data != data;
                let other_slots = edit.slots != owned.model.slots || edit.bounds != owned.model.bounds;
                let replanned = other_slots || moved;
                let edit = JobModel { data: if replanned { data } else { owned.model.data }, ..edit };
                let legal = row.revision == owned.revision + 1 && *schedule_before == owned.model.schedule();
                if other_slots {
                    owned.cleared = Some((mark.at, SkipReason::Edited));
                }
                if replanned {
                    owned.close_span(end);
                    let spent = edit.is_used_up(starts);
                    let until = (before == JobState::Paused || spent).then_some(end);
                    owned.spans.push(Span { model: edit.clone(), after: Some(mark.at), until, spent });
                    self.newest.insert(id, mark.at);
                }
                owned.model = edit;
                self.seen.edited += 1;
                (Kind::Edit, legal)
            }
            other => return broken("change", format!("{id}: {other:?}")),
        };
        let is_of_kind = |asked: &Kind| std::mem::discriminant(asked) == std::mem::discriminant(&kind);
        let asked = self.world.record.lock().changes.iter().any(|asked| asked.job == id && is_of_kind(&asked.kind));
        ensure(legal && asked, "change", || format!("{id} became {row:?} with {mark:?}; asked for: {asked}"))?;
        (owned.state, owned.revision) = (row.state, row.revision);
        owned.states.push((row.state, moment.landed.at));
        Ok(())
    }

    /// Planned slots of jobs that change in this commit leave no trace.
    pub(super) fn check_withdrawn(&mut self, commit: &Commit) -> Checked {
        for id in &commit.removed {
            if !self.is_withdrawn(*id, commit) {
                continue;
            }
            let Some(row) = self.executions.remove(id) else { continue };
            self.by_slot.remove(&(row.execution.job, row.execution.slot));
            self.pending.entry(row.execution.job).or_default().remove(id);
            *self.open.entry((id.shard(), id.bucket_hour())).or_default() -= 1;
            self.seen.withdrawn += 1;
        }
        Ok(())
    }

    /// Whether a row is removed because its job changes in this commit, and it was only planned.
    pub(super) fn is_withdrawn(&self, id: ExecutionId, commit: &Commit) -> bool {
        self.executions.get(&id).map(|row| &row.execution).is_some_and(|planned| {
            matches!(planned.state, State::Pending { .. } | State::Owed(_))
                && planned.cause == Cause::Schedule
                && commit.marks.iter().any(|(marked, _)| *marked == planned.job)
        })
    }

    /// A stretch that an owner's act leaves out reaches up to that act.
    pub(super) fn check_left_out(&mut self, job: JobId, stretch: &Stretch, commit: &Commit) -> Checked {
        let mark = commit.marks.iter().find(|(marked, _)| *marked == job).map(|(_, mark)| mark);
        let right = mark.is_some_and(|mark| {
            let by_act = match stretch.reason {
                SkipReason::Paused => !matches!(mark.change, Change::Paused),
                SkipReason::Edited => matches!(mark.change, Change::Edited { .. }),
                SkipReason::Ended => mark.change == Change::Deleted,
                SkipReason::ZoneData => matches!(mark.change, Change::Rezoned { .. }),
                SkipReason::Misfire | SkipReason::Overlap | SkipReason::Quota | SkipReason::Error => false,
            };
            by_act && stretch.from <= mark.at && stretch.until == mark.at + GRAIN
        });
        ensure(right, "change", || format!("{job} has {stretch:?} with {mark:?}"))?;
        self.stretches.entry(job).or_default().push((stretch.from, stretch.until));
        Ok(())
    }

    /// An execution outside of its job's schedule: some key asked for it, and no other execution has key and slot.
    pub(super) fn check_asked_for(&mut self, execution: &Execution) -> Checked {
        let Execution { id, job, slot, .. } = *execution;
        let shard = job.shard(self.world.shards());
        let requested = Timestamp::from_unix_seconds(id.bucket_second() as i64);
        let is_of = |key: &str| {
            let request = RequestId::of_key(&TenantId::default_tenant(), key);
            ExecutionId::of_request(job, slot, shard, request, requested) == id
        };
        let record = self.world.record.lock();
        let asked = record.changes.iter().filter(|asked| asked.job == job);
        let found = asked.filter_map(|asked| Some((asked.kind, asked.key.clone()?))).find(|(_, key)| is_of(key));
        drop(record);
        let Some((kind, key)) = found else { return broken("asked-for", format!("nobody asked for {execution:?}")) };
        let due = match execution.state {
            State::Pending { due } => due,
            _ => return broken("asked-for", format!("it begins as {execution:?}")),
        };
        // An edit may have come between the request and this part of its work.
        let record = self.world.record.lock();
        let mut models = record.asked.get(&job).into_iter().chain(record.edits.get(&job).into_iter().flatten());
        let is_slot = models.any(|model: &JobModel| {
            let by = |data| JobModel { data, ..model.clone() }.after(slot.saturating_sub(Duration::from_secs(1)));
            [Data::Old, Data::New].into_iter().any(|data| by(data) == Some(slot))
        });
        drop(record);
        let right = match kind {
            Kind::Trigger => due == slot,
            Kind::Backfill => due > slot && is_slot,
            _ => false,
        };
        ensure(right && self.state_of(job) != Some(JobState::Deleted), "asked-for", || {
            format!("{kind:?} made {execution:?}")
        })?;
        let of_key = self.asked_for.entry(key).or_default();
        let first = of_key.insert(slot, id).is_none() && (kind == Kind::Backfill || of_key.len() == 1);
        ensure(first, "asked-for", || format!("{kind:?} made {execution:?} a second time: {of_key:?}"))?;
        self.seen.asked_for += 1;
        Ok(())
    }

    /// Why an owed slot that its job's schedule went on without does not run: the job rests, or was resumed or edited behind it.
    fn cleared(&self, execution: &Execution) -> Option<SkipReason> {
        let owned = self.jobs.get(&execution.job)?;
        if !matches!(execution.state, State::Owed(Owed { passed: true, .. })) {
            return None;
        }
        if owned.state == JobState::Paused {
            return Some(SkipReason::Paused);
        }
        owned.cleared.filter(|(until, _)| execution.slot <= *until).map(|(_, reason)| reason)
    }

    /// Rule `paused` for such a slot.
    pub(super) fn check_cleared(&self, step: &Step<'_>, reason: SkipReason) -> Checked {
        ensure(self.cleared(step.before) == Some(reason), "paused", || {
            format!("{:?} became {:?}", step.before, step.after)
        })
    }

    /// Of a job that rests no slot is queued; of one that is deleted nothing is.
    pub(super) fn check_may_go_on(&self, execution: &Execution, what: &str) -> Checked {
        let state = self.state_of(execution.job);
        let planned = execution.cause == Cause::Schedule
            && matches!(execution.state, State::Pending { .. } | State::Owed(Owed { again: false, .. }));
        let right = match state {
            Some(JobState::Active) => self.cleared(execution).is_none(),
            Some(JobState::Paused) => !planned,
            Some(JobState::Deleted) | None => false,
        };
        ensure(right, "paused", || format!("{execution:?} was {what} while its job was {state:?}"))
    }

    /// What owners were answered holds.
    pub(super) fn check_change_answers(&self) -> Checked {
        let record = self.world.record.lock();
        for asked in &record.changes {
            let (Some(at), Some(owned)) = (asked.answered, self.jobs.get(&asked.job)) else { continue };
            let made = asked.key.as_ref().and_then(|key| self.asked_for.get(key));
            let right = match asked.kind {
                Kind::Pause => owned.was(JobState::Paused, at),
                Kind::Resume => owned.was(JobState::Active, at),
                Kind::Delete { .. } => owned.was(JobState::Deleted, at),
                Kind::Edit => owned.revision > 1,
                Kind::Trigger => made.and_then(|made| made.values().next().copied()) == asked.execution,
                Kind::Backfill => made.map_or(0, |made| made.len()) >= asked.made,
            };
            ensure(right, "change", || format!("{asked:?} was answered, and the job is {owned:?}: {made:?}"))?;
            for id in made.into_iter().flat_map(|made| made.values()) {
                let state = self.executions.get(id).map(|row| &row.execution.state);
                let ran = matches!(state, Some(State::Completed { .. } | State::Failed { .. }));
                // When it was ended, rule `overlap` asked whether another one had come.
                let gave_way = matches!(state, Some(State::Cancelled { .. })) && owned.model.overlap.ends_others();
                ensure(ran || gave_way || owned.state == JobState::Deleted, "asked-for", || {
                    format!("{id} is {state:?}")
                })?;
            }
        }
        Ok(())
    }
}
