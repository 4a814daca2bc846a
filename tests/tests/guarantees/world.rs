//! A store with a context on it, and the passes as a test calls them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::{Cost, Execution, Outcome};
use compline_core::ids::{ClaimId, ExecutionId, JobId, SessionId, TaskDigest};
use compline_core::job::{Job, NextSlot, TaskRef};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::zone::ZoneData;
use compline_server::ctx::Ctx;
use compline_server::env::{Clock, Env};
use compline_server::loops::{Node, NodeConfig, NodeError, Ran, Run, Runner};
use compline_server::metrics::Metrics;
use compline_server::ops::create::{Created, NewJob, create_job};
use compline_server::ops::idempotency::Idempotency;
use compline_server::passes::claim::{ClaimOutcome, ClaimRequest, claim};
use compline_server::passes::complete::Report;
use compline_server::passes::lease::{self, Members};
use compline_server::passes::parts::LaneParts;
use compline_server::passes::tick::Ticked;
use compline_server::passes::{beat, claim::Claimed};
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::backend::{Backend, Read};
use compline_store::tables::history::{Listing, Page};
use compline_store::tables::meta::{self, Meta};
use compline_store::tables::session::{self, Session};
use compline_store::tables::{execution, job};
use compline_store::{Store, keys};
use compline_tests::by_hand::{tick_shard, tick_shard_from};
use compline_tests::sim::clock::SimClock;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::meddle::Meddled;

/// A store and everything that stands on it.
pub struct World {
    pub ctx: Arc<Ctx>,
    /// What the store stands on, where a test meddles with it.
    backend: Option<Arc<dyn Backend>>,
    _directory: Option<tempfile::TempDir>,
}

impl World {
    /// On the memory backend, without faults.
    pub async fn memory() -> Self {
        Self::on(MemoryBackend::new(MemoryOptions::default()), None).await
    }

