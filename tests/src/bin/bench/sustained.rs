//! `bench sustained`: so many executions a second for so many seconds, each a fresh sandbox with a real component.
//!
//! The load is one recurring job per execution and second, all of them due at the second, so every second is a burst: the lag shown is that
//! of the last ones of each burst too.

use std::time::Duration;

use anyhow::{Result, ensure};
use compline_core::schedule::ScheduleSpec;
use serde_json::{Value, json};

use crate::live::{Live, LiveArgs};
use crate::measure::Stretch;
use crate::say;

#[derive(clap::Args)]
pub struct Args {
    /// Executions a second.
    #[arg(long, default_value_t = 3_000)]
    rate: usize,
    /// For how long, after the warm-up.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[command(flatten)]
    live: LiveArgs,
}

pub async fn run(args: Args) -> Result<Value> {
    let live = Live::start(&args.live).await?;
    let ctx = live.ctx.clone();
    say(&format!("creating {} jobs that are due every second", args.rate));
    live.create(args.rate, &ScheduleSpec::cron("* * * * * *")).await?;
    say("warming up for 5 s");
    tokio::time::sleep(Duration::from_secs(5)).await;
    say(&format!("measuring for {} s", args.seconds));
    let (ok_before, failed_before) = ctx.metrics.attempts_ended();
    live.take_lags();
    let stretch = Stretch::begin(&ctx.store)?;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let (ok, failed) = ctx.metrics.attempts_ended();
    let mut measured = stretch.end("sustained", &ctx.store, ok - ok_before)?;
    measured["rate"] = json!(args.rate);
    measured["failed"] = json!(failed - failed_before);
    measured["start_lag_ms"] = live.take_lags();
    live.end().await?;
    ensure!(ok > ok_before, "nothing ran");
    Ok(measured)
}
