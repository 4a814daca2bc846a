//! One row of each table is written by a build that this one does not know: it is refused, stays as it is, is counted and listed; and every other
//! job goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::{Cost, Outcome, State};
use compline_core::ids::{ExecutionId, JobId, SessionId, ShardId, TaskDigest, TenantId};
use compline_core::job::Overlap;
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::retry::RetryRule;
use compline_server::ctx::Ctx;
use compline_server::env::Env;
use compline_server::loops::{Node, NodeConfig, Ran, Run, Runner};
use compline_server::metrics::Metrics;
use compline_server::ops;
use compline_server::ops::cancel::{CancelRequest, cancel};
use compline_server::ops::change::{Change, JobRequest, change};
use compline_store::Store;
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::backend::{KeyValue, RangeQuery, Read};
use compline_store::check::{Kind, check};
use compline_store::keys::Table;
use compline_store::tables::execution::LogLine;
use compline_store::tables::session::{self, Session};
use compline_store::tables::task::{self, Task, TaskVersion, load_component, store_component};
use compline_store::tables::{request, zones};
use compline_tests::sim::clock::SimClock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::rewriting::{Rewrite, Rewriting, Stamped, Written};
use crate::world::World;

const UNKNOWN: u8 = 255;
const MINUTE: Duration = Duration::from_secs(60);

/// Gives the next row that is written to a table a version that no build knows.
#[derive(Default)]
struct Stranger {
    table: Mutex<Option<Table>>,
    left: Mutex<Vec<Written>>,
}

impl Rewrite for Stranger {
    fn write(&self, written: &mut Written, mine: &mut Vec<Written>) {
        let is_next = self.table.lock().is_some_and(|table| written.key[0] == table as u8);
        if is_next && mine.is_empty() && !written.value.is_empty() {
            let mut value = written.value.to_vec();
            value[0] = UNKNOWN;
            written.value = value.into();
            mine.push(written.clone());
        }
    }

    fn read(&self, _: &[u8], value: Bytes) -> Bytes {
        value
    }

    fn committed(&self, changed: Vec<Written>) {
        *self.table.lock() = None;
        self.left.lock().extend(changed);
    }
}

/// Runs that take no time, fail for good, or last until they are stopped: by the names of their jobs.
struct ByName(Notify);

#[async_trait]
impl Runner for ByName {
    fn can_run(&self, _: &TaskDigest) -> bool {
        true
    }

    fn prepare(&self, _: TaskDigest) {}

    fn prepared(&self) -> &Notify {
        &self.0
    }

    async fn run(&self, run: &Run, stop: &CancellationToken) -> Ran {
        let outcome = match run.job.job.name.as_deref() {
            Some("fails") => Outcome::Error { retryable: false, message: "no such account".to_owned() },
            Some("lasts") => {
                stop.cancelled().await;
                Outcome::Cancelled
            }
            _ => Outcome::Ok,
        };
        let logs = vec![LogLine { level: "info".to_owned(), message: "here".to_owned() }];
        Ran { outcome, cost: Cost::default(), output: None, logs }
    }
}

/// What is done after the stranger is let in, so that every table gets a row.
struct Others {
    lasts: ExecutionId,
    fails: ExecutionId,
    digest: TaskDigest,
}

