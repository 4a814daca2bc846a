//! Gathers reports of ended attempts into few commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use compline_core::ids::SessionId;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::AFTER_ERROR;
use super::executor::Holding;
use crate::ctx::Ctx;
use crate::passes::BATCH_MAX;
use crate::passes::complete::{Report, Reported, complete};

/// How long the first report of a batch waits for others.
const LINGER: Duration = Duration::from_millis(2);

/// A batch is cut when its outputs and logs come to this much.
const BATCH_BYTES_MAX: usize = 400_000;

/// How many batches are being committed at once.
const COMMITS_AT_ONCE: usize = 4;

/// Commits reports until the channel is closed and all that came through it is recorded.
pub(super) async fn run(
    ctx: Arc<Ctx>,
    node: Arc<str>,
    session: SessionId,
    holding: Arc<Holding>,
    mut reports: mpsc::UnboundedReceiver<Report>,
) {
    let slots = Arc::new(Semaphore::new(COMMITS_AT_ONCE));
    let refused_before = Arc::new(AtomicBool::new(false));
    let mut commits = JoinSet::new();
    while let Some(first) = reports.recv().await {
        let batch = gather(first, &mut reports).await;
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let (env, ctx, node, holding) = (ctx.env.clone(), ctx.clone(), node.clone(), holding.clone());
        let refused_before = refused_before.clone();
        commits.spawn(env.gated(async move {
            let refused = record(&ctx, &node, session, &holding, &batch).await;
            if refused > 0 && !refused_before.swap(true, Ordering::Relaxed) {
                tracing::warn!(%session, refused,
                    "reports were refused: their executions have other claims, or have ended, by now; more of this session are only counted");
            }
            drop(slot);
        }));
        while commits.try_join_next().is_some() {}
    }
    while commits.join_next().await.is_some() {}
}

async fn gather(first: Report, reports: &mut mpsc::UnboundedReceiver<Report>) -> Vec<Report> {
    let until = Instant::now() + LINGER;
    let mut bytes = size(&first);
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
        match timeout_at(until, reports.recv()).await {
            Ok(Some(report)) => {
                bytes += size(&report);
                batch.push(report);
            }
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

fn size(report: &Report) -> usize {
    let logs: usize = report.logs.iter().map(|line| line.message.len() + 16).sum();
    report.output.as_ref().map_or(0, bytes::Bytes::len) + logs
}

/// Records a batch; returns how many of its reports were refused.
async fn record(ctx: &Ctx, node: &str, session: SessionId, holding: &Holding, batch: &[Report]) -> usize {
    loop {
        match complete(ctx, node, session, batch).await {
            Ok(answers) => {
                for (report, answer) in batch.iter().zip(&answers) {
                    if *answer == Reported::Refused {
                        tracing::debug!(execution = %report.execution, fence = %report.fence, "the report was refused");
                    }
                    holding.release(&report.fence);
                }
                return answers.iter().filter(|answer| **answer == Reported::Refused).count();
            }
            Err(error) => {
                tracing::error!(%error, reports = batch.len(), "reports could not be recorded and will be tried again");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}
