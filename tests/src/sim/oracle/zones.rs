//! Rule `zones`: which zone data slots are planned and ticked by.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::State;
use compline_core::ids::{ExecutionId, JobId};
use compline_core::job::{JobRun, JobState};
use compline_core::ledger::Change;
use compline_store::tables::ledger::Mark;

use super::changes::{GRAIN, Span};
use super::rows::Commit;
use super::{Broken, Checked, Oracle, broken, ensure};
use crate::sim::zones::Data;

impl Oracle {
    /// Which zone data the author of a commit has.
    pub(super) fn data_of(&self, commit: &Commit) -> Result<Data, Broken> {
        let author = self.author(commit)?;
        Ok(self.world.record.lock().data.get(author.0 as usize).copied().unwrap_or(Data::Old))
    }

    /// Slots that follow newer data. Comes behind what owners do to jobs, and before what becomes of slots.
    pub(super) fn check_zones(&mut self, commit: &Commit) -> Checked {
        if let Some(newest) = &commit.newest_zones {
            ensure(*newest > self.newest_zones, "zones", || format!("{} became {newest}", self.newest_zones))?;
            self.newest_zones = newest.clone();
        }
        for (id, mark) in &commit.marks {
            if let Change::Rezoned { zones, slot_before } = &mark.change {
                let right = Data::of(zones).filter(|data| data.version() == self.newest_zones);
                let Some(data) = right.filter(|_| self.newest_zones == *zones) else {
                    return broken("zones", format!("{id} was moved by zone data {zones}, which is not the newest"));
                };
                self.check_moved(*id, mark, data, *slot_before, commit)?;
            }
        }
        for (id, run) in &commit.runs {
            if let Some(run) = run {
                self.follow(*id, run, commit)?;
            }
        }
        Ok(())
    }

    /// A slot is moved by a node that has the newest data, while it is still to come.
    fn check_moved(&mut self, id: JobId, mark: &Mark, data: Data, before: Timestamp, commit: &Commit) -> Checked {
        let (by, has) = (self.name(self.author(commit)?), self.data_of(commit)?);
        let planned = self.planned(id);
        let Some(owned) = self.jobs.get_mut(&id) else { return broken("zones", format!("{id} is unknown")) };
        let right = !by.starts_with("client")
            && has == data
            && owned.state == JobState::Active
            && owned.model.data < data
            && planned.is_some_and(|(_, slot)| slot == before)
            && before > mark.at;
        ensure(right, "zones", || format!("{by} moved {id} with {mark:?}; planned was {planned:?}; {owned:?}"))?;
        owned.close_span(mark.at + GRAIN);
        owned.model.data = data;
        owned.spans.push(Span { model: owned.model.clone(), after: Some(mark.at), until: None, spent: false });
        self.newest.insert(id, mark.at);
        self.seen.rezoned += 1;
        Ok(())
    }

    /// The slot that a job has planned, as of the commit before.
    fn planned(&self, id: JobId) -> Option<(ExecutionId, Timestamp)> {
        let planned = *self.pending.get(&id)?.first()?;
        Some((planned, self.executions.get(&planned)?.execution.slot))
    }

    /// From the slot that is planned in this commit on, others count than before, if it is planned by other data.
    fn follow(&mut self, id: JobId, run: &JobRun, commit: &Commit) -> Checked {
        let has = self.data_of(commit)?;
        let planned = self.planned(id);
        let Some(owned) = self.jobs.get_mut(&id) else { return Ok(()) };
        // What is paused or deleted has no slot to come.
        if !owned.model.is_zoned() || owned.state != JobState::Active {
            return Ok(());
        }
        let Some(data) = Data::of(&run.zones) else {
            return broken("zones", format!("the next slot of {id} is planned by no zone data: {run:?}"));
        };
        if data == owned.model.data {
            return Ok(());
        }
        let Some((planned, slot)) = planned.filter(|_| data == has) else {
            return broken("zones", format!("{id} became {run:?} by somebody with {has:?} data"));
        };
        let taken =
            commit.executions.get(&planned).is_some_and(|row| !matches!(row.execution.state, State::Pending { .. }));
        ensure(taken || run.next.is_some_and(|next| next.execution == planned), "zones", || {
            format!("{id} has {run:?} planned by {data:?} data, without a mark, and {slot} was not taken")
        })?;
        // What was planned by the old data counts up to the slot, and the slot too if that was taken.
        let end = if taken { slot + GRAIN } else { slot };
        owned.close_span(end);
        owned.model.data = data;
        owned.spans.push(Span {
            model: owned.model.clone(),
            after: Some(end.saturating_sub(Duration::from_micros(1))),
            until: None,
            spent: false,
        });
        Ok(())
    }

    /// A scheduler whose data is older than the newest leaves planned slots of zoned jobs alone.
    pub(super) fn check_up_to_date(&self, id: JobId, commit: &Commit) -> Checked {
        let zoned = self.jobs.get(&id).is_some_and(|owned| owned.model.is_zoned());
        let has = self.data_of(commit)?;
        ensure(!zoned || has.version() >= self.newest_zones, "zones", || {
            format!("a slot of {id} was ticked with {has:?} data, and there is {}", self.newest_zones)
        })
    }

    /// Jobs whose next slot has not followed the newest data.
    pub(super) fn outdated(&self) -> impl Iterator<Item = String> {
        let behind = |id: &JobId| {
            let owned = self.jobs.get(id)?;
            let is = owned.model.is_zoned() && owned.model.data.version() < self.newest_zones;
            (is && self.planned(*id).is_some()).then(|| format!("{id} is planned by older zone data: {owned:?}"))
        };
        self.jobs.keys().filter_map(behind)
    }
}
