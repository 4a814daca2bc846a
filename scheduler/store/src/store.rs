//! The one retry loop and the one place where limits are enforced and costs are counted.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::backend::{Backend, KeyValue, RangeQuery, Read, Transaction};
use crate::keys::after;
use crate::{StoreError, Versionstamp};

/// The limits that hold on every backend: FoundationDB's, so that what works on a laptop works on a fleet.
pub mod limits {
    /// The longest key: FoundationDB's 10,000 bytes, less room for what a store on a shared cluster puts before and behind it.
    pub const KEY_BYTES_MAX: usize = 9_900;
    /// The longest value.
    pub const VALUE_BYTES_MAX: usize = 100_000;
    /// The largest transaction: keys and values written, and conflict keys.
    pub const TRANSACTION_BYTES_MAX: usize = 1_000_000;
}

/// A handle on the store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
    cost: Arc<Cost>,
    on_unreadable: Option<OnUnreadable>,
}

/// Told the table of a row.
type OnUnreadable = Arc<dyn Fn(&'static str) + Send + Sync>;

/// How hard [`Store::transact_with`] tries.
#[derive(Debug, Clone, Copy)]
pub struct TransactOptions {
    /// After so many conflicts in a row the conflict is returned, so that a batch can be halved. `None`: until it succeeds.
    pub conflicts_max: Option<u32>,
}

/// What a committed transaction returned.
#[derive(Debug, Clone)]
pub struct Committed<T> {
    /// What the closure returned.
    pub value: T,
    /// The commit's versionstamp; `None` if nothing was written.
    pub stamp: Option<Versionstamp>,
}

/// The work done since the store was opened, for metrics and for cost per execution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CostSnapshot {
    /// Transactions that committed writes.
    pub commits: u64,
    /// Commits refused because of a conflict.
    pub conflicts: u64,
    /// Commits whose result was unknown.
    pub unknown: u64,
    /// Keys set, cleared or added to, by committed transactions. A cleared range counts as one.
    pub key_writes: u64,
    /// Keys and values written, in bytes, by committed transactions.
    pub bytes_written: u64,
    /// Keys asked for and pairs returned by ranges.
    pub key_reads: u64,
}

#[derive(Default)]
struct Cost {
    commits: AtomicU64,
    conflicts: AtomicU64,
    unknown: AtomicU64,
    key_writes: AtomicU64,
    bytes_written: AtomicU64,
    key_reads: AtomicU64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("backend", &self.backend_name()).finish_non_exhaustive()
    }
}

