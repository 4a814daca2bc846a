//! Faults planted on purpose, to prove that the oracle sees them. Each makes a node behave as if its code lacked something, from outside: by
//! what the node's transactions read and write. The code under test has no hook for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use compline_core::execution::State;
use compline_core::ids::{ExecutionId, SessionId};
use compline_store::backend::memory::MemoryBackend;
use compline_store::backend::{Backend, RangeQuery, Read};
use compline_store::keys::Table;
use compline_store::tables::execution;
use compline_store::{StoreError, Versionstamp};
use parking_lot::Mutex;

use super::backend::{Author, sign};

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// complete does not compare fences: to its node every execution that it once claimed shows the fence that it got.
    FenceUnchecked,
    /// tick plans the next slot in a transaction of its own, after the one that queues.
    NextSlotApart,
    /// claim, run again after an unknown result, does not look for what it took before; and what its node holds without knowing is not given back.
    ClaimForgotten,
}

impl Plant {
    /// Whether the fault is in nodes that run tasks; otherwise it is in those that tick.
    pub fn is_in_executors(self) -> bool {
        matches!(self, Self::FenceUnchecked | Self::ClaimForgotten)
    }
}

/// A node with a planted fault.
#[derive(Debug)]
pub struct MutantNode {
    plant: Plant,
    name: String,
    /// Incarnation and stamp of the last fence that this node got for an execution.
    granted: Mutex<BTreeMap<ExecutionId, [u8; FENCE_BYTES]>>,
}

impl MutantNode {
    /// A node with this fault.
    pub fn new(plant: Plant, name: String) -> Arc<Self> {
        Arc::new(Self { plant, name, granted: Mutex::default() })
    }
}

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
    /// Fences that this transaction takes, without their stamps.
    taken: Mutex<Vec<(ExecutionId, [u8; FENCE_BYTES])>>,
    /// Whether it looked at what sessions hold, as a claim does that is run again, and complete never.
    looked: AtomicBool,
}

impl Mutant {
    pub(super) fn new(node: Arc<MutantNode>, store: Arc<MemoryBackend>) -> Self {
        Self { node, store, withheld: Mutex::default(), taken: Mutex::default(), looked: AtomicBool::new(false) }
    }

    pub(super) fn reset(&self) {
        self.withheld.lock().clear();
        self.taken.lock().clear();
        self.looked.store(false, Ordering::Relaxed);
    }

    /// [`Plant::FenceUnchecked`]: what was read shows the fence that the node got.
    pub(super) fn after_get(&self, keys: &[Bytes], values: &mut [Option<Bytes>], read: Read) {
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
        let table = |table: Table| key.first() == Some(&(table as u8));
        let planned = table(Table::Execution)
            && execution::decode(key, value).is_ok_and(|row| matches!(row.execution.state, State::Pending { .. }));
        let next = [Table::Due, Table::JobRun, Table::History, Table::AllRuns].into_iter().any(table);
        if planned || next {
            self.withheld.lock().push((key.clone(), value.clone()));
        }
        planned || next
    }

    /// [`Plant::FenceUnchecked`]: remembers what a claim takes.
    pub(super) fn notes(&self, key: &Bytes, value: &[u8]) {
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

fn id_in(key: &[u8], table: Table, at: usize) -> Option<ExecutionId> {
    let bytes = key.get(at..at + ExecutionId::BYTES)?;
    (key[0] == table as u8).then(|| bytes.try_into().ok().map(ExecutionId::from_bytes)).flatten()
}
