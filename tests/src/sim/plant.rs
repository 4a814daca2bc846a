//! Faults planted on purpose, to prove that the oracle sees them. Each makes a node behave as if its code lacked something, from outside: by
//! what the node's transactions read and write. The code under test has no hook for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use compline_core::execution::State;
use compline_core::ids::{ExecutionId, SessionId};
use compline_server::env::Clock;
use compline_store::backend::memory::MemoryBackend;
use compline_store::backend::{Backend, RangeQuery, Read, Transaction};
use compline_store::keys::Table;
use compline_store::tables::{execution, session};
use compline_store::{StoreError, Versionstamp};
use parking_lot::Mutex;

use super::backend::{Author, sign};
use super::clock::SimClock;
use super::pulse::Pulse;
use super::world::Kind;

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// complete does not compare fences: to its node every execution that it once claimed shows the fence that it got.
    FenceUnchecked,
    /// tick plans the next slot in a transaction of its own, after the one that queues.
    NextSlotApart,
    /// claim, run again after an unknown result, does not look for what it took before; and what its node holds without knowing is not given back.
    ClaimForgotten,
    /// tick does not read its lease: to its node it has every shard that it was granted once.
    LeaseUnread,
    /// Who lives is judged by wall clocks: whose last beat is old by the node's own is taken for silent.
    WallClocksCompared,
    /// A transaction that conflicts is run again at once, and conflicts for ever: nothing moves any more.
    NeverWaits,
    /// A call of the store does not come back.
    NeverReturns,
    /// tick does not ask whether the store has seen newer zone data.
    ZonesIgnored,
    /// tick's commit depends neither on the jobs nor on the due rows that it read; owners edit.
    EditUnseenByTick,
    /// The same; owners pause and resume.
    PauseUnseenByTick,
    /// claim's commit does not depend on the jobs that it read; owners delete.
    DeleteUnseenByClaim,
    /// complete's commit does not depend on the executions that it read; owners delete, and have stopped what runs.
    DeleteUnseenByComplete,
    /// tick counts what it opens and ends by reading the counter and writing it again; owners trigger.
    TriggerUncountedByTick,
}

impl Plant {
    /// Whether newer zone data is to come while it is planted.
    pub fn wants_newer_zones(self) -> bool {
        self == Self::ZonesIgnored
    }

    /// Whether the fault is in nodes that run tasks; otherwise it is in those that tick.
    pub fn is_in_executors(self) -> bool {
        match self {
            Self::FenceUnchecked | Self::ClaimForgotten | Self::DeleteUnseenByClaim | Self::DeleteUnseenByComplete => {
                true
            }
            Self::NextSlotApart
            | Self::LeaseUnread
            | Self::WallClocksCompared
            | Self::NeverWaits
            | Self::NeverReturns
            | Self::ZonesIgnored
            | Self::EditUnseenByTick
            | Self::PauseUnseenByTick
            | Self::TriggerUncountedByTick => false,
        }
    }

    /// What owners do to their jobs while it is planted; anything, if that has nothing to do with it.
    pub fn acts(self) -> &'static [Kind] {
        match self {
            Self::FenceUnchecked
            | Self::NextSlotApart
            | Self::ClaimForgotten
            | Self::LeaseUnread
            | Self::WallClocksCompared
            | Self::NeverWaits
            | Self::NeverReturns
            | Self::ZonesIgnored => &[],
            Self::EditUnseenByTick => &[Kind::Edit],
            Self::PauseUnseenByTick => &[Kind::Pause, Kind::Resume],
            Self::DeleteUnseenByClaim => &[Kind::Delete { stop_running: false }],
            Self::DeleteUnseenByComplete => &[Kind::Delete { stop_running: true }],
            Self::TriggerUncountedByTick => &[Kind::Trigger],
        }
    }
}

/// A node with a planted fault.
#[derive(Debug)]
pub struct MutantNode {
    plant: Plant,
    name: String,
    clock: SimClock,
    /// Incarnation and stamp of the last fence that this node got for an execution.
    granted: Mutex<BTreeMap<ExecutionId, [u8; FENCE_BYTES]>>,
    /// The lease row of each shard that it was granted, as it wrote it.
    leases: Mutex<BTreeMap<Bytes, Bytes>>,
    /// Beat rows of nodes that it takes for silent, as they were when it first did.
    silent: Mutex<BTreeMap<Bytes, Bytes>>,
}

impl MutantNode {
    /// A node with this fault, and its wall clock.
    pub fn new(plant: Plant, name: String, clock: SimClock) -> Arc<Self> {
        let (granted, leases, silent) = Default::default();
        Arc::new(Self { plant, name, clock, granted, leases, silent })
    }

    /// [`Plant::WallClocksCompared`]: a beat that is old by this node's wall clock seems to stand still.
    fn seen_beat(&self, key: &Bytes, value: &Bytes) -> Option<Bytes> {
        let beat = session::decode_beat(key, value).ok()?;
        let mut silent = self.silent.lock();
        if self.clock.now().saturating_since(beat.wall) <= OLD {
            silent.remove(key);
            return None;
        }
        Some(silent.entry(key.clone()).or_insert_with(|| value.clone()).clone())
    }
}

