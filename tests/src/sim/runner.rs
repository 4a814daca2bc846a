//! Running a task, simulated: it takes virtual time and ends somehow, both by the seed. Every run gets a number, which its cost carries into
//! the store, so that the oracle can tell which run a recorded outcome is of.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use compline_core::execution::{Cost, Outcome, State};
use compline_core::ids::{ExecutionId, TaskDigest};
use compline_server::loops::{Ran, Run, Runner};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::world::{RunRecord, World};

/// The runner of one life of a node.
pub struct SimRunner {
    world: Arc<World>,
    rng: Mutex<fastrand::Rng>,
    ready: Mutex<BTreeSet<TaskDigest>>,
    prepared: Notify,
}

impl SimRunner {
    /// A runner with no component ready.
    pub fn new(world: Arc<World>, rng: fastrand::Rng) -> Arc<Self> {
        Arc::new(Self { world, rng: Mutex::new(rng), ready: Mutex::default(), prepared: Notify::new() })
    }

    fn draw(&self, execution: ExecutionId) -> (Duration, Outcome) {
        let mut rng = self.rng.lock();
        // Some executions are long in every attempt: those are the ones that lose worker after worker.
        let long = execution.as_bytes()[ExecutionId::BYTES - 2].is_multiple_of(16);
        let longest = match rng.u8(0..20) {
            _ if long => 6_000,
            0..=4 => 1_500,
            _ => 80,
        };
        let outcome = match rng.u8(0..20) {
            0..=13 => Outcome::Ok,
            14..=16 => Outcome::Error { retryable: true, message: "try again".to_owned() },
            17 => Outcome::Error { retryable: false, message: "never".to_owned() },
            18 => Outcome::Trap { message: "unreachable".to_owned(), backtrace: Vec::new() },
            _ => Outcome::TimedOut,
        };
        (Duration::from_millis(rng.u64(1..longest)), outcome)
    }
}

#[async_trait]
impl Runner for SimRunner {
    fn can_run(&self, digest: &TaskDigest) -> bool {
        self.ready.lock().contains(digest)
    }

    fn prepare(&self, digest: TaskDigest) {
        if self.ready.lock().insert(digest) {
            self.prepared.notify_one();
        }
    }

    fn prepared(&self) -> &Notify {
        &self.prepared
    }

    async fn run(&self, run: &Run, cancel: &CancellationToken) -> Ran {
        let (duration, outcome) = self.draw(run.execution.id);
        let mut under_way = UnderWay::begin(&self.world, run);
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Outcome::Cancelled,
            () = tokio::time::sleep(duration) => outcome,
        };
        under_way.outcome = Some(outcome.clone());
        let cost = Cost { fuel: under_way.number as u64, ..Cost::default() };
        Ran { outcome, cost, output: None, logs: Vec::new() }
    }
}

/// A run from its begin to its end, be that the end of its node.
struct UnderWay<'a> {
    world: &'a World,
    number: usize,
    outcome: Option<Outcome>,
}

impl<'a> UnderWay<'a> {
    fn begin(world: &'a World, run: &Run) -> Self {
        let mut record = world.record.lock();
        let number = record.runs.len();
        match &run.execution.state {
            State::Running(running) => record.runs.push(RunRecord {
                execution: run.execution.id,
                fence: running.fence,
                session: running.session,
                digest: run.execution.task(&run.job.job).digest,
                started: Instant::now(),
                ended: None,
                outcome: None,
            }),
            other => {
                record.broken.push(format!("{} was handed to a runner while it was {}", run.execution.id, other.name()))
            }
        }
        Self { world, number, outcome: None }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.world.record.lock().runs.get_mut(self.number) {
            run.ended = Some(Instant::now());
            run.outcome = self.outcome.take();
        }
    }
}
