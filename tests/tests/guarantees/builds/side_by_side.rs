//! A rolling upgrade: a node of a newer build beside one of an older, then the newer one alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::State;
use compline_core::ids::JobId;
use compline_core::schedule::ScheduleSpec;
use compline_server::env::Env;
use compline_server::loops::{Node, NodeConfig, NodeError};
use compline_store::backend::Read;
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::check::check;
use compline_store::keys::Table;
use compline_store::tables::job;
use compline_tests::sim::clock::SimClock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::rewriting::{Rewrite, Rewriting, Written};
use crate::world::{Runs, World};

const MINUTE: Duration = Duration::from_secs(60);
const JOBS_EACH: usize = 12;
/// Above every version that this build writes.
const NEWER: u8 = 0x80;

/// A newer build: it knows a newer version of the rows of some tables, writes that, and reads both.
struct NewerBuild(&'static [Table]);

impl Rewrite for NewerBuild {
    fn write(&self, written: &mut Written, _: &mut Vec<Written>) {
        if self.0.iter().any(|table| written.key[0] == *table as u8) {
            written.value = with_version(&written.value, |version| version | NEWER);
        }
    }

    fn read(&self, key: &[u8], value: Bytes) -> Bytes {
        match self.0.iter().any(|table| key[0] == *table as u8) {
            true => with_version(&value, |version| version & !NEWER),
            false => value,
        }
    }
}

fn with_version(value: &Bytes, change: impl FnOnce(u8) -> u8) -> Bytes {
    let mut value = value.to_vec();
    if let Some(version) = value.first_mut() {
        *version = change(*version);
    }
    value.into()
}

struct Member {
    world: World,
    stop: CancellationToken,
    life: JoinHandle<Result<(), NodeError>>,
}

impl Member {
    fn begin(world: World, name: &str) -> Self {
        let node = Node::new(
            world.ctx.clone(),
            NodeConfig::new(name),
            Arc::new(Runs { endless: false, prepared: Notify::new() }),
        );
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        Self { world, stop, life: tokio::spawn(async move { node.run(stopped).await }) }
    }

    async fn create(&self) -> Vec<JobId> {
        let mut jobs = Vec::new();
        for _ in 0..JOBS_EACH {
            let execution = self.world.create(ScheduleSpec::cron("* * * * *")).await;
            jobs.push(self.world.execution(execution).await.job);
        }
        jobs
    }

    async fn end(self) -> World {
        self.stop.cancel();
        self.life.await.expect("a node").expect("a clean end");
        self.world
    }
}

/// Every slot of a job from `from` on has one execution, which ran once. Returns who ran them.
async fn all_ran(world: &World, job: JobId, from: Timestamp) -> BTreeSet<String> {
    let mut slots = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    let now = world.ctx.env.now();
    for execution in world.executions_of(job).await {
        if execution.slot > now {
            continue;
        }
        assert!(matches!(execution.state, State::Completed { .. }), "{execution:?}");
        assert_eq!(execution.attempts.len(), 1, "{execution:?}");
        assert!(slots.insert(execution.slot), "two executions of one slot: {execution:?}");
        nodes.extend(execution.attempts.iter().map(|attempt| attempt.node.clone()));
    }
    let expected: BTreeSet<Timestamp> =
        (1..).map(|minute| from + MINUTE * minute).take_while(|slot| *slot <= now).collect();
    assert_eq!(slots, expected, "lost slots of {job}");
    nodes
}

/// While both nodes live: what both can read runs; what the older one cannot, it leaves alone. Then the newer one is alone, and nothing is lost.
async fn upgrade(tables: &'static [Table]) {
    let hub = MemoryBackend::new(MemoryOptions::default());
    let begin = Timestamp::from_unix_seconds(1_800_000_000);
    let clock = SimClock::starting_at(begin);
    let env = |seed| Env::injected(Arc::new(clock), seed);
    let old = Member::begin(World::seen_by(hub.handle(), env(1), None).await, "old");
    let newer = Rewriting::new(hub.handle(), Arc::new(NewerBuild(tables)));
    let new = Member::begin(World::seen_by(newer, env(2), None).await, "new");
    sleep(Duration::from_secs(5)).await;
    let jobs_of_old = old.create().await;
    let jobs_of_new = new.create().await;
    sleep(MINUTE * 5).await;
    let metrics = old.world.ctx.metrics.clone();
    let names: Vec<_> = tables.iter().map(|table| table.name()).collect();
    let met: u64 = names.iter().map(|name| metrics.unreadable_in(name)).sum();
    assert!(met > 0, "{names:?}: the older node met no row of the newer one");

    let ctx = old.end().await.ctx.clone();
    sleep(MINUTE * 2).await;
    let world = &new.world;
    for job in jobs_of_old.iter().chain(&jobs_of_new) {
        let nodes = all_ran(world, *job, begin).await;
        if tables.contains(&Table::Job) && jobs_of_new.contains(job) {
            assert_eq!(nodes, BTreeSet::from(["new".to_owned()]), "run by a node that cannot read the job");
        }
    }
    let report = check(&world.ctx.store, |_, _| {}).await.expect("a store");
    assert_eq!(report.findings, [], "{names:?}");
    // The older one still says of such a row what it is, and what to do.
    if tables.contains(&Table::Job) {
        let id = jobs_of_new[0];
        let read = ctx.store.transact(|tx| async move { job::get(&tx, id, Read::Snapshot).await }).await;
        let text = read.expect_err("the older build reads a newer row").to_string();
        assert!(text.contains("job") && text.contains("this build knows") && text.contains("a newer one"), "{text}");
    }
    new.end().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_newer_version_are_left_to_the_newer_build() {
    upgrade(&[Table::Job]).await;
}

#[tokio::test(start_paused = true)]
async fn states_of_jobs_of_a_newer_version_are_left_to_the_newer_build() {
    upgrade(&[Table::JobRun]).await;
}

#[tokio::test(start_paused = true)]
async fn executions_of_a_newer_version_are_left_to_the_newer_build() {
    upgrade(&[Table::Execution]).await;
}

#[tokio::test(start_paused = true)]
async fn places_in_queues_of_a_newer_version_are_left_to_the_newer_build() {
    upgrade(&[Table::Due, Table::Owed, Table::Ready, Table::Running]).await;
}
