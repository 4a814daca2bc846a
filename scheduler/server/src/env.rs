//! The clock and the randomness that everything in this crate is handed. The ambient ones are a lint error elsewhere.
//!
//! Intervals and timeouts use `tokio::time`, which is monotonic and can be paused by a test; wall time only ever answers "is it due?", and is
//! not believed blindly: see [`Course`].

mod course;
mod gate;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::schedule::zone::ZoneData;
use parking_lot::Mutex;

pub use course::{Course, DISBELIEF, Reading, STEP_MAX, Verdict};
pub use gate::Gate;

/// A source of wall time, and of the time that it is checked against.
pub trait Clock: Send + Sync + 'static {
    /// What the wall clock shows.
    fn now(&self) -> Timestamp;

    /// How long the machine has been up, suspended times included. A clock that has no other source is its own, and always believed.
    fn boot(&self) -> Duration {
        self.now().saturating_since(Timestamp::EPOCH)
    }
}

/// The system's wall clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the ambient clock is injected from")]
    fn now(&self) -> Timestamp {
        chrono::Utc::now().into()
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Duration {
        // Linux has had it since 2.6.39.
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
    }

    /// Where the system does not say how long it was suspended, a suspended machine looks like a clock that was set, and is believed after
    /// [`DISBELIEF`].
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::disallowed_methods, reason = "the one place where the ambient clock is injected from")]
    fn boot(&self) -> Duration {
        static BEGAN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        BEGAN.elapsed()
    }
}

/// What a node takes from the world around it.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    course: Arc<Mutex<Course>>,
    random: Arc<Mutex<fastrand::Rng>>,
    gate: Option<Arc<Gate>>,
    zones: Arc<ZoneData>,
}

impl Env {
    /// The system's clock and randomness.
    #[expect(clippy::disallowed_methods, reason = "the one place where ambient randomness is injected from")]
    pub fn system() -> Self {
        Self::with(Arc::new(SystemClock), fastrand::Rng::new())
    }

    /// A given clock, and randomness from a seed.
    pub fn injected(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self::with(clock, fastrand::Rng::with_seed(seed))
    }

    fn with(clock: Arc<dyn Clock>, random: fastrand::Rng) -> Self {
        let env = Self {
            clock,
            course: Arc::default(),
            random: Arc::new(Mutex::new(random)),
            gate: None,
            zones: Arc::default(),
        };
        // The first reading is believed, so it is taken at once: a step before anybody asks is a step too.
        env.now();
        env
    }

    /// The same, with a gate that every task of the node passes through: by it the whole node is stopped or ended, as a process would be.
    pub fn behind(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// The same, with other zone data than what is built in.
    pub fn by_zones(self, zones: ZoneData) -> Self {
        Self { zones: Arc::new(zones), ..self }
    }

    /// The zone data that schedules are read by.
    pub fn zones(&self) -> &ZoneData {
        &self.zones
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

    /// The wall time now, as far as it is believed: everything that asks whether something is due asks here.
    pub fn now(&self) -> Timestamp {
        // Under the lock, so that readings are judged in the order in which they were taken.
        let mut course = self.course.lock();
        let reading = Reading { wall: self.clock.now(), boot: self.clock.boot() };
        let (now, verdict) = course.at(reading);
        drop(course);
        match verdict {
            Verdict::OnCourse | Verdict::Disbelieved => {}
            Verdict::Left(off) => {
                tracing::warn!(wall = %reading.wall, believed = %now, off_seconds = off.num_seconds(),
                "the wall clock was set: it is not believed for {DISBELIEF:?}")
            }
            Verdict::CameBack => tracing::info!(wall = %reading.wall, "the wall clock is back on its course"),
            Verdict::Accepted(off) => tracing::warn!(wall = %reading.wall, off_seconds = off.num_seconds(),
                "the wall clock stays where it was set, and is believed from now on"),
        }
        now
    }

    /// By how many seconds the wall clock is off the course that is believed; 0 while it is believed itself.
    pub fn clock_doubt_seconds(&self) -> f64 {
        self.course.lock().doubt().map_or(0.0, |off| off.as_seconds_f64())
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
