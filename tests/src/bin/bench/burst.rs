//! `bench burst`: so many executions that are due in the same second, on an otherwise idle node, each a fresh sandbox with a real component.

use std::time::Duration;

use anyhow::{Result, ensure};
use compline_core::Timestamp;
use compline_core::schedule::ScheduleSpec;
use compline_core::time::instant;
use serde_json::{Value, json};

use crate::live::{Live, LiveArgs};
use crate::measure::Stretch;
use crate::say;

/// How long after their creation the jobs are due: longer than a ticker reads ahead.
const REST: Duration = Duration::from_secs(10);
/// How many jobs a second are surely created, on whatever store.
const CREATED_PER_SECOND: u64 = 500;
/// How long all of them may take.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
pub struct Args {
    /// How many executions are due at once.
    #[arg(long, default_value_t = 25_000)]
    count: usize,
    #[command(flatten)]
    live: LiveArgs,
}

pub async fn run(args: Args) -> Result<Value> {
    let live = Live::start(&args.live).await?;
    let ctx = live.ctx.clone();
    let creation = Duration::from_secs(args.count as u64 / CREATED_PER_SECOND);
    let due = Timestamp::from_unix_seconds((ctx.env.now() + creation + REST).timestamp());
    let at = instant::format(due.to_utc());
    say(&format!("creating {} jobs that are due once, at {at}", args.count));
    live.create(args.count, &ScheduleSpec::once(&at)).await?;
    let left = due.saturating_since(ctx.env.now());
    ensure!(left > REST / 2, "creating took so long that the jobs are due: name a smaller --count");
    tokio::time::sleep(left).await;
    let stretch = Stretch::begin(&ctx.store)?;
    let all_done = async {
        while ctx.metrics.attempts_ended().0 < args.count as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_done).await?;
    let (ok, failed) = ctx.metrics.attempts_ended();
    let mut measured = stretch.end("burst", &ctx.store, ok)?;
    measured["failed"] = json!(failed);
    measured["start_lag_ms"] = live.take_lags();
    live.end().await?;
    Ok(measured)
}
