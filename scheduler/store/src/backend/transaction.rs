//! The transaction that the backends of this crate share. They differ only in how a snapshot is read and how a commit is made.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::buffer::{Local, WriteBuffer, buffered_writes, sum};
use super::merge::Merge;
use super::occ::ReadSet;
use super::span::KeySpan;
use super::watches::Arm;
use super::{KeyValue, RangeQuery, Read, Transaction};
use crate::{StoreError, Versionstamp};

/// The longest that a transaction may take from its read version to its commit. FoundationDB's limit.
pub(crate) const TRANSACTION_SPAN: Duration = Duration::from_secs(5);

/// A state of the whole store that can be read for as long as it is held.
pub(crate) trait View: Clone + Send + Sync + 'static {
    /// The version of the last commit that it includes.
    fn version(&self) -> u64;
}

/// A pair offered to a scan, which says whether it wants more.
pub(crate) type Visit<'a> = dyn FnMut(Bytes, Bytes) -> ControlFlow<()> + Send + 'a;

/// What tells one backend from another.
#[async_trait]
pub(crate) trait Engine: Send + Sync + 'static {
    type View: View;

    /// The latest state: it includes every commit that was acknowledged.
    fn view(&self) -> Result<Self::View, StoreError>;

    /// Waits before a read, or refuses it.
    async fn before_read(&self) -> Result<(), StoreError>;

    fn get(&self, view: &Self::View, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Offers the pairs of a span in order until the visitor breaks.
    fn scan(&self, view: &Self::View, span: &KeySpan, reverse: bool, visit: &mut Visit<'_>) -> Result<(), StoreError>;

    async fn commit(&self, request: CommitRequest) -> Result<Versionstamp, StoreError>;

    fn arm(&self, watches: Vec<Arm>);

    /// Waits before the next run of a transaction that failed `failures` times in a row.
    async fn back_off(&self, error: &StoreError, failures: u32);
}

/// What a transaction asks to have committed.
pub(crate) struct CommitRequest {
    /// What `reads` were read at.
    pub read_version: u64,
    pub reads: ReadSet,
    pub buffer: WriteBuffer,
}

struct State<V> {
    /// Fixed at the first read, with the moment of it.
    view: Option<(V, Instant)>,
    reads: ReadSet,
    buffer: WriteBuffer,
    watches: Vec<Arm>,
    failures: u32,
}

impl<V> Default for State<V> {
    fn default() -> Self {
        let (reads, buffer) = (ReadSet::default(), WriteBuffer::default());
        Self { view: None, reads, buffer, watches: Vec::new(), failures: 0 }
    }
}

/// A transaction on an [`Engine`].
pub(crate) struct EngineTransaction<E: Engine> {
    engine: Arc<E>,
    state: Mutex<State<E::View>>,
}

impl<E: Engine> EngineTransaction<E> {
    pub fn new(engine: Arc<E>) -> Self {
        Self { engine, state: Mutex::default() }
    }

    /// The view that all reads of this transaction see.
    fn view(&self, state: &mut State<E::View>) -> Result<E::View, StoreError> {
        if let Some((view, since)) = &state.view {
            return if since.elapsed() > TRANSACTION_SPAN { Err(StoreError::TooOld) } else { Ok(view.clone()) };
        }
        let view = self.engine.view()?;
        state.view = Some((view.clone(), Instant::now()));
        Ok(view)
    }

    fn get_one(&self, view: &E::View, key: &Bytes, read: Read) -> Result<Option<Bytes>, StoreError> {
        let local = self.state.lock().buffer.local(key, view.version())?;
        let value = match local {
            // The transaction's own write does not depend on what anybody else writes.
            Local::Known(value) => return Ok(value),
            Local::Untouched => self.engine.get(view, key)?,
            Local::AddOver(delta) => Some(sum(self.engine.get(view, key)?.as_deref(), delta)),
        };
        if read == Read::Serializable {
            self.state.lock().reads.points.push(key.clone());
        }
        Ok(value)
    }
}

#[async_trait]
impl<E: Engine> Transaction for EngineTransaction<E> {
    async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.engine.before_read().await?;
        let view = self.view(&mut self.state.lock())?;
        keys.iter().map(|key| self.get_one(&view, key, read)).collect()
    }

    async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError> {
        self.engine.before_read().await?;
        let span = KeySpan { begin: query.begin.clone(), end: query.end.clone() };
        let (view, overlay) = {
            let mut state = self.state.lock();
            let view = self.view(&mut state)?;
            let overlay = state.buffer.overlay(&span, view.version());
            (view, overlay)
        };
        if query.limit == 0 || span.is_empty() {
            return Ok(Vec::new());
        }
        let mut merge = Merge::new(overlay, query.reverse, query.limit);
        self.engine.scan(&view, &span, query.reverse, &mut |key, value| merge.offer(key, value))?;
        let found = merge.finish()?;
        if query.read == Read::Serializable {
            self.state.lock().reads.add(found.looked_at(span, query.reverse));
        }
        Ok(found.pairs)
    }

    buffered_writes!();

    fn add_read_conflict(&self, begin: Bytes, end: Bytes) {
        let mut state = self.state.lock();
        // "As if it had been read": so the read version is fixed. Should that fail, the commit fails in the same way.
        if self.view(&mut state).is_ok() {
            state.reads.add(KeySpan { begin, end });
        }
    }

    fn watch(&self, key: Bytes) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        let Ok(view) = self.view(&mut state) else { return futures::future::ready(()).boxed() };
        let (sender, receiver) = oneshot::channel();
        state.watches.push(Arm { key, seen: view.version(), sender });
        // A sender that is dropped ends the wait too: the transaction never committed, or the store is closed.
        receiver.map(|_| ()).boxed()
    }

    async fn commit(&self) -> Result<Option<Versionstamp>, StoreError> {
        let (request, mut watches) = {
            let mut state = self.state.lock();
            if let Some((_, since)) = &state.view
                && since.elapsed() > TRANSACTION_SPAN
            {
                return Err(StoreError::TooOld);
            }
            if let Some(refusal) = state.buffer.refusal.take() {
                return Err(refusal);
            }
            let read_version = state.view.take().map_or(0, |(view, _)| view.version());
            let reads = std::mem::take(&mut state.reads);
            let buffer = std::mem::take(&mut state.buffer);
            (CommitRequest { read_version, reads, buffer }, std::mem::take(&mut state.watches))
        };
        if request.buffer.is_empty() {
            self.engine.arm(watches);
            return Ok(None);
        }
        let own: Vec<bool> = watches.iter().map(|watch| request.buffer.touches(&watch.key)).collect();
        let stamp = self.engine.commit(request).await?;
        // What the transaction wrote itself is what it sees.
        for (watch, own) in watches.iter_mut().zip(own) {
            if own {
                watch.seen = version_of(stamp);
            }
        }
        self.engine.arm(watches);
        Ok(Some(stamp))
    }

    async fn on_error(&self, error: StoreError) -> Result<(), StoreError> {
        if !error.is_retryable() {
            return Err(error);
        }
        let failures = {
            let mut state = self.state.lock();
            let failures = state.failures + 1;
            *state = State { failures, ..State::default() };
            failures
        };
        self.engine.back_off(&error, failures).await;
        Ok(())
    }
}

fn version_of(stamp: Versionstamp) -> u64 {
    stamp.0.iter().take(size_of::<u64>()).fold(0, |version, byte| version << 8 | u64::from(*byte))
}

/// The longest wait before the next run of a transaction that failed `failures` times in a row.
pub(crate) fn back_off_delay(error: &StoreError, failures: u32) -> Duration {
    // A conflict or an old read version is cured by reading anew, so the first retry is near. Faults need time to pass.
    let first = match error {
        StoreError::Conflict | StoreError::TooOld => Duration::from_millis(1),
        _ => Duration::from_millis(10),
    };
    first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(Duration::from_secs(1))
}
