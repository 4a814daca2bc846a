//! Rule `places`: who waits where, and who holds what.

use std::collections::BTreeMap;

use compline_core::execution::State;
use compline_core::ids::{ExecutionId, ShardId};
use compline_store::tables::execution::ExecutionRow;
use compline_store::tables::queue;

use super::rows::{Commit, Place};
use super::{Checked, Oracle, ensure};

/// The places that there are, by execution.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_execution: BTreeMap<ExecutionId, Vec<Place>>,
    stored_open: BTreeMap<(ShardId, u32), i64>,
}

impl Places {
    pub(super) fn change(&mut self, commit: &Commit) {
        for taken in &commit.taken {
            let places = self.by_execution.entry(taken.execution()).or_default();
            places.retain(|place| place != taken);
        }
        for placed in &commit.placed {
            self.by_execution.entry(placed.execution()).or_default().push(placed.clone());
        }
        for (shard, hour, open) in &commit.open {
            self.stored_open.insert((*shard, *hour), *open);
        }
    }

    /// How many open executions the store says that a bucket has.
    pub(super) fn stored_open(&self, bucket: (ShardId, u32)) -> i64 {
        self.stored_open.get(&bucket).copied().unwrap_or(0)
    }

    /// Whether an execution has a due row.
    pub(super) fn is_due(&self, id: ExecutionId) -> bool {
        self.by_execution.get(&id).is_some_and(|places| places.iter().any(|place| matches!(place, Place::Due(_))))
    }

    /// How many executions wait in a lane that were owed.
    pub(super) fn owed_in(&self, lane: &str) -> usize {
        let is_there = |place: &&Place| matches!(place, Place::Ready { lane: of, owed: true, .. } if of == lane);
        self.by_execution.values().flatten().filter(is_there).count()
    }

    /// Whether an execution has the places that its state asks for, and no other.
    pub(super) fn check(&self, id: ExecutionId, row: Option<&ExecutionRow>) -> Checked {
        let places = self.by_execution.get(&id).map_or(&[][..], Vec::as_slice);
        let Some(row) = row else {
            return ensure(places.is_empty(), "places", || format!("{id} has no row, and yet {places:?}"));
        };
        let execution = &row.execution;
        let right = match (&execution.state, places) {
            (State::Pending { due } | State::Retrying { due }, [Place::Due(place)]) => {
                place.at == queue::due_instant(*due) && place.job == execution.job
            }
            (State::Owed(owed), [Place::Owed { lane, row }]) => {
                row.at == queue::due_instant(owed.due) && row.job == execution.job && owed.lane == *lane
            }
            (State::Queued(queued), [Place::Ready { lane, owed, partition, stamp, ready }]) => {
                *stamp == row.stamp
                    && *owed == queued.owed
                    && *partition == queued.partition
                    && ready.job == execution.job
                    && queued.lane == *lane
            }
            (State::Running(running), [Place::Running { session, row }]) => {
                *session == running.session && row.fence == running.fence && row.claim == running.claim
            }
            (state @ State::Waiting { .. }, [Place::Due(place)]) => Oracle::is_wake_of(state, place.at),
            (state, []) => state.is_terminal() || matches!(state, State::Waiting { .. }),
            _ => false,
        };
        ensure(right, "places", || format!("{execution:?} has these places: {places:?}"))
    }
}
