//! A transaction on FoundationDB.

use std::sync::Arc;
use std::time::Duration;

use ::foundationdb as fdb;
use async_trait::async_trait;
use bytes::Bytes;
use fdb::options::{StreamingMode, TransactionOption};
use fdb::{FdbError, FdbResult, KeySelector, RangeOption, TransactionCommitError};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::error::{before_commit, of_commit};
use super::{ANSWER_WITHIN, Shared, handover};
use crate::backend::buffer::{Local, WriteBuffer, buffered_writes, sum};
use crate::backend::merge::Merge;
use crate::backend::occ::ReadSet;
use crate::backend::span::KeySpan;
use crate::backend::transaction::back_off_delay;
use crate::backend::{KeyValue, RangeQuery, Read, Transaction};
use crate::{StoreError, Versionstamp};

type ReadVersion = futures::future::Shared<BoxFuture<'static, FdbResult<i64>>>;
type WatchFuture = BoxFuture<'static, FdbResult<()>>;

/// A watch to be armed once the transaction has committed.
struct Arm {
    key: Bytes,
    sender: oneshot::Sender<WatchFuture>,
}

/// What FoundationDB is told of a failed run, so that it chooses the wait before the next one.
enum Failure {
    Read(FdbError),
    Commit(TransactionCommitError),
}

#[derive(Default)]
struct State {
    /// Made at the first use. Gone while a commit is on its way.
    handle: Option<fdb::Transaction>,
    /// Asked for by whatever depends on it without reading.
    version: Option<ReadVersion>,
    /// What the commit depends on, beside the single keys that FoundationDB itself noted.
    reads: ReadSet,
    buffer: WriteBuffer,
    watches: Vec<Arm>,
    failure: Option<Failure>,
    failures: u32,
}

pub(super) struct FoundationDbTransaction {
    shared: Arc<Shared>,
    state: Mutex<State>,
}

