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
pub mod prompt;
pub mod pulse;
pub mod runner;
pub mod shape;
pub mod sweep;
pub mod world;
pub mod zones;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use compline_server::env::Clock as _;
use compline_store::Store;
use compline_store::backend::memory::{FaultCounts, Faults, MemoryBackend, MemoryOptions};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::clock::SimClock;
use self::node::SimNode;
use self::oracle::{Oracle, Seen, Violation};
use self::plant::Plant;
use self::pulse::{Patience, Pulse};
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
pub fn run(seed: u64, plant: Option<Plant>) -> Outcome {
    run_within(seed, plant, Patience::default())
}

/// [`run`], given up when patience ends. A run that does not come back then keeps its thread until it calls the store again.
///
/// # Panics
/// As the simulation does.
pub fn run_within(seed: u64, plant: Option<Plant>, patience: Patience) -> Outcome {
    let pulse = Arc::new(Pulse::default());
    let (done, outcome) = mpsc::channel();
    let its = pulse.clone();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without IO needs nothing from the system");
        // Nobody listens any more to a run that was given up.
        let _ = done.send(runtime.block_on(simulate(seed, plant, its, patience.lasts)));
    });
    let look = patience.still / LOOKS;
    let (mut still, mut looks, mut before) = (0, 0, pulse.progress());
    loop {
        let steps = pulse.steps();
        match outcome.recv_timeout(look) {
            Ok(outcome) => return outcome,
            Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("a run that ends has told its outcome"),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        looks += 1;
        let now = pulse.progress();
        still = if now == before { still + 1 } else { 0 };
        before = now;
        if still == LOOKS || look * looks >= patience.takes {
            pulse.give_up();
            let (rule, why) = if still == LOOKS {
                ("livelock", format!("virtual time has not moved for {:?}", patience.still))
            } else {
                ("endless", format!("the run has not ended after {:?}", patience.takes))
            };
            let detail = format!("{why} of real time: {}", pulse.describe(&steps));
            return Outcome::given_up(seed, Violation { at: now, version: 0, rule, detail });
        }
    }
}

/// So often a run is looked at until patience for one that stands still ends.
const LOOKS: u32 = 20;

impl Outcome {
    fn given_up(seed: u64, violation: Violation) -> Self {
        let (seen, events, faults) = Default::default();
        Self { seed, lasted: violation.at, violation: Some(violation), digest: 0, seen, events, faults }
    }
}

async fn simulate(seed: u64, plant: Option<Plant>, pulse: Arc<Pulse>, lasts: Duration) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let shape = Shape::draw(&mut rng, plant);
    let clock = SimClock::starting_at(shape.base);
    let begun = Instant::now();
    let hub = MemoryBackend::new(MemoryOptions { seed: rng.u64(..), faults: Faults::default(), record: true });
    let world = Arc::new(World { seed, shape, clock, hub, pulse, record: Mutex::new(Record::default()) });
    let apart = world.shape.nodes.iter().filter(|node| node.ahead_micros != 0).count();
    world.record.lock().events.clocks_apart = apart as u64;
    let mut oracle = Oracle::new(world.clone());
    let violation = match world.prepare().await {
        Ok(()) => match timeout(lasts, live(&world, &mut oracle, plant, &mut rng)).await {
            Ok(lived) => lived.err(),
            Err(_) => {
                let detail = format!("the run has not ended: {}", world.pulse.describe(&world.pulse.steps()));
                Some(oracle.broke("endless", detail, Instant::now()))
            }
        },
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
            let name = format!("what befalls {}", shape.name);
            let node = SimNode::new(world.clone(), shape, plant, rng.fork());
            let (world, rng) = (world.clone(), rng.fork());
            tokio::spawn(async move {
                let _acting = world.pulse.acts(name);
                blows::befall(world.clone(), node, rng, until).await
            })
        })
        .collect();
    let clients: Vec<(Arc<MemoryBackend>, JoinHandle<()>)> = (0..world.shape.clients)
        .map(|number| {
            let backend = world.hub.handle();
            let (world, rng) = (world.clone(), rng.fork());
            let client = backend.clone();
            let asks = async move {
                let _acting = world.pulse.acts(format!("client-{number}"));
                client::run(world.clone(), number, client, rng).await;
            };
            (backend, tokio::spawn(asks))
        })
        .collect();
    world.hub.set_faults(world.shape.faults.clone());
    let mut cut = fastrand::Rng::with_seed(rng.u64(..));
    while Instant::now() < until {
        sleep(REPLAY_EVERY).await;
        // Clients are cut off for a second now and then.
        clients.iter().for_each(|(backend, _)| if cut.u8(0..20) == 0 { backend.cut() } else { backend.heal() });
        look(world, oracle)?;
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
    settle(world, oracle).await?;
    if world.shape.has_prompt_lane() {
        prompt::start_at_once(world, oracle, rng.u64(..)).await?;
    }
    let settled = settle(world, oracle).await?;
    match compline_store::check::check(&Store::new(world.hub.clone()), |_, _| {}).await {
        Ok(report) => oracle.check_tables(&report, Instant::now())?,
        Err(error) => world.record.lock().broken.push(format!("the store could not be checked: {error}")),
    }
    oracle.check_end_of_run(settled, Instant::now())
}

/// Replays what landed, and sees that something moves.
fn look(world: &World, oracle: &mut Oracle) -> Result<(), Violation> {
    world.pulse.moved();
    match world.pulse.stuck() {
        Some(detail) => Err(oracle.broke("livelock", detail, Instant::now())),
        None => oracle.replay(),
    }
}

/// Waits until nothing that is due is left, and returns when that was. Much may be owed, and few may be there to run it; but it goes on.
async fn settle(world: &World, oracle: &mut Oracle) -> Result<Instant, Violation> {
    sleep(LATE_MAX).await;
    let mut ended = oracle.seen.ended;
    let mut latest = Instant::now() + STILL_MAX;
    loop {
        look(world, oracle)?;
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
