//! What the API shows of nodes and lanes. Both are as this process sees them, and may be a moment stale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::State;
use compline_core::ids::SessionId;
use compline_core::schedule::zone::ZoneVersion;
use compline_store::StoreError;
use compline_store::backend::Read;
use compline_store::tables::queue::{self, Part, ZONE_DEFAULT};
use compline_store::tables::session::Standing;
use compline_store::tables::{execution, lease};

use crate::ctx::Ctx;
use crate::fleet::clocks::Clocks;
use crate::fleet::{FleetView, NodeSeen};
use crate::passes::rezone;

/// So many queued rows of a lane are counted; of more it is only said that there are more.
pub const QUEUED_COUNTED_MAX: usize = 10_000;
/// How many of them one transaction reads.
const COUNTED_AT_ONCE: usize = 2_000;
/// How many lanes are listed.
const LANES_MAX: usize = 1_000;

/// All nodes.
#[derive(Debug)]
pub struct Nodes {
    /// Those that have a session, and those that had one.
    pub view: Arc<FleetView>,
    /// How many shards each session ticks.
    pub shards: BTreeMap<SessionId, usize>,
    /// How many attempts this process runs.
    pub own_running: u32,
    /// What is known of their clocks.
    pub clocks: Arc<Clocks>,
    /// The newest zone data that the store has seen.
    pub zones: ZoneVersion,
}

impl Nodes {
    /// How many attempts a node ran at its last beat.
    pub fn running(&self, node: &NodeSeen, own: SessionId) -> u32 {
        if node.is(own) {
            return self.own_running;
        }
        node.beat.as_ref().map_or(0, |beat| beat.running.iter().map(|(_, count)| count).sum())
    }
}

/// Looks at all nodes.
pub async fn nodes(ctx: &Ctx) -> Result<Nodes, StoreError> {
    let view = ctx.fleet.look(ctx).await?;
    let read = ctx.store.transact(|tx| async move {
        Ok((lease::list(&tx, Read::Snapshot).await?, rezone::newest(ctx, &tx, Read::Snapshot).await?))
    });
    let (leases, zones) = read.await?.value;
    let mut shards: BTreeMap<SessionId, usize> = BTreeMap::new();
    for lease in leases.into_iter().filter_map(|(_, row)| ctx.readable(row)) {
        *shards.entry(lease.owner).or_default() += 1;
    }
    let own_running = ctx.metrics.running_by_lane().iter().map(|(_, count)| count).sum();
    Ok(Nodes { view, shards, own_running, clocks: ctx.fleet.clocks(), zones })
}

/// A lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneSeen {
    /// How many executions wait in it, up to [`QUEUED_COUNTED_MAX`].
    pub queued: usize,
    /// Whether there are more than were counted.
    pub more: bool,
    /// How many of its executions run.
    pub running: u32,
    /// Since when the one waits that waits longest.
    pub oldest: Option<Timestamp>,
    /// How many attempts the live nodes that serve it can run at once; they may serve other lanes with the same workers.
    pub workers: u32,
    /// How many live nodes serve it.
    pub nodes: u32,
}

impl LaneSeen {
    /// For how long the one has waited that waits longest.
    pub fn oldest_wait(&self, now: Timestamp) -> Option<Duration> {
        self.oldest.map(|since| now.saturating_since(since))
    }
}

/// Every lane that a live node serves or that has something waiting, by name.
pub async fn lanes(ctx: &Ctx) -> Result<BTreeMap<String, LaneSeen>, StoreError> {
    let view = ctx.fleet.look(ctx).await?;
    let own = ctx.fleet.own();
    let mut lanes: BTreeMap<String, LaneSeen> = BTreeMap::new();
    for node in view.nodes.iter().filter(|node| !node.is_silent()) {
        let Some(session) = node.session.as_ref().filter(|session| session.has_role("executor")) else { continue };
        let serves = session.standing != Standing::Stopping;
        for lane in session.lanes.iter().filter(|_| serves).collect::<BTreeSet<_>>() {
            let seen = lanes.entry(lane.clone()).or_default();
            seen.workers += session.workers;
            seen.nodes += 1;
        }
        let running = match node.is(own) {
            true => ctx.metrics.running_by_lane(),
            false => node.beat.as_ref().map(|beat| beat.running.clone()).unwrap_or_default(),
        };
        for (lane, count) in running {
            lanes.entry(lane).or_default().running += count;
        }
    }
    let waiting = ctx.store.transact(|tx| async move { queue::waiting_lanes(&tx, LANES_MAX).await }).await?.value;
    for lane in waiting {
        let seen = lanes.entry(lane.clone()).or_default();
        count_queued(ctx, &lane, seen).await?;
    }
    Ok(lanes)
}

async fn count_queued(ctx: &Ctx, lane: &str, seen: &mut LaneSeen) -> Result<(), StoreError> {
    let parts = (0..ctx.partitions).flat_map(|partition| [(false, partition), (true, partition)]);
    for (owed, partition) in parts {
        let part = Part { lane, owed, zone: ZONE_DEFAULT, partition };
        let mut last = None;
        loop {
            let limit = COUNTED_AT_ONCE.min(QUEUED_COUNTED_MAX + 1 - seen.queued);
            let read = ctx.store.transact(|tx| async move {
                let rows = part.first(&tx, last, limit).await?;
                // The rows of a part are in the order of their commits: the first one waits longest.
                let first = rows.first().filter(|_| last.is_none()).and_then(|(_, row)| row.as_ref().ok());
                let ids: Vec<_> = first.map(|ready| ready.execution).into_iter().collect();
                let execution = execution::get_many(&tx, &ids, Read::Snapshot).await?.pop();
                Ok((rows.len(), rows.last().map(|(stamp, _)| *stamp), execution))
            });
            let (count, end, execution) = read.await?.value;
            let execution = execution.and_then(|row| ctx.readable(row)).flatten();
            if let Some(State::Queued(queued)) = execution.map(|row| row.execution.state) {
                seen.oldest = Some(seen.oldest.map_or(queued.at, |oldest| oldest.min(queued.at)));
            }
            seen.queued += count;
            last = end.or(last);
            if seen.queued > QUEUED_COUNTED_MAX {
                (seen.queued, seen.more) = (QUEUED_COUNTED_MAX, true);
                return Ok(());
            }
            if count < limit {
                break;
            }
        }
    }
    Ok(())
}
