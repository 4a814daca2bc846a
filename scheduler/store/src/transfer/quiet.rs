//! The proof that no node uses a store, and that none did while it was read.
//!
//! A node is judged as everywhere: by its counter, on the observer's own clock. The caller looks, waits for the time after which a node is
//! taken for dead, and looks again; on an embedded store the directory's lock is the proof, and it need not wait. Sessions that are over by
//! that are ended, as a reaper would end them, so that a process that comes back from a long sleep finds its session gone.

use bytes::Bytes;

use super::TransferError;
use crate::backend::Read;
use crate::keys::Table;
use crate::tables::{meta, session};
use crate::{Store, StoreError, Tx};

/// The nodes and their counters, as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen(Vec<(String, NodeBytes)>);

/// What a node's rows say, session and beat, whether this build can read them or not.
type NodeBytes = (Bytes, Option<Bytes>);

fn as_bytes(rows: Vec<session::NodeRow>) -> Vec<(String, NodeBytes)> {
    rows.into_iter().map(|row| (row.node, (row.session_bytes, row.beat_bytes))).collect()
}

impl Seen {
    /// Looks at all nodes.
    pub async fn look(store: &Store) -> Result<Self, StoreError> {
        let nodes = store.transact(|tx| async move { session::list(&tx, Read::Serializable).await }).await?.value;
        Ok(Self(as_bytes(nodes)))
    }

    /// [`TransferError::NodeAlive`] if a counter has moved, or a node has begun, since then.
    pub async fn still_stands(&self, store: &Store) -> Result<(), TransferError> {
        let now = Self::look(store).await?;
        self.refuse_others(&now.0)
    }

    fn refuse_others(&self, nodes: &[(String, NodeBytes)]) -> Result<(), TransferError> {
        match nodes.iter().find(|node| !self.0.contains(node)) {
            Some((node, ..)) => Err(TransferError::NodeAlive { node: node.clone() }),
            None => Ok(()),
        }
    }

    /// Whether there are no nodes, alive or dead.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, ..)| name.as_str())
    }
}

/// A store that no node uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    starts: i64,
}

impl Quiet {
    /// Ends the sessions that were seen, which have stood still since then.
    ///
    /// [`TransferError::NodeAlive`] if a counter has moved or a node has begun meanwhile. Idempotent.
    pub async fn establish(store: &Store, seen: &Seen) -> Result<Self, TransferError> {
        let committed = store
            .transact(|tx| async move {
                let nodes = as_bytes(session::list(&tx, Read::Serializable).await?);
                if let Err(alive) = seen.refuse_others(&nodes) {
                    return Ok(Err(alive));
                }
                nodes.iter().for_each(|(node, ..)| session::clear(&tx, node));
                // A tick depends on its lease's row, so one that was frozen in the middle can't commit any more.
                let (begin, end) = Table::Lease.range();
                tx.clear_range(begin, end);
                Ok(Ok(Self { starts: meta::starts(&tx).await? }))
            })
            .await?;
        committed.value
    }

    /// How many sessions have been begun so far.
    pub(super) fn starts(self) -> i64 {
        self.starts
    }

    /// Whether it still holds in this transaction: no node has begun since.
    pub(super) async fn holds(self, tx: &Tx) -> Result<bool, StoreError> {
        Ok(meta::starts(tx).await? == self.starts && session::list(tx, Read::Serializable).await?.is_empty())
    }
}