impl Store {
    /// A store on this backend.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, cost: Arc::default(), on_unreadable: None }
    }

    /// The same store, which tells of each transaction that ends with a row that cannot be read. Rows that a transaction passes over it does not
    /// see.
    #[must_use]
    pub fn telling_of_unreadable(self, on_unreadable: Arc<dyn Fn(&'static str) + Send + Sync>) -> Self {
        Self { on_unreadable: Some(on_unreadable), ..self }
    }

    /// The backend's name.
    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
    }

    /// Stops taking commits; returns when all that was acknowledged is durable.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.backend.close().await
    }

    /// What has been done so far.
    pub fn cost(&self) -> CostSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CostSnapshot {
            commits: load(&self.cost.commits),
            conflicts: load(&self.cost.conflicts),
            unknown: load(&self.cost.unknown),
            key_writes: load(&self.cost.key_writes),
            bytes_written: load(&self.cost.bytes_written),
            key_reads: load(&self.cost.key_reads),
        }
    }

    /// Runs `body` in a transaction and commits it, again and again until it commits or fails for good.
    ///
    /// `body` must be idempotent: it runs anew after every retryable error, and [`Tx::maybe_committed`] tells it, from then on, that an
    /// earlier run may have been committed (or may still be). Identifiers that must not change between runs are made outside of it.
    /// A refusal by a domain rule is a value (`Ok(Err(refusal))`), returned before anything is written.
    pub async fn transact<T, F, Fut>(&self, body: F) -> Result<Committed<T>, StoreError>
    where
        F: FnMut(Tx) -> Fut + Send,
        Fut: Future<Output = Result<T, StoreError>> + Send,
        T: Send,
    {
        self.transact_with(TransactOptions { conflicts_max: None }, body).await
    }

    /// [`Store::transact`] with a bound on conflicts.
    pub async fn transact_with<T, F, Fut>(
        &self,
        options: TransactOptions,
        mut body: F,
    ) -> Result<Committed<T>, StoreError>
    where
        F: FnMut(Tx) -> Fut + Send,
        Fut: Future<Output = Result<T, StoreError>> + Send,
        T: Send,
    {
        let transaction: Arc<dyn Transaction> = Arc::from(self.backend.begin());
        let mut maybe_committed = false;
        let mut conflicts = 0;
        loop {
            let tx = Tx::new(transaction.clone(), self.cost.clone(), maybe_committed);
            let error = match run_once(&tx, &mut body).await {
                Ok(committed) => {
                    self.cost.record_commit(&tx, committed.stamp.is_some());
                    return Ok(committed);
                }
                Err(error) => error,
            };
            // Sticky: an unknown commit of an earlier run can still land while later runs fail in other ways.
            maybe_committed |= error.maybe_committed();
            self.cost.record_error(&error);
            if let (StoreError::Unreadable { table, .. }, Some(tell)) = (&error, &self.on_unreadable) {
                tell(table);
            }
            if matches!(error, StoreError::Conflict) {
                conflicts += 1;
                if options.conflicts_max.is_some_and(|max| conflicts >= max) {
                    return Err(error);
                }
            }
            transaction.on_error(error).await?;
        }
    }

    /// Waits until the key's value changes from what it is now. A hint: it may end early or never, so callers bound the wait.
    pub async fn watch(&self, key: Bytes) -> Result<BoxFuture<'static, ()>, StoreError> {
        let committed = self
            .transact(|tx| {
                let key = key.clone();
                async move { Ok(tx.inner.transaction.watch(key)) }
            })
            .await?;
        Ok(committed.value)
    }
}

async fn run_once<T, F, Fut>(tx: &Tx, body: &mut F) -> Result<Committed<T>, StoreError>
where
    F: FnMut(Tx) -> Fut + Send,
    Fut: Future<Output = Result<T, StoreError>> + Send,
    T: Send,
{
    let value = body(tx.clone()).await?;
    if let Some(refusal) = tx.inner.refusal.lock().take() {
        return Err(refusal);
    }
    let stamp = tx.inner.transaction.commit().await?;
    Ok(Committed { value, stamp })
}

