//! What a seed decides before anything runs: how many nodes of which kind, how patient they are, and how bad the weather is.

use std::ops::Range;
use std::time::Duration;

use compline_core::Timestamp;
use compline_server::config::Roles;
use compline_server::passes::retain::Retention;
use compline_store::backend::memory::Faults;

use super::plant::Plant;
use super::world::Kind;
use super::zones::Data;

/// The lane that every executor serves.
pub const LANE: &str = "default";
/// The lane that some executors serve.
pub const LANE_APART: &str = "batch";
/// The lane in which nothing waits but what measures how soon a run starts, in runs that have it.
pub const LANE_PROMPT: &str = "prompt";

const SCHEDULER: Roles = Roles { api: false, scheduler: true, executor: false };
const EXECUTOR: Roles = Roles { api: false, scheduler: false, executor: true };

/// One run's circumstances.
#[derive(Debug, Clone)]
pub struct Shape {
    /// When the run begins, on the wall.
    pub base: Timestamp,
    /// The nodes that live as long as the run, crashes apart.
    pub nodes: Vec<NodeShape>,
    /// How many clients there are.
    pub clients: usize,
    /// How many requests each makes.
    pub requests: usize,
    /// How many shards the store has.
    pub shards: u16,
    /// How many parts a lane has.
    pub partitions: u8,
    /// How often nodes beat.
    pub beat: Duration,
    /// When a scheduler's shards are free.
    pub lease_ttl: Duration,
    /// When a session is over.
    pub session_ttl: Duration,
    /// For how long a node that is stopped finishes what it runs.
    pub drain: Duration,
    /// The faults of the store while the run is active.
    pub faults: Faults,
    /// How long it is between two blows to nodes.
    pub blows_every: Range<Duration>,
    /// When no scheduler runs at all, and for how long.
    pub outage: Option<(Duration, Duration)>,
    /// How long clients and faults are active.
    pub active: Duration,
    /// How much of what was owed a lane takes at once.
    pub owed_ready_max: usize,
    /// What owners do to their jobs; anything if it is empty.
    pub acts: &'static [Kind],
    /// How far into the run newer zone data comes, and which clients have it from the beginning.
    pub newer_zones: Option<(Duration, Vec<bool>)>,
    /// How long executions are kept after their hour, and how many of a job.
    pub retention: Retention,
}

/// A node.
#[derive(Debug, Clone)]
pub struct NodeShape {
    /// Its name.
    pub name: String,
    /// What it does.
    pub roles: Roles,
    /// The lanes that it serves.
    pub lanes: Vec<String>,
    /// How many attempts it runs at once.
    pub workers: usize,
    /// How far its wall clock is ahead of the others', in microseconds.
    pub ahead_micros: i64,
}

impl Shape {
    /// The circumstances that a seed stands for. A planted fault wants nodes of one role each.
    pub fn draw(rng: &mut fastrand::Rng, plant: Option<Plant>) -> Self {
        let beat = Duration::from_millis(rng.u64(100..=500));
        let lease_ttl = beat * rng.u32(3..=6);
        let shape = Self {
            base: draw_base(rng),
            nodes: draw_nodes(rng, plant),
            clients: rng.usize(1..=3),
            requests: rng.usize(4..=12),
            shards: rng.u16(1..=6),
            partitions: rng.u8(1..=4),
            beat,
            lease_ttl,
            session_ttl: lease_ttl + beat * rng.u32(0..=6),
            drain: Duration::from_millis(rng.u64(20..=3_000)),
            faults: draw_faults(rng),
            blows_every: Duration::from_millis(100)..Duration::from_millis([700, 2_000, 8_000][rng.usize(0..3)]),
            outage: draw_outage(rng, plant),
            active: Duration::from_secs(rng.u64(20..=60)),
            owed_ready_max: 0,
            acts: plant.map_or(&[], Plant::acts),
            newer_zones: None,
            retention: Retention {
                age: Duration::from_millis(rng.u64(0..=15_000)),
                runs_per_job: [2, 10, 10_000][rng.usize(0..3)],
                failures_per_job: [1, 5, 10_000][rng.usize(0..3)],
                every: Duration::from_millis(rng.u64(200..=4_000)),
            },
        };
        let shape = Self { owed_ready_max: [1, 4, 1_024][rng.clone().usize(0..3)], ..shape };
        // Drawn apart, so that a seed keeps what else it stands for.
        let shape = shape.with_zones(&mut rng.clone(), plant);
        match plant {
            None => shape.with_clocks(&mut rng.clone()),
            Some(Plant::WallClocksCompared) => shape.with_slow_clock(),
            Some(Plant::FenceUnchecked) => shape.with_zombies(rng),
            Some(_) => shape,
        }
    }

    /// One executor's clock is behind all others'.
    fn with_slow_clock(mut self) -> Self {
        if let Some(last) = self.nodes.last_mut() {
            last.ahead_micros = -4_000_000;
        }
        self
    }

    /// Nodes often hold what they do not know of, and give it back while it seems to run.
    fn with_zombies(mut self, rng: &mut fastrand::Rng) -> Self {
        self.faults.unknown_landed = 0.15;
        self.faults.late_landing = 0.1;
        self.faults.slow_commit = 0.3;
        self.blows_every.end = Duration::from_millis(700);
        self.drain = Duration::from_millis(rng.u64(20..=200));
        self
    }

