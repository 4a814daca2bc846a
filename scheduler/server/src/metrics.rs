//! What is counted, for `/metrics` and for the benchmarks. Counters only ever rise; units are in the names.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use compline_core::execution::Outcome;
use compline_core::explain::LATE_FROM;
use compline_core::ids::ShardId;
use compline_core::ledger::SkipReason;
use compline_store::Store;
use hdrhistogram::Histogram as Lags;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::fleet::clocks::Clocks;
use crate::passes::complete::Reported;

/// The upper bounds of the start-lag histogram's buckets, in seconds.
const LAG_SECONDS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TableLabels {
    table: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardLabels {
    shard: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReportLabels {
    answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Answer {
    Recorded,
    AlreadyRecorded,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    start: &'static str,
}

const ON_TIME: &str = "on_time";
const LATE: &str = "late";

/// Slots that will not run, by why.
pub type Skipped = BTreeMap<SkipReason, u64>;

/// Of one stretch of slots that do not run no more are counted: counting takes time.
pub const STRETCH_COUNTED_MAX: usize = 1_000;

/// The registry and what is in it.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    queued: Counter,
    ended_unrun: Counter,
    slots_skipped: Family<ReasonLabels, Counter>,
    first_starts: Family<StartLabels, Counter>,
    claimed: Counter,
    attempts: Family<OutcomeLabels, Counter>,
    attempts_recorded: Counter,
    reports: Family<ReportLabels, Counter>,
    start_lag: Histogram,
    owed_start_lag: Histogram,
    owed: Counter,
    /// The same lags in microseconds, finer than buckets can be: for quantiles.
    lags: Mutex<Lags<u32>>,
    owed_lags: Mutex<Lags<u32>>,
    unreadable_rows: Family<TableLabels, Counter>,
    retained: Counter,
    /// Executions that were laid down as dead letters.
    pub dead_letters: Counter,
    /// By how much the wall clock is off the course that is believed, in seconds; 0 while it is believed itself.
    pub clock_doubt: Gauge<f64, AtomicU64>,
    /// Attempts that run at this moment, by lane.
    running: Mutex<BTreeMap<String, u32>>,
    queued_by_shard: Family<ShardLabels, Counter>,
    /// Sessions of dead nodes that this node ended.
    pub sessions_ended: Counter,
    /// Shards that this node ticks.
    pub shards_held: Gauge,
    /// 1 while the store has seen newer zone data than this node's.
    pub zone_data_outdated: Gauge,
    clock_offset: Family<NodeLabels, Gauge<f64, AtomicU64>>,
    clock_error: Family<NodeLabels, Gauge<f64, AtomicU64>>,
}

/// Up to an hour, to three digits.
fn new_lags() -> Lags<u32> {
    Lags::new_with_bounds(1, 3_600_000_000, 3).expect("valid bounds")
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("compline")),
            queued: Counter::default(),
            ended_unrun: Counter::default(),
            slots_skipped: Family::default(),
            first_starts: Family::default(),
            claimed: Counter::default(),
            attempts: Family::default(),
            attempts_recorded: Counter::default(),
            reports: Family::default(),
            start_lag: Histogram::new(LAG_SECONDS),
            owed_start_lag: Histogram::new(LAG_SECONDS),
            owed: Counter::default(),
            lags: Mutex::new(new_lags()),
            owed_lags: Mutex::new(new_lags()),
            unreadable_rows: Family::default(),
            retained: Counter::default(),
            dead_letters: Counter::default(),
            clock_doubt: Gauge::default(),
            running: Mutex::default(),
            queued_by_shard: Family::default(),
            sessions_ended: Counter::default(),
            shards_held: Gauge::default(),
            zone_data_outdated: Gauge::default(),
            clock_offset: Family::default(),
            clock_error: Family::default(),
        };
        {
            let mut registry = metrics.registry.lock();
            registry.register(
                "executions_queued",
                "Executions that a tick put into their lanes",
                metrics.queued.clone(),
            );
            registry.register(
                "executions_ended_unrun",
                "Executions that ended without having run",
                metrics.ended_unrun.clone(),
            );
            registry.register("executions_claimed", "Executions claimed by this node", metrics.claimed.clone());
            registry.register("attempts", "Attempts that ended, by outcome", metrics.attempts.clone());
            registry.register("reports", "Reports of ended attempts, by the store's answer", metrics.reports.clone());
            registry.register(
                "start_lag_seconds",
                "Actual start less promised start, of what was queued in time",
                metrics.start_lag.clone(),
            );
            let help = "Actual start less promised start, of what was found over 10 s late, as after an outage";
            registry.register("owed_start_lag_seconds", help, metrics.owed_start_lag.clone());
            registry.register("executions_owed", "Executions that a tick found over 10 s late", metrics.owed.clone());
            registry.register(
                "unreadable_rows",
                "Rows that could not be read, by table, counted each time that one was met",
                metrics.unreadable_rows.clone(),
            );
            registry.register("executions_removed", "Executions that retention removed", metrics.retained.clone());
            registry.register("dead_letters", "Executions that failed for good", metrics.dead_letters.clone());
            let help = "Wall clock less believed time; 0 while the wall clock is believed";
            registry.register("clock_doubt_seconds", help, metrics.clock_doubt.clone());
        }
        metrics.register_slots();
        metrics.register_fleet();
        metrics
    }
}

