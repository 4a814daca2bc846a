//! When all faults are over, what is due starts at once: measured in a lane where nothing else waits, in runs that have one.

use std::sync::Arc;
use std::time::Duration;

use compline_core::ids::ExecutionId;
use compline_server::env::Clock;
use tokio::time::{Instant, sleep};

use super::client::{ask, open};
use super::model::{JobModel, Slots};
use super::oracle::{Oracle, Violation};
use super::shape::LANE_PROMPT;
use super::world::World;

/// The promise, from the planned instant to the start, and by how much clocks may move that instant.
const LAG_MAX: Duration = Duration::from_millis(2_000 + 200);
/// The number of the client that asks: no other has it.
const NUMBER: usize = 99;

/// Asks for a run now and for one in a second, and sees that both begin in time.
pub async fn start_at_once(world: &Arc<World>, oracle: &mut Oracle, seed: u64) -> Result<(), Violation> {
    // By then whoever takes over from whom has done so.
    sleep(world.shape.session_ttl * 2).await;
    let broke = |oracle: &Oracle, detail| Err(oracle.broke("prompt", detail, Instant::now()));
    let ctx = match open(world, NUMBER, world.hub.handle(), seed).await {
        Ok(ctx) => ctx,
        Err(error) => return broke(oracle, format!("the store cannot be opened: {error}")),
    };
    for in_a_second in [false, true] {
        let now = world.clock.now();
        let due = if in_a_second { now + Duration::from_secs(1) } else { now };
        let slots = if in_a_second { Slots::Once(due) } else { Slots::Now };
        let model = JobModel::prompt(now, slots, LANE_PROMPT);
        let Some(job) = ask(world, &ctx, &model, None, LAG_MAX).await else {
            return broke(oracle, format!("{model:?} was not created in time"));
        };
        let planned = world.record.lock().asked.get(&job).and_then(JobModel::first).unwrap_or(due);
        sleep(planned.saturating_since(world.clock.now()) + LAG_MAX).await;
        oracle.replay()?;
        let id = ExecutionId::of_slot(job, planned, job.shard(world.shards()));
        let record = world.record.lock();
        let began = record.runs.iter().find(|run| run.execution == id).map(|run| world.clock.at(run.started));
        if began.is_none_or(|began| began.saturating_since(planned) > LAG_MAX) {
            return broke(oracle, format!("{id}, due at {planned}, began at {began:?}: {model:?}"));
        }
        drop(record);
        oracle.seen.prompt += 1;
    }
    Ok(())
}
