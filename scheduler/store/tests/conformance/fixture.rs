//! Backends to test, and short words for what tests do with them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::backend::{Backend, RangeQuery, Read, Transaction};
use compline_store::{Store, StoreError, Versionstamp};

/// A fresh backend, and what must live as long as it.
pub struct Fixture {
    pub backend: Arc<dyn Backend>,
    pub directory: Option<tempfile::TempDir>,
}

pub async fn memory() -> Option<Fixture> {
    Some(Fixture { backend: MemoryBackend::new(MemoryOptions::default()), directory: None })
}

pub async fn embedded() -> Option<Fixture> {
    let directory = tempfile::tempdir().expect("a directory is made");
    let backend = EmbeddedBackend::open(directory.path(), EmbeddedOptions::default()).expect("a new store opens");
    Some(Fixture { backend, directory: Some(directory) })
}

impl Fixture {
    pub fn begin(&self) -> Box<dyn Transaction> {
        self.backend.begin()
    }

    pub fn store(&self) -> Store {
        Store::new(self.backend.clone())
    }

    /// Removes everything.
    pub async fn clear(&self) {
        let store = self.store();
        let cleared = store.transact(|tx| async move {
            tx.clear_range(key(""), Bytes::from_static(&[0xff]));
            Ok(())
        });
        cleared.await.expect("it commits");
    }

    pub async fn close(self) {
        // A cluster outlives the test.
        self.clear().await;
        self.backend.close().await.expect("a backend closes");
        drop(self.backend);
        drop(self.directory);
    }

    /// Sets keys in a transaction of their own.
    pub async fn put(&self, pairs: &[(&str, &str)]) -> Versionstamp {
        let tx = self.begin();
        for (name, value) in pairs {
            tx.set(key(name), key(value));
        }
        stamp(tx.commit().await)
    }

    /// Removes a key in a transaction of its own.
    pub async fn remove(&self, name: &str) {
        let tx = self.begin();
        tx.clear(key(name));
        stamp(tx.commit().await);
    }

    /// What a new transaction reads.
    pub async fn value(&self, name: &str) -> Option<Bytes> {
        get(&*self.begin(), name).await
    }

    /// All pairs of the store, as text.
    pub async fn dump(&self) -> Vec<(String, String)> {
        scan(&*self.begin(), "", "~", usize::MAX, false).await
    }
}

pub fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub fn stamp(result: Result<Option<Versionstamp>, StoreError>) -> Versionstamp {
    result.expect("the commit succeeds").expect("a commit that writes has a stamp")
}

pub fn is_conflict(result: &Result<Option<Versionstamp>, StoreError>) -> bool {
    matches!(result, Err(StoreError::Conflict))
}

/// A serializable read of one key.
pub async fn get(tx: &dyn Transaction, name: &str) -> Option<Bytes> {
    tx.get_many(&[key(name)], Read::Serializable).await.expect("the read succeeds").pop().flatten()
}

/// A serializable scan, as text.
pub async fn scan(tx: &dyn Transaction, begin: &str, end: &str, limit: usize, reverse: bool) -> Vec<(String, String)> {
    let pairs = tx.range(&query(begin, end, limit, reverse)).await.expect("the scan succeeds");
    pairs.iter().map(|pair| (text(&pair.key), text(&pair.value))).collect()
}

pub fn query(begin: &str, end: &str, limit: usize, reverse: bool) -> RangeQuery {
    RangeQuery { begin: key(begin), end: key(end), limit, reverse, read: Read::Serializable }
}

pub fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Pairs as text, to compare with.
pub fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Waits for what must happen; the bound only keeps a broken backend from hanging the suite.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it happens within the bound")
}
