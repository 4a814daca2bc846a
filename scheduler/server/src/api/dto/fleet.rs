//! Nodes and lanes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node of the fleet, as the one that answers sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// `live`; `silent`: it has missed a few beats; `aside`: its clock is off too far, and it ticks nothing; `stopping`: it finishes what runs;
    /// `ended`: it was told to end, or was silent for too long (listed for an hour); `unreadable`: another version's.
    pub state: String,
    /// Its session: its life from its last start on. `null` if it cannot be read, as is all that follows from it.
    pub session: Option<String>,
    /// When that began, by its own clock.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// `api`, `scheduler`, `executor`.
    pub roles: Vec<String>,
    /// The lanes that it serves.
    pub lanes: Vec<String>,
    /// How many attempts it runs at once.
    pub workers: u32,
    /// How many it ran at its last beat.
    pub running: u32,
    /// How many shards it ticks.
    pub shards: usize,
    /// How long ago its last beat was seen, in milliseconds; `null` for a node that has its store for itself and need not beat.
    pub last_beat_ms: Option<u64>,
    /// How far its wall clock is off; `null` while that is not known.
    pub clock: Option<ClockView>,
    /// The version of its program.
    pub version: Option<String>,
    /// The version of the sandbox's engine.
    pub wasmtime: Option<String>,
    /// The version of its time-zone data.
    pub tzdb: Option<String>,
    /// Whether the store has seen newer time-zone data: as a scheduler it then does not tick jobs that follow a zone other than UTC.
    pub tzdb_outdated: bool,
}

/// How far a wall clock is off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClockView {
    /// By how much it is ahead, in milliseconds; negative: behind.
    pub offset_ms: f64,
    /// By how much that may be wrong, in either direction, in milliseconds.
    pub error_ms: f64,
    /// What it is compared with: `majority`, or, while there are fewer than three clocks that agree, `this-node`, and nobody can tell whose is
    /// wrong.
    pub against: String,
}

/// A lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneView {
    /// Its name.
    pub name: String,
    /// How many executions wait in it; counted up to 10,000.
    pub queued: usize,
    /// Whether more wait than were counted.
    pub queued_more: bool,
    /// How many of its executions run.
    pub running: u32,
    /// For how long the one has waited that waits longest, in milliseconds.
    pub oldest_wait_ms: Option<u64>,
    /// How many attempts the live nodes that serve it can run at once. A node has its workers for all of its lanes together.
    pub workers: u32,
    /// How many live nodes serve it.
    pub nodes: u32,
}
