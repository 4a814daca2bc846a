//! `bench store`: create, tick, claim and complete, as fast as the store takes them. The clock is moved by hand, so that there is always
//! something due, and nothing is run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::{Cost, Outcome};
use compline_core::ids::{ClaimId, SessionId, ShardId, TaskDigest};
use compline_server::config::LANE_DEFAULT as LANE;
use compline_server::ctx::{Ctx, ParsedJob};
use compline_server::env::{Clock, Env};
use compline_server::loops::reach::{Next, Reach};
use compline_server::ops::create::{NewJob, create_job};
use compline_server::passes::claim::{ClaimRequest, claim};
use compline_server::passes::complete::{Report, Reported, complete};
use compline_server::passes::lease::{self, Members};
use compline_server::passes::{BATCH_MAX, beat};
use compline_store::backend::{RangeQuery, Read};
use compline_store::keys::Table;
use compline_store::tables::session::Session;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::live::every_second;
use crate::measure::{self, StoreArgs, Stretch};
use crate::say;

const NODE: &str = "bench";
/// How many attempts each claimer could run at once: what parts are shared by.
const WORKERS: u32 = 64;

#[derive(clap::Args)]
pub struct Args {
    /// How many recurring jobs there are.
    #[arg(long, default_value_t = 5_000)]
    jobs: usize,
    /// How many slots of each are executed.
    #[arg(long, default_value_t = 20)]
    slots: i64,
    /// How many executors claim from the one lane at once, each as a node of its own.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    claimers: u8,
    #[command(flatten)]
    store: StoreArgs,
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
    let env = Env::injected(hand.clone(), 1);
    let ctx = args.store.open(directory.path(), env).await?;
    let session = begin(&ctx).await?;
    let claimers = begin_claimers(&ctx, args.claimers).await?;
    let stretch = Stretch::begin(&ctx.store)?;
    stream::iter(0..args.jobs)
        .map(|_| {
            let ctx = &ctx;
            async move {
                let job = ParsedJob::new(every_second(ctx, TaskDigest::of(b"bench")))?;
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
        let executed: usize = try_join_all(claimers.iter().map(|claimer| work(&ctx, claimer))).await?.into_iter().sum();
        ensure!(queued == executed, "{queued} were queued and {executed} executed");
        executions += executed as u64;
    }
    let mut measured = stretch.end("store", &ctx.store, executions)?;
    measured["jobs"] = json!(args.jobs);
    measured["claimers"] = json!(args.claimers);
    measured["keys_per_shard"] = keys_per_shard(&ctx).await?;
    measured["created_per_second"] = created["per_second"].clone();
    ctx.store.close().await?;
    Ok(measured)
}

async fn begin(ctx: &Ctx) -> Result<SessionId> {
    let id = SessionId::new(ctx.env.now(), ctx.env.random_u128());
    let session = Session { roles: vec!["scheduler".to_owned()], ..Session::new(id, ctx.env.now()) };
    beat::begin(ctx, NODE, &session, None).await?;
    lease::balance(ctx, &Members { node: NODE.to_owned(), session: id, silent: BTreeSet::new() }).await?;
    Ok(id)
}

async fn tick_shard(ctx: &Ctx, session: SessionId, shard: ShardId) -> Result<usize> {
    Ok(compline_tests::by_hand::tick_shard(ctx, session, shard, ctx.env.now()).await?.queued)
}

/// An executor as the others see it.
struct Claimer {
    node: String,
    session: SessionId,
}

async fn begin_claimers(ctx: &Ctx, count: u8) -> Result<Vec<Claimer>> {
    let mut claimers = Vec::new();
    for number in 0..count {
        let claimer = Claimer {
            node: format!("claimer-{number}"),
            session: SessionId::new(ctx.env.now(), ctx.env.random_u128()),
        };
        let session = Session {
            roles: vec!["executor".to_owned()],
            lanes: vec![LANE.to_owned()],
            workers: WORKERS,
            ..Session::new(claimer.session, ctx.env.now())
        };
        beat::begin(ctx, &claimer.node, &session, None).await?;
        claimers.push(claimer);
    }
    ctx.fleet.look(ctx).await?;
    Ok(claimers)
}

/// Claims and completes until nothing waits, as an executor's loop does.
async fn work(ctx: &Ctx, claimer: &Claimer) -> Result<usize> {
    let lanes = [LANE.to_owned()];
    let view = ctx.fleet.latest();
    let mut reach = Reach::Own;
    let mut executed = 0;
    loop {
        let parts = reach.lanes(&view, &lanes, claimer.session, ctx.partitions);
        let request = ClaimRequest {
            node: &claimer.node,
            session: claimer.session,
            lanes: &parts,
            limit: BATCH_MAX,
            owed_max: BATCH_MAX,
            claim: ClaimId::new(ctx.env.random_u128()),
            can_run: &|_| true,
        };
        let claimed = claim(ctx, &request).await?.claimed;
        match reach.next(!claimed.is_empty(), &parts, ctx.partitions, ctx.env.random_u64()) {
            Next::Claim(again) => reach = again,
            Next::AfterOwners(wait) => {
                tokio::time::sleep(wait).await;
                reach = Reach::All;
            }
            Next::Wait => return Ok(executed),
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
        let answers = complete(ctx, &claimer.node, claimer.session, &reports).await?;
        ensure!(answers.iter().all(|answer| *answer == Reported::Recorded), "a report was not recorded");
        executed += answers.len();
    }
}

/// How evenly the executions lie over the shards.
async fn keys_per_shard(ctx: &Ctx) -> Result<Value> {
    const PAGE: usize = 2_000;
    let mut counts = Vec::new();
    for shard in ctx.shards.all() {
        let prefix =
            |shard: u32| -> Bytes { [&[Table::Execution as u8][..], &shard.to_be_bytes()[2..]].concat().into() };
        let (mut begin, end) = (prefix(u32::from(shard.0)), prefix(u32::from(shard.0) + 1));
        let mut count = 0;
        loop {
            let query = &RangeQuery { begin, end: end.clone(), limit: PAGE, reverse: false, read: Read::Snapshot };
            let page = ctx.store.transact(|tx| async move { tx.range(query).await }).await?.value;
            count += page.len();
            let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
            begin = [&last.key[..], &[0]].concat().into();
        }
        counts.push(count as f64);
    }
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    Ok(json!({
        "min": counts.iter().copied().fold(f64::INFINITY, f64::min),
        "max": counts.iter().copied().fold(0.0, f64::max),
        "mean": measure::round(mean, 1),
        "stddev": measure::round(variance.sqrt(), 1),
    }))
}