impl Metrics {
    fn register_slots(&self) {
        // Each is there from the beginning, so that a rate can be taken of the first one too.
        for reason in SkipReason::ALL {
            drop(self.slots_skipped.get_or_create(&ReasonLabels { reason: reason.as_str() }));
        }
        for start in [ON_TIME, LATE] {
            drop(self.first_starts.get_or_create(&StartLabels { start }));
        }
        let mut registry = self.registry.lock();
        let help = format!("Slots that do not run, by reason; of one stretch {STRETCH_COUNTED_MAX} at the most");
        registry.register("slots_skipped", help, self.slots_skipped.clone());
        let help = format!("First attempts that began; late: over {} s after the promised start", LATE_FROM.as_secs());
        registry.register("executions_started", help, self.first_starts.clone());
    }

    /// Slots will not run.
    pub fn skipped(&self, skipped: &Skipped) {
        for (reason, count) in skipped {
            self.slots_skipped.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc_by(*count);
        }
    }

    /// How many slots did not run for a reason.
    pub fn skipped_for(&self, reason: SkipReason) -> u64 {
        self.slots_skipped.get_or_create(&ReasonLabels { reason: reason.as_str() }).get()
    }

    /// How many executions began on time, and how many late.
    pub fn first_starts(&self) -> (u64, u64) {
        let count = |start| self.first_starts.get_or_create(&StartLabels { start }).get();
        (count(ON_TIME), count(LATE))
    }

    fn register_fleet(&self) {
        let mut registry = self.registry.lock();
        registry.register("sessions_ended", "Sessions of dead nodes that this node ended", self.sessions_ended.clone());
        registry.register(
            "executions_queued_by_shard",
            "Executions that this node's ticks put into their lanes, by shard",
            self.queued_by_shard.clone(),
        );
        registry.register("shards_held", "Shards that this node ticks", self.shards_held.clone());
        let help = "1 while the store has seen newer time-zone data: this node does not tick jobs that follow a zone";
        registry.register("zone_data_outdated", help, self.zone_data_outdated.clone());
        registry.register(
            "clock_offset_seconds",
            "How far a node's clock is ahead of the majority's, or of this node's while fewer than three agree",
            self.clock_offset.clone(),
        );
        registry.register(
            "clock_offset_error_seconds",
            "By how much compline_clock_offset_seconds may be wrong",
            self.clock_error.clone(),
        );
    }

    /// A tick of this shard queued so many.
    pub fn queued_in(&self, shard: ShardId, executions: usize) {
        self.queued_by_shard.get_or_create(&ShardLabels { shard: u32::from(shard.0) }).inc_by(executions as u64);
    }

    /// Clocks were compared.
    pub fn clocks(&self, clocks: &Clocks) {
        self.clock_offset.clear();
        self.clock_error.clear();
        for (node, offset) in &clocks.of {
            let labels = NodeLabels { node: node.clone() };
            self.clock_offset.get_or_create(&labels).set(offset.millis() / 1_000.0);
            self.clock_error.get_or_create(&labels).set(offset.error_millis() / 1_000.0);
        }
    }

    /// An attempt began to run.
    pub fn run_began(&self, lane: &str) {
        let mut running = self.running.lock();
        match running.get_mut(lane) {
            Some(count) => *count += 1,
            None => drop(running.insert(lane.to_owned(), 1)),
        }
    }

    /// It does not run any more.
    pub fn run_ended(&self, lane: &str) {
        if let Some(count) = self.running.lock().get_mut(lane) {
            *count = count.saturating_sub(1);
        }
    }

    /// How many attempts run at this moment, by lane.
    pub fn running_by_lane(&self) -> Vec<(String, u32)> {
        let running = self.running.lock();
        running.iter().filter(|(_, count)| **count > 0).map(|(lane, count)| (lane.clone(), *count)).collect()
    }

