//! Stops what the session is asked to stop.

use std::sync::Arc;

use compline_core::ids::SessionId;

use super::POLL;
use super::executor::Holding;
use crate::ctx::Ctx;
use crate::passes::cancel;

/// Looks every [`POLL`] for what is to stop, as long as anything is held: one short read, and none at all by a node that runs nothing. No watch
/// is needed to be quick enough, so none can be lost.
pub(super) async fn run(ctx: Arc<Ctx>, session: SessionId, holding: Arc<Holding>) {
    loop {
        tokio::time::sleep(POLL).await;
        if holding.len() == 0 {
            continue;
        }
        match cancel::asked(&ctx, session, || holding.snapshot()).await {
            Ok(rows) => rows.iter().for_each(|row| holding.stop(&row.fence)),
            // The next look comes soon.
            Err(error) => tracing::warn!(%error, "looking for what is to stop failed"),
        }
    }
}