    /// On disk.
    pub async fn embedded() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let options = EmbeddedOptions { fifo_prefix: keys::fifo_prefix, ..EmbeddedOptions::default() };
        let backend = EmbeddedBackend::open(directory.path(), options).expect("a store");
        Self::on(backend, Some(directory)).await
    }

    /// On the memory backend, by this clock, with one shard.
    pub async fn by_clock(clock: Arc<dyn Clock>) -> Self {
        let store = Store::new(MemoryBackend::new(MemoryOptions::default()));
        let meta = &Meta { layout: meta::LAYOUT, shards: 1, partitions: 1, incarnation: 1 };
        store.transact(|tx| async move { meta::get_or_init(&tx, meta).await }).await.expect("a store");
        let ctx = Ctx::open(store, Env::injected(clock, 7), Arc::new(Metrics::default())).await.expect("a store");
        Self { ctx: Arc::new(ctx), backend: None, _directory: None }
    }

    async fn on(backend: Arc<dyn Backend>, directory: Option<tempfile::TempDir>) -> Self {
        let clock = SimClock::starting_at(Timestamp::from_unix_seconds(1_800_000_000));
        Self::seen_by(backend, Env::injected(Arc::new(clock), 7), directory).await
    }

    /// As one process among others sees it.
    pub async fn seen_by(backend: Arc<dyn Backend>, env: Env, directory: Option<tempfile::TempDir>) -> Self {
        let store = Store::new(backend.clone());
        let ctx = Ctx::open(store, env, Arc::new(Metrics::default())).await.expect("a store");
        Self { ctx: Arc::new(ctx), backend: Some(backend), _directory: directory }
    }

    /// The same store as a process with other zone data sees it.
    pub async fn with_zones(&self, zones: ZoneData) -> Self {
        let backend = self.backend.clone().expect("a backend of its own");
        Self::seen_by(backend, self.ctx.env.clone().by_zones(zones), None).await
    }

    /// Another way to the same store, on which `hook` happens just before the next commit.
    pub async fn meddled(&self, hook: BoxFuture<'static, ()>) -> (Arc<Ctx>, Arc<Meddled>) {
        let meddled = Meddled::new(self.backend.clone().expect("a backend of its own"), hook);
        (self.by_way_of(meddled.clone()).await, meddled)
    }

    /// Another way to the same store, whose next commit lands without an answer; then `hook` happens.
    pub async fn unanswered(&self, hook: BoxFuture<'static, ()>) -> Arc<Ctx> {
        self.by_way_of(Meddled::unknown(self.backend.clone().expect("a backend of its own"), hook)).await
    }

    async fn by_way_of(&self, meddled: Arc<Meddled>) -> Arc<Ctx> {
        let env = self.ctx.env.clone();
        // What the context itself asks of the store is no business of the hook's.
        let mut ctx = Ctx::open(self.ctx.store.clone(), env, Arc::new(Metrics::default())).await.expect("a store");
        ctx.store = Store::new(meddled);
        Arc::new(ctx)
    }

    /// Ticks the shard of a job at an instant, by way of this context.
    pub async fn tick_at(&self, ctx: &Ctx, session: SessionId, job: JobId, now: Timestamp) -> Ticked {
        tick_shard_from(&self.ctx.store, ctx, session, job.shard(ctx.shards), now).await.expect("a store")
    }

    /// The executions of a job, newest slot first.
    pub async fn executions_of(&self, job: JobId) -> Vec<Execution> {
        let page = Page { limit: 100_000, ..Page::default() };
        let page = &page;
        let read = self.ctx.store.transact(|tx| async move { Listing::OfJob(job).page(&tx, page).await });
        let mut executions = Vec::new();
        for entry in read.await.expect("a store").value {
            executions.push(self.execution(entry.execution).await);
        }
        executions
    }

    pub fn job_id(&self, random: u128) -> JobId {
        JobId::new(self.ctx.env.now(), random)
    }

    /// So many nodes' sessions; the first has all shards.
    pub async fn begin_sessions(&self, count: usize) -> Vec<(String, SessionId)> {
        let mut sessions = Vec::new();
        for number in 0..count {
            let id = SessionId::new(self.ctx.env.now(), self.ctx.env.random_u128());
            let node = format!("node-{number}");
            let roles = vec!["scheduler".to_owned()];
            let session = Session { roles, ..Session::new(id, self.ctx.env.now()) };
            assert!(beat::begin(&self.ctx, &node, &session, None).await.expect("a store"));
            sessions.push((node, id));
        }
        sessions
    }

    /// Ends a node's session, as a reaper does that took it for dead.
    pub async fn end_session(&self, node: &str) {
        let ended = self.ctx.store.transact(|tx| async move {
            session::clear(&tx, node);
            Ok(())
        });
        ended.await.expect("a store");
    }

    /// Creates a job; returns the execution of its first slot.
    pub async fn create(&self, schedule: ScheduleSpec) -> ExecutionId {
        self.create_as(schedule, |_| {}).await
    }

    /// The same, with a definition that is changed first.
    pub async fn create_as(&self, schedule: ScheduleSpec, change: impl FnOnce(&mut Job)) -> ExecutionId {
        let id = self.create_with(schedule, change, None).await.job_id;
        self.next_of_job(id).await.expect("a slot").execution
    }

    /// Creates a job; returns it, and its first slot.
    pub async fn create_job_as(
        &self,
        schedule: ScheduleSpec,
        change: impl FnOnce(&mut Job),
    ) -> (JobId, Option<Timestamp>) {
        let created = self.create_with(schedule, change, None).await;
        (created.job_id, created.next_fires.first().copied())
    }

    /// Creates a job under an idempotency key; also whether an earlier request had created it.
    pub async fn create_once(&self, schedule: ScheduleSpec, key: &str) -> (JobId, bool) {
        let created = self.create_with(schedule, |_| {}, Some(key)).await;
        (created.job_id, created.replayed)
    }

    async fn create_with(&self, schedule: ScheduleSpec, change: impl FnOnce(&mut Job), key: Option<&str>) -> Created {
        let now = self.ctx.env.now();
        let id = JobId::new(now, self.ctx.env.random_u128());
        let mut job = Job::with_defaults(id, TaskRef::named("t", TaskDigest::of(b"t")), schedule, now);
        change(&mut job);
        let idempotency = key.map(|key| Idempotency { key: key.to_owned(), body_hash: [1; 32] });
        let new = NewJob { job: self.ctx.parse(job).expect("a schedule"), paused: false, idempotency };
        create_job(&self.ctx, &new).await.expect("a job")
    }

    /// The slot that comes next of the job of an execution.
    pub async fn next_of(&self, id: ExecutionId) -> Option<NextSlot> {
        self.next_of_job(self.execution(id).await.job).await
    }

    /// The slot that comes next of a job.
    pub async fn next_of_job(&self, job: JobId) -> Option<NextSlot> {
        let run = self.ctx.store.transact(|tx| async move { job::get_run(&tx, job, Read::Snapshot).await });
        run.await.expect("a store").value.and_then(|run| run.next)
    }

    /// Ticks every shard once, in the name of a session that is given all of them.
    pub async fn tick_all(&self, session: SessionId) {
        let nodes = self.ctx.store.transact(|tx| async move { session::list(&tx, Read::Snapshot).await });
        let nodes = nodes.await.expect("a store").value;
        let sessions = nodes.into_iter().map(|row| (row.node, row.session.expect("a readable row").id));
        let (own, others): (Vec<_>, Vec<_>) = sessions.partition(|(_, id)| *id == session);
        let silent = others.into_iter().map(|(_, id)| id).collect();
        let members = Members { node: own[0].0.clone(), session, silent };
        let mine = lease::balance(&self.ctx, &members).await.expect("a store").expect("a session");
        let now = self.ctx.env.now();
        for shard in mine {
            tick_shard(&self.ctx, session, shard, now).await.expect("a store");
        }
    }

    pub async fn claim(&self, node: &str, session: SessionId, limit: usize) -> ClaimOutcome {
        self.claim_by(&self.ctx, node, session, limit).await
    }

    /// A claim by way of this context.
    pub async fn claim_by(&self, ctx: &Ctx, node: &str, session: SessionId, limit: usize) -> ClaimOutcome {
        let parts = (0..self.ctx.partitions).collect();
        let lanes = [LaneParts { lane: "default".to_owned(), parts }];
        let request = ClaimRequest {
            node,
            session,
            lanes: &lanes,
            limit,
            owed_max: limit,
            claim: ClaimId::new(self.ctx.env.random_u128()),
            can_run: &|_| true,
        };
        claim(ctx, &request).await.expect("a claim sees no error")
    }

    pub async fn execution(&self, id: ExecutionId) -> Execution {
        let read = self.ctx.store.transact(|tx| async move { execution::get(&tx, id, Read::Snapshot).await });
        read.await.expect("a store").value.expect("a row").execution
    }

    /// Puts another value at a key; returns the one that was there.
    pub async fn swap(&self, key: &Bytes, value: Bytes) -> Bytes {
        let value = &value;
        let swapped = self.ctx.store.transact(|tx| async move {
            let before = tx.get(key.clone(), Read::Serializable).await?;
            tx.set(key.clone(), value.clone());
            Ok(before)
        });
        swapped.await.expect("a store").value.expect("a value")
    }

    /// A whole node, whose runs end at once.
    pub fn run_node(&self, stop: &CancellationToken) -> JoinHandle<Result<(), NodeError>> {
        self.run_node_with(Arc::new(Runs { endless: false, prepared: Notify::new() }), 64, stop)
    }

    /// A whole node with this runner and so many workers.
    pub fn run_node_with(
        &self,
        runner: Arc<dyn Runner>,
        workers: usize,
        stop: &CancellationToken,
    ) -> JoinHandle<Result<(), NodeError>> {
        let config = NodeConfig { exclusive: true, workers, ..NodeConfig::new("node") };
        let node = Node::new(self.ctx.clone(), config, runner);
        let stop = stop.clone();
        tokio::spawn(async move { node.run(stop).await })
    }
}

/// How an attempt ended, as its executor tells it.
pub fn report(ctx: &Ctx, claimed: &Claimed, outcome: Outcome) -> Report {
    let now = ctx.env.now();
    Report {
        execution: claimed.execution.id,
        fence: claimed.fence,
        job: claimed.job.clone(),
        started_at: now,
        finished_at: now,
        outcome,
        cost: Cost::default(),
        output: None,
        logs: Vec::new(),
        random: 0,
    }
}

/// Runs that take no time, or no end until they are stopped.
pub struct Runs {
    pub endless: bool,
    pub prepared: Notify,
}

#[async_trait]
impl Runner for Runs {
    fn can_run(&self, _: &TaskDigest) -> bool {
        true
    }

    fn prepare(&self, _: TaskDigest) {}

    fn prepared(&self) -> &Notify {
        &self.prepared
    }

    async fn run(&self, _: &Run, cancel: &CancellationToken) -> Ran {
        let outcome = if self.endless {
            cancel.cancelled().await;
            Outcome::Cancelled
        } else {
            Outcome::Ok
        };
        Ran { outcome, cost: Cost::default(), output: None, logs: Vec::new() }
    }
}
