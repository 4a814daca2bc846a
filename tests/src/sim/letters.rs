//! What owners do with dead letters: they let them run again or drop them, one or in bulk, and sometimes one that is none any more.

use compline_core::ids::{ExecutionId, TenantId};
use compline_server::env::Clock;
use compline_server::ops::dead::{Done, Filter, drop_all, list, redrive_spread};
use compline_server::passes::redrive::Answer;
use compline_store::StoreError;
use tokio::time::{Instant, timeout};

use super::owner::{Owner, REPEATS_MAX};
use super::shape::{LANE, LANE_APART};
use super::world::{LetterAnswer, Redrive};

impl Owner<'_> {
    /// Looks at dead letters and does something about them.
    pub async fn mourn(&self, rng: &mut fastrand::Rng) {
        let lane = [None, Some(LANE), Some(LANE_APART)][rng.usize(0..3)];
        let limit = if rng.bool() { 1 } else { rng.usize(2..=30) };
        let (drops, again) = (rng.u8(0..3) == 0, rng.u8(0..4) == 0);
        let per_second = [1, 5, 100][rng.usize(0..3)];
        let tenant = TenantId::default_tenant();
        for repeat in 0..REPEATS_MAX {
            let look = list(self.ctx, Filter { tenant: &tenant, lane, job: None }, None, limit);
            let mut ids: Vec<ExecutionId> = match timeout(self.patience * (repeat + 1), look).await {
                Ok(Ok(found)) => found.items.iter().map(|letter| letter.letter.execution.id).collect(),
                Ok(Err(error)) => return self.note_broken(&error),
                Err(_) => {
                    self.world.record.lock().events.requests_abandoned += 1;
                    continue;
                }
            };
            if again {
                // What was dropped failed all the same, and what runs again by now is no letter.
                let record = self.world.record.lock();
                ids.extend(record.dropped.iter().chain(record.redrives.iter().flat_map(|redrive| &redrive.ids)).next());
            }
            if ids.is_empty() {
                return;
            }
            match self.bury(&ids, (!drops).then_some(per_second), repeat).await {
                Some(Ok(done)) => return self.note_letters(&done, drops),
                Some(Err(error)) => return self.note_broken(&error),
                None => self.world.record.lock().events.requests_abandoned += 1,
            }
        }
    }

    /// One request about these: `None` if it was not answered in time.
    async fn bury(
        &self,
        ids: &[ExecutionId],
        per_second: Option<u32>,
        repeat: u32,
    ) -> Option<Result<Done, StoreError>> {
        let patience = self.patience * (repeat + 1);
        match per_second {
            Some(per_second) => {
                let begun = self.world.clock.now();
                self.world.record.lock().redrives.push(Redrive { ids: ids.to_vec(), per_second, begun });
                timeout(patience, redrive_spread(self.ctx, ids, per_second)).await.ok()
            }
            None => {
                self.world.record.lock().dropped.extend(ids);
                timeout(patience, drop_all(self.ctx, ids)).await.ok()
            }
        }
    }

    fn note_letters(&self, done: &Done, dropped: bool) {
        let mut record = self.world.record.lock();
        let answered = done.answers.iter().filter(|(_, answer)| *answer == Answer::Done);
        let at = Instant::now();
        record.letter_answers.extend(answered.map(|(execution, _)| LetterAnswer {
            execution: *execution,
            dropped,
            at,
        }));
    }

    fn note_broken(&self, error: &StoreError) {
        self.world.record.lock().broken.push(format!("a request about dead letters failed for good: {error}"));
    }
}
