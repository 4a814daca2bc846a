//! What a slot does while earlier executions of its job are live.
//!
//! A [`Gate`] is what the pass read of a job's live and waiting executions, all of it under the commit's conflicts. Planning changes a copy of it
//! as it goes, so that several rows of one job in one pass see each other.

use std::collections::VecDeque;

use super::{Change, JobView, cancel_deleted, partition_of, skip};
use crate::Timestamp;
use crate::execution::{Event, Execution, Owed, State};
use crate::ids::ExecutionId;
use crate::job::{JobState, Overlap};
use crate::ledger::SkipReason;

/// How many slots of a job wait for an earlier execution at the most. One that comes then is skipped.
pub const WAITING_MAX: usize = 1_000;

/// A job's live and waiting executions.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Those that are live.
    pub live: Vec<Counted>,
    /// Those that wait, in the order in which they were due.
    pub waiting: VecDeque<Counted>,
}

/// An execution that counts.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Which.
    pub id: ExecutionId,
    /// When it was due.
    pub due: Timestamp,
    /// Whether only the schedule wants it; otherwise somebody asked for it, and no rule drops it.
    pub scheduled: bool,
    /// Its row. Of those that wait only the first ones, and of the live ones only those that the rule may end, have it here.
    pub execution: Option<Execution>,
}

/// What becomes of an execution whose time has come.
pub(super) enum Admission {
    /// It goes to its lane. So many scheduled ones that waited have given their place to it.
    Queue { execution: Execution, replaced: u64 },
    /// It waits. So many scheduled ones that waited have given their place to it.
    Wait { execution: Execution, replaced: u64 },
    /// It ends.
    Skip(Execution),
    /// It cannot be said: its state has no such event.
    Stale,
}

/// What plans need besides the gate.
pub(super) struct At<'a> {
    pub(super) job: &'a JobView,
    pub(super) now: Timestamp,
    pub(super) partitions: u8,
}

impl At<'_> {
    pub(super) fn queue(&self, id: &ExecutionId) -> Event {
        Event::Queue { at: self.now, partition: partition_of(id, self.partitions) }
    }
}

impl Gate {
    /// Lets those go on that wait and need not any more. If the pass has not read enough of them to go on to the end, the next one is woken.
    pub(super) fn settle(&mut self, at: &At<'_>, changes: &mut Vec<Change>) {
        let At { job, now, .. } = *at;
        while let Some(first) = self.waiting.front() {
            // What somebody asked for runs though its job is paused.
            let asked_for = first.execution.as_ref().is_some_and(|waiting| !waiting.is_of_schedule());
            let goes_on = job.state == JobState::Active || job.state == JobState::Paused && asked_for;
            if goes_on && !self.is_free(job.overlap) {
                return;
            }
            let Some(waiting) = &first.execution else {
                changes.push(Change::Wake { id: first.id, due: first.due });
                return;
            };
            let event = match job.state {
                JobState::Active => at.queue(&first.id),
                JobState::Paused if asked_for => at.queue(&first.id),
                JobState::Paused => skip(now, SkipReason::Paused, "its job was paused while it waited".to_owned()),
                JobState::Deleted => cancel_deleted(now),
            };
            let applied = waiting.apply(&event);
            let Some(mut first) = self.waiting.pop_front() else { return };
            match applied {
                Ok(after) if after.state.is_terminal() => {
                    changes.extend(first.execution.map(|before| Change::End { before, after }));
                }
                Ok(after) => {
                    changes.extend(first.execution.take().map(|before| Change::Release { before, after }));
                    self.live.push(first);
                }
                // It does not wait any more: its row in the gate is all that is left of it.
                Err(_) => changes.push(Change::Forget { id: first.id, due: first.due }),
            }
        }
    }