/// A beat older than this, by wall clocks, is old.
const OLD: Duration = Duration::from_millis(1_500);

/// In the values of execution and running rows: the schema version, then incarnation (4) and stamp (10 and an index of 2).
const FENCE_AT: usize = 1;
const FENCE_BYTES: usize = 16;
const INCARNATION_BYTES: usize = 4;
/// In the key of a running row: table, session, execution.
const RUNNING_EXECUTION_AT: usize = 1 + SessionId::BYTES;
/// In the key of an execution row: table, shard, execution.
const EXECUTION_AT: usize = 3;

/// A transaction of such a node.
pub(super) struct Mutant {
    node: Arc<MutantNode>,
    store: Arc<MemoryBackend>,
    /// What is to be written apart.
    withheld: Mutex<Vec<(Bytes, Bytes)>>,
    /// What is to be added to counters.
    added: Mutex<Vec<(Bytes, i64)>>,
    /// Fences that this transaction takes, without their stamps.
    taken: Mutex<Vec<(ExecutionId, [u8; FENCE_BYTES])>>,
    /// Whether it has read anything yet.
    read: AtomicBool,
    /// Whether its first read was of one lease, as that of a tick is.
    ticks: AtomicBool,
    /// Whether it looked at what sessions hold, as a claim does that is run again, and complete never.
    looked: AtomicBool,
}

impl Mutant {
    pub(super) fn new(node: Arc<MutantNode>, store: Arc<MemoryBackend>) -> Self {
        let (withheld, added, taken) = Default::default();
        let (read, ticks, looked) = Default::default();
        Self { node, store, withheld, added, taken, read, ticks, looked }
    }

    pub(super) fn reset(&self) {
        self.withheld.lock().clear();
        self.added.lock().clear();
        self.taken.lock().clear();
        self.looked.store(false, Ordering::Relaxed);
        self.read.store(false, Ordering::Relaxed);
        self.ticks.store(false, Ordering::Relaxed);
    }

    /// What a read is made instead: [`Plant::LeaseUnread`]: a tick's commit does not depend on its lease;
    /// [`Plant::DeleteUnseenByComplete`]: executions are read so that nobody conflicts.
    pub(super) fn read_of(&self, keys: &[Bytes], read: Read) -> Read {
        let lease = matches!(keys, [key] if is_of(key, Table::Lease));
        let ticks = !self.read.swap(true, Ordering::Relaxed) && lease;
        self.ticks.fetch_or(ticks, Ordering::Relaxed);
        let overlooked = match self.node.plant {
            Plant::LeaseUnread => ticks,
            Plant::DeleteUnseenByComplete => keys.iter().all(|key| is_of(key, Table::Execution)),
            _ => false,
        };
        if overlooked { Read::Snapshot } else { read }
    }

    /// [`Plant::NeverWaits`] and [`Plant::NeverReturns`]: whether a commit is refused.
    pub(super) fn spins(&self, pulse: &Pulse) -> bool {
        if self.node.plant == Plant::NeverReturns {
            while !pulse.is_given_up() {
                std::thread::yield_now();
            }
        }
        self.never_waits()
    }

    /// [`Plant::NeverWaits`]: whether the next run follows at once.
    pub(super) fn never_waits(&self) -> bool {
        self.node.plant == Plant::NeverWaits
    }

    /// What a fault shows instead of leases, beats and the store's zone data.
    fn patch_what_tells_of_nodes(&self, keys: &[Bytes], values: &mut [Option<Bytes>]) {
        let ticks = self.ticks.load(Ordering::Relaxed);
        for (key, value) in keys.iter().zip(values) {
            match (self.node.plant, &value) {
                (Plant::LeaseUnread, _) if is_of(key, Table::Lease) && ticks => {
                    *value = self.node.leases.lock().get(key).cloned().or(value.take());
                }
                (Plant::WallClocksCompared, Some(beat)) if is_of(key, Table::Beat) => {
                    *value = self.node.seen_beat(key, beat).or(value.take());
                }
                (Plant::ZonesIgnored, Some(_)) if is_of(key, Table::Zones) && ticks => *value = None,
                _ => {}
            }
        }
    }

    /// What a commit is not to depend on.
    pub(super) fn overlooks(&self, begin: &[u8]) -> bool {
        match self.node.plant {
            Plant::EditUnseenByTick | Plant::PauseUnseenByTick => is_of(begin, Table::Job) || is_of(begin, Table::Due),
            Plant::DeleteUnseenByClaim => is_of(begin, Table::Job),
            _ => false,
        }
    }

    /// [`Plant::TriggerUncountedByTick`]: a counter is not added to yet.
    pub(super) fn withholds_add(&self, key: &Bytes, delta: i64) -> bool {
        let counts = self.node.plant == Plant::TriggerUncountedByTick && is_of(key, Table::Bucket);
        if counts {
            self.added.lock().push((key.clone(), delta));
        }
        counts
    }

