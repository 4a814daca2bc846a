//! Wall time, derived from the virtual time of the runtime: the same instant everywhere, and moved only by it; and the clocks of nodes, which
//! are set now and then.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
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

    /// The same clock on another machine, ahead by so many microseconds; negative: behind.
    pub fn ahead_by(self, micros: i64) -> Self {
        let base = Timestamp::from_unix_micros(self.base.unix_micros_ceil() + micros);
        Self { base: base.unwrap_or(self.base), ..self }
    }

    /// How far into the run an instant is.
    pub fn into_run(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.origin)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }
}

/// The wall clock of a node, which somebody may set. Boot time goes on evenly.
#[derive(Debug)]
pub struct NodeClock {
    wall: SimClock,
    off_millis: AtomicI64,
}

impl NodeClock {
    /// A clock that is right.
    pub fn new(wall: SimClock) -> Self {
        Self { wall, off_millis: AtomicI64::new(0) }
    }

    /// Sets it this far from right.
    pub fn set_off(&self, by: TimeDelta) {
        self.off_millis.store(by.num_milliseconds(), Ordering::Relaxed);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let off = TimeDelta::milliseconds(self.off_millis.load(Ordering::Relaxed));
        (self.wall.now().to_utc() + off).into()
    }

    fn boot(&self) -> Duration {
        self.wall.into_run(Instant::now())
    }
}