impl Cost {
    fn record_commit(&self, tx: &Tx, wrote: bool) {
        if wrote {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        self.key_writes.fetch_add(tx.inner.key_writes.load(Ordering::Relaxed) as u64, Ordering::Relaxed);
        self.bytes_written.fetch_add(tx.inner.bytes.load(Ordering::Relaxed) as u64, Ordering::Relaxed);
    }

    fn record_error(&self, error: &StoreError) {
        match error {
            StoreError::Conflict => self.conflicts.fetch_add(1, Ordering::Relaxed),
            StoreError::CommitUnknown(_) => self.unknown.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// A transaction as the tables see it. Cheap to clone; valid until the closure that received it returns.
#[derive(Clone)]
pub struct Tx {
    inner: Arc<TxInner>,
}

struct TxInner {
    transaction: Arc<dyn Transaction>,
    cost: Arc<Cost>,
    maybe_committed: bool,
    bytes: AtomicUsize,
    key_writes: AtomicUsize,
    next_stamp_index: AtomicU16,
    /// The first limit that a write passed. It ends the transaction at its commit, so that writes need no `Result` each.
    refusal: Mutex<Option<StoreError>>,
}

impl Tx {
    fn new(transaction: Arc<dyn Transaction>, cost: Arc<Cost>, maybe_committed: bool) -> Self {
        Self {
            inner: Arc::new(TxInner {
                transaction,
                cost,
                maybe_committed,
                bytes: AtomicUsize::new(0),
                key_writes: AtomicUsize::new(0),
                next_stamp_index: AtomicU16::new(0),
                refusal: Mutex::new(None),
            }),
        }
    }

    /// Whether an earlier run of this transaction may have been committed, or may still be.
    pub fn maybe_committed(&self) -> bool {
        self.inner.maybe_committed
    }

    /// An index for the next stamped row, unique within this transaction.
    pub fn next_stamp_index(&self) -> u16 {
        self.inner.next_stamp_index.fetch_add(1, Ordering::Relaxed)
    }

    /// The value of a key.
    pub async fn get(&self, key: Bytes, read: Read) -> Result<Option<Bytes>, StoreError> {
        Ok(self.get_many(&[key], read).await?.pop().flatten())
    }

    /// The values of several keys, in one round trip.
    pub async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.inner.cost.key_reads.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.inner.transaction.get_many(keys, read).await
    }

    /// The pairs of a range.
    pub async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError> {
        let pairs = self.inner.transaction.range(query).await?;
        self.inner.cost.key_reads.fetch_add(pairs.len() as u64, Ordering::Relaxed);
        Ok(pairs)
    }

    /// Sets a key.
    pub fn set(&self, key: Bytes, value: Bytes) {
        if self.admit(key.len(), value.len()) {
            self.inner.transaction.set(key, value);
        }
    }

    /// Removes a key.
    pub fn clear(&self, key: Bytes) {
        if self.admit(key.len(), 0) {
            self.inner.transaction.clear(key);
        }
    }

    /// Removes all keys of a range.
    pub fn clear_range(&self, begin: Bytes, end: Bytes) {
        if self.admit(begin.len().max(end.len()), 0) {
            self.inner.transaction.clear_range(begin, end);
        }
    }

    /// Adds to a counter.
    pub fn add(&self, key: Bytes, delta: i64) {
        if self.admit(key.len(), size_of::<i64>()) {
            self.inner.transaction.add(key, delta);
        }
    }

    /// Sets a key that carries the commit's versionstamp at `stamp_at`.
    pub fn set_stamped_key(&self, key: Vec<u8>, stamp_at: usize, value: Bytes) {
        if self.admit(key.len(), value.len()) {
            self.inner.transaction.set_stamped_key(key, stamp_at, value);
        }
    }

    /// Sets a value that carries the commit's versionstamp at `stamp_at`.
    pub fn set_stamped_value(&self, key: Bytes, value: Vec<u8>, stamp_at: usize) {
        if self.admit(key.len(), value.len()) {
            self.inner.transaction.set_stamped_value(key, value, stamp_at);
        }
    }

    /// Makes the commit depend on one key without reading it serializably.
    pub fn depend_on(&self, key: &Bytes) {
        self.inner.transaction.add_read_conflict(key.clone(), after(key));
    }

    fn admit(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let total = self.inner.bytes.fetch_add(key_bytes + value_bytes, Ordering::Relaxed) + key_bytes + value_bytes;
        self.inner.key_writes.fetch_add(1, Ordering::Relaxed);
        let refusal = if key_bytes > limits::KEY_BYTES_MAX {
            StoreError::TooLarge { what: "key", bytes: key_bytes, limit: limits::KEY_BYTES_MAX }
        } else if value_bytes > limits::VALUE_BYTES_MAX {
            StoreError::TooLarge { what: "value", bytes: value_bytes, limit: limits::VALUE_BYTES_MAX }
        } else if total > limits::TRANSACTION_BYTES_MAX {
            StoreError::TooLarge { what: "transaction", bytes: total, limit: limits::TRANSACTION_BYTES_MAX }
        } else {
            return true;
        };
        self.inner.refusal.lock().get_or_insert(refusal);
        false
    }
}