    /// Decides about an execution whose time has come.
    pub(super) fn admit(&mut self, execution: &Execution, at: &At<'_>, changes: &mut Vec<Change>) -> Admission {
        let At { job, now, .. } = *at;
        let scheduled = execution.is_of_schedule();
        match job.overlap {
            Overlap::CancelOther => self.end_live(at, false, changes),
            Overlap::TerminateOther => self.end_live(at, true, changes),
            Overlap::Allow | Overlap::AllowUpTo(_) | Overlap::Skip | Overlap::BufferOne | Overlap::BufferAll => {}
        }
        if self.is_free(job.overlap) && (self.waiting.is_empty() || job.overlap == Overlap::TerminateOther) {
            return self.queue(execution, at, 0);
        }
        let mut replaced = 0;
        match job.overlap {
            Overlap::Skip if scheduled => {
                return Self::end(execution, now, "overlap: an earlier execution of its job was live".to_owned());
            }
            Overlap::Allow | Overlap::AllowUpTo(_) | Overlap::BufferAll
                if scheduled && self.waiting.len() >= WAITING_MAX =>
            {
                let words = format!("overlap: {WAITING_MAX} slots of its job waited for earlier executions already");
                return Self::end(execution, now, words);
            }
            Overlap::BufferOne | Overlap::CancelOther if scheduled => replaced = self.replace(execution, now, changes),
            _ => {}
        }
        // The live one may have ended just now.
        self.settle(at, changes);
        if self.is_free(job.overlap) && self.waiting.is_empty() {
            return self.queue(execution, at, replaced);
        }
        let Ok(mut waiting) = execution.apply(&Event::Hold { at: now }) else { return Admission::Stale };
        waiting.counted = true;
        self.waiting.push_back(Counted::new(&waiting));
        Admission::Wait { execution: waiting, replaced }
    }

    fn is_free(&self, overlap: Overlap) -> bool {
        overlap.live_max().is_none_or(|max| self.live.len() < max as usize)
    }

    fn queue(&mut self, execution: &Execution, at: &At<'_>, replaced: u64) -> Admission {
        let Ok(mut queued) = execution.apply(&at.queue(&execution.id)) else { return Admission::Stale };
        if at.job.overlap.live_max().is_some() {
            queued.counted = true;
            self.live.push(Counted { execution: None, ..Counted::new(&queued) });
        }
        Admission::Queue { execution: queued, replaced }
    }

    fn end(execution: &Execution, now: Timestamp, words: String) -> Admission {
        execution.apply(&skip(now, SkipReason::Overlap, words)).map_or(Admission::Stale, Admission::Skip)
    }

    /// The scheduled ones that wait give their place to a newer one.
    fn replace(&mut self, newer: &Execution, now: Timestamp, changes: &mut Vec<Change>) -> u64 {
        let words = format!("overlap: the slot {} came while it waited for an earlier execution to end", newer.slot);
        let event = skip(now, SkipReason::Overlap, words);
        let mut replaced = 0;
        self.waiting.retain(|waiting| {
            let Some(before) = waiting.execution.as_ref().filter(|_| waiting.scheduled) else { return true };
            let Ok(after) = before.apply(&event) else { return true };
            changes.push(Change::End { before: before.clone(), after });
            replaced += 1;
            false
        });
        replaced
    }

    /// Ends what is live, or asks it to stop if it runs and `at_once` is not wanted.
    fn end_live(&mut self, at: &At<'_>, at_once: bool, changes: &mut Vec<Change>) {
        let reason = format!("overlap: a newer slot of its job came ({})", at.job.overlap.as_str());
        self.live.retain(|live| {
            let Some(before) = &live.execution else { return true };
            let event = if at_once {
                Event::Terminate { at: at.now, reason: reason.clone() }
            } else {
                Event::Cancel { at: at.now, reason: reason.clone() }
            };
            let Ok(after) = before.apply(&event) else { return true };
            let stays = !after.state.is_terminal();
            if stays && after == *before {
                return true;
            }
            changes.push(if stays {
                Change::Stop { before: before.clone(), after }
            } else {
                Change::End { before: before.clone(), after }
            });
            stays
        });
    }
}

impl Counted {
    /// An execution as a gate has it.
    pub fn new(execution: &Execution) -> Self {
        let due = match &execution.state {
            State::Pending { due }
            | State::Owed(Owed { due, .. })
            | State::Waiting { due, .. }
            | State::Retrying { due } => *due,
            _ => execution.slot,
        };
        let scheduled = execution.is_of_schedule();
        Self { id: execution.id, due, scheduled, execution: Some(execution.clone()) }
    }
}
