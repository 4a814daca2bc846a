//! A whole node that runs a real component in real sandboxes: what `sustained` and `burst` measure.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use compline_core::ids::{JobId, TaskDigest};
use compline_core::job::{Job, TaskRef};
use compline_core::schedule::ScheduleSpec;
use compline_runtime::{CompileLimits, CompilePlace, Compiler, Engine, EngineConfig};
use compline_server::ctx::{Ctx, ParsedJob};
use compline_server::env::Env;
use compline_server::loops::{Node, NodeConfig, NodeError, Runner};
use compline_server::ops::create::{NewJob, create_job};
use compline_server::sandbox::Sandbox;
use compline_store::tables::task::store_component;
use futures::stream::{self, StreamExt, TryStreamExt};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::measure::{StoreArgs, round};

const CREATIONS_AT_ONCE: usize = 256;

const PARAMETERS: &str = r#"{"customer":"Ada","currency":"EUR","items":[{"description":"hosting","quantity":3,"unit_price_cents":1999,"tax_basis_points":1900}]}"#;

#[derive(clap::Args)]
pub struct LiveArgs {
    /// The component that each execution runs.
    #[arg(long, default_value = "target/guests/invoice.wasm")]
    component: PathBuf,
    /// How many attempts run at once.
    #[arg(long, default_value_t = 64)]
    workers: usize,
    #[command(flatten)]
    store: StoreArgs,
}

/// The node, its store and its task.
pub struct Live {
    pub ctx: Arc<Ctx>,
    digest: TaskDigest,
    stop: CancellationToken,
    lives: Option<JoinHandle<Result<(), NodeError>>>,
    _directory: tempfile::TempDir,
}

impl Live {
    /// A node that runs.
    pub async fn start(args: &LiveArgs) -> Result<Self> {
        let mut live = Self::prepare(args).await?;
        live.begin(args).await?;
        Ok(live)
    }

    /// A store with the task, and no node yet.
    pub async fn prepare(args: &LiveArgs) -> Result<Self> {
        let component = std::fs::read(&args.component)
            .with_context(|| format!("{}: run `cargo xtask guests` first", args.component.display()))?;
        let component = Bytes::from(component);
        let digest = TaskDigest::of(&component);
        let directory = tempfile::tempdir_in("target")?;
        let ctx = args.store.open(directory.path(), Env::system()).await?;
        store_component(&ctx.store, digest, &component).await?;
        Ok(Self { ctx, digest, stop: CancellationToken::new(), lives: None, _directory: directory })
    }

    /// Starts the node. The component is compiled before, as it is on a server that starts again.
    pub async fn begin(&mut self, args: &LiveArgs) -> Result<()> {
        let ctx = &self.ctx;
        let engine = Engine::new(EngineConfig::default())?;
        let compiler = Compiler::new(engine, CompilePlace::InProcess, CompileLimits::default(), None)?;
        let config = NodeConfig { exclusive: true, workers: args.workers, ..NodeConfig::new("bench") };
        let sandbox = Arc::new(Sandbox::new(ctx.store.clone(), compiler));
        sandbox.prepare(self.digest);
        while !sandbox.can_run(&self.digest) {
            sandbox.prepared().notified().await;
        }
        let node = Node::new(ctx.clone(), config, sandbox);
        let stop = self.stop.clone();
        self.lives = Some(tokio::spawn(async move { node.run(stop).await }));
        Ok(())
    }

    /// Creates so many jobs of this schedule.
    pub async fn create(&self, count: usize, schedule: &ScheduleSpec) -> Result<()> {
        stream::iter(0..count)
            .map(|_| async move {
                let job = Job { schedule: schedule.clone(), ..every_second(&self.ctx, self.digest) };
                create_job(&self.ctx, &NewJob { job: ParsedJob::new(job)?, paused: false, idempotency: None }).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(CREATIONS_AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// The lag of every start since it was asked for last.
    pub fn take_lags(&self) -> Value {
        quantiles(&self.ctx.metrics.take_lags())
    }

    pub async fn end(self) -> Result<()> {
        self.stop.cancel();
        if let Some(lives) = self.lives {
            lives.await??;
        }
        self.ctx.store.close().await?;
        Ok(())
    }
}

/// In milliseconds.
pub fn quantiles(lags: &Histogram<u32>) -> Value {
    let millis = |micros: u64| round(micros as f64 / 1_000.0, 1);
    json!({
        "p50": millis(lags.value_at_quantile(0.5)), "p99": millis(lags.value_at_quantile(0.99)), "max": millis(lags.max()),
    })
}

/// A job that is due every second.
pub fn every_second(ctx: &Ctx, digest: TaskDigest) -> Job {
    let now = ctx.env.now();
    let id = JobId::new(now, ctx.env.random_u128());
    let parameters = Bytes::from_static(PARAMETERS.as_bytes());
    let task = TaskRef::named("invoice", digest);
    Job { parameters, ..Job::with_defaults(id, task, ScheduleSpec::cron("* * * * * *"), now) }
}
