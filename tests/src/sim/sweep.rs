//! Many seeds, on as many threads as there are cores, and what they add up to.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::plant::Plant;
use super::{Outcome, run};

/// The seeds that once failed, with what each was, in the project's tree.
pub const SEEDS_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds.txt");

/// The seeds in the lines of such a file.
///
/// # Errors
/// The line that begins with no seed.
pub fn seeds_in(lines: &str) -> Result<Vec<u64>, String> {
    let lines = lines.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let seed = |line: &str| line.split_whitespace().next().and_then(|word| word.parse().ok());
    lines.map(|line| seed(line).ok_or_else(|| format!("{line:?} begins with no seed"))).collect()
}

/// Which seeds to run.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    /// The first.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// A planted fault: the sweep ends once it is found.
    pub plant: Option<Plant>,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Found {
    /// Runs with a violation, by seed.
    pub failed: Vec<Outcome>,
    /// How many seeds ran.
    pub ran: u64,
    /// All counts of all runs, with their names.
    pub counts: Vec<(&'static str, u64)>,
}

/// After so many violations a sweep ends: the first ones say enough.
const FAILURES_MAX: usize = 5;

impl Sweep {
    /// Runs seeds one by one, such as those that once failed.
    pub fn replay(seeds: &[u64]) -> Found {
        let mut found = Found::default();
        seeds.iter().for_each(|seed| found.add(run(*seed, None)));
        found
    }

    /// Runs them. `tell` hears how many have run, now and then.
    pub fn run(self, tell: impl Fn(u64) + Sync) -> Found {
        let next = AtomicU64::new(self.from);
        let found = Mutex::new(Found::default());
        let enough = if self.plant.is_some() { 1 } else { FAILURES_MAX };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.from + self.seeds || found.lock().failed.len() >= enough {
                            return;
                        }
                        let outcome = run(seed, self.plant);
                        let mut found = found.lock();
                        found.add(outcome);
                        if found.ran.is_multiple_of(100) {
                            tell(found.ran);
                        }
                    }
                });
            }
        });
        let mut found = found.into_inner();
        found.failed.sort_by_key(|outcome| outcome.seed);
        found
    }
}

impl Found {
    /// Adds what another sweep found.
    pub fn join(&mut self, other: Self) {
        self.ran += other.ran;
        self.sum(other.counts);
        self.failed.extend(other.failed);
    }

    fn sum(&mut self, counts: Vec<(&'static str, u64)>) {
        if self.counts.is_empty() {
            self.counts = counts;
        } else {
            self.counts.iter_mut().zip(counts).for_each(|((_, sum), (_, count))| *sum += count);
        }
    }

    fn add(&mut self, outcome: Outcome) {
        self.ran += 1;
        self.sum(outcome.counts());
        if outcome.violation.is_some() {
            self.failed.push(outcome);
        }
    }

    /// The kinds of things that never happened, though a sweep over many seeds should have seen each.
    pub fn never_happened(&self) -> Vec<&'static str> {
        self.counts.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect()
    }
}

impl Outcome {
    /// Everything that was counted, faults first.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let Self { faults, events, seen, .. } = self;
        vec![
            ("crash", events.crashes),
            ("freeze", events.freezes),
            ("slow commit", faults.slow_commit),
            ("unknown commit result", faults.unknown_landed + faults.unknown_not_landed + faults.late_landing),
            ("conflict", faults.conflict),
            ("lost watch", faults.lost_watch),
            ("clock step", events.clocks_set),
            ("clock skew", events.clocks_apart),
            ("partition of one node from the store", events.cuts),
            ("duplicate delivery: requests replayed", events.requests_replayed),
            ("unknown results that had landed", faults.unknown_landed),
            ("unknown results that had not", faults.unknown_not_landed),
            ("commits landed late", faults.late_landed),
            ("late commits refused", faults.late_refused),
            ("slow reads", faults.slow_read),
            ("passing faults", faults.transient),
            ("calls of nodes cut off", faults.cut),
            ("restarts", events.restarts),
            ("clean stops", events.stops),
            ("freezes past the TTL", events.freezes_past_ttl),
            ("partitions past the TTL", events.cuts_past_ttl),
            ("outages of all schedulers", events.outages),
            ("requests abandoned", events.requests_abandoned),
            ("commits", seen.commits),
            ("jobs", seen.jobs),
            ("executions ended", seen.ended),
            ("starts at once after all faults", seen.prompt),
            ("claims", seen.claimed),
            ("retries", seen.retried),
            ("runs lost with their worker", seen.lost),
            ("poisoned executions", seen.poisoned),
            ("hand-backs", seen.handed_back),
            ("cancelled while waiting", seen.cancelled),
            ("told to stop while running", seen.stopped),
            ("pauses", seen.paused),
            ("resumes", seen.resumed),
            ("edits", seen.edited),
            ("deletions", seen.deleted),
            ("planned slots taken back", seen.withdrawn),
            ("executions asked for", seen.asked_for),
            ("schedulers stood aside for their clocks", seen.stood_aside),
            ("owed slots that their schedules went on without", seen.passed),
            ("planned slots that newer zone data moved", seen.rezoned),
            ("slots skipped", seen.skipped),
            ("slots skipped by a cap", seen.skipped_by_cap),
            ("slots skipped by `run_latest`", seen.skipped_by_latest),
            ("slots skipped by `skip`", seen.skipped_by_skip),
            ("slots spread", seen.spread),
            ("jobs that had all their runs", seen.used_up),
            ("retries with jitter", seen.jittered),
            ("dead letters", seen.letters),
            ("dead letters dropped", seen.dropped),
            ("executions redriven", seen.redriven),
            ("those of them from the letter alone", seen.restored),
            ("failures told", seen.told),
            ("failures of who was told", seen.not_told_twice),
            ("executions held", seen.held),
            ("executions owed", seen.owed),
            ("owed executions queued", seen.paid),
            ("slots left to others", seen.overlapped),
            ("attempts terminated", seen.terminated),
            ("stretches skipped", seen.stretches),
            ("executions removed", seen.removed),
            ("those of them beside open ones", seen.removed_beside_open),
            ("jobs removed", seen.forgotten),
            ("virtual seconds", self.lasted.as_secs()),
        ]
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.violation {
            None => write!(f, "seed {}: no violation", self.seed),
            Some(violation) => {
                write!(f, "seed {}: {violation}\n  repeat it: cargo xtask sim --seed {}", self.seed, self.seed)
            }
        }
    }
}