async fn stir(world: &World, table: Table) -> Others {
    let tenant = &TenantId::default_tenant();
    let digest = TaskDigest::of(b"component");
    store_component(&world.ctx.store, digest, &Bytes::from_static(b"component")).await.expect("a store");
    let at = world.ctx.env.now();
    let row = &Task { name: "t".to_owned(), latest: digest, tags: Default::default(), versions: vec![(digest, at)] };
    let version = &TaskVersion {
        digest,
        size_bytes: 9,
        is_command: false,
        imports: Vec::new(),
        exports: Vec::new(),
        grants: Vec::new(),
        parameters_schema: None,
        pushed_at: at,
    };
    let pushed = world.ctx.store.transact(|tx| async move {
        task::put(&tx, tenant, row)?;
        task::put_version(&tx, tenant, version)
    });
    pushed.await.expect("a store");
    let lasts = world.named("lasts", ScheduleSpec::now(), |_| {}).await;
    sleep(Duration::from_secs(2)).await;
    if table == Table::Cancel {
        let request = CancelRequest { tenant, id: lasts, idempotency: None };
        cancel(&world.ctx, request).await.expect("a cancel");
    }
    // One of its slots waits for the one before.
    let waits = |job: &mut compline_core::job::Job| job.overlap = Overlap::BufferAll;
    world.named("lasts", ScheduleSpec::cron("* * * * *"), waits).await;
    let fails = world.named("fails", ScheduleSpec::now(), |job| job.retry = RetryRule::Delays(Vec::new())).await;
    // Late, so that it is owed.
    let late = world.ctx.env.now().saturating_sub(MINUTE * 5);
    world.named("late", ScheduleSpec::once(late.to_string()), |_| {}).await;
    world.create_once(ScheduleSpec::now(), "key").await;
    let paused = world.next_job(ScheduleSpec::cron("0 0 1 1 *")).await;
    // Where its own row is the stranger's, the request fails, and that is all.
    let request = JobRequest { tenant, id: paused, idempotency: None };
    let _ = change(&world.ctx, request, Change::Pause).await;
    Others { lasts, fails, digest }
}

/// Asks for what only requests read. What each answers is its own matter: here it must not take the server down.
async fn ask(world: &World, others: &Others) {
    let (ctx, tenant) = (&world.ctx, &TenantId::default_tenant());
    let _ = ops::tasks::list(ctx, tenant, None, 100).await;
    let _ = load_component(&ctx.store, others.digest).await;
    let _ = ops::query::log(ctx, others.fails).await;
    let _ = ctx.store.transact(|tx| async move { request::get(&tx, tenant, "key").await }).await;
    let filter = ops::dead::Filter { tenant, lane: None, job: None };
    let _ = ops::dead::list(ctx, filter, None, 100).await;
    let _ = ops::dead::redrive_spread(ctx, &[others.fails], 1).await;
    let _ = ctx.store.transact(|tx| async move { zones::newest(&tx, Read::Snapshot).await }).await;
    for execution in [others.lasts, others.fails] {
        let _ = ops::query::execution(ctx, tenant, execution).await;
    }
    let jobs: Vec<JobId> = rows_of(&ctx.store, Table::Ledger).await.iter().map(|row| job_in(&row.key)).collect();
    for job in jobs {
        if let Ok(Some(seen)) = ops::query::job(ctx, tenant, job).await {
            let (from, until) = (ctx.env.now().saturating_sub(MINUTE * 60), ctx.env.now());
            let _ = ops::ledger::story(ctx, &seen, from, until, 100).await;
        }
    }
}

fn job_in(key: &[u8]) -> JobId {
    JobId::from_bytes(key[1..=JobId::BYTES].try_into().expect("a job's key"))
}

async fn rows_of(store: &Store, table: Table) -> Vec<KeyValue> {
    let (begin, end) = ([table as u8].to_vec().into(), [table as u8 + 1].to_vec().into());
    let query = &RangeQuery { begin, end, limit: 100_000, reverse: false, read: Read::Snapshot };
    store.transact(|tx| async move { tx.range(query).await }).await.expect("a store").value
}

/// Another node, of an unknown build: its rows are written by nobody else, and change as long as it lives.
async fn neighbour(store: Store, now: Timestamp, table: Table) {
    let session = &Session::new(SessionId::new(now, 9), now);
    let key = |table: Table| Bytes::from([&[table as u8][..], b"neighbour\0"].concat());
    let begun = store.transact(|tx| async move { session::begin(&tx, "neighbour", session) });
    begun.await.expect("a store");
    for beat in 0_u64.. {
        let (session_key, beat_key) = (&key(Table::Session), &key(Table::Beat));
        let beaten = store.transact(|tx| async move {
            if table == Table::Session && beat == 0 {
                let value = tx.get(session_key.clone(), Read::Serializable).await?.expect("a session");
                tx.set(session_key.clone(), [&[UNKNOWN][..], &value[1..]].concat().into());
            }
            tx.set(beat_key.clone(), [&[UNKNOWN][..], &beat.to_be_bytes()].concat().into());
            Ok(())
        });
        beaten.await.expect("a store");
        sleep(Duration::from_secs(1)).await;
    }
}

