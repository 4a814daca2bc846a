//! One node's way to the store: the memory backend's, and every commit signed by who made it, so that the oracle can tell actors apart however
//! late their commits land. A planted fault sits here too: it makes the node behave as if its code were wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use compline_store::backend::memory::MemoryBackend;
use compline_store::backend::{Backend, KeyValue, RangeQuery, Read, Transaction};
use compline_store::{StoreError, Versionstamp};
use futures::future::BoxFuture;

use super::plant::{Mutant, MutantNode};
use super::pulse::Pulse;

/// The key under which each commit leaves the number of its author. No table begins so.
pub const SIGNATURE: &[u8] = b"\xfesimulated author";

/// One life of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Author(pub u32);

/// A handle on the store that signs.
pub struct SignedBackend {
    inner: Arc<MemoryBackend>,
    author: Author,
    pulse: Arc<Pulse>,
    mutant: Option<Arc<MutantNode>>,
}

impl SignedBackend {
    /// The handle of an author, whose node may be a mutant. Each call is noted.
    pub fn new(
        inner: Arc<MemoryBackend>,
        author: Author,
        pulse: Arc<Pulse>,
        mutant: Option<Arc<MutantNode>>,
    ) -> Arc<Self> {
        Arc::new(Self { inner, author, pulse, mutant })
    }
}

impl Backend for SignedBackend {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn begin(&self) -> Box<dyn Transaction> {
        let mutant = self.mutant.as_ref().map(|node| Mutant::new(node.clone(), self.inner.clone()));
        Box::new(Signed {
            inner: self.inner.begin(),
            author: self.author,
            pulse: self.pulse.clone(),
            wrote: AtomicBool::new(false),
            mutant,
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.close()
    }
}

struct Signed {
    inner: Box<dyn Transaction>,
    author: Author,
    pulse: Arc<Pulse>,
    wrote: AtomicBool,
    mutant: Option<Mutant>,
}

impl Signed {
    fn writes(&self) -> &dyn Transaction {
        self.wrote.store(true, Ordering::Relaxed);
        &*self.inner
    }
}

/// Signs a transaction.
pub(super) fn sign(transaction: &dyn Transaction, author: Author) {
    transaction.set(Bytes::from_static(SIGNATURE), Bytes::copy_from_slice(&author.0.to_be_bytes()));
}

#[async_trait]
impl Transaction for Signed {
    async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.pulse.call(self.author)?;
        let asked = self.mutant.as_ref().map_or(read, |mutant| mutant.read_of(keys, read));
        let mut values = self.inner.get_many(keys, asked).await?;
        if let Some(mutant) = &self.mutant {
            mutant.after_get(keys, &mut values, read);
        }
        Ok(values)
    }

    async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError> {
        self.pulse.call(self.author)?;
        if self.mutant.as_ref().is_some_and(|mutant| mutant.hides(query)) {
            return Ok(Vec::new());
        }
        self.inner.range(query).await
    }

    fn set(&self, key: Bytes, value: Bytes) {
        match &self.mutant {
            Some(mutant) if mutant.withholds(&key, &value) => {}
            _ => self.writes().set(key, value),
        }
    }

    fn clear(&self, key: Bytes) {
        self.writes().clear(key);
    }

    fn clear_range(&self, begin: Bytes, end: Bytes) {
        self.writes().clear_range(begin, end);
    }

    fn add(&self, key: Bytes, delta: i64) {
        match &self.mutant {
            Some(mutant) if mutant.withholds_add(&key, delta) => self.wrote.store(true, Ordering::Relaxed),
            _ => self.writes().add(key, delta),
        }
    }

    fn set_stamped_key(&self, key: Vec<u8>, stamp_at: usize, value: Bytes) {
        self.writes().set_stamped_key(key, stamp_at, value);
    }

    fn set_stamped_value(&self, key: Bytes, value: Vec<u8>, stamp_at: usize) {
        if let Some(mutant) = &self.mutant {
            mutant.notes(&key, &value);
        }
        self.writes().set_stamped_value(key, value, stamp_at);
    }

    fn add_read_conflict(&self, begin: Bytes, end: Bytes) {
        if !self.mutant.as_ref().is_some_and(|mutant| mutant.overlooks(&begin)) {
            self.inner.add_read_conflict(begin, end);
        }
    }

    fn add_write_conflict(&self, begin: Bytes, end: Bytes) {
        self.writes().add_write_conflict(begin, end);
    }

    fn watch(&self, key: Bytes) -> BoxFuture<'static, ()> {
        self.inner.watch(key)
    }

    async fn commit(&self) -> Result<Option<Versionstamp>, StoreError> {
        self.pulse.call(self.author)?;
        if let Some(mutant) = &self.mutant {
            if mutant.spins(&self.pulse) {
                return Err(StoreError::Conflict);
            }
            mutant.before_commit(&*self.inner).await?;
        }
        if self.wrote.load(Ordering::Relaxed) {
            sign(&*self.inner, self.author);
        }
        let committed = self.inner.commit().await;
        match &self.mutant {
            Some(mutant) => mutant.after_commit(committed, self.author).await,
            None => committed,
        }
    }

    async fn on_error(&self, error: StoreError) -> Result<(), StoreError> {
        self.wrote.store(false, Ordering::Relaxed);
        if let Some(mutant) = &self.mutant {
            mutant.reset();
            if mutant.never_waits() {
                return Ok(());
            }
        }
        self.inner.on_error(error).await
    }
}
