//! Faults on demand, drawn from one seeded source, and counted when they really happen.

use std::ops::Range;
use std::time::Duration;

/// How probable each fault is (0 to 1), and how long delays take. The default is a store without faults.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// A commit is refused as a conflict though there is none.
    pub conflict: f64,
    /// A commit lands, and its result is reported as unknown.
    pub unknown_landed: f64,
    /// A commit does not land, and its result is reported as unknown.
    pub unknown_not_landed: f64,
    /// A commit's result is reported as unknown at once; it lands after a delay, if it conflicts with nothing then.
    pub late_landing: f64,
    /// A commit takes a while: before it lands or after.
    pub slow_commit: f64,
    /// A read takes a while.
    pub slow_read: f64,
    /// A watch never ends.
    pub lost_watch: f64,
    /// A read or a commit fails with a passing fault.
    pub transient: f64,
    /// How long slow commits and reads take.
    pub slow_for: Range<Duration>,
    /// How late a late commit lands.
    pub late_by: Range<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            conflict: 0.0,
            unknown_landed: 0.0,
            unknown_not_landed: 0.0,
            late_landing: 0.0,
            slow_commit: 0.0,
            slow_read: 0.0,
            lost_watch: 0.0,
            transient: 0.0,
            slow_for: Duration::from_millis(5)..Duration::from_millis(500),
            late_by: Duration::from_millis(5)..Duration::from_secs(4),
        }
    }
}

/// How often each fault happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Commits refused as conflicts though there was none.
    pub conflict: u64,
    /// Commits that landed with an unknown result.
    pub unknown_landed: u64,
    /// Commits that did not land, with an unknown result.
    pub unknown_not_landed: u64,
    /// Commits reported as unknown that were to land later.
    pub late_landing: u64,
    /// Those of them that did land later.
    pub late_landed: u64,
    /// Those of them that conflicted by then, or were too old.
    pub late_refused: u64,
    /// Slow commits.
    pub slow_commit: u64,
    /// Slow reads.
    pub slow_read: u64,
    /// Watches that never end.
    pub lost_watch: u64,
    /// Passing faults of reads and commits.
    pub transient: u64,
    /// Reads and commits of handles that were cut off.
    pub cut: u64,
}

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lands,
    Conflicts,
    Fails,
    LandsUnknown,
    VanishesUnknown,
    LandsLate(Duration),
}

/// The seeded source of faults.
pub(super) struct FaultSource {
    rng: fastrand::Rng,
    pub settings: Faults,
    pub counts: FaultCounts,
}

impl FaultSource {
    pub fn new(seed: u64, settings: Faults) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), settings, counts: FaultCounts::default() }
    }

    /// What becomes of the next commit. Only faults that have happened by then are counted here.
    pub fn fate(&mut self) -> Fate {
        let faults = &self.settings;
        let mut drawn = self.rng.f64();
        let mut hits = |probability: f64| {
            let hit = drawn < probability;
            drawn -= probability;
            hit
        };
        if hits(faults.conflict) {
            self.counts.conflict += 1;
            Fate::Conflicts
        } else if hits(faults.transient) {
            self.counts.transient += 1;
            Fate::Fails
        } else if hits(faults.unknown_landed) {
            Fate::LandsUnknown
        } else if hits(faults.unknown_not_landed) {
            self.counts.unknown_not_landed += 1;
            Fate::VanishesUnknown
        } else if hits(faults.late_landing) {
            self.counts.late_landing += 1;
            // Mostly short, so that a late commit sometimes lands before the caller's next run and sometimes long after it.
            let late_by = faults.late_by.clone();
            let share = self.rng.f64().powi(3);
            Fate::LandsLate(between(&late_by, share))
        } else {
            Fate::Lands
        }
    }

    /// How long the next commit waits before it is tried, and before its result is told.
    pub fn commit_delays(&mut self) -> (Duration, Duration) {
        if self.rng.f64() >= self.settings.slow_commit {
            return (Duration::ZERO, Duration::ZERO);
        }
        self.counts.slow_commit += 1;
        let delay = self.slow();
        if self.rng.bool() { (delay, Duration::ZERO) } else { (Duration::ZERO, delay) }
    }

    /// How long the next read waits.
    pub fn read_delay(&mut self) -> Duration {
        if self.rng.f64() >= self.settings.slow_read {
            return Duration::ZERO;
        }
        self.counts.slow_read += 1;
        self.slow()
    }

    /// Whether the next read fails.
    pub fn read_fails(&mut self) -> bool {
        let fails = self.rng.f64() < self.settings.transient;
        self.counts.transient += u64::from(fails);
        fails
    }

    /// Whether the next watch is lost.
    pub fn loses_watch(&mut self) -> bool {
        let lost = self.rng.f64() < self.settings.lost_watch;
        self.counts.lost_watch += u64::from(lost);
        lost
    }

    /// A duration between half of this and this.
    pub fn jitter(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(0.5 + self.rng.f64() / 2.0)
    }

    fn slow(&mut self) -> Duration {
        between(&self.settings.slow_for, self.rng.f64())
    }
}

fn between(range: &Range<Duration>, share: f64) -> Duration {
    range.start + range.end.saturating_sub(range.start).mul_f64(share)
}
