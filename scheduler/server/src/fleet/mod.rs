//! What one node sees of all nodes: who lives, since when each is silent, and how far its clock is off.
//!
//! Liveness is a counter judged on the observer's own monotonic clock. No wall clock is compared between nodes to decide it, and a new observer
//! waits one whole TTL before it judges anybody. Wall clocks are compared only to measure them ([`offset`]).

pub mod clocks;
pub mod offset;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::SessionId;
use compline_store::StoreError;
use compline_store::backend::Read;
use compline_store::tables::session::{self, Beat, NodeRow, Session};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::clocks::Clocks;
use self::offset::{Look, Offset, Samples};
use crate::ctx::Ctx;

/// How many nodes that are gone are remembered, and for how long.
const GONE_MAX: usize = 100;
const GONE_FOR: Duration = Duration::from_secs(3_600);
/// Who misses so many beats is called silent.
const SILENT_BEATS: u32 = 3;

/// What this process sees of the fleet. The loops look once a beat; a request looks once more.
#[derive(Debug, Default)]
pub struct Fleet {
    observer: tokio::sync::Mutex<Observer>,
    view: Mutex<Arc<FleetView>>,
    own: Mutex<Option<SessionId>>,
    clocks: Mutex<Arc<Clocks>>,
}

impl Fleet {
    /// Looks at all nodes now.
    pub async fn look(&self, ctx: &Ctx) -> Result<Arc<FleetView>, StoreError> {
        let mut observer = self.observer.lock().await;
        let view = Arc::new(observer.look(ctx).await?);
        *self.view.lock() = view.clone();
        Ok(view)
    }

    /// Says which session is this process's own.
    pub fn set_own(&self, session: SessionId) {
        *self.own.lock() = Some(session);
    }

    /// This process's own session; [`SessionId::NONE`] before it has one.
    pub fn own(&self) -> SessionId {
        self.own.lock().unwrap_or(SessionId::NONE)
    }

    /// Says what is known of clocks.
    pub fn set_clocks(&self, clocks: Clocks) {
        *self.clocks.lock() = Arc::new(clocks);
    }

    /// What was last known of clocks.
    pub fn clocks(&self) -> Arc<Clocks> {
        self.clocks.lock().clone()
    }

    /// What the last look saw.
    pub fn latest(&self) -> Arc<FleetView> {
        self.view.lock().clone()
    }
}

/// All nodes at one look.
#[derive(Debug, Clone, Default)]
pub struct FleetView {
    /// Those that have a session, by name.
    pub nodes: Vec<NodeSeen>,
    /// Those whose session ended under these eyes, the latest last.
    pub gone: Vec<NodeGone>,
}

impl FleetView {
    /// How many nodes tick.
    pub fn schedulers(&self) -> usize {
        let ticks = |session: &Session| session.has_role("scheduler") && session.standing == session::Standing::Active;
        self.nodes.iter().filter(|node| !node.is_silent() && node.session.as_ref().is_some_and(ticks)).count()
    }
}

/// A node as the store has it, and for how long its counter has stood still under these eyes.
#[derive(Debug, Clone)]
pub struct NodeSeen {
    /// Its name.
    pub node: String,
    /// Its session; `None`: this build cannot read the row.
    pub session: Option<Session>,
    /// Its last beat; `None`: it never beat, or this build cannot read the row.
    pub beat: Option<Beat>,
    /// For how long its counter has stood still.
    pub still_for: Duration,
    /// How far its wall clock is ahead of this node's.
    pub offset: Option<Offset>,
    /// Its rows, to see whether it changed since.
    pub rows: (Bytes, Option<Bytes>),
}

impl NodeSeen {
    /// Whether its counter has stood still for so long that its session may be ended: for as long as the node itself said, or, if that cannot be
    /// read, for `otherwise`.
    pub fn is_dead(&self, otherwise: Duration) -> bool {
        self.still_for >= self.ttl(otherwise)
    }

