//! What is planned in a shard follows newer zone data: once when its ticker begins, and whenever a node with older data has planned something.

use std::sync::Arc;
use std::time::Duration;

use compline_core::ids::ShardId;

use crate::ctx::Ctx;
use crate::passes::rezone;

/// How often it looks whether there is anything to do: two short reads.
const EVERY: Duration = Duration::from_secs(5);

/// Runs the pass of a shard for ever; whoever loses the shard drops it. Two at once do no harm.
pub(super) async fn run(ctx: Arc<Ctx>, shard: ShardId) {
    loop {
        match rezone::shard(&ctx, shard).await {
            Ok(0) => {}
            Ok(moved) => {
                let zones = ctx.env.zones().version();
                tracing::info!(shard = shard.0, moved, %zones, "newer zone data moved planned slots");
            }
            Err(error) => {
                tracing::warn!(shard = shard.0, %error, "planned slots could not follow newer zone data; tried again soon")
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