impl World {
    async fn named(
        &self,
        name: &str,
        schedule: ScheduleSpec,
        change: impl FnOnce(&mut compline_core::job::Job),
    ) -> ExecutionId {
        let named = |job: &mut compline_core::job::Job| {
            job.name = Some(name.to_owned());
            change(job);
        };
        // Its slot may be gone to its lane by now, and its row may be the stranger's: the identifier is a function of job and slot.
        let before = self.ctx.env.now();
        let (job, planned) = self.create_job_as(schedule, named).await;
        let shard: ShardId = job.shard(self.ctx.shards);
        ExecutionId::of_slot(job, planned.unwrap_or(before), shard)
    }

    async fn next_job(&self, schedule: ScheduleSpec) -> JobId {
        self.create_job_as(schedule, |_| {}).await.0
    }
}

/// How the rows of a table are told apart by their version.
enum Rows {
    /// Each begins with its version.
    Versioned,
    /// They are keys alone, or counters, or bytes that a user gave: there is no version that could be another.
    Plain,
    /// The store's own row: without it nothing can be read, and the refusal is at the start.
    Store,
}

fn kind_of(table: Table) -> Rows {
    match table {
        Table::Meta => Rows::Store,
        Table::Task
        | Table::Version
        | Table::Manifest
        | Table::Job
        | Table::JobRun
        | Table::Zones
        | Table::Execution
        | Table::Log
        | Table::Due
        | Table::Ready
        | Table::Running
        | Table::Session
        | Table::Beat
        | Table::Lease
        | Table::Cancel
        | Table::Live
        | Table::Owed
        | Table::Ledger
        | Table::Request
        | Table::Dead
        | Table::DeadPlace => Rows::Versioned,
        Table::Blob
        | Table::TenantJob
        | Table::Finished
        | Table::Bucket
        | Table::Dropping
        | Table::Trim
        | Table::Bell
        | Table::History
        | Table::AllRuns
        | Table::Failed
        | Table::JobFailed
        | Table::RequestTime => Rows::Plain,
    }
}

/// Lives for twelve minutes with a row of this table that a newer build wrote.
async fn lives_with(table: Table) {
    let begin = Timestamp::from_unix_seconds(1_800_000_000);
    let stranger = Arc::new(Stranger::default());
    let hub = MemoryBackend::new(MemoryOptions::default());
    let backend = Rewriting::new(hub.handle(), stranger.clone());
    let env = Env::injected(Arc::new(SimClock::starting_at(begin)), 7);
    let world = World::seen_by(backend, env, None).await;
    let is_nodes = matches!(table, Table::Session | Table::Beat);
    // What nodes write when they begin.
    if matches!(table, Table::Lease | Table::Zones) {
        *stranger.table.lock() = Some(table);
    }
    let node = Node::new(world.ctx.clone(), NodeConfig::new("node"), Arc::new(ByName(Notify::new())));
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let life = tokio::spawn(async move { node.run(stopped).await });
    sleep(Duration::from_secs(1)).await;
    let mut healthy = Vec::new();
    for _ in 0..8 {
        healthy.push(world.next_job(ScheduleSpec::cron("* * * * *")).await);
    }
    if is_nodes {
        tokio::spawn(neighbour(Store::new(hub.handle()), begin, table));
    }
    // Half a minute away from what the healthy ones do.
    sleep(Duration::from_secs(89)).await;
    if !is_nodes && stranger.left.lock().is_empty() {
        *stranger.table.lock() = Some(table);
    }
    let others = stir(&world, table).await;
    sleep(MINUTE * 5).await;
    ask(&world, &others).await;
    sleep(MINUTE * 5).await;

    assert!(!life.is_finished(), "{table}: the server ended");
    let left = stranger.left.lock().clone();
    let rows = rows_of(&world.ctx.store, table).await;
    let unknown: Vec<_> = rows.iter().filter(|row| row.value.first() == Some(&UNKNOWN)).collect();
    assert_eq!(unknown.len(), 1, "{table}: the row was overwritten or removed, or there never was one: {left:?}");
    if let [Written { key, value, stamped }] = &left[..] {
        let same_key = *stamped == Some(Stamped::Key) || unknown[0].key == *key;
        let same_value = *stamped == Some(Stamped::Value) || unknown[0].value == *value;
        assert!(same_key && same_value, "{table}: {:?} is not {left:?}", unknown[0]);
    }
    for job in healthy {
        if table == Table::Lease && unknown[0].key[1..] == job.shard(world.ctx.shards).0.to_be_bytes() {
            continue;
        }
        goes_on(&world, table, job).await;
    }
    assert!(world.ctx.metrics.unreadable_in(table.name()) > 0, "{table}: it is counted");
    let report = check(&world.ctx.store, |_, _| {}).await.expect("a store");
    let key = unknown[0].key.escape_ascii().to_string();
    let found = report.findings.iter().find(|finding| finding.kind == Kind::Unreadable && finding.key == key);
    let found = found.unwrap_or_else(|| panic!("{table}: `admin check` does not list it: {:?}", report.findings));
    assert_eq!(found.table, table.name());
    let words = ["schema version 255", "this build knows", "or a newer one"];
    assert!(words.iter().all(|word| found.problem.contains(word)), "{table}: {}", found.problem);
    stop.cancel();
}

