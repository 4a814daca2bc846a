//! Wall time, derived from the virtual time of the runtime: the same instant everywhere, and moved only by it.

use compline_core::Timestamp;
use compline_server::env::Clock;
use tokio::time::Instant;

/// The wall clock of a run.
#[derive(Debug, Clone, Copy)]
pub struct SimClock {
    base: Timestamp,
    origin: Instant,
}

impl SimClock {
    /// A clock that shows `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self { base, origin: Instant::now() }
    }

    /// What it shows at an instant of the run.
    pub fn at(&self, instant: Instant) -> Timestamp {
        self.base + instant.saturating_duration_since(self.origin)
    }

    /// How far into the run an instant is.
    pub fn into_run(&self, instant: Instant) -> std::time::Duration {
        instant.saturating_duration_since(self.origin)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }
}
