//! Stores with made-up contents, and what is in them.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::{Cause, Event, Execution, State};
use compline_core::ids::{ClaimId, ExecutionId, JobId, SessionId, ShardCount, TaskDigest};
use compline_core::job::{Job, JobState, TaskRef};
use compline_core::ledger::SkipReason;
use compline_core::schedule::ScheduleSpec;
use compline_core::tick::partition_of;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::backend::{KeyValue, RangeQuery, Read};
use compline_store::keys::{self, Table};
use compline_store::tables::job::JobRow;
use compline_store::tables::meta::{self, LAYOUT, Meta};
use compline_store::tables::queue::{Part, Ready, ZONE_DEFAULT};
use compline_store::tables::session::{self, Beat, Session};
use compline_store::tables::{execution, job, running, task};
use compline_store::transfer::{ExportOptions, Findings, Imported, Quiet, Seen, Tally, TransferError, export, import};
use compline_store::{Store, Tx};

pub const LANES: [&str; 3] = ["a", "b", "default"];
pub const META: Meta = Meta { layout: LAYOUT, shards: 7, partitions: 3, incarnation: 4 };

pub fn now() -> Timestamp {
    Timestamp::from_unix_seconds(1_800_000_000)
}

pub fn memory() -> Store {
    Store::new(MemoryBackend::new(MemoryOptions::default()))
}

pub fn embedded(directory: &Path) -> Store {
    let options = EmbeddedOptions { fifo_prefix: keys::fifo_prefix, ..EmbeddedOptions::default() };
    Store::new(EmbeddedBackend::open(directory, options).expect("a store"))
}

/// The places in lanes, by part, in their order; and the executions that wait in them.
pub type Lanes = BTreeMap<(String, u8, u8), Vec<Ready>>;

/// What a made-up store must become elsewhere.
#[derive(Debug, Default)]
pub struct Meant {
    pub lanes: Lanes,
    pub running: usize,
}

/// Fills a store with rows of every table: arbitrary bytes where rows travel as they are, executions in every state, a backlog, and what
/// nodes leave behind.
pub async fn fill(store: &Store, seed: u64, size: usize) -> Meant {
    let mut random = fastrand::Rng::with_seed(seed);
    store.transact(|tx| async move { meta::get_or_init(&tx, &META).await }).await.expect("a store");
    let component = Bytes::from((0..200_000 + random.usize(..50_000)).map(|_| random.u8(..)).collect::<Vec<u8>>());
    task::store_component(store, TaskDigest::of(&component), &component).await.expect("a store");
    let plain = [Table::Task, Table::Version, Table::Log, Table::Bucket, Table::Due, Table::History, Table::Ledger];
    for _ in 0..size {
        let table = plain[random.usize(..plain.len())];
        let key = [&[table as u8][..], &random.u128(..).to_be_bytes()].concat();
        let length = if random.u8(..20) == 0 { random.usize(..90_000) } else { random.usize(..300) };
        let value = Bytes::from(vec![random.u8(..); length]);
        let (key, value) = (&Bytes::from(key), &value);
        let set = store.transact(|tx| async move {
            tx.set(key.clone(), value.clone());
            Ok(())
        });
        set.await.expect("a store");
    }
    let mut meant = Meant::default();
    let mut ran = Vec::new();
    for _ in 0..size {
        let job = random_job(&mut random);
        let made = &Made { job: &job, kind: random.u8(..7), session: SessionId::new(now(), 5), claim: ClaimId::new(9) };
        let execution = store.transact(|tx| async move { made.write(&tx).await }).await.expect("a store").value;
        let ready = Ready { execution: execution.id, job: job.id, digest: job.task.digest };
        let part = (job.lane.clone(), ZONE_DEFAULT, partition_of(&execution.id, META.partitions));
        match execution.state {
            State::Queued(_) => meant.lanes.entry(part).or_default().push(ready),
            State::Running(_) => ran.push((part, ready)),
            _ => {}
        }
    }
    // What ran was taken before all that waits, so it comes first, in the order of its keys.
    ran.sort_by_key(|(_, ready)| execution::key(ready.execution));
    meant.running = ran.len();
    for (part, ready) in ran.into_iter().rev() {
        meant.lanes.entry(part).or_default().insert(0, ready);
    }
    node(store, "dead-node").await;
    meant
}

/// Begins a node's session.
pub async fn node(store: &Store, name: &str) {
    let session = &Session::new(SessionId::new(now(), 5), now());
    let begun = store.transact(|tx| async move {
        session::begin(&tx, name, session)?;
        session::put_beat(&tx, name, &beat(1))
    });
    begun.await.expect("a store");
}

fn random_job(random: &mut fastrand::Rng) -> Job {
    let id = JobId::new(now(), random.u128(..));
    let task = TaskRef::named("t", TaskDigest::of(b"t"));
    Job {
        parameters: Bytes::from(vec![b'x'; random.usize(..5_000)]),
        lane: LANES[random.usize(..LANES.len())].to_owned(),
        ..Job::with_defaults(id, task, ScheduleSpec::now(), now())
    }
}