impl FoundationDbTransaction {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, state: Mutex::default() }
    }

    fn fresh(&self) -> Result<fdb::Transaction, StoreError> {
        let handle = self.shared.database()?.create_trx().map_err(before_commit)?;
        set_options(&handle).map_err(before_commit)?;
        Ok(handle)
    }

    fn handle<'a>(&self, state: &'a mut State) -> Result<&'a fdb::Transaction, StoreError> {
        let handle = match state.handle.take() {
            Some(handle) => handle,
            None => self.fresh()?,
        };
        Ok(state.handle.insert(handle))
    }

    /// Fixes the read version now, as a read would.
    fn ask_version(&self, state: &mut State) -> Result<ReadVersion, StoreError> {
        if let Some(version) = &state.version {
            return Ok(version.clone());
        }
        let version = self.handle(state)?.get_read_version().boxed().shared();
        Ok(state.version.insert(version).clone())
    }

    /// The version below which the transaction's own stamps cannot be. Nobody asks for it who has none.
    async fn version_under_own_stamps(&self) -> Result<u64, StoreError> {
        let version = {
            let mut state = self.state.lock();
            if state.buffer.stamped_keys.is_empty() {
                return Ok(0);
            }
            self.ask_version(&mut state)?
        };
        Ok(self.answer(version).await?.cast_unsigned())
    }

    /// Waits for the answer to a read.
    async fn answer<T>(&self, asked: impl Future<Output = FdbResult<T>>) -> Result<T, StoreError> {
        match timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.state.lock().failure = Some(Failure::Read(error));
                Err(before_commit(error))
            }
            Err(_) => Err(StoreError::Transient(format!("no answer to a read within {ANSWER_WITHIN:?}"))),
        }
    }

    /// Offers the stored pairs of a span to a merge until it has enough.
    async fn scan(&self, query: &RangeQuery, merge: &mut Merge) -> Result<(), StoreError> {
        let prefix = self.shared.prefix.len();
        // A chunk as large as the limit may still not be enough: the transaction's own writes can hide some of it.
        let chunk_limit = query.limit.min(i32::MAX as usize);
        let mut option = RangeOption {
            begin: KeySelector::first_greater_or_equal(self.shared.prefixed(&query.begin)),
            end: KeySelector::first_greater_or_equal(self.shared.prefixed(&query.end)),
            limit: Some(chunk_limit),
            mode: StreamingMode::WantAll,
            reverse: query.reverse,
            ..RangeOption::default()
        };
        for iteration in 1.. {
            // The conflict span is added by the caller, who knows how much of this was really looked at.
            let asked = self.handle(&mut self.state.lock())?.get_range(&option, iteration, true);
            let chunk = self.answer(asked).await?;
            for pair in chunk.iter() {
                let key = Bytes::copy_from_slice(&pair.key()[prefix..]);
                if merge.offer(key, Bytes::copy_from_slice(pair.value())).is_break() {
                    return Ok(());
                }
            }
            let Some(last) = chunk.last().filter(|_| chunk.more() || chunk.len() >= chunk_limit) else { break };
            if query.reverse {
                option.end = KeySelector::first_greater_or_equal(last.key().to_vec());
            } else {
                option.begin = KeySelector::first_greater_than(last.key().to_vec());
            }
        }
        Ok(())
    }

    /// Commits what was written; the stamp and the version of the commit.
    async fn commit_writes(&self, handle: fdb::Transaction, run: &State) -> Result<(Versionstamp, i64), StoreError> {
        handover::conflicts(&handle, &self.shared.prefix, &run.reads, &run.buffer.disturbed).map_err(before_commit)?;
        let sizes = handover::writes(&handle, &self.shared.prefix, &run.buffer);
        // It must be asked for before the commit, and is answered by it.
        let stamp = handle.get_versionstamp();
        let committed = timeout(ANSWER_WITHIN, handle.commit()).await;
        let unknown = || StoreError::CommitUnknown(format!("no answer to the commit within {ANSWER_WITHIN:?}"));
        let committed = match committed.map_err(|_| unknown())? {
            Ok(committed) => committed,
            Err(failed) => {
                let error = of_commit(*failed, sizes);
                self.state.lock().failure = Some(Failure::Commit(failed));
                return Err(error);
            }
        };
        let unnamed = |why: String| StoreError::CommitUnknown(format!("the commit's versionstamp is missing: {why}"));
        let version = committed.committed_version().map_err(|error| unnamed(error.to_string()))?;
        let stamp = timeout(ANSWER_WITHIN, stamp).await.map_err(|_| unknown())?;
        let stamp = stamp.map_err(|error| unnamed(error.to_string()))?;
        let stamp = stamp[..].try_into().map_err(|_| unnamed(format!("{} bytes", stamp.len())))?;
        Ok((Versionstamp(stamp), version))
    }

    /// Arms the watches of a run that is over: on its own writes where it made some, else on what it read.
    async fn arm_all(&self, run: State, committed: Option<i64>) -> Result<(), StoreError> {
        let (own, others): (Vec<_>, Vec<_>) = run.watches.into_iter().partition(|arm| run.buffer.touches(&arm.key));
        if let Some(version) = run.version.filter(|_| !others.is_empty()) {
            let version = self.answer(version).await?;
            self.arm(version, others).await?;
        }
        match committed {
            Some(version) => self.arm(version, own).await,
            None => Ok(()),
        }
    }

    /// Arms watches on what a transaction at `version` sees. One that cannot be armed ends, as a hint may.
    async fn arm(&self, version: i64, watches: Vec<Arm>) -> Result<(), StoreError> {
        if watches.is_empty() {
            return Ok(());
        }
        // Not one of ours: FoundationDB refuses watches where its read-your-writes is off.
        let handle = self.shared.database()?.create_trx().map_err(before_commit)?;
        handle.set_read_version(version);
        let armed: Vec<_> = watches
            .into_iter()
            .map(|watch| (watch.sender, handle.watch(&self.shared.prefixed(&watch.key)).boxed()))
            .collect();
        // A watch begins with the commit of the transaction that asked for it.
        let committed = timeout(ANSWER_WITHIN, handle.commit()).await;
        if committed.is_ok_and(|committed| committed.is_ok()) {
            for (sender, watch) in armed {
                let _ = sender.send(watch);
            }
        }
        Ok(())
    }

    /// Waits before the next run, as FoundationDB thinks right or, where it was not asked, as the other backends do. Returns what can be used
    /// again.
    async fn back_off(
        &self,
        error: &StoreError,
        failure: Option<Failure>,
        handle: Option<fdb::Transaction>,
        failures: u32,
    ) -> Option<fdb::Transaction> {
        let told = match (failure, handle) {
            (Some(Failure::Commit(failed)), _) => timeout(ANSWER_WITHIN, failed.on_error()).await,
            (Some(Failure::Read(failed)), Some(handle)) => timeout(ANSWER_WITHIN, handle.on_error(failed)).await,
            _ => {
                self.pause(back_off_delay(error, failures)).await;
                return None;
            }
        };
        match told {
            // Its options are gone, and it remembers how often it failed.
            Ok(Ok(handle)) => set_options(&handle).is_ok().then_some(handle),
            // FoundationDB would give up where we do not: a commit that was cancelled, say.
            _ => {
                self.pause(back_off_delay(error, failures)).await;
                None
            }
        }
    }

    async fn pause(&self, longest: Duration) {
        let share = 0.5 + self.shared.jitter.lock().f64() / 2.0;
        tokio::time::sleep(longest.mul_f64(share)).await;
    }
}