/// Every minute of a job has had its one execution, in time.
async fn goes_on(world: &World, table: Table, job: JobId) {
    let executions = world.executions_of(job).await;
    let now = world.ctx.env.now();
    let over: Vec<_> = executions.iter().filter(|execution| execution.slot < now).collect();
    for execution in &over {
        assert!(matches!(execution.state, State::Completed { .. }), "{table}: {execution:?}");
        let [attempt] = &execution.attempts[..] else { panic!("{table}: {execution:?}") };
        let lag = attempt.started_at.expect("a start").saturating_since(execution.slot);
        assert!(lag < Duration::from_secs(2), "{table}: {lag:?} late: {execution:?}");
    }
    let slots: BTreeSet<_> = over.iter().map(|execution| execution.slot).collect();
    assert_eq!((over.len(), slots.len()), (11, 11), "{table}: one execution for each minute");
}

/// One test per table, and the list of them.
macro_rules! strangers {
    ($($name:ident: $table:ident),+ $(,)?) => {
        const TRIED: &[Table] = &[$(Table::$table),+];

        mod a_row_of_an_unknown_version_stops_itself_alone {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::lives_with(super::Table::$table).await;
            })+
        }
    };
}

strangers!(
    task: Task,
    version: Version,
    manifest: Manifest,
    job: Job,
    job_run: JobRun,
    zones: Zones,
    execution: Execution,
    log: Log,
    due: Due,
    ready: Ready,
    running: Running,
    session: Session,
    beat: Beat,
    lease: Lease,
    cancel: Cancel,
    live: Live,
    owed: Owed,
    ledger: Ledger,
    request: Request,
    dead: Dead,
    dead_place: DeadPlace,
);

#[test]
fn every_table_with_versions_is_tried() {
    let versioned = Table::ALL.iter().filter(|table| matches!(kind_of(**table), Rows::Versioned));
    assert!(versioned.eq(TRIED), "tables are tried in the order of their keys: {TRIED:?}");
}

/// The real program says the same, with an exit code: `tests/tests/crash/refused.rs`.
#[tokio::test(start_paused = true)]
async fn without_the_stores_own_row_nothing_starts() {
    for table in Table::ALL {
        let Rows::Store = kind_of(*table) else { continue };
        let hub = MemoryBackend::new(MemoryOptions::default());
        let stranger = Arc::new(Stranger::default());
        *stranger.table.lock() = Some(*table);
        let env = Env::injected(Arc::new(SimClock::starting_at(Timestamp::EPOCH)), 7);
        drop(World::seen_by(Rewriting::new(hub.handle(), stranger), env.clone(), None).await);
        let before = rows_of(&Store::new(hub.handle()), *table).await;
        let refused = Ctx::open(Store::new(hub.handle()), env, Arc::new(Metrics::default())).await;
        let text = refused.expect_err("it starts").to_string();
        assert!(text.contains("meta") && text.contains("schema version 255") && text.contains("a newer one"), "{text}");
        assert_eq!(rows_of(&Store::new(hub.handle()), *table).await, before);
    }
}
