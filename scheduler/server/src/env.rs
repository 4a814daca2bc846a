//! The clock and the randomness that everything in this crate is handed. The ambient ones are a lint error elsewhere.
//!
//! Intervals and timeouts use `tokio::time`, which is monotonic and can be paused by a test; wall time only ever answers "is it due?".

mod gate;

use std::fmt;
use std::sync::Arc;

use compline_core::Timestamp;
use parking_lot::Mutex;

pub use gate::Gate;

/// A source of wall time.
pub trait Clock: Send + Sync + 'static {
    /// The wall time now.
    fn now(&self) -> Timestamp;
}

/// The system's wall clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the ambient clock is injected from")]
    fn now(&self) -> Timestamp {
        chrono::Utc::now().into()
    }
}

/// What a node takes from the world around it.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    random: Arc<Mutex<fastrand::Rng>>,
    gate: Option<Arc<Gate>>,
}

impl Env {
    /// The system's clock and randomness.
    #[expect(clippy::disallowed_methods, reason = "the one place where ambient randomness is injected from")]
    pub fn system() -> Self {
        Self { clock: Arc::new(SystemClock), random: Arc::new(Mutex::new(fastrand::Rng::new())), gate: None }
    }

    /// A given clock, and randomness from a seed.
    pub fn injected(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self { clock, random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))), gate: None }
    }

    /// The same, with a gate that every task of the node passes through: by it the whole node is stopped or ended, as a process would be.
    pub fn behind(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// What a node spawns, behind its gate if it has one.
    pub fn gated<F: Future>(&self, task: F) -> impl Future<Output = F::Output> + use<F> {
        let gate = self.gate.clone();
        async move {
            match gate {
                Some(gate) => gate.pass(task).await,
                None => task.await,
            }
        }
    }

    /// The wall time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// 128 random bits.
    pub fn random_u128(&self) -> u128 {
        self.random.lock().u128(..)
    }

    /// 64 random bits.
    pub fn random_u64(&self) -> u64 {
        self.random.lock().u64(..)
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}
