//! Passes driven by hand, for tests and benchmarks that run no loops.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::{SessionId, ShardId};
use compline_server::ctx::Ctx;
use compline_server::passes::tick::{self, Ticked};
use compline_store::tables::queue::{self, ByTime};
use compline_store::{Store, StoreError};

/// Ticks all that a shard has due by `now`, then what it owes, whatever room its lanes have.
pub async fn tick_shard(ctx: &Ctx, session: SessionId, shard: ShardId, now: Timestamp) -> Result<Ticked, StoreError> {
    tick_shard_from(&ctx.store, ctx, session, shard, now).await
}

/// The same, with the rows read ahead by way of another store than the passes use.
pub async fn tick_shard_from(
    ahead: &Store,
    ctx: &Ctx,
    session: SessionId,
    shard: ShardId,
    now: Timestamp,
) -> Result<Ticked, StoreError> {
    let until = now + Duration::from_micros(1);
    let due = async |from: ByTime<'_>| {
        let read = ahead.transact(|tx| async move { from.first(&tx, shard, None, until, usize::MAX).await });
        Ok::<_, StoreError>(read.await?.value.0)
    };
    let mut all = tick::tick(ctx, session, shard, ByTime::Due, &due(ByTime::Due).await?, now).await?;
    let lanes = ahead.transact(|tx| async move { queue::lanes_owed(&tx, shard, usize::MAX).await }).await?.value;
    for lane in &lanes {
        let from = ByTime::Owed(lane);
        let paid = tick::tick(ctx, session, shard, from, &due(from).await?, now).await?;
        all.queued += paid.queued;
        all.ended += paid.ended;
        all.planned.extend(paid.planned);
        all.lost |= paid.lost;
    }
    Ok(all)
}
