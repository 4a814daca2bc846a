//! Several nodes on one store: who ticks which shard, who has which name, what a node leaves behind, and whose clock is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::State;
use compline_core::ids::{Fence, SessionId, ShardId};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::zone::ZoneData;
use compline_server::config::Roles;
use compline_server::env::{Clock, Env, Gate};
use compline_server::loops::{Node, NodeConfig, NodeError};
use compline_server::ops;
use compline_store::backend::Read;
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::tables::lease;
use compline_store::tables::session::{self, Standing};
use compline_tests::sim::clock::SimClock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::world::{Runs, World};

pub const SCHEDULER: Roles = Roles { api: false, scheduler: true, executor: false };
const EXECUTOR: Roles = Roles { api: false, scheduler: false, executor: true };
const API: Roles = Roles { api: true, scheduler: false, executor: false };

/// A wall clock that can be put wrong and right.
struct Skewed {
    right: SimClock,
    ahead_micros: AtomicI64,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        self.right.ahead_by(self.ahead_micros.load(Ordering::Relaxed)).now()
    }
}

/// A store and a way to begin nodes on it, as separate as processes are.
pub struct Fleet {
    hub: Arc<MemoryBackend>,
    right: SimClock,
    /// What a bystander sees, who is no node.
    pub world: World,
}

pub struct Member {
    pub world: World,
    clock: Arc<Skewed>,
    pub gate: Arc<Gate>,
    stop: CancellationToken,
    node: Arc<Node>,
    life: JoinHandle<Result<(), NodeError>>,
}

impl Fleet {
    pub async fn new() -> Self {
        let hub = MemoryBackend::new(MemoryOptions::default());
        let right = SimClock::starting_at(Timestamp::from_unix_seconds(1_800_000_000));
        let world = World::seen_by(hub.clone(), Env::injected(Arc::new(right), 1), None).await;
        Self { hub, right, world }
    }

    pub async fn begin(&self, name: &str, roles: Roles) -> Member {
        self.begin_with(NodeConfig { roles, ..NodeConfig::new(name) }, false).await
    }

    /// One that has this zone data.
    pub async fn begin_by(&self, name: &str, roles: Roles, zones: ZoneData) -> Member {
        self.begin_as(NodeConfig { roles, ..NodeConfig::new(name) }, false, zones).await
    }

    async fn begin_with(&self, config: NodeConfig, endless: bool) -> Member {
        self.begin_as(config, endless, ZoneData::default()).await
    }

    async fn begin_as(&self, config: NodeConfig, endless: bool, zones: ZoneData) -> Member {
        let clock = Arc::new(Skewed { right: self.right, ahead_micros: AtomicI64::new(0) });
        let gate = Arc::new(Gate::default());
        let seed = config.name.bytes().map(u64::from).sum();
        let env = Env::injected(clock.clone(), seed).by_zones(zones).behind(gate.clone());
        let world = World::seen_by(self.hub.handle(), env.clone(), None).await;
        let node = Node::new(world.ctx.clone(), config, Arc::new(Runs { endless, prepared: Notify::new() }));
        let stop = CancellationToken::new();
        let (living, stopped) = (node.clone(), stop.clone());
        let life = tokio::spawn(env.gated(async move { living.run(stopped).await }));
        // Sessions sort by the time of their begin.
        sleep(Duration::from_millis(5)).await;
        Member { world, clock, gate, stop, node, life }
    }

    async fn leases(&self) -> BTreeMap<ShardId, (SessionId, Fence)> {
        let read = self.world.ctx.store.transact(|tx| async move { lease::list(&tx, Read::Snapshot).await });
        let rows = read.await.expect("a store").value;
        rows.into_iter().filter_map(|(shard, row)| row.ok().map(|lease| (shard, (lease.owner, lease.fence)))).collect()
    }

    /// How many shards each of these holds, when every shard is held.
    async fn spread(&self, members: &[&Member]) -> Vec<usize> {
        let leases = self.leases().await;
        assert_eq!(leases.len(), 16, "a shard without a ticker: {leases:?}");
        let held = |member: &&Member| leases.values().filter(|(owner, _)| *owner == member.node.session()).count();
        members.iter().map(held).collect()
    }

