//! What a backend must give: the part of FoundationDB's model that Compline uses, and no more.
//!
//! A backend is admitted by the conformance suite in `tests/conformance`. The trait is object-safe and small on purpose: limits, retries
//! and counting live above it in [`crate::Store`], domain rules above that.

mod buffer;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "foundationdb")]
pub mod foundationdb;
pub mod memory;
mod merge;
mod occ;
mod resolve;
mod span;
mod transaction;
mod watches;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{StoreError, Versionstamp};

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
}

/// Whether a read takes part in conflict detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The commit fails if what was read has changed since.
    Serializable,
    /// The commit does not depend on what was read. Explicit conflict keys can add what matters.
    Snapshot,
}

/// A range of keys to read: `begin <= key < end`.
#[derive(Debug, Clone)]
pub struct RangeQuery {
    /// The first key, inclusive.
    pub begin: Bytes,
    /// The end, exclusive.
    pub end: Bytes,
    /// How many pairs at the most.
    pub limit: usize,
    /// From the end backwards.
    pub reverse: bool,
    /// Whether the read takes part in conflict detection. A serializable range read that stops at its limit conflicts only with writes
    /// between `begin` and the last key returned.
    pub read: Read,
}

/// An engine that holds ordered keys and runs strictly serializable transactions over them.
pub trait Backend: Send + Sync + 'static {
    /// A short name for messages and metrics: `embedded`, `memory`, `foundationdb`.
    fn name(&self) -> &'static str;

    /// Begins a transaction. Its read version is fixed at its first read, and includes every commit acknowledged before that.
    fn begin(&self) -> Box<dyn Transaction>;

    /// Stops taking commits and returns when all that was acknowledged is durable and files are released. Idempotent.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// One transaction. Reads see its own earlier writes; nothing else does until it commits.
///
/// All methods take `&self`, so that several reads can be in flight at once. Versionstamped writes are not visible to the transaction's own
/// reads, which fail with [`StoreError::StampedUnread`]: their bytes are not known yet.
///
/// Keys are not empty and begin with a byte below `0xff`; what is above belongs to the backend. Writing such a key is a bug and panics.
#[async_trait]
pub trait Transaction: Send + Sync {
    /// The values of several keys, in the order of the keys.
    async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError>;

    /// The pairs of a range, in key order, or in reverse if asked.
    async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError>;

    /// Sets a key.
    fn set(&self, key: Bytes, value: Bytes);

    /// Removes a key.
    fn clear(&self, key: Bytes);

    /// Removes all keys with `begin <= key < end`.
    fn clear_range(&self, begin: Bytes, end: Bytes);

    /// Adds to a little-endian `i64`; a missing value counts as 0. Does not read, so it never conflicts with another add.
    fn add(&self, key: Bytes, delta: i64);

    /// Sets a key in which the ten bytes from `stamp_at` become the commit's versionstamp.
    fn set_stamped_key(&self, key: Vec<u8>, stamp_at: usize, value: Bytes);

    /// Sets a value in which the ten bytes from `stamp_at` become the commit's versionstamp.
    fn set_stamped_value(&self, key: Bytes, value: Vec<u8>, stamp_at: usize);

    /// Makes the commit depend on `begin <= key < end` as if it had been read serializably.
    fn add_read_conflict(&self, begin: Bytes, end: Bytes);

    /// Makes others that read `begin <= key < end` conflict with this commit as if it had been written.
    fn add_write_conflict(&self, begin: Bytes, end: Bytes);

    /// Returns a future that ends when the key's value differs from what this transaction sees, armed once the transaction has committed
    /// (a read-only one too). It is a hint: it may end early, late or, when the backend lost it, with an error or never.
    fn watch(&self, key: Bytes) -> BoxFuture<'static, ()>;

    /// Commits. `None` for a transaction that wrote nothing. After an error only [`Transaction::on_error`] may be called.
    async fn commit(&self) -> Result<Option<Versionstamp>, StoreError>;

    /// After a retryable error: waits as long as the backend thinks right and resets the transaction, so that it can be run again.
    /// Any other error is returned as it is.
    async fn on_error(&self, error: StoreError) -> Result<(), StoreError>;
}
