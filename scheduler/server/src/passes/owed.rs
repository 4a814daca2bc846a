//! How much of what is owed goes to its lane: as much as executors take.
//!
//! What is owed waits by time in its shard, and from there goes to its lane, where claimers leave it until nothing that is on time waits. So
//! it is in nobody's way there; but what lies there cannot be skipped or counted any more, and thousands of commits that bring it there are.
//! So only a lane that has room gets more, and it has room when executors have taken what it got.

use std::collections::BTreeMap;
use std::time::Duration;

use compline_store::StoreError;
use compline_store::tables::queue;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::ctx::Ctx;

/// How much of what was owed waits in a lane at the most, give or take what several schedulers bring at once.
const READY_MAX: usize = 1_024;

/// How often a lane is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The room that lanes have, as this node knows it. All its tickers share it.
#[derive(Debug)]
pub struct OwedRoom {
    ready_max: usize,
    turn: Semaphore,
    lanes: Mutex<BTreeMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    left: usize,
    looked: Instant,
}

impl Default for OwedRoom {
    fn default() -> Self {
        Self::of(READY_MAX)
    }
}

impl OwedRoom {
    /// Lanes that take so much.
    pub fn of(ready_max: usize) -> Self {
        Self { ready_max, turn: Semaphore::new(1), lanes: Mutex::default() }
    }

    /// The turn to handle late or owed rows, if no other ticker of this node has it: passes over a backlog are many and large, and side by side
    /// they would keep the store from what is due now.
    pub fn try_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turn.try_acquire().ok()
    }

    /// Takes room in a lane for up to `wanted` executions; 0: it is full, or was a moment ago. What is not used is lost until the next look.
    pub async fn take(&self, ctx: &Ctx, lane: &str, wanted: usize) -> Result<usize, StoreError> {
        if self.is_to_look(lane) {
            let most = self.ready_max;
            let there = ctx.store.transact(|tx| async move { queue::owed_in(&tx, lane, most).await }).await?.value;
            let left = most.saturating_sub(there);
            let schedulers = ctx.fleet.latest().schedulers().max(1);
            if let Some(known) = self.lanes.lock().get_mut(lane) {
                known.left = if left == 0 { 0 } else { left.div_ceil(schedulers) };
            }
        }
        let mut lanes = self.lanes.lock();
        let Some(known) = lanes.get_mut(lane) else { return Ok(0) };
        let taken = known.left.min(wanted);
        known.left -= taken;
        Ok(taken)
    }

    /// Whether it is time to look at a lane again. Whoever is told so looks, and nobody else until it is time again.
    fn is_to_look(&self, lane: &str) -> bool {
        let now = Instant::now();
        let mut lanes = self.lanes.lock();
        match lanes.get_mut(lane) {
            Some(known) if now - known.looked < LOOK_EVERY => false,
            Some(known) => {
                known.looked = now;
                true
            }
            None => {
                lanes.retain(|_, known| now - known.looked < 100 * LOOK_EVERY);
                lanes.insert(lane.to_owned(), Known { left: 0, looked: now });
                true
            }
        }
    }
}