struct Made<'a> {
    job: &'a Job,
    kind: u8,
    session: SessionId,
    claim: ClaimId,
}

impl Made<'_> {
    /// A job and an execution of it, through the transitions that lead to its state.
    async fn write(&self, tx: &Tx) -> Result<Execution, compline_store::StoreError> {
        job::put(tx, self.job.id, &JobRow::new(1, JobState::Active, self.job)?);
        let shard = self.job.id.shard(ShardCount::new(META.shards));
        let id = ExecutionId::of_slot(self.job.id, now(), shard);
        let planned = Execution::planned(id, self.job.id, now(), now(), Cause::Schedule);
        let partition = partition_of(&id, META.partitions);
        let queue = Event::Queue { at: now(), partition };
        let claim = Event::Claim { at: now(), session: self.session, node: "dead-node".to_owned(), claim: self.claim };
        let cancel = Event::Cancel { at: now(), reason: "because".to_owned() };
        let skip = Event::Skip { at: now(), reason: SkipReason::Misfire, detail: "because".to_owned() };
        let events: &[Event] = match self.kind {
            0 => &[],
            1 => &[skip],
            2 => &[queue, cancel],
            3 | 4 => &[queue],
            _ => &[queue, claim],
        };
        let apply = |execution: Execution, event| execution.apply(event).expect("a legal event");
        let execution = events.iter().fold(planned, apply);
        let index = tx.next_stamp_index();
        match execution.state {
            State::Queued(_) => {
                execution::put_stamped(tx, &execution, META.incarnation, index)?;
                let ready = Ready { execution: id, job: self.job.id, digest: self.job.task.digest };
                Part { lane: &self.job.lane, owed: false, zone: ZONE_DEFAULT, partition }.push(tx, &ready, index)?;
            }
            State::Running(_) => {
                execution::put_stamped(tx, &execution, META.incarnation, index)?;
                running::put(tx, self.session, id, self.claim, META.incarnation, index);
            }
            _ => execution::put(tx, &execution)?,
        }
        Ok(execution)
    }
}

/// All rows of a store.
pub async fn dump(store: &Store) -> Vec<KeyValue> {
    let query = &RangeQuery {
        begin: Bytes::from_static(&[0]),
        end: Bytes::from_static(&[0xff]),
        limit: usize::MAX,
        reverse: false,
        read: Read::Snapshot,
    };
    store.transact(|tx| async move { tx.range(query).await }).await.expect("a store").value
}

/// The rows of the tables that travel byte by byte.
pub fn plain_rows(rows: &[KeyValue]) -> Vec<&KeyValue> {
    let is_plain = |row: &&KeyValue| {
        let table = Table::of(&row.key).expect("a known table");
        table.is_carried() && ![Table::Meta, Table::Execution, Table::Ready].contains(&table)
    };
    rows.iter().filter(is_plain).collect()
}

/// The executions by key, and what waits in each part, after checking that each place and its execution name each other.
pub fn work(rows: &[KeyValue]) -> (BTreeMap<Bytes, Execution>, Lanes) {
    let table = |table: Table| rows.iter().filter(move |row| row.key[0] == table as u8);
    let executions: BTreeMap<_, _> = table(Table::Execution)
        .map(|row| (row.key.clone(), execution::decode(&row.key, &row.value).expect("a readable row")))
        .collect();
    let mut lanes = Lanes::new();
    for row in table(Table::Ready) {
        let (part, stamp, ready) = Part::decode(&row.key, &row.value).expect("a readable row");
        assert_eq!(executions[&execution::key(ready.execution)].stamp, stamp, "the execution knows its place");
        lanes.entry((part.lane.to_owned(), part.zone, part.partition)).or_default().push(ready);
    }
    (executions.into_iter().map(|(key, row)| (key, row.execution)).collect(), lanes)
}

/// Takes a store for one without nodes, as the lock of a directory proves it.
pub async fn quiet(store: &Store) -> Quiet {
    let seen = Seen::look(store).await.expect("a store");
    Quiet::establish(store, &seen).await.expect("no node is alive")
}

pub async fn export_to(store: &Store, path: &Path) -> Result<(Tally, Findings), TransferError> {
    let options = ExportOptions { now: now(), build: "0.0.0-test".to_owned() };
    export(store, path, &options, quiet(store).await, &mut |_| {}).await
}

pub async fn import_from(store: &Store, path: &Path) -> Result<Imported, TransferError> {
    import(store, path, quiet(store).await, &mut |_| {}).await
}

pub async fn meta_of(store: &Store) -> Option<Meta> {
    store.transact(|tx| async move { meta::get(&tx).await }).await.expect("a store").value
}

/// A node's beat.
pub fn beat(counter: u64) -> Beat {
    Beat { counter, wall: now(), before_took_micros: None, running: Vec::new() }
}
