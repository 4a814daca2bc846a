//! `bench store`: create, tick, claim and complete, as fast as the store takes them. The clock is moved by hand, so that there is always
//! something due, and nothing is run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use compline_core::Timestamp;
use compline_core::execution::{Cost, Outcome};
use compline_core::ids::{ClaimId, SessionId, ShardId, TaskDigest};
use compline_server::ctx::{Ctx, ParsedJob};
use compline_server::env::{Clock, Env};
use compline_server::ops::create::{NewJob, create_job};
use compline_server::passes::claim::{ClaimRequest, claim};
use compline_server::passes::complete::{Report, Reported, complete};
use compline_server::passes::lease::{self, Members};
use compline_server::passes::{BATCH_MAX, beat, tick};
use compline_store::tables::queue;
use compline_store::tables::session::Session;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::measure::{self, Stretch};
use crate::say;
use crate::sustained::job;

const NODE: &str = "bench";
const CLAIMERS: usize = 4;

#[derive(clap::Args)]
pub struct Args {
    /// How many recurring jobs there are.
    #[arg(long, default_value_t = 5_000)]
    jobs: usize,
    /// How many slots of each are executed.
    #[arg(long, default_value_t = 20)]
    slots: i64,
}

/// A clock that stands still until it is moved.
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_seconds(self.0.load(Ordering::SeqCst))
    }
}

pub async fn run(args: Args) -> Result<Value> {
    let hand = Arc::new(Hand(AtomicI64::new(1_800_000_000)));
    let directory = tempfile::tempdir_in("target")?;
    let ctx = measure::open(directory.path(), Env::injected(hand.clone(), 1)).await?;
    let session = begin(&ctx).await?;
    let stretch = Stretch::begin(&ctx.store)?;
    stream::iter(0..args.jobs)
        .map(|_| {
            let ctx = &ctx;
            async move {
                let job = ParsedJob::new(job(ctx, TaskDigest::of(b"bench")))?;
                create_job(ctx, &NewJob { job, paused: false, idempotency: None }).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(256)
        .try_collect::<Vec<()>>()
        .await?;
    let created = stretch.end("create", &ctx.store, args.jobs as u64)?;
    say(&format!("created {} jobs: {created}", args.jobs));

    let stretch = Stretch::begin(&ctx.store)?;
    let mut executions = 0;
    for _ in 0..args.slots {
        hand.0.fetch_add(1, Ordering::SeqCst);
        let ticks = ctx.shards.all().map(|shard| tick_shard(&ctx, session, shard));
        let queued: usize = try_join_all(ticks).await?.into_iter().sum();
        let executed: usize =
            try_join_all((0..CLAIMERS).map(|claimer| work(&ctx, session, claimer as u8))).await?.into_iter().sum();
        ensure!(queued == executed, "{queued} were queued and {executed} executed");
        executions += executed as u64;
    }
    let mut measured = stretch.end("store", &ctx.store, executions)?;
    measured["jobs"] = json!(args.jobs);
    measured["created_per_second"] = created["per_second"].clone();
    ctx.store.close().await?;
    Ok(measured)
}

async fn begin(ctx: &Ctx) -> Result<SessionId> {
    let id = SessionId::new(ctx.env.now(), ctx.env.random_u128());
    let session =
        Session { id, started_at: ctx.env.now(), roles: Vec::new(), lanes: Vec::new(), version: String::new() };
    beat::begin(ctx, NODE, &session).await?;
    lease::balance(ctx, &Members { node: NODE.to_owned(), session: id, alive: [id].into() }).await?;
    Ok(id)
}

async fn tick_shard(ctx: &Ctx, session: SessionId, shard: ShardId) -> Result<usize> {
    let now = ctx.env.now();
    let until = now + Duration::from_micros(1);
    let (rows, _) =
        ctx.store.transact(|tx| async move { queue::due_until(&tx, shard, until, usize::MAX).await }).await?.value;
    Ok(tick::tick(ctx, session, shard, &rows, now).await?.queued)
}

async fn work(ctx: &Ctx, session: SessionId, claimer: u8) -> Result<usize> {
    let lanes = ["default".to_owned()];
    let mut executed = 0;
    loop {
        let request = ClaimRequest {
            node: NODE,
            session,
            lanes: &lanes,
            limit: BATCH_MAX,
            claim: ClaimId::new(ctx.env.random_u128()),
            first_part: claimer * (ctx.partitions / CLAIMERS as u8).max(1),
            can_run: &|_| true,
        };
        let claimed = claim(ctx, &request).await?.claimed;
        if claimed.is_empty() {
            return Ok(executed);
        }
        let now = ctx.env.now();
        let reports: Vec<Report> = claimed
            .into_iter()
            .map(|claimed| Report {
                execution: claimed.execution.id,
                fence: claimed.fence,
                job: claimed.job,
                started_at: now,
                finished_at: now,
                outcome: Outcome::Ok,
                cost: Cost::default(),
                output: None,
                logs: Vec::new(),
                random: 0,
            })
            .collect();
        let answers = complete(ctx, NODE, session, &reports).await?;
        ensure!(answers.iter().all(|answer| *answer == Reported::Recorded), "a report was not recorded");
        executed += answers.len();
    }
}
