//! `bench backlog`: what is on time beside the backlog of an outage, each execution a fresh sandbox with a real component.
//!
//! The backlog is jobs that were due once, before the node starts; what is on time is due every second. Shown is the lag of either, and how
//! fast the backlog drains.

use std::time::Duration;

use anyhow::Result;
use compline_core::schedule::ScheduleSpec;
use compline_core::time::instant;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::live::{Live, LiveArgs, quantiles};
use crate::measure::{Stretch, round};
use crate::say;

/// How long before its creation the backlog was due.
const OUTAGE: Duration = Duration::from_secs(60);
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub struct Args {
    /// How many executions are owed.
    #[arg(long, default_value_t = 200_000)]
    owed: usize,
    /// How many are due every second beside them.
    #[arg(long, default_value_t = 500)]
    rate: usize,
    #[command(flatten)]
    live: LiveArgs,
}

pub async fn run(args: Args) -> Result<Value> {
    let mut live = Live::prepare(&args.live).await?;
    let ctx = live.ctx.clone();
    say(&format!("creating {} jobs that were due once, and {} that are due every second", args.owed, args.rate));
    let at = instant::format(ctx.env.now().saturating_sub(OUTAGE).to_utc());
    live.create(args.owed, &ScheduleSpec::once(&at)).await?;
    // Last, so that their own first slots are not part of the backlog.
    live.create(args.rate, &ScheduleSpec::cron("* * * * * *")).await?;
    say("starting the node");
    live.begin(&args.live).await?;
    let stretch = Stretch::begin(&ctx.store)?;
    let began = Instant::now();
    let mut owed_lags = ctx.metrics.take_owed_lags();
    let drained = async {
        while owed_lags.len() < args.owed as u64 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            owed_lags.add(ctx.metrics.take_owed_lags())?;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, drained).await??;
    let drained = began.elapsed();
    let (ok, failed) = ctx.metrics.attempts_ended();
    let mut measured = stretch.end("backlog", &ctx.store, ok)?;
    measured["failed"] = json!(failed);
    measured["owed"] = json!(owed_lags.len());
    measured["owed_drained_seconds"] = json!(round(drained.as_secs_f64(), 1));
    measured["on_time_per_second"] = json!(args.rate);
    measured["start_lag_ms"] = live.take_lags();
    measured["owed_start_lag_ms"] = quantiles(&owed_lags);
    live.end().await?;
    Ok(measured)
}
