//! A node of the simulation: the real loops behind a gate, on a handle of their own.

use std::sync::Arc;

use chrono::TimeDelta;
use compline_server::ctx::Ctx;
use compline_server::env::{Env, Gate};
use compline_server::loops::{Node, NodeConfig};
use compline_server::metrics::Metrics;
use compline_server::passes::owed::OwedRoom;
use compline_store::Store;
use compline_store::backend::memory::MemoryBackend;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backend::SignedBackend;
use super::clock::NodeClock;
use super::plant::{MutantNode, Plant};
use super::runner::SimRunner;
use super::shape::{NodeShape, Shape};
use super::world::World;
use super::zones::Data;

/// A node and the life that it has now.
pub struct SimNode {
    world: Arc<World>,
    shape: NodeShape,
    mutant: Option<Arc<MutantNode>>,
    rng: fastrand::Rng,
    lives: u32,
    life: Option<Life>,
}

struct Life {
    backend: Arc<MemoryBackend>,
    clock: Arc<NodeClock>,
    gate: Arc<Gate>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    data: Data,
}

impl SimNode {
    /// A node that is not begun yet.
    pub fn new(world: Arc<World>, shape: NodeShape, plant: Option<Plant>, rng: fastrand::Rng) -> Self {
        let planted = plant.filter(|plant| plant.is_in_executors() == shape.roles.executor);
        let clock = world.clock.ahead_by(shape.ahead_micros);
        let mutant = planted.map(|plant| MutantNode::new(plant, shape.name.clone(), clock));
        Self { world, shape, mutant, rng, lives: 0, life: None }
    }

    /// Whether it ticks shards.
    pub fn schedules(&self) -> bool {
        self.shape.roles.scheduler
    }

    /// Begins a life.
    pub fn start(&mut self) {
        self.lives += 1;
        let name = format!("{} (life {})", self.shape.name, self.lives);
        let data = self.world.shape.node_data(self.world.clock.into_run(Instant::now()));
        let author = self.world.author(name.clone(), data);
        let backend = self.world.hub.handle();
        let gate = Arc::new(Gate::default());
        self.world.pulse.gate(name, gate.clone());
        let stop = CancellationToken::new();
        let store =
            Store::new(SignedBackend::new(backend.clone(), author, self.world.pulse.clone(), self.mutant.clone()));
        let clock = Arc::new(NodeClock::new(self.world.clock.ahead_by(self.shape.ahead_micros)));
        let env = Env::injected(clock.clone(), self.rng.u64(..)).by_zones(data.zones()).behind(gate.clone());
        let runner = SimRunner::new(self.world.clone(), self.rng.fork());
        let config = self.config();
        let (world, stopped) = (self.world.clone(), stop.clone());
        let live = async move {
            let name = config.name.clone();
            let ended = match Ctx::open(store, env, Arc::new(Metrics::default())).await {
                Ok(ctx) => {
                    let Shape { retention, owed_ready_max, .. } = world.shape;
                    let ctx = Ctx { owed_room: OwedRoom::of(owed_ready_max), ..ctx.keeping(retention) };
                    Node::new(Arc::new(ctx), config, runner).run(stopped.clone()).await
                }
                Err(error) => Err(error.into()),
            };
            if let Err(error) = ended {
                world.record.lock().broken.push(format!("{name} ended by itself: {error}"));
            } else if !stopped.is_cancelled() {
                world.record.lock().broken.push(format!("{name} ended though nobody stopped it"));
            }
        };
        let outer = Env::injected(Arc::new(self.world.clock), 0).behind(gate.clone());
        let task = tokio::spawn(outer.gated(live));
        self.life = Some(Life { backend, clock, gate, stop, task, data });
    }

    fn config(&self) -> NodeConfig {
        let shape = &self.world.shape;
        NodeConfig {
            roles: self.shape.roles,
            lanes: self.shape.lanes.clone(),
            workers: self.shape.workers,
            beat: shape.beat,
            lease_ttl: shape.lease_ttl,
            session_ttl: shape.session_ttl,
            exclusive: false,
            drain: shape.drain,
            ..NodeConfig::new(self.shape.name.clone())
        }
    }

    /// Ends the life without a word.
    pub fn crash(&mut self) {
        if let Some(life) = self.life.take() {
            life.gate.end();
        }
    }

    /// No task of the node takes a step any more.
    pub fn freeze(&self) {
        if let Some(life) = &self.life {
            life.gate.close();
        }
    }

    /// They go on.
    pub fn thaw(&self) {
        if let Some(life) = &self.life {
            life.gate.open();
        }
    }

    /// The node no longer reaches the store.
    pub fn cut(&self) {
        if let Some(life) = &self.life {
            life.backend.cut();
        }
    }

    /// It does again.
    pub fn heal(&self) {
        if let Some(life) = &self.life {
            life.backend.heal();
        }
    }

    /// Sets the node's wall clock this far from right.
    pub fn set_clock_off(&self, by: TimeDelta) {
        if let Some(life) = &self.life {
            life.clock.set_off(by);
        }
    }

    /// Begins another life, if this one has older zone data than it would have.
    pub async fn bring_up_to_date(&mut self) {
        let data = self.world.shape.node_data(self.world.clock.into_run(Instant::now()));
        if self.life.as_ref().is_some_and(|life| life.data < data) {
            self.stop().await;
            self.start();
        }
    }

    /// Asks the node to end, and waits for it.
    pub async fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            life.stop.cancel();
            if let Err(error) = life.task.await {
                self.world.record.lock().broken.push(format!("{} broke while it stopped: {error}", self.shape.name));
            }
        }
    }
}
