//! Rule `cancel`: what clients cancel, and nothing else, stops.

use compline_core::execution::State;
use compline_core::job::JobState;

use super::executions::Step;
use super::rows::Commit;
use super::{Checked, Oracle, ensure};

impl Oracle {
    /// Whoever stops something is a client that was asked to.
    pub(super) fn check_cancel(&self, step: &Step<'_>) -> Checked {
        if self.is_ended_by_rule(step) {
            return self.check_ticker(step);
        }
        let by = self.name(self.author(step.commit)?);
        let asked = self.world.record.lock().cancels.contains(&step.after.id);
        // Of a deleted job whoever meets it ends what waits, and its owner stops what runs.
        let deleted = self.state_of(step.after.job) == Some(JobState::Deleted);
        let waits = !matches!(step.before.state, State::Running(_));
        let client = by.starts_with("client");
        ensure((asked && client) || (deleted && (waits || client)), "cancel", || {
            format!("{by} made {:?} of {:?}, which a client asked for: {asked}", step.after, step.before)
        })
    }

    /// A session is told to stop only what it runs and is to stop.
    pub(super) fn check_stops(&self, commit: &Commit) -> Checked {
        let told = commit.stops.iter().map(|(session, id, _)| (*session, *id));
        let changed = commit.executions.keys().flat_map(|id| {
            let of_it = self.stops.keys().filter(move |(_, told)| told == id);
            of_it.copied()
        });
        for (session, id) in told.chain(changed) {
            let Some(row) = self.stops.get(&(session, id)) else { continue };
            let state = self.executions.get(&id).map(|row| &row.execution.state);
            let right = matches!(state, Some(State::Running(running)) if running.session == session
                && running.fence == row.fence && running.claim == row.claim && running.stop.is_some())
                // It was ended in the middle, and its node has not heard of it yet.
                || matches!(self.over.get(&row.fence), Some((_, super::Ending::Lost)));
            ensure(right, "cancel", || format!("{session} is told to stop {row:?}, which is {state:?}"))?;
        }
        Ok(())
    }

    /// What clients were answered holds.
    pub(super) fn check_cancel_answers(&self) -> Checked {
        for answer in &self.world.record.lock().cancel_answers {
            let state = self.executions.get(&answer.execution).map(|row| &row.execution.state);
            let cancelled = self.cancelled.get(&answer.execution).is_some_and(|at| *at <= answer.at);
            let right = if answer.over { cancelled } else { state.is_some_and(State::is_terminal) };
            ensure(right, "cancel", || format!("{answer:?} was given, and it is {state:?}"))?;
        }
        Ok(())
    }
}
