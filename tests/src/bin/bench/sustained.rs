//! `bench sustained`: so many executions a second for so many seconds, each a fresh sandbox with a real component.
//!
//! The load is one recurring job per execution and second, all of them due at the second, so every second is a burst: the lag shown is that
//! of the last ones of each burst too.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use compline_core::ids::{JobId, TaskDigest, TenantId};
use compline_core::job::{Bounds, Job, Misfire, Overlap, RunLimits, TaskRef};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::retry::RetryRule;
use compline_runtime::{CompileLimits, CompilePlace, Compiler, Engine, EngineConfig};
use compline_server::ctx::{Ctx, ParsedJob};
use compline_server::env::Env;
use compline_server::loops::{Node, NodeConfig};
use compline_server::ops::create::{NewJob, create_job};
use compline_server::sandbox::Sandbox;
use compline_store::tables::task::store_component;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::measure::{self, Stretch, round};
use crate::say;

const CREATIONS_AT_ONCE: usize = 256;

const PARAMETERS: &str = r#"{"customer":"Ada","currency":"EUR","items":[{"description":"hosting","quantity":3,"unit_price_cents":1999,"tax_basis_points":1900}]}"#;

#[derive(clap::Args)]
pub struct Args {
    /// Executions a second.
    #[arg(long, default_value_t = 3_000)]
    rate: usize,
    /// For how long, after the warm-up.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// The component that each execution runs.
    #[arg(long, default_value = "target/guests/invoice.wasm")]
    component: PathBuf,
    /// How many attempts run at once.
    #[arg(long, default_value_t = 64)]
    workers: usize,
}

pub async fn run(args: Args) -> Result<Value> {
    let component = std::fs::read(&args.component)
        .with_context(|| format!("{}: run `cargo xtask guests` first", args.component.display()))?;
    let component = Bytes::from(component);
    let digest = TaskDigest::of(&component);
    let directory = tempfile::tempdir_in("target")?;
    let ctx = measure::open(directory.path(), Env::system()).await?;
    store_component(&ctx.store, digest, &component).await?;
    let engine = Engine::new(EngineConfig::default())?;
    let compiler = Compiler::new(engine, CompilePlace::InProcess, CompileLimits::default(), None)?;
    let config = NodeConfig { exclusive: true, workers: args.workers, ..NodeConfig::new("bench") };
    let node = Node::new(ctx.clone(), config, Arc::new(Sandbox::new(ctx.store.clone(), compiler)));
    let stop = CancellationToken::new();
    let lives = tokio::spawn({
        let stop = stop.clone();
        async move { node.run(stop).await }
    });

    say(&format!("creating {} jobs that are due every second", args.rate));
    create(&ctx, args.rate, digest).await?;
    say("warming up for 5 s");
    tokio::time::sleep(Duration::from_secs(5)).await;
    say(&format!("measuring for {} s", args.seconds));
    let (ok_before, failed_before) = ctx.metrics.attempts_ended();
    drop(ctx.metrics.take_lags());
    let stretch = Stretch::begin(&ctx.store)?;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let (ok, failed) = ctx.metrics.attempts_ended();
    let lags = ctx.metrics.take_lags();
    let mut measured = stretch.end("sustained", &ctx.store, ok - ok_before)?;
    let millis = |micros: u64| round(micros as f64 / 1_000.0, 1);
    measured["rate"] = json!(args.rate);
    measured["failed"] = json!(failed - failed_before);
    measured["start_lag_ms"] = json!({
        "p50": millis(lags.value_at_quantile(0.5)), "p99": millis(lags.value_at_quantile(0.99)), "max": millis(lags.max()),
    });
    stop.cancel();
    lives.await??;
    ctx.store.close().await?;
    ensure!(ok > ok_before, "nothing ran");
    Ok(measured)
}

async fn create(ctx: &Arc<Ctx>, count: usize, digest: TaskDigest) -> Result<()> {
    stream::iter(0..count)
        .map(|_| {
            let ctx = ctx.clone();
            async move {
                let job = job(&ctx, digest);
                create_job(&ctx, &NewJob { job: ParsedJob::new(job)?, paused: false, idempotency: None }).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CREATIONS_AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// A job that is due every second.
pub fn job(ctx: &Ctx, digest: TaskDigest) -> Job {
    let now = ctx.env.now();
    Job {
        id: JobId::new(now, ctx.env.random_u128()),
        tenant: TenantId::default_tenant(),
        name: None,
        task: TaskRef { name: "invoice".to_owned(), reference: "invoice".to_owned(), digest },
        schedule: ScheduleSpec::cron("* * * * * *"),
        parameters: Bytes::from_static(PARAMETERS.as_bytes()),
        lane: "default".to_owned(),
        misfire: Misfire::default(),
        overlap: Overlap::default(),
        splay: Duration::ZERO,
        bounds: Bounds::default(),
        retry: RetryRule::default(),
        on_failure: None,
        limits: RunLimits::default(),
        labels: std::collections::BTreeMap::new(),
        created_at: now,
    }
}