    /// For how long its counter may stand still.
    pub fn ttl(&self, otherwise: Duration) -> Duration {
        self.session.as_ref().map_or(otherwise, |session| Duration::from_millis(u64::from(session.ttl_millis)))
    }

    /// Whether it has missed a few beats: it may be dead, and nobody counts on it. One that never beats (on a store of its own) is not silent.
    pub fn is_silent(&self) -> bool {
        let beat = self.session.as_ref().map_or(1_000, |session| session.beat_millis);
        self.rows.1.is_some() && self.still_for > Duration::from_millis(u64::from(beat)) * SILENT_BEATS
    }

    /// Whether this is that session.
    pub fn is(&self, session: SessionId) -> bool {
        self.session.as_ref().is_some_and(|own| own.id == session)
    }
}

/// A session that ended.
#[derive(Debug, Clone)]
pub struct NodeGone {
    /// The node's name.
    pub node: String,
    /// Its session.
    pub session: Session,
    /// When that was noticed.
    pub noticed: Timestamp,
    at: Instant,
}

/// Who was seen at earlier looks.
#[derive(Debug, Default)]
struct Observer {
    seen: BTreeMap<String, Seen>,
    gone: VecDeque<NodeGone>,
    began: Option<Timestamp>,
}

#[derive(Debug)]
struct Seen {
    session: Option<Session>,
    rows: (Bytes, Option<Bytes>),
    since: Instant,
    samples: Samples,
}

impl Observer {
    async fn look(&mut self, ctx: &Ctx) -> Result<FleetView, StoreError> {
        // A counter stood still at least until the read began, and moved at the latest when it ended: an observer that was itself stopped in
        // between, or that the store kept waiting, must not take that time for the others' silence.
        let (began, wall_began) = (Instant::now(), ctx.env.now());
        let rows = ctx.store.transact(|tx| async move { session::list(&tx, Read::Snapshot).await }).await?.value;
        let ended = Instant::now();
        let look = Look { before_began: self.began.replace(wall_began), ended: ctx.env.now() };
        let mut before = std::mem::take(&mut self.seen);
        let mut nodes = Vec::with_capacity(rows.len());
        for row in rows {
            let seen = Seen::of(ctx, before.remove(&row.node), &row, look, ended);
            nodes.push(NodeSeen {
                node: row.node.clone(),
                session: seen.session.clone(),
                beat: ctx.readable(row.beat).flatten(),
                still_for: began.saturating_duration_since(seen.since),
                offset: seen.samples.estimate(),
                rows: seen.rows.clone(),
            });
            self.seen.insert(row.node, seen);
        }
        self.remember_gone(before, look.ended, ended);
        Ok(FleetView { nodes, gone: self.gone.iter().cloned().collect() })
    }

    fn remember_gone(&mut self, missing: BTreeMap<String, Seen>, noticed: Timestamp, at: Instant) {
        let here: BTreeSet<&String> = self.seen.keys().collect();
        self.gone.retain(|gone| at.duration_since(gone.at) < GONE_FOR && !here.contains(&gone.node));
        for (node, seen) in missing {
            let Some(session) = seen.session else { continue };
            self.gone.push_back(NodeGone { node, session, noticed, at });
        }
        while self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }
}

impl Seen {
    fn of(ctx: &Ctx, before: Option<Self>, row: &NodeRow, look: Look, ended: Instant) -> Self {
        let session = ctx.readable(row.session.clone());
        let rows = (row.session_bytes.clone(), row.beat_bytes.clone());
        let same_life = |seen: &Self| seen.session.as_ref().map(|s| s.id) == session.as_ref().map(|s| s.id);
        let before = before.filter(same_life);
        let moved = before.as_ref().is_none_or(|seen| seen.rows.1 != rows.1);
        let since = before.as_ref().filter(|_| !moved).map_or(ended, |seen| seen.since);
        let mut samples = before.map(|seen| seen.samples).unwrap_or_default();
        if let (true, Ok(Some(beat))) = (moved, &row.beat) {
            samples.saw(beat, look);
        }
        Self { session, rows, since, samples }
    }
}