    /// Waits until the shards are spread like this; returns how long it took.
    pub async fn until_spread(&self, members: &[&Member], spread: &[usize], within: Duration) -> Duration {
        let began = Instant::now();
        let done = timeout(within, async {
            loop {
                let leases = self.leases().await;
                let held =
                    |member: &&Member| leases.values().filter(|(owner, _)| *owner == member.node.session()).count();
                if members.iter().map(held).eq(spread.iter().copied()) {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        done.await.unwrap_or_else(|_| panic!("not spread {spread:?} within {within:?}"));
        began.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn shards_are_spread_evenly_without_a_gap_and_then_stay_where_they_are() {
    let fleet = Fleet::new().await;
    let first = fleet.begin("first", SCHEDULER).await;
    fleet.until_spread(&[&first], &[16], Duration::from_secs(2)).await;
    let second = fleet.begin("second", SCHEDULER).await;
    // At every moment every shard has an owner.
    for _ in 0..150 {
        fleet.spread(&[]).await;
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fleet.spread(&[&first, &second]).await, [8, 8]);
    let third = fleet.begin("third", SCHEDULER).await;
    for _ in 0..150 {
        fleet.spread(&[]).await;
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fleet.spread(&[&first, &second, &third]).await, [6, 5, 5]);
    let settled = fleet.leases().await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(fleet.leases().await, settled, "shards moved though nobody came or went");
}

#[tokio::test(start_paused = true)]
async fn a_dead_schedulers_shards_are_taken_over_within_the_ttl_and_a_stopped_ones_at_once() {
    let fleet = Fleet::new().await;
    let [first, second, third] =
        [fleet.begin("a", SCHEDULER).await, fleet.begin("b", SCHEDULER).await, fleet.begin("c", SCHEDULER).await];
    fleet.until_spread(&[&first, &second, &third], &[6, 5, 5], Duration::from_secs(3)).await;
    sleep(Duration::from_millis(2_345)).await;
    second.gate.end();
    let ttl = second.node.config().lease_ttl;
    let took = fleet.until_spread(&[&first, &third], &[8, 8], ttl).await;
    assert!(took >= ttl / 2, "taken from a node that was silent for {took:?} only");
    third.stop.cancel();
    let took = fleet.until_spread(&[&first], &[16], Duration::from_secs(5)).await;
    assert!(took < Duration::from_millis(100), "a clean stop handed over after {took:?}");
    third.life.await.expect("a node").expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn only_schedulers_tick_and_only_executors_claim() {
    let fleet = Fleet::new().await;
    let api = fleet.begin("api", API).await;
    let executor = fleet.begin("executor", EXECUTOR).await;
    let execution = fleet.world.create(ScheduleSpec::now()).await;
    sleep(Duration::from_secs(30)).await;
    assert!(fleet.leases().await.is_empty(), "somebody took a shard who does not schedule");
    assert!(matches!(fleet.world.execution(execution).await.state, State::Pending { .. }));
    executor.stop.cancel();
    executor.life.await.expect("a node").expect("a clean end");
    let scheduler = fleet.begin("scheduler", SCHEDULER).await;
    sleep(Duration::from_secs(30)).await;
    assert!(
        matches!(fleet.world.execution(execution).await.state, State::Queued(_)),
        "somebody claimed who runs nothing"
    );
    let _executor = fleet.begin("executor", EXECUTOR).await;
    sleep(Duration::from_secs(2)).await;
    let ended = fleet.world.execution(execution).await;
    assert!(matches!(ended.state, State::Completed { .. }), "{ended:?}");
    assert_eq!(ended.attempts.len(), 1);
    assert_eq!(fleet.spread(&[&api, &scheduler]).await, [0, 16]);
}

#[tokio::test(start_paused = true)]
async fn of_two_live_nodes_of_one_name_the_second_is_refused_and_a_dead_ones_name_is_free() {
    let fleet = Fleet::new().await;
    let first = fleet.begin("name", SCHEDULER).await;
    sleep(Duration::from_secs(3)).await;
    let session = first.node.session();
    let second = fleet.begin("name", SCHEDULER).await;
    let refused = timeout(Duration::from_secs(10), second.life).await.expect("in time").expect("a node");
    assert!(matches!(&refused, Err(NodeError::NameTaken { name }) if name == "name"), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("--node-name"));
    assert_eq!(first.node.session(), session, "the one that lives keeps its session");
    assert_eq!(fleet.spread(&[&first]).await, [16]);
    first.gate.end();
    let third = fleet.begin("name", SCHEDULER).await;
    fleet.until_spread(&[&third], &[16], Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_node_hands_over_its_shards_before_its_runs_and_gives_back_what_does_not_end() {
    let fleet = Fleet::new().await;
    let config = NodeConfig { drain: Duration::from_secs(5), ..NodeConfig::new("stopping") };
    let stopping = fleet.begin_with(config, true).await;
    fleet.until_spread(&[&stopping], &[16], Duration::from_secs(2)).await;
    let execution = fleet.world.create(ScheduleSpec::now()).await;
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(fleet.world.execution(execution).await.state, State::Running(_)));
    let other = fleet.begin("other", SCHEDULER).await;
    fleet.until_spread(&[&stopping, &other], &[8, 8], Duration::from_secs(3)).await;
    let begun = Instant::now();
    stopping.stop.cancel();
    fleet.until_spread(&[&other], &[16], Duration::from_millis(200)).await;
    assert!(matches!(fleet.world.execution(execution).await.state, State::Running(_)), "it has five seconds to end");
    timeout(Duration::from_secs(10), stopping.life).await.expect("in time").expect("a node").expect("a clean end");
    assert!(begun.elapsed() >= Duration::from_secs(5));
    let given_back = fleet.world.execution(execution).await;
    assert!(matches!(given_back.state, State::Queued(_)), "{given_back:?}");
    assert!(given_back.attempts.is_empty(), "a hand-back counts as no attempt");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_finds_its_shards_and_runs_with_others() {
    let fleet = Fleet::new().await;
    let frozen = fleet.begin("frozen", Roles::ALL).await;
    let other = fleet.begin("other", Roles::ALL).await;
    fleet.until_spread(&[&frozen, &other], &[8, 8], Duration::from_secs(3)).await;
    let before = frozen.node.session();
    frozen.gate.close();
    fleet.until_spread(&[&other], &[16], Duration::from_secs(6)).await;
    sleep(Duration::from_secs(20)).await;
    let execution = fleet.world.create(ScheduleSpec::now()).await;
    sleep(Duration::from_secs(1)).await;
    let done = fleet.world.execution(execution).await;
    assert!(matches!(done.state, State::Completed { .. }), "{done:?}");
    frozen.gate.open();
    sleep(Duration::from_secs(5)).await;
    assert_ne!(frozen.node.session(), before, "it begins anew");
    assert_eq!(fleet.world.execution(execution).await, done);
    assert_eq!(fleet.spread(&[&frozen, &other]).await.iter().sum::<usize>(), 16);
    assert_eq!(fleet.spread(&[&frozen, &other]).await, [8, 8]);
}

/// A node whose rows this build cannot read: it beats all the same.
#[tokio::test(start_paused = true)]
async fn a_live_node_of_another_version_keeps_its_shards_and_a_dead_one_loses_them() {
    let fleet = Fleet::new().await;
    let newer = fleet.begin("newer", SCHEDULER).await;
    fleet.until_spread(&[&newer], &[16], Duration::from_secs(2)).await;
    sleep(Duration::from_secs(2)).await;
    newer.gate.end();
    let key = |table: u8| -> Bytes { [&[table][..], b"newer\0"].concat().into() };
    let mut session = fleet.world.swap(&key(0x23), Bytes::from_static(b"\xff")).await.to_vec();
    session[0] = 255;
    fleet.world.swap(&key(0x23), session.into()).await;
    let older = fleet.begin("older", SCHEDULER).await;
    for beat in 0..60_u8 {
        fleet.world.swap(&key(0x24), vec![255, beat].into()).await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(fleet.spread(&[&older]).await, [0], "taken from a node that lives");
    }
    let before = fleet.world.ctx.metrics.unreadable_in("session");
    older.world.ctx.fleet.look(&older.world.ctx).await.expect("a store");
    assert!(older.world.ctx.metrics.unreadable_in("session") > before, "what cannot be read is counted");
    fleet.until_spread(&[&older], &[16], Duration::from_secs(20)).await;
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_whose_clock_is_off_stands_aside_and_comes_back() {
    let fleet = Fleet::new().await;
    let off = fleet.begin("off", SCHEDULER).await;
    off.clock.ahead_micros.store(3_000_000, Ordering::Relaxed);
    let right = fleet.begin("right", SCHEDULER).await;
    sleep(Duration::from_secs(60)).await;
    // Two clocks: nobody can tell which one is wrong, and both tick.
    assert_eq!(fleet.spread(&[&off, &right]).await, [8, 8]);
    let clocks = right.world.ctx.fleet.clocks();
    assert!(!clocks.majority);
    let offset = clocks.of["off"];
    assert!(offset.low <= 3_000_000 && 3_000_000 <= offset.high && offset.error_millis() < 200.0, "{offset:?}");

    let _third = fleet.begin("third", EXECUTOR).await;
    fleet.until_spread(&[&off, &right], &[0, 16], Duration::from_secs(30)).await;
    // The others may measure the third clock a little later.
    sleep(Duration::from_secs(30)).await;
    let clocks = right.world.ctx.fleet.clocks();
    assert!(clocks.majority && clocks.own.certain() < Duration::from_millis(50), "{clocks:?}");
    let named: BTreeSet<_> = clocks.beyond(Duration::from_secs(1)).map(|(node, _)| node.as_str()).collect();
    assert_eq!(named, ["off"].into());
    let rows = fleet.world.ctx.store.transact(|tx| async move { session::list(&tx, Read::Snapshot).await });
    let rows = rows.await.expect("a store").value;
    let standing = |name: &str| {
        rows.iter().find(|row| row.node == name).map(|row| row.session.clone().expect("readable").standing)
    };
    assert_eq!((standing("off"), standing("right")), (Some(Standing::Aside), Some(Standing::Active)));

    off.clock.ahead_micros.store(0, Ordering::Relaxed);
    fleet.until_spread(&[&off, &right], &[8, 8], Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_scheduler_goes_on_whatever_its_clock_says() {
    let fleet = Fleet::new().await;
    let off = fleet.begin("off", SCHEDULER).await;
    off.clock.ahead_micros.store(-5_000_000, Ordering::Relaxed);
    let [_a, _b] = [fleet.begin("a", EXECUTOR).await, fleet.begin("b", EXECUTOR).await];
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.spread(&[&off]).await, [16]);
    assert!(off.world.ctx.fleet.clocks().own.certain() > Duration::from_secs(4), "it knows");
}

#[tokio::test(start_paused = true)]
async fn nodes_and_lanes_tell_what_waits_what_runs_and_who_serves() {
    let fleet = Fleet::new().await;
    let api = fleet.begin("api", API).await;
    let scheduler = fleet.begin("scheduler", SCHEDULER).await;
    let config = NodeConfig { roles: EXECUTOR, workers: 2, ..NodeConfig::new("executor") };
    let executor = fleet.begin_with(config, true).await;
    sleep(Duration::from_secs(3)).await;
    for _ in 0..5 {
        fleet.world.create(ScheduleSpec::now()).await;
    }
    sleep(Duration::from_secs(4)).await;
    let lanes = ops::fleet::lanes(&api.world.ctx).await.expect("a store");
    let lane = &lanes["default"];
    assert_eq!((lane.queued, lane.more, lane.running, lane.workers, lane.nodes), (3, false, 2, 2, 1), "{lane:?}");
    let wait = lane.oldest_wait(fleet.right.now()).expect("something waits");
    assert!(wait > Duration::from_secs(3) && wait < Duration::from_secs(5), "{wait:?}");

    let nodes = ops::fleet::nodes(&api.world.ctx).await.expect("a store");
    assert_eq!(nodes.shards, [(scheduler.node.session(), 16)].into());
    let seen = |name: &str| nodes.view.nodes.iter().find(|node| node.node == name).expect("a node");
    assert_eq!(nodes.running(seen("executor"), api.node.session()), 2);
    assert!(!seen("executor").is_silent() && seen("executor").still_for < Duration::from_secs(2));
    executor.gate.end();
    sleep(Duration::from_secs(5)).await;
    let silent = ops::fleet::nodes(&api.world.ctx).await.expect("a store");
    assert!(silent.view.nodes.iter().any(|node| node.node == "executor" && node.is_silent()));
    sleep(Duration::from_secs(15)).await;
    let gone = ops::fleet::nodes(&api.world.ctx).await.expect("a store");
    assert!(gone.view.nodes.iter().all(|node| node.node != "executor"));
    assert_eq!(gone.view.gone.iter().map(|gone| gone.node.as_str()).collect::<Vec<_>>(), ["executor"]);
    assert!(ops::fleet::lanes(&api.world.ctx).await.expect("a store")["default"].workers == 0, "nobody serves it");
}
