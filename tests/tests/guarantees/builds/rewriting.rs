//! A backend as another build sees and leaves it: its values are changed on their way in, and on their way out.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use compline_store::backend::{Backend, KeyValue, RangeQuery, Read, Transaction};
use compline_store::{StoreError, Versionstamp};
use futures::future::BoxFuture;
use parking_lot::Mutex;

/// A value that a transaction wrote, with its key as far as it is known before the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub key: Bytes,
    pub value: Bytes,
    /// Where the commit's stamp goes, in the key or in the value.
    pub stamped: Option<Stamped>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamped {
    Key,
    Value,
}

/// What becomes of values.
pub trait Rewrite: Send + Sync + 'static {
    /// Changes a value that is being written. `mine` is what this transaction has had changed so far; what is added to it is told of when it has
    /// been committed.
    fn write(&self, written: &mut Written, mine: &mut Vec<Written>);

    /// Changes a value that was read.
    fn read(&self, key: &[u8], value: Bytes) -> Bytes;

    /// What a transaction changed is committed.
    fn committed(&self, _changed: Vec<Written>) {}
}

pub struct Rewriting<R> {
    inner: Arc<dyn Backend>,
    rewrite: Arc<R>,
}

impl<R: Rewrite> Rewriting<R> {
    pub fn new(inner: Arc<dyn Backend>, rewrite: Arc<R>) -> Arc<Self> {
        Arc::new(Self { inner, rewrite })
    }
}

impl<R: Rewrite> Backend for Rewriting<R> {
    fn name(&self) -> &'static str {
        "rewriting"
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(Between { inner: self.inner.begin(), rewrite: self.rewrite.clone(), changed: Mutex::default() })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}

struct Between<R> {
    inner: Box<dyn Transaction>,
    rewrite: Arc<R>,
    changed: Mutex<Vec<Written>>,
}

impl<R: Rewrite> Between<R> {
    fn rewritten(&self, key: Bytes, value: Bytes, stamped: Option<Stamped>) -> Bytes {
        let mut written = Written { key, value, stamped };
        self.rewrite.write(&mut written, &mut self.changed.lock());
        written.value
    }
}

#[async_trait]
impl<R: Rewrite> Transaction for Between<R> {
    async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError> {
        let values = self.inner.get_many(keys, read).await?;
        Ok(keys.iter().zip(values).map(|(key, value)| value.map(|value| self.rewrite.read(key, value))).collect())
    }

    async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError> {
        let pairs = self.inner.range(query).await?;
        let seen = |KeyValue { key, value }| KeyValue { value: self.rewrite.read(&key, value), key };
        Ok(pairs.into_iter().map(seen).collect())
    }

    fn set(&self, key: Bytes, value: Bytes) {
        let value = self.rewritten(key.clone(), value, None);
        self.inner.set(key, value);
    }

    fn clear(&self, key: Bytes) {
        self.inner.clear(key);
    }

    fn clear_range(&self, begin: Bytes, end: Bytes) {
        self.inner.clear_range(begin, end);
    }

    fn add(&self, key: Bytes, delta: i64) {
        self.inner.add(key, delta);
    }

    fn set_stamped_key(&self, key: Vec<u8>, stamp_at: usize, value: Bytes) {
        let value = self.rewritten(Bytes::copy_from_slice(&key), value, Some(Stamped::Key));
        self.inner.set_stamped_key(key, stamp_at, value);
    }

    fn set_stamped_value(&self, key: Bytes, value: Vec<u8>, stamp_at: usize) {
        let value = self.rewritten(key.clone(), value.into(), Some(Stamped::Value));
        self.inner.set_stamped_value(key, value.to_vec(), stamp_at);
    }

    fn add_read_conflict(&self, begin: Bytes, end: Bytes) {
        self.inner.add_read_conflict(begin, end);
    }

    fn add_write_conflict(&self, begin: Bytes, end: Bytes) {
        self.inner.add_write_conflict(begin, end);
    }

    fn watch(&self, key: Bytes) -> BoxFuture<'static, ()> {
        self.inner.watch(key)
    }

    async fn commit(&self) -> Result<Option<Versionstamp>, StoreError> {
        let committed = self.inner.commit().await?;
        let changed = std::mem::take(&mut *self.changed.lock());
        if !changed.is_empty() {
            self.rewrite.committed(changed);
        }
        Ok(committed)
    }

    async fn on_error(&self, error: StoreError) -> Result<(), StoreError> {
        self.changed.lock().clear();
        self.inner.on_error(error).await
    }
}