    /// [`Plant::TriggerUncountedByTick`]: counters are read, and written again.
    pub(super) async fn before_commit(&self, transaction: &dyn Transaction) -> Result<(), StoreError> {
        let added = std::mem::take(&mut *self.added.lock());
        for (key, delta) in added {
            let before = self.store.begin().get_many(std::slice::from_ref(&key), Read::Snapshot).await?.pop().flatten();
            let before = before.and_then(|value| value[..].try_into().ok()).map_or(0, i64::from_le_bytes);
            transaction.set(key, Bytes::copy_from_slice(&(before + delta).to_le_bytes()));
        }
        Ok(())
    }

    /// [`Plant::FenceUnchecked`]: what was read shows the fence that the node got.
    pub(super) fn after_get(&self, keys: &[Bytes], values: &mut [Option<Bytes>], read: Read) {
        self.patch_what_tells_of_nodes(keys, values);
        let completes = read == Read::Serializable && !self.looked.load(Ordering::Relaxed);
        if self.node.plant != Plant::FenceUnchecked || !completes {
            return;
        }
        let granted = self.node.granted.lock();
        for (key, value) in keys.iter().zip(values) {
            let Some(fence) = id_in(key, Table::Execution, EXECUTION_AT).and_then(|id| granted.get(&id)) else {
                continue;
            };
            let Some(value) = value else { continue };
            let Ok(row) = execution::decode(key, value) else { continue };
            let State::Running(running) = row.execution.state else { continue };
            // What the node itself runs has the right fence: only a former claim's report is stale.
            if running.node != self.node.name {
                let mut patched = value.to_vec();
                patched[FENCE_AT..FENCE_AT + FENCE_BYTES].copy_from_slice(fence);
                *value = patched.into();
            }
        }
    }

    /// [`Plant::ClaimForgotten`]: the pass that gives back what the node does not know of sees nothing.
    pub(super) fn hides(&self, query: &RangeQuery) -> bool {
        let looks = query.begin.first() == Some(&(Table::Running as u8));
        if looks {
            self.looked.store(true, Ordering::Relaxed);
        }
        self.node.plant == Plant::ClaimForgotten && query.read == Read::Snapshot && looks
    }

    /// [`Plant::NextSlotApart`]: what belongs to the next slot waits for a transaction of its own.
    pub(super) fn withholds(&self, key: &Bytes, value: &Bytes) -> bool {
        if self.node.plant != Plant::NextSlotApart {
            return false;
        }
        let table = |table: Table| is_of(key, table);
        let planned = table(Table::Execution)
            && execution::decode(key, value).is_ok_and(|row| matches!(row.execution.state, State::Pending { .. }));
        let next = [Table::Due, Table::JobRun, Table::History, Table::AllRuns].into_iter().any(table);
        if planned || next {
            self.withheld.lock().push((key.clone(), value.clone()));
        }
        planned || next
    }

    /// Remembers what a claim takes, and which shards are taken.
    pub(super) fn notes(&self, key: &Bytes, value: &[u8]) {
        if key.first() == Some(&(Table::Lease as u8)) {
            self.node.leases.lock().insert(key.clone(), Bytes::copy_from_slice(value));
        }
        if let Some(id) = id_in(key, Table::Running, RUNNING_EXECUTION_AT)
            && let Some(fence) = value.get(FENCE_AT..FENCE_AT + FENCE_BYTES).and_then(|bytes| bytes.try_into().ok())
        {
            self.taken.lock().push((id, fence));
        }
    }

    pub(super) async fn after_commit(
        &self,
        committed: Result<Option<Versionstamp>, StoreError>,
        author: Author,
    ) -> Result<Option<Versionstamp>, StoreError> {
        let stamp = match committed {
            // Called passing, the loop above does not learn that the commit may have happened.
            Err(StoreError::CommitUnknown(why)) if self.node.plant == Plant::ClaimForgotten => {
                return Err(StoreError::Transient(why));
            }
            Err(error) => return Err(error),
            Ok(stamp) => stamp,
        };
        if let Some(stamp) = stamp {
            let mut granted = self.node.granted.lock();
            for (id, mut fence) in self.taken.lock().drain(..) {
                fence[INCARNATION_BYTES..][..Versionstamp::BYTES].copy_from_slice(&stamp.0);
                granted.insert(id, fence);
            }
        }
        let withheld = std::mem::take(&mut *self.withheld.lock());
        if !withheld.is_empty() {
            let apart = self.store.begin();
            loop {
                withheld.iter().for_each(|(key, value)| apart.set(key.clone(), value.clone()));
                sign(&*apart, author);
                match apart.commit().await {
                    Ok(_) => break,
                    Err(error) => apart.on_error(error).await?,
                }
            }
        }
        Ok(stamp)
    }
}

fn is_of(key: &[u8], table: Table) -> bool {
    key.first() == Some(&(table as u8))
}

fn id_in(key: &[u8], table: Table, at: usize) -> Option<ExecutionId> {
    let bytes = key.get(at..at + ExecutionId::BYTES)?;
    (key[0] == table as u8).then(|| bytes.try_into().ok().map(ExecutionId::from_bytes)).flatten()
}
