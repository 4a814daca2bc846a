//! The store in a directory of one process: no service, fsync before anything is acknowledged.
//!
//! Reads run on the caller's thread against the last published view, which holds only what is on the disk. Commits go through a queue to one
//! thread, which makes many of them durable with one fsync. The log-structured tree below is fjall; conflict detection, stamps, cleared
//! ranges and the places where FIFOs begin are ours.
//!
//! The directory holds `db/` (fjall's), `durable` (the highest version that was acknowledged), `lock`, and `torn-tail`, what the last crash left of
//! a commit that was never acknowledged. Before fjall opens it, `survey` reads the journal: damage is refused with all files as they are.

mod committer;
mod database;
mod durable;
mod group;
mod journal;
mod lows;
mod survey;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::committer::{Committer, Job};
use self::database::{Data, DurableView};
use self::lows::{Lows, Proposal, Written};
use super::occ::{ConflictWindow, WindowOptions};
use super::span::KeySpan;
use super::transaction::{CommitRequest, Engine, EngineTransaction, Visit, back_off_delay};
use super::watches::{Arm, Watches};
use super::{Backend, Transaction};
use crate::{StoreError, Versionstamp};

/// How a store in a directory is opened.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The FIFO prefix that a key belongs to, as its length; `None` for a key of no FIFO. A FIFO is written at its end (mostly) and removed from
    /// its front. It must answer for the bare prefix too, since scans begin there.
    pub fifo_prefix: fn(&[u8]) -> Option<usize>,
    /// How much memory the cache of blocks may take.
    pub cache_bytes: u64,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { fifo_prefix: |_| None, cache_bytes: 32 * 1024 * 1024 }
    }
}

/// What the store did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbeddedMetrics {
    /// Transactions that were made durable.
    pub commits: u64,
    /// Groups of transactions: one fsync each.
    pub groups: u64,
    /// Scans from the front of a FIFO.
    pub fifo_scans: u64,
    /// Those of them that began at a low-water mark instead of stepping over what was removed.
    pub fifo_scans_from_mark: u64,
}

type Closed = oneshot::Receiver<Result<(), StoreError>>;

/// A store in a directory. One process at a time.
pub struct EmbeddedBackend {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedBackend {
    /// Opens the store in `directory`, or makes one. It replays the journal, so it takes up to seconds: call it off the request path.
    ///
    /// Refused with [`StoreError::Unavailable`] and what to do about it: a directory that another process uses, a damaged database, and one
    /// that has lost acknowledged commits.
    pub fn open(directory: &Path, options: EmbeddedOptions) -> Result<Arc<Self>, StoreError> {
        let (data, view, mark) = Data::open(directory, options.cache_bytes)?;
        let data = Arc::new(data);
        let (jobs, queue) = channel();
        let version = view.version;
        let shared = Arc::new(Shared {
            data: RwLock::new(Some(data.clone())),
            view: RwLock::new(Arc::new(view)),
            lows: Lows::new(version),
            jobs,
            failure: RwLock::new(None),
            jitter: Mutex::new(fastrand::Rng::with_seed(version)),
            metrics: Counters::default(),
            options,
        });
        // Under load commits arrive faster than five seconds of them could be held, so memory bounds the window first.
        let window = WindowOptions { keys_max: 400_000, ..WindowOptions::default() };
        let window = ConflictWindow::new(window, version);
        let committer = Committer { shared: shared.clone(), data, mark, window, watches: Watches::default() };
        let thread = std::thread::Builder::new()
            .name("store-committer".into())
            .spawn(move || committer.run(&queue))
            .map_err(|error| StoreError::Unavailable(format!("the committer thread can't be started: {error}")))?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// What was done so far.
    pub fn metrics(&self) -> EmbeddedMetrics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.shared.metrics;
        EmbeddedMetrics {
            commits: load(&counters.commits),
            groups: load(&counters.groups),
            fifo_scans: load(&counters.fifo_scans),
            fifo_scans_from_mark: load(&counters.fifo_scans_from_mark),
        }
    }

    /// Where scans from the front of a FIFO begin, if that is known.
    pub fn low_water(&self, prefix: &[u8]) -> Option<Bytes> {
        self.shared.lows.newest(prefix)
    }

    /// Asks the committer to finish. `None` if it was asked before.
    fn ask_to_close(&self) -> Option<(JoinHandle<()>, Closed)> {
        let thread = self.thread.lock().take()?;
        let (answer, closed) = oneshot::channel();
        self.shared.jobs.send(Job::Close(answer)).ok()?;
        Some((thread, closed))
    }
}

impl Backend for EmbeddedBackend {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(EngineTransaction::new(self.shared.clone()))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async {
            let Some((thread, closed)) = self.ask_to_close() else { return Ok(()) };
            let result = closed.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the committer died".into())));
            // Its answer is the last thing that it does, so this does not block.
            let _ = thread.join();
            result
        }
        .boxed()
    }
}

impl Drop for EmbeddedBackend {
    fn drop(&mut self) {
        let Some((thread, mut closed)) = self.ask_to_close() else { return };
        let _ = thread.join();
        if let Ok(Err(error)) = closed.try_recv() {
            tracing::error!("closing the store: {error}");
        }
    }
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    groups: AtomicU64,
    fifo_scans: AtomicU64,
    fifo_scans_from_mark: AtomicU64,
}