fn set_options(handle: &fdb::Transaction) -> FdbResult<()> {
    handle.set_option(TransactionOption::ReadYourWritesDisable)
}

#[async_trait]
impl Transaction for FoundationDbTransaction {
    async fn get_many(&self, keys: &[Bytes], read: Read) -> Result<Vec<Option<Bytes>>, StoreError> {
        let version = self.version_under_own_stamps().await?;
        let asked = {
            let mut state = self.state.lock();
            let locals = keys.iter().map(|key| state.buffer.local(key, version)).collect::<Result<Vec<_>, _>>()?;
            let handle = self.handle(&mut state)?;
            let ask = |(key, local): (&Bytes, Local)| {
                // The transaction's own write does not depend on what anybody else writes.
                let stored = (!matches!(local, Local::Known(_)))
                    .then(|| handle.get(&self.shared.prefixed(key), read == Read::Snapshot));
                async move {
                    let stored = match stored {
                        Some(stored) => stored.await?.map(|value| Bytes::copy_from_slice(&value)),
                        None => None,
                    };
                    Ok(match local {
                        Local::Known(value) => value,
                        Local::Untouched => stored,
                        Local::AddOver(delta) => Some(sum(stored.as_deref(), delta)),
                    })
                }
            };
            // All of them are on their way before the first is waited for.
            keys.iter().zip(locals).map(ask).collect::<Vec<_>>()
        };
        self.answer(try_join_all(asked)).await
    }

    async fn range(&self, query: &RangeQuery) -> Result<Vec<KeyValue>, StoreError> {
        let span = KeySpan { begin: query.begin.clone(), end: query.end.clone() };
        if query.limit == 0 || span.is_empty() {
            return Ok(Vec::new());
        }
        let version = self.version_under_own_stamps().await?;
        let overlay = self.state.lock().buffer.overlay(&span, version);
        let mut merge = Merge::new(overlay, query.reverse, query.limit);
        self.scan(query, &mut merge).await?;
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
        if self.ask_version(&mut state).is_ok() {
            state.reads.add(KeySpan { begin, end });
        }
    }

    fn watch(&self, key: Bytes) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        if self.ask_version(&mut state).is_err() {
            return futures::future::ready(()).boxed();
        }
        let (sender, armed) = oneshot::channel();
        state.watches.push(Arm { key, sender });
        async move {
            // A sender that is dropped ends the wait: the transaction never committed.
            let Ok(watch) = armed.await else { return };
            if watch.await.is_err() {
                // One that broke, or one too many, knows nothing of the key. Ending it would make its waiters look again at once, and again.
                futures::future::pending().await
            }
        }
        .boxed()
    }

    async fn commit(&self) -> Result<Option<Versionstamp>, StoreError> {
        let (handle, run) = {
            let mut state = self.state.lock();
            if let Some(refusal) = state.buffer.refusal.take() {
                return Err(refusal);
            }
            self.handle(&mut state)?;
            let handle = state.handle.take();
            let failures = state.failures;
            (handle, std::mem::replace(&mut *state, State { failures, ..State::default() }))
        };
        let Some(handle) = handle else { return Ok(None) };
        let committed = if run.buffer.is_empty() { None } else { Some(self.commit_writes(handle, &run).await?) };
        self.arm_all(run, committed.as_ref().map(|(_, version)| *version)).await?;
        Ok(committed.map(|(stamp, _)| stamp))
    }

    async fn on_error(&self, error: StoreError) -> Result<(), StoreError> {
        if !error.is_retryable() {
            return Err(error);
        }
        let failed = std::mem::take(&mut *self.state.lock());
        let failures = failed.failures + 1;
        let handle = self.back_off(&error, failed.failure, failed.handle, failures).await;
        *self.state.lock() = State { handle, failures, ..State::default() };
        Ok(())
    }
}
