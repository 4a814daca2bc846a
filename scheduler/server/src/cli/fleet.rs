//! `compline node …` and `compline lane …`.

use std::time::Duration;

use compline_core::time::duration;

use super::out::Out;
use super::{CliError, listing};
use crate::api::dto::{ClockView, LaneView, NodeView, Page};
use crate::client::{Client, Reply};

/// Lists the nodes.
pub async fn nodes(client: &Client, out: &Out) -> Result<(), CliError> {
    let reply: Reply<Page<NodeView>> = client.get(&["v1", "nodes"], &[]).await?;
    let header =
        ["NAME", "STATE", "ROLES", "LANES", "RUNS", "SHARDS", "BEAT", "CLOCK", "SINCE", "VERSION", "ZONE DATA"];
    let row = |node: &NodeView| {
        vec![
            node.name.clone(),
            node.state.clone(),
            node.roles.join(","),
            node.lanes.join(","),
            format!("{}/{}", node.running, node.workers),
            node.shards.to_string(),
            node.last_beat_ms.map_or_else(|| "-".to_owned(), |millis| format!("{} ago", rough(millis))),
            node.clock.as_ref().map_or_else(|| "-".to_owned(), clock),
            node.started_at.clone().unwrap_or_else(|| "-".to_owned()),
            node.version.clone().unwrap_or_else(|| "-".to_owned()),
            zone_data(node),
        ]
    };
    listing(out, &reply, &header, row, "there are no nodes")
}

/// Lists the lanes.
pub async fn lanes(client: &Client, out: &Out) -> Result<(), CliError> {
    let reply: Reply<Page<LaneView>> = client.get(&["v1", "lanes"], &[]).await?;
    let row = |lane: &LaneView| {
        vec![
            lane.name.clone(),
            if lane.queued_more { format!("over {}", lane.queued) } else { lane.queued.to_string() },
            lane.running.to_string(),
            lane.oldest_wait_ms.map_or_else(|| "-".to_owned(), rough),
            lane.workers.to_string(),
            lane.nodes.to_string(),
        ]
    };
    let header = ["LANE", "QUEUED", "RUNNING", "OLDEST WAITS", "WORKERS", "NODES"];
    listing(out, &reply, &header, row, "no node serves a lane, and nothing waits")
}

fn zone_data(node: &NodeView) -> String {
    let version = node.tzdb.as_deref().unwrap_or("-");
    if node.tzdb_outdated { format!("{version} (outdated)") } else { version.to_owned() }
}

fn clock(clock: &ClockView) -> String {
    let whose = if clock.against == "majority" { "" } else { " from this one" };
    format!("{:+.0} ms ± {:.0}{whose}", clock.offset_ms, clock.error_ms)
}

/// A duration for people: whole seconds from one second on.
fn rough(millis: u64) -> String {
    let millis = if millis < 1_000 { millis } else { millis / 1_000 * 1_000 };
    duration::format(Duration::from_millis(millis))
}
