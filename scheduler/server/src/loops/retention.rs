//! The retention of a shard: slow passes beside its ticker, in small steps.

use std::sync::Arc;

use compline_core::ids::ShardId;
use compline_store::StoreError;
use tokio::time::MissedTickBehavior;

use crate::ctx::Ctx;
use crate::passes::retain::{self, Known};

/// The shard whose keeper also looks after what belongs to no shard.
const FIRST: ShardId = ShardId(0);

/// Runs the passes of a shard for ever; whoever loses the shard drops it. Two at once do no harm.
pub(super) async fn run(ctx: Arc<Ctx>, shard: ShardId) {
    let mut known = Known::default();
    let every = ctx.retention.every;
    // Shards take turns.
    let first = tokio::time::Instant::now() + every * u32::from(shard.0) / u32::from(ctx.shards.get());
    let mut interval = tokio::time::interval_at(first, every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        match pass(&ctx, shard, &mut known).await {
            Ok(0) => {}
            Ok(removed) => tracing::info!(shard = shard.0, removed, "old executions were removed"),
            Err(error) => tracing::warn!(shard = shard.0, %error, "retention failed and will be tried again"),
        }
    }
}

async fn pass(ctx: &Ctx, shard: ShardId, known: &mut Known) -> Result<usize, StoreError> {
    let now = ctx.env.now();
    let removed = retain::trim_asked(ctx, shard).await? + retain::drop_old(ctx, shard, now, known).await?;
    ctx.metrics.retained(removed);
    if shard == FIRST {
        let jobs = retain::forget_finished(ctx, now).await?;
        let requests = retain::forget_requests(ctx, now).await?;
        tracing::debug!(jobs, requests, "finished jobs and old idempotency keys were forgotten");
    }
    Ok(removed)
}
