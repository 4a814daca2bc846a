//! The simulator: several schedulers, executors and clients in one process over one store in memory, with faults. One seed is one run.
//!
//! **The model.** Each node is the real thing, [`compline_server::loops::Node`] over a [`compline_server::ctx::Ctx`] of its own, behind a gate
//! by which the simulator freezes or ends all of its tasks at once, and on a handle of its own, by which it is cut off from the store. Clients
//! call what the API calls. Only tasks are made up: they take virtual time and end by the seed ([`runner`]). Everything runs on one thread of
//! one runtime whose time is virtual: it moves on when every task waits. Wall time is that time plus a base ([`clock`]); all randomness is drawn
//! from the seed. So one seed gives one commit log, byte by byte.
//!
//! **The weather.** The store conflicts, delays, forgets answers, lands commits late and loses watches ([`shape`] draws how often); nodes crash,
//! freeze, are cut off and are stopped ([`blows`]); in some runs their clocks are apart, and one may be far off. After the active part of a run all of it stops, and what is due must end.
//!
//! **The oracle** replays the commit log on its own and holds every commit against DESIGN §2; [`oracle`] lists its rules. [`plant`] holds faults
//! that it must find.

pub mod backend;
pub mod blows;
pub mod client;
pub mod clock;
pub mod letters;
pub mod model;
pub mod node;
pub mod oracle;
pub mod owner;
pub mod plant;
pub mod runner;
pub mod shape;
pub mod sweep;
pub mod world;

use std::sync::Arc;
use std::time::Duration;

use compline_server::env::Clock as _;
use compline_store::Store;
use compline_store::backend::memory::{FaultCounts, Faults, MemoryBackend, MemoryOptions};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::clock::SimClock;
use self::node::SimNode;
use self::oracle::{Oracle, Seen, Violation};
use self::plant::Plant;
use self::shape::Shape;
use self::world::{Events, Record, World};

/// How often the log is replayed.
const REPLAY_EVERY: Duration = Duration::from_secs(1);
/// Once faults are over, so long at the most from the end of one execution to the end of the next, while any is due.
const STILL_MAX: Duration = Duration::from_secs(60);
/// For how long a commit may be on its way when faults end.
const LATE_MAX: Duration = Duration::from_secs(5);

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// A hash of the commit log.
    pub digest: u64,
    /// How long the run was, in virtual time.
    pub lasted: Duration,
    /// What the log did.
    pub seen: Seen,
    /// What happened to nodes and clients.
    pub events: Events,
    /// The faults of the store that happened.
    pub faults: FaultCounts,
}

/// Runs one seed, with a planted fault or without.
///
/// # Panics
/// If the runtime cannot be made.
pub fn run(seed: u64, plant: Option<Plant>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without IO needs nothing from the system").block_on(simulate(seed, plant))
}

async fn simulate(seed: u64, plant: Option<Plant>) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let shape = Shape::draw(&mut rng, plant);
    let clock = SimClock::starting_at(shape.base);
    let begun = Instant::now();
    let hub = MemoryBackend::new(MemoryOptions { seed: rng.u64(..), faults: Faults::default(), record: true });
    let world = Arc::new(World { seed, shape, clock, hub, record: Mutex::new(Record::default()) });
    world.record.lock().events.clocks_apart =
        world.shape.nodes.iter().filter(|node| node.ahead_micros != 0).count() as u64;
    let mut oracle = Oracle::new(world.clone());
    let violation = match world.prepare().await {
        Ok(()) => live(&world, &mut oracle, plant, &mut rng).await.err(),
        Err(error) => {
            world.record.lock().broken.push(format!("the store could not be prepared: {error}"));
            oracle.check_end_of_run(begun, Instant::now()).err()
        }
    };
    let events = world.record.lock().events;
    Outcome {
        seed,
        violation,
        digest: oracle.digest(),
        lasted: begun.elapsed(),
        seen: oracle.seen,
        events,
        faults: world.fault_counts(),
    }
}

/// Begin, active part, settling, end.
async fn live(
    world: &Arc<World>,
    oracle: &mut Oracle,
    plant: Option<Plant>,
    rng: &mut fastrand::Rng,
) -> Result<(), Violation> {
    let until = Instant::now() + world.shape.active;
    let shapes = world.shape.nodes.iter().cloned();
    let nodes: Vec<JoinHandle<SimNode>> = shapes
        .map(|shape| {
            let node = SimNode::new(world.clone(), shape, plant, rng.fork());
            tokio::spawn(blows::befall(world.clone(), node, rng.fork(), until))
        })
        .collect();
    let clients: Vec<(Arc<MemoryBackend>, JoinHandle<()>)> = (0..world.shape.clients)
        .map(|number| {
            let backend = world.hub.handle();
            (backend.clone(), tokio::spawn(client::run(world.clone(), number, backend, rng.fork())))
        })
        .collect();
    world.hub.set_faults(world.shape.faults.clone());
    let mut cut = fastrand::Rng::with_seed(rng.u64(..));
    while Instant::now() < until {
        sleep(REPLAY_EVERY).await;
        // Clients are cut off for a second now and then.
        clients.iter().for_each(|(backend, _)| if cut.u8(0..20) == 0 { backend.cut() } else { backend.heal() });
        oracle.replay()?;
    }
    world.hub.set_faults(Faults::default());
    clients.iter().for_each(|(backend, _)| backend.heal());
    let all = async { (join_all(nodes).await, join_all(clients.into_iter().map(|(_, task)| task)).await) };
    let (nodes, asked) = all.await;
    if let Some(error) = nodes
        .iter()
        .filter_map(|node| node.as_ref().err())
        .chain(asked.iter().filter_map(|end| end.as_ref().err()))
        .next()
    {
        world.record.lock().broken.push(format!("an actor of the simulation broke: {error}"));
    }
    let settled = settle(world, oracle).await?;
    match compline_store::check::check(&Store::new(world.hub.clone()), |_, _| {}).await {
        Ok(report) => oracle.check_tables(&report, Instant::now())?,
        Err(error) => world.record.lock().broken.push(format!("the store could not be checked: {error}")),
    }
    oracle.check_end_of_run(settled, Instant::now())
}

/// Waits until nothing that is due is left, and returns when that was. Much may be owed, and few may be there to run it; but it goes on.
async fn settle(world: &World, oracle: &mut Oracle) -> Result<Instant, Violation> {
    sleep(LATE_MAX).await;
    let mut ended = oracle.seen.ended;
    let mut latest = Instant::now() + STILL_MAX;
    loop {
        oracle.replay()?;
        if oracle.unsettled(world.clock.now()).next().is_none() {
            return Ok(Instant::now());
        }
        if oracle.seen.ended > ended {
            ended = oracle.seen.ended;
            latest = Instant::now() + STILL_MAX;
        }
        if Instant::now() >= latest {
            return Err(oracle.never_settled(Instant::now()));
        }
        sleep(REPLAY_EVERY).await;
    }
}
