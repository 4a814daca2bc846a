//! The data that all handles share, the commit point, and one node's way to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::faults::{Fate, FaultSource, Faults};
use super::versions::Versions;
use crate::backend::occ::{ConflictWindow, WindowOptions};
use crate::backend::resolve::resolve;
use crate::backend::span::KeySpan;
use crate::backend::transaction::{CommitRequest, Visit, back_off_delay};
use crate::backend::watches::{Arm, Watches};
use crate::{StoreError, Versionstamp};

/// How long a cut-off node waits before it gives up a read or a commit.
const CUT_DELAY: Duration = Duration::from_millis(500);

/// How a store in memory is made.
#[derive(Debug, Clone, Default)]
pub struct MemoryOptions {
    /// Fixes the faults and all delays.
    pub seed: u64,
    /// The faults at the beginning.
    pub faults: Faults,
    /// Whether commits are kept for [`super::MemoryBackend::take_landed`].
    pub record: bool,
}

/// A commit that landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landed {
    /// Its version. Versions grow.
    pub version: u64,
    /// Its versionstamp.
    pub stamp: Versionstamp,
    /// When it landed.
    pub at: Instant,
    /// The keys that it changed, in key order, each with its new value; `None` for a removed one. Stamps are filled in, additions are carried
    /// out and cleared ranges are taken apart into the keys that they removed.
    pub changes: Vec<(Bytes, Option<Bytes>)>,
}

pub(super) struct State {
    versions: Versions,
    version: u64,
    window: ConflictWindow,
    watches: Watches,
    /// Watches that never end, because a fault lost them.
    lost: Vec<oneshot::Sender<()>>,
    /// Commits that land later.
    late: Vec<(Instant, CommitRequest)>,
    pub faults: FaultSource,
    record: bool,
    landed: Vec<Landed>,
}

pub(super) struct Core {
    pub state: Mutex<State>,
}

impl Core {
    pub fn new(options: MemoryOptions) -> Self {
        let state = State {
            versions: Versions::default(),
            version: 0,
            window: ConflictWindow::new(WindowOptions::default(), 0),
            watches: Watches::default(),
            lost: Vec::new(),
            late: Vec::new(),
            faults: FaultSource::new(options.seed, options.faults),
            record: options.record,
            landed: Vec::new(),
        };
        Self { state: Mutex::new(state) }
    }

    pub fn version(&self) -> u64 {
        let mut state = self.state.lock();
        state.land_late();
        state.version
    }

    pub fn take_landed(&self) -> Vec<Landed> {
        let mut state = self.state.lock();
        state.land_late();
        std::mem::take(&mut state.landed)
    }

    pub fn get(&self, version: u64, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let state = self.state.lock();
        state.check_readable(version)?;
        Ok(state.versions.get(version, key).cloned())
    }

    pub fn scan(&self, version: u64, span: &KeySpan, reverse: bool, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let state = self.state.lock();
        state.check_readable(version)?;
        state.versions.scan(version, span, reverse, visit);
        Ok(())
    }

    pub fn arm(&self, watches: Vec<Arm>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for watch in watches {
            if state.faults.loses_watch() {
                state.lost.retain(|sender| !sender.is_closed());
                state.lost.push(watch.sender);
            } else {
                state.watches.arm(watch, &state.window);
            }
        }
    }

    pub async fn back_off(&self, error: &StoreError, failures: u32) {
        let delay = self.state.lock().faults.jitter(back_off_delay(error, failures));
        sleep(delay).await;
    }
}

impl State {
    fn check_readable(&self, version: u64) -> Result<(), StoreError> {
        if version < self.window.horizon() { Err(StoreError::TooOld) } else { Ok(()) }
    }