/// What transactions and the committer share.
struct Shared {
    /// Gone once the store is closed.
    data: RwLock<Option<Arc<Data>>>,
    view: RwLock<Arc<DurableView>>,
    lows: Lows,
    jobs: Sender<Job>,
    /// Why the store stopped for good.
    failure: RwLock<Option<String>>,
    jitter: Mutex<fastrand::Rng>,
    metrics: Counters,
    options: EmbeddedOptions,
}

impl Shared {
    fn failure(&self) -> Option<StoreError> {
        self.failure.read().clone().map(StoreError::Unavailable)
    }

    /// Stops the store for good: after a failed write nobody knows what the disk holds, until it is opened anew.
    fn fail(&self, reason: String) -> StoreError {
        let reason = self.failure.write().get_or_insert(reason).clone();
        StoreError::Unavailable(reason)
    }

    /// Lets new transactions see a state that is on the disk.
    fn publish(&self, view: DurableView) {
        let mut current = self.view.write();
        self.metrics.groups.fetch_add(1, Ordering::Relaxed);
        self.metrics.commits.fetch_add(view.version - current.version, Ordering::Relaxed);
        *current = Arc::new(view);
    }

    /// Tells the marks of FIFOs what a group changes.
    fn note_written(&self, version: u64, changes: &[(Bytes, Option<Bytes>)]) {
        let in_fifos = changes.iter().filter_map(|(key, value)| {
            let prefix = &key[..(self.options.fifo_prefix)(key)?];
            Some(Written { prefix, key, is_removed: value.is_none() })
        });
        self.lows.note(version, in_fifos, Instant::now());
    }

    fn release_data(&self) {
        *self.data.write() = None;
    }

    fn data(&self) -> Result<Arc<Data>, StoreError> {
        let closed = || self.failure().unwrap_or_else(|| StoreError::Unavailable("it was closed".into()));
        self.data.read().clone().ok_or_else(closed)
    }

    /// A forward scan that does not step over what was removed from the front of a FIFO.
    fn scan_fifo(
        &self,
        view: &DurableView,
        prefix: &[u8],
        span: &KeySpan,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.metrics.fifo_scans.fetch_add(1, Ordering::Relaxed);
        let data = self.data()?;
        let front = self.lows.front(prefix, view.version).filter(|front| front.mark >= span.begin);
        // Only a scan that knows all below its begin to be dead can tell where the live rows begin.
        let knows_the_front = front.is_some() || *span.begin == *prefix;
        let mut from = span.clone();
        if let Some(front) = front {
            self.metrics.fifo_scans_from_mark.fetch_add(1, Ordering::Relaxed);
            for key in front.stragglers.into_iter().filter(|key| span.contains(key)) {
                if let Some(value) = data.get(&view.snapshot, &key)?
                    && visit(key, value).is_break()
                {
                    return Ok(());
                }
            }
            from.begin = front.mark;
        }
        let mut first = None;
        data.scan(&view.snapshot, &from, false, &mut |key, value| {
            first.get_or_insert_with(|| key.clone());
            visit(key, value)
        })?;
        if knows_the_front {
            let (end, found) = (end_of(prefix), first.is_some());
            let key = first.unwrap_or_else(|| from.end.max(from.begin)).min(end.clone());
            let proposal = Proposal { version: view.version, is_end: !found && key == end, key: &key };
            self.lows.propose(prefix, &proposal, Instant::now());
        }
        Ok(())
    }
}

/// The first key after all that begin with this prefix.
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

#[async_trait]
impl Engine for Shared {
    type View = Arc<DurableView>;

    fn view(&self) -> Result<Self::View, StoreError> {
        match self.failure() {
            Some(failure) => Err(failure),
            None => Ok(self.view.read().clone()),
        }
    }

    async fn before_read(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn get(&self, view: &Self::View, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.data()?.get(&view.snapshot, key)
    }

    fn scan(&self, view: &Self::View, span: &KeySpan, reverse: bool, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        match (self.options.fifo_prefix)(&span.begin) {
            Some(length) if !reverse => self.scan_fifo(view, &span.begin[..length], span, visit),
            _ => self.data()?.scan(&view.snapshot, span, reverse, visit),
        }
    }

    async fn commit(&self, request: CommitRequest) -> Result<Versionstamp, StoreError> {
        let gone = || self.failure().unwrap_or_else(|| StoreError::Unavailable("the committer died".into()));
        let (answer, committed) = oneshot::channel();
        self.jobs.send(Job::Commit(request, answer)).map_err(|_| gone())?;
        // The job was never taken if the committer is gone, so nothing was committed.
        committed.await.unwrap_or_else(|_| Err(gone()))
    }

    fn arm(&self, watches: Vec<Arm>) {
        if !watches.is_empty() {
            let _ = self.jobs.send(Job::Arm(watches));
        }
    }

    async fn back_off(&self, error: &StoreError, failures: u32) {
        let share = 0.5 + self.jitter.lock().f64() / 2.0;
        tokio::time::sleep(back_off_delay(error, failures).mul_f64(share)).await;
    }
}
