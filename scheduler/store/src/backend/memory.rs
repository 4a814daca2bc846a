//! The store in memory: several versions of each key, faults on demand, and a record of what landed. For simulation and tests.
//!
//! Deterministic: one seed and one order of calls give one outcome. It starts no thread, iterates over no hash map, and knows no time but
//! tokio's, which a simulation pauses and moves on its own.

mod core;
mod faults;
mod versions;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use self::core::{Core, Node};
pub use self::core::{Landed, MemoryOptions};
pub use self::faults::{FaultCounts, Faults};
use super::span::KeySpan;
use super::transaction::{CommitRequest, Engine, EngineTransaction, View, Visit};
use super::watches::Arm;
use super::{Backend, Transaction};
use crate::{StoreError, Versionstamp};

/// One node's way to a store in memory. All handles of one store see the same data.
pub struct MemoryBackend {
    node: Arc<Node>,
}

impl MemoryBackend {
    /// An empty store, and a first handle on it.
    pub fn new(options: MemoryOptions) -> Arc<Self> {
        Arc::new(Self { node: Arc::new(Node::new(Arc::new(Core::new(options)))) })
    }

    /// Another node's handle on the same store: it can be cut off on its own.
    pub fn handle(&self) -> Arc<Self> {
        Arc::new(Self { node: Arc::new(Node::new(self.node.core.clone())) })
    }

    /// Cuts this handle off from the store: reads and commits fail as [`StoreError::Transient`] after a delay, and a commit that was on its
    /// way has an unknown result.
    pub fn cut(&self) {
        self.node.set_cut(true);
    }

    /// Ends what [`MemoryBackend::cut`] began.
    pub fn heal(&self) {
        self.node.set_cut(false);
    }

    /// Changes the faults from now on, for all handles.
    pub fn set_faults(&self, faults: Faults) {
        self.node.core.state.lock().faults.settings = faults;
    }

    /// How often each fault really happened, over all handles.
    pub fn fault_counts(&self) -> FaultCounts {
        self.node.core.state.lock().faults.counts
    }

    /// The commits that landed since the last call, oldest first. Nothing is kept unless [`MemoryOptions::record`] is set.
    pub fn take_landed(&self) -> Vec<Landed> {
        self.node.core.take_landed()
    }
}

impl Backend for MemoryBackend {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(EngineTransaction::new(self.node.clone()))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.node.close();
        futures::future::ready(Ok(())).boxed()
    }
}

/// A version. Its data stays readable for as long as a transaction may live.
#[derive(Clone)]
pub(crate) struct MemoryView(u64);

impl View for MemoryView {
    fn version(&self) -> u64 {
        self.0
    }
}

#[async_trait]
impl Engine for Node {
    type View = MemoryView;

    fn view(&self) -> Result<MemoryView, StoreError> {
        Ok(MemoryView(self.core.version()))
    }

    async fn before_read(&self) -> Result<(), StoreError> {
        self.before_read().await
    }

    fn get(&self, view: &MemoryView, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.core.get(view.0, key)
    }

    fn scan(&self, view: &MemoryView, span: &KeySpan, reverse: bool, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        self.core.scan(view.0, span, reverse, visit)
    }

    async fn commit(&self, request: CommitRequest) -> Result<Versionstamp, StoreError> {
        self.commit(request).await
    }

    fn arm(&self, watches: Vec<Arm>) {
        self.core.arm(watches);
    }

    async fn back_off(&self, error: &StoreError, failures: u32) {
        self.core.back_off(error, failures).await;
    }
}