    /// The commit point.
    fn land(&mut self, request: CommitRequest) -> Result<Versionstamp, StoreError> {
        let now = Instant::now();
        self.window.prune(now);
        self.versions.prune(self.window.horizon());
        self.window.check(request.read_version, &request.reads)?;
        let version = self.version + 1;
        let stamp = Versionstamp::new(version, 0);
        let (versions, before) = (&self.versions, self.version);
        let resolved = resolve(request.buffer, stamp, |key| Ok(versions.get(before, key).cloned()))?;
        let (keys, spans) = resolved.conflicts();
        let mut changes = BTreeMap::new();
        for span in &resolved.clears {
            versions.scan(before, span, false, &mut |key, _| {
                changes.insert(key, None);
                std::ops::ControlFlow::Continue(())
            });
        }
        changes.extend(resolved.changes);
        for (key, value) in &changes {
            self.versions.write(version, key.clone(), value.clone());
        }
        self.version = version;
        self.watches.fire(changes.keys(), &spans);
        self.window.record(version, now, &keys, spans);
        if self.record {
            self.landed.push(Landed { version, stamp, at: now, changes: changes.into_iter().collect() });
        }
        Ok(stamp)
    }

    /// Lands the late commits whose time has come. Called before anything that could tell the difference.
    fn land_late(&mut self) {
        let now = Instant::now();
        self.late.sort_by_key(|(due, _)| *due);
        let due = self.late.partition_point(|(due, _)| *due <= now);
        for (_, request) in self.late.drain(..due).collect::<Vec<_>>() {
            match self.land(request) {
                Ok(_) => self.faults.counts.late_landed += 1,
                Err(_) => self.faults.counts.late_refused += 1,
            }
        }
    }

    fn commit(&mut self, request: CommitRequest, fate: Fate) -> Result<Versionstamp, StoreError> {
        self.land_late();
        match fate {
            Fate::Lands => self.land(request),
            Fate::Conflicts => Err(StoreError::Conflict),
            Fate::Fails => Err(StoreError::Transient("injected into a commit".into())),
            Fate::VanishesUnknown => Err(StoreError::CommitUnknown("injected: it did not land".into())),
            Fate::LandsUnknown => {
                self.land(request)?;
                self.faults.counts.unknown_landed += 1;
                Err(StoreError::CommitUnknown("injected: it landed".into()))
            }
            Fate::LandsLate(delay) => {
                self.late.push((Instant::now() + delay, request));
                Err(StoreError::CommitUnknown("injected: it may land later".into()))
            }
        }
    }
}

/// One node's way to the store.
pub(super) struct Node {
    pub core: Arc<Core>,
    cut: AtomicBool,
    closed: AtomicBool,
}

impl Node {
    pub fn new(core: Arc<Core>) -> Self {
        Self { core, cut: AtomicBool::new(false), closed: AtomicBool::new(false) }
    }

    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub async fn before_read(&self) -> Result<(), StoreError> {
        let (delay, fails) = {
            let faults = &mut self.core.state.lock().faults;
            (faults.read_delay(), faults.read_fails())
        };
        wait(delay).await;
        self.pass().await?;
        if fails { Err(StoreError::Transient("injected into a read".into())) } else { Ok(()) }
    }

    pub async fn commit(&self, request: CommitRequest) -> Result<Versionstamp, StoreError> {
        let (fate, (before, after)) = {
            let faults = &mut self.core.state.lock().faults;
            (faults.fate(), faults.commit_delays())
        };
        wait(before).await;
        self.pass().await?;
        let result = self.core.state.lock().commit(request, fate);
        wait(after).await;
        if self.is_cut() {
            sleep(CUT_DELAY).await;
            self.core.state.lock().faults.counts.cut += 1;
            return Err(StoreError::CommitUnknown("cut off from the store while it was committing".into()));
        }
        result
    }

    /// Lets a call through unless this node is cut off or closed.
    async fn pass(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("it was closed".into()));
        }
        if self.is_cut() {
            sleep(CUT_DELAY).await;
            self.core.state.lock().faults.counts.cut += 1;
            return Err(StoreError::Transient("cut off from the store".into()));
        }
        Ok(())
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }
}

async fn wait(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}
