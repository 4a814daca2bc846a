//! A way to the store on which something happens between a transaction's reads and its commit: the interleaving that a test is about, made for
//! certain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use compline_store::backend::{Backend, KeyValue, RangeQuery, Read, Transaction};
use compline_store::{StoreError, Versionstamp};
use futures::future::BoxFuture;
use parking_lot::Mutex;

/// What happens in between, once.
type Hook = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

/// A backend whose first commit of writes waits for something else to be committed.
pub struct Meddled {
    inner: Arc<dyn Backend>,
    hook: Hook,
    is_after: bool,
    conflicts: Arc<AtomicU32>,
}

impl Meddled {
    /// Lets `hook` happen just before the first commit that writes anything.
    pub fn new(inner: Arc<dyn Backend>, hook: BoxFuture<'static, ()>) -> Arc<Self> {
        Arc::new(Self { inner, hook: Arc::new(Mutex::new(Some(hook))), is_after: false, conflicts: Arc::default() })
    }

    /// Lets `hook` happen just after the first commit, whose result is not told.
    pub fn unknown(inner: Arc<dyn Backend>, hook: BoxFuture<'static, ()>) -> Arc<Self> {
        Arc::new(Self { inner, hook: Arc::new(Mutex::new(Some(hook))), is_after: true, conflicts: Arc::default() })
    }

    /// How many commits conflicted.
    pub fn conflicts(&self) -> u32 {
        self.conflicts.load(Ordering::Relaxed)
    }
}

impl Backend for Meddled {
    fn name(&self) -> &'static str {
        "meddled"
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(Between {
            inner: self.inner.begin(),
            wrote: AtomicBool::new(false),
            hook: self.hook.clone(),
            is_after: self.is_after,
            conflicts: self.conflicts.clone(),
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}

struct Between {
    inner: Box<dyn Transaction>,
    wrote: AtomicBool,
    hook: Hook,
    is_after: bool,
    conflicts: Arc<AtomicU32>,
}

impl Between {
    fn writes(&self) -> &dyn Transaction {
        self.wrote.store(true, Ordering::Relaxed);
        &*self.inner
    }
}

#[async_trait]
impl Transaction for Between {
    async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.inner.get_many(keys, read).await
    }

    async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError> {
        self.inner.range(query).await
    }

    fn set(&self, key: Bytes, value: Bytes) {
        self.writes().set(key, value);
    }

    fn clear(&self, key: Bytes) {
        self.writes().clear(key);
    }

    fn clear_range(&self, begin: Bytes, end: Bytes) {
        self.writes().clear_range(begin, end);
    }

    fn add(&self, key: Bytes, delta: i64) {
        self.writes().add(key, delta);
    }

    fn set_stamped_key(&self, key: Vec<u8>, stamp_at: usize, value: Bytes) {
        self.writes().set_stamped_key(key, stamp_at, value);
    }

    fn set_stamped_value(&self, key: Bytes, value: Vec<u8>, stamp_at: usize) {
        self.writes().set_stamped_value(key, value, stamp_at);
    }

    fn add_read_conflict(&self, begin: Bytes, end: Bytes) {
        self.inner.add_read_conflict(begin, end);
    }

    fn add_write_conflict(&self, begin: Bytes, end: Bytes) {
        self.writes().add_write_conflict(begin, end);
    }

    fn watch(&self, key: Bytes) -> BoxFuture<'static, ()> {
        self.inner.watch(key)
    }

    async fn commit(&self) -> Result<Option<Versionstamp>, StoreError> {
        let hook = self.wrote.load(Ordering::Relaxed).then(|| self.hook.lock().take()).flatten();
        if let Some(hook) = hook {
            if self.is_after {
                self.inner.commit().await?;
                hook.await;
                return Err(StoreError::CommitUnknown("its answer was lost".into()));
            }
            hook.await;
        }
        let committed = self.inner.commit().await;
        if matches!(committed, Err(StoreError::Conflict)) {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        committed
    }

    async fn on_error(&self, error: StoreError) -> Result<(), StoreError> {
        self.wrote.store(false, Ordering::Relaxed);
        self.inner.on_error(error).await
    }
}
