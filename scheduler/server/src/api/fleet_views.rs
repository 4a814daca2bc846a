//! Nodes and lanes as answers show them.

use compline_core::Timestamp;
use compline_core::ids::SessionId;
use compline_store::tables::session::{Session, Standing};

use crate::api::dto::{ClockView, LaneView, NodeView, instant};
use crate::fleet::NodeSeen;
use crate::ops::fleet::{LaneSeen, Nodes};

/// All nodes: those that last, by name, then those that are over.
pub fn nodes(nodes: &Nodes, own: SessionId) -> Vec<NodeView> {
    let here = nodes.view.nodes.iter().map(|node| seen(nodes, node, own));
    let gone = nodes.view.gone.iter().rev().map(|gone| of_session(&gone.node, Some(&gone.session), "ended"));
    here.chain(gone).collect()
}

fn seen(nodes: &Nodes, node: &NodeSeen, own: SessionId) -> NodeView {
    let session = node.session.as_ref();
    let state = match session {
        None => "unreadable",
        Some(_) if node.is_silent() => "silent",
        Some(session) => match session.standing {
            Standing::Active => "live",
            Standing::Aside => "aside",
            Standing::Stopping => "stopping",
        },
    };
    let against = if nodes.clocks.majority { "majority" } else { "this-node" };
    let clock = nodes.clocks.of.get(&node.node).map(|offset| ClockView {
        offset_ms: tenths(offset.millis()),
        error_ms: tenths(offset.error_millis()),
        against: against.to_owned(),
    });
    NodeView {
        running: nodes.running(node, own),
        shards: session.and_then(|session| nodes.shards.get(&session.id)).copied().unwrap_or(0),
        last_beat_ms: node.beat.as_ref().map(|_| node.still_for.as_millis() as u64),
        clock,
        tzdb_outdated: session.is_some_and(|session| session.versions.zones.as_str() < nodes.zones.as_str()),
        ..of_session(&node.node, session, state)
    }
}

fn of_session(name: &str, session: Option<&Session>, state: &str) -> NodeView {
    let versions = session.map(|session| &session.versions);
    NodeView {
        name: name.to_owned(),
        state: state.to_owned(),
        session: session.map(|session| session.id.to_string()),
        started_at: session.map(|session| instant(session.started_at)),
        roles: session.map(|session| session.roles.clone()).unwrap_or_default(),
        lanes: session.map(|session| session.lanes.clone()).unwrap_or_default(),
        workers: session.map_or(0, |session| session.workers),
        running: 0,
        shards: 0,
        last_beat_ms: None,
        clock: None,
        version: versions.map(|versions| versions.compline.clone()),
        wasmtime: versions.map(|versions| versions.engine.clone()),
        tzdb: versions.map(|versions| versions.zones.clone()),
        tzdb_outdated: false,
    }
}

/// A lane.
pub fn lane(name: &str, lane: &LaneSeen, now: Timestamp) -> LaneView {
    LaneView {
        name: name.to_owned(),
        queued: lane.queued,
        queued_more: lane.more,
        running: lane.running,
        oldest_wait_ms: lane.oldest_wait(now).map(|wait| wait.as_millis() as u64),
        workers: lane.workers,
        nodes: lane.nodes,
    }
}

fn tenths(millis: f64) -> f64 {
    (millis * 10.0).round() / 10.0
}