    /// In half of all runs newer zone data comes; now and then a client has it before all others.
    fn with_zones(mut self, rng: &mut fastrand::Rng, plant: Option<Plant>) -> Self {
        if plant.is_none_or(Plant::wants_newer_zones) && (plant.is_some() || rng.bool()) {
            let from = self.active.mul_f64(rng.f64());
            let early = (0..self.clients).map(|_| rng.u8(0..4) == 0).collect();
            self.newer_zones = Some((from, early));
        }
        self
    }

    /// The zone data of a node whose life begins now.
    pub fn node_data(&self, into_run: Duration) -> Data {
        let newer = self.newer_zones.as_ref().is_some_and(|(from, _)| into_run >= *from);
        if newer { Data::New } else { Data::Old }
    }

    /// The zone data of a client.
    pub fn client_data(&self, number: usize) -> Data {
        let newer = self.newer_zones.as_ref().is_some_and(|(_, early)| early.get(number) == Some(&true));
        if newer { Data::New } else { Data::Old }
    }

    /// Half of all runs have clocks that agree, most of the others clocks that are a little apart, and some one scheduler's that is far off.
    fn with_clocks(mut self, rng: &mut fastrand::Rng) -> Self {
        match rng.u8(0..20) {
            0..=9 => {}
            10..=16 => self.nodes.iter_mut().for_each(|node| node.ahead_micros = rng.i64(-100_000..=100_000)),
            _ => {
                let far = rng.i64(2_000_000..=4_000_000);
                self.nodes[0].ahead_micros = if rng.bool() { far } else { -far };
            }
        }
        self
    }

    /// Whether somebody serves the lane in which runs start at once.
    pub fn has_prompt_lane(&self) -> bool {
        self.nodes.iter().any(|node| node.lanes.iter().any(|lane| lane == LANE_PROMPT))
    }

    /// By how much the clock that is ahead most is ahead of the world's.
    pub fn ahead_max(&self) -> Duration {
        Duration::from_micros(self.nodes.iter().map(|node| node.ahead_micros).max().unwrap_or(0).max(0).unsigned_abs())
    }

    /// By how much two clocks differ at the most.
    pub fn clock_spread(&self) -> Duration {
        let all = || self.nodes.iter().map(|node| node.ahead_micros).chain([0]);
        Duration::from_micros(all().max().unwrap_or(0).abs_diff(all().min().unwrap_or(0)))
    }
}

/// Half of the runs see an hour end while they are active, so that there are old buckets.
fn draw_base(rng: &mut fastrand::Rng) -> Timestamp {
    let hour = 1_796_054_400 + rng.i64(1..=24) * 3_600;
    let before = if rng.bool() { rng.i64(1..40) } else { rng.i64(40..3_600) };
    Timestamp::from_unix_seconds(hour - before)
}

fn draw_nodes(rng: &mut fastrand::Rng, plant: Option<Plant>) -> Vec<NodeShape> {
    let mut nodes = Vec::new();
    let alone = plant.is_some() || rng.bool();
    for index in 0..rng.usize(2..=3) {
        let roles = if alone || rng.bool() { SCHEDULER } else { Roles::ALL };
        nodes.push(draw_node(rng, format!("scheduler-{index}"), roles));
    }
    for index in 0..rng.usize(2..=4) {
        nodes.push(draw_node(rng, format!("executor-{index}"), EXECUTOR));
    }
    // Somebody serves the other lane too.
    if let Some(last) = nodes.last_mut() {
        last.lanes = vec![LANE.to_owned(), LANE_APART.to_owned()];
    }
    if plant.is_none() && rng.u8(0..3) == 0 {
        let prompt = draw_node(rng, "executor-prompt".to_owned(), EXECUTOR);
        nodes.push(NodeShape { lanes: vec![LANE_PROMPT.to_owned()], workers: 8, ..prompt });
    }
    nodes
}

/// Long enough that slots are late by the rules that ask for it.
fn draw_outage(rng: &mut fastrand::Rng, plant: Option<Plant>) -> Option<(Duration, Duration)> {
    let happens = plant.is_none() && rng.u8(0..6) == 0;
    happens.then(|| (Duration::from_millis(rng.u64(1_000..10_000)), Duration::from_millis(rng.u64(11_000..25_000))))
}

fn draw_node(rng: &mut fastrand::Rng, name: String, roles: Roles) -> NodeShape {
    let mut lanes = vec![LANE.to_owned()];
    if rng.bool() {
        lanes.insert(rng.usize(0..=1), LANE_APART.to_owned());
    }
    NodeShape { name, roles, lanes, workers: rng.usize(1..=8), ahead_micros: 0 }
}

fn draw_faults(rng: &mut fastrand::Rng) -> Faults {
    // Each kind is left out of some runs, mild in most and frequent in a few.
    let mut rate = |worst: f64| match rng.u8(0..6) {
        0 => 0.0,
        1 => worst,
        _ => worst * rng.f64() * 0.3,
    };
    Faults {
        conflict: rate(0.2),
        unknown_landed: rate(0.15),
        unknown_not_landed: rate(0.1),
        late_landing: rate(0.1),
        slow_commit: rate(0.2),
        slow_read: rate(0.05),
        lost_watch: rate(0.5),
        transient: rate(0.1),
        ..Faults::default()
    }
}