    /// A tick committed.
    pub fn ticked(&self, queued: usize, ended: usize, set_aside: usize) {
        self.queued.inc_by(queued as u64);
        self.ended_unrun.inc_by(ended as u64);
        self.owed.inc_by(set_aside as u64);
    }

    /// A row could not be read.
    pub fn unreadable(&self, table: &'static str) {
        self.unreadable_rows.get_or_create(&TableLabels { table }).inc();
    }

    /// How often rows of a table could not be read.
    pub fn unreadable_in(&self, table: &'static str) -> u64 {
        self.unreadable_rows.get_or_create(&TableLabels { table }).get()
    }

    /// Retention removed executions.
    pub fn retained(&self, executions: usize) {
        self.retained.inc_by(executions as u64);
    }

    /// A claim committed.
    pub fn claimed(&self, executions: usize) {
        self.claimed.inc_by(executions as u64);
    }

    /// An attempt started: of what was owed or not, the first one of its execution or another.
    pub fn started(&self, lag: Duration, owed: bool, first: bool) {
        if first {
            let start = if lag > LATE_FROM { LATE } else { ON_TIME };
            self.first_starts.get_or_create(&StartLabels { start }).inc();
        }
        let (histogram, lags) =
            if owed { (&self.owed_start_lag, &self.owed_lags) } else { (&self.start_lag, &self.lags) };
        histogram.observe(lag.as_secs_f64());
        lags.lock().saturating_record(u64::try_from(lag.as_micros()).unwrap_or(u64::MAX));
    }

    /// The start lags of what was queued in time, since the last call, in microseconds.
    pub fn take_lags(&self) -> Lags<u32> {
        std::mem::replace(&mut *self.lags.lock(), new_lags())
    }

    /// The same of what was owed.
    pub fn take_owed_lags(&self) -> Lags<u32> {
        std::mem::replace(&mut *self.owed_lags.lock(), new_lags())
    }

    /// How many attempts ended so far: those that did their work, and all others.
    pub fn attempts_ended(&self) -> (u64, u64) {
        let ok = self.attempts.get_or_create(&OutcomeLabels { outcome: Outcome::Ok.kind() }).get();
        (ok, self.attempts_recorded.get() - ok)
    }

    /// The store answered a report.
    pub fn reported(&self, outcome: &Outcome, answer: Reported) {
        let answer = match answer {
            Reported::Recorded => {
                self.attempts.get_or_create(&OutcomeLabels { outcome: outcome.kind() }).inc();
                self.attempts_recorded.inc();
                Answer::Recorded
            }
            Reported::AlreadyRecorded => Answer::AlreadyRecorded,
            Reported::Refused => Answer::Refused,
        };
        self.reports.get_or_create(&ReportLabels { answer }).inc();
    }

    /// Everything as Prometheus text, the store's cost included.
    pub fn render(&self, store: &Store) -> String {
        let mut text = String::new();
        let mut cost = Registry::with_prefix("compline_store");
        let snapshot = store.cost();
        for (name, help, value) in [
            ("commits", "Transactions that committed writes", snapshot.commits),
            ("conflicts", "Commits refused because of a conflict", snapshot.conflicts),
            ("unknown_results", "Commits whose result was unknown", snapshot.unknown),
            ("key_writes", "Keys written by committed transactions", snapshot.key_writes),
            ("key_reads", "Keys read", snapshot.key_reads),
            ("written_bytes", "Bytes written by committed transactions", snapshot.bytes_written),
        ] {
            let counter: Counter = Counter::default();
            counter.inc_by(value);
            cost.register(name, help, counter);
        }
        let mut now = Registry::with_prefix("compline");
        let running: Family<LaneLabels, Gauge> = Family::default();
        for (lane, count) in &*self.running.lock() {
            running.get_or_create(&LaneLabels { lane: lane.clone() }).set(i64::from(*count));
        }
        now.register("attempts_running", "Attempts that run now, by lane", running);
        let thousandths = snapshot.conflicts as f64 * 1_000.0 / snapshot.commits.max(1) as f64;
        let conflicts: Gauge<f64, AtomicU64> = Gauge::default();
        conflicts.set(thousandths);
        now.register("store_conflicts_per_thousand_commits", "Of this node, since its start", conflicts);
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry.lock());
        let _ = encode(&mut text, &cost);
        let _ = encode(&mut text, &now);
        // Each registry ends with its own end mark; a text has one.
        text.replacen("# EOF\n", "", 2)
    }
}
