//! What a client means by a job, in the simulator's own words: which slots it has, and what is due after a failure. Nothing here asks the code
//! under test.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{JobId, TaskDigest, TenantId};
use compline_core::job::{Bounds, Job, Misfire, MisfirePolicy, OnFailure, Overlap, RunLimits, TaskRef};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::retry::RetryRule;

use super::shape::{LANE, LANE_APART};
use super::zones::{Data, ZONE};

/// A job as its client means it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobModel {
    /// When the request was made.
    pub created_at: Timestamp,
    /// When it runs.
    pub slots: Slots,
    /// How long after a failure it is tried again.
    pub retry: Retry,
    /// Which late slots run.
    pub misfire: Misfire,
    /// The lane.
    pub lane: &'static str,
    /// What happens to a slot while earlier executions are live.
    pub overlap: Overlap,
    /// The window over which starts are spread.
    pub splay: Duration,
    /// From when, until when and how often it runs.
    pub bounds: Bounds,
    /// Whether a task is told of executions that failed for good.
    pub tells: bool,
    /// The zone data that its slots are counted by, if it follows a zone.
    pub data: Data,
}

/// When a job runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Slots {
    /// At its creation.
    Now,
    /// At one instant.
    Once(Timestamp),
    /// At these seconds of these minutes of every hour, by the clock of [`ZONE`] or by UTC.
    Cron {
        /// Sorted.
        seconds: Vec<u32>,
        /// Sorted.
        minutes: Vec<u32>,
        /// By the zone's.
        zoned: bool,
    },
}

/// When a failed attempt is tried again.
#[derive(Debug, Clone, PartialEq)]
pub enum Retry {
    /// After these delays, one after the other.
    Delays(Vec<Duration>),
    /// After delays that grow.
    Growing {
        /// The first.
        first: Duration,
        /// What each is of the one before.
        factor: u32,
        /// The longest.
        max: Duration,
        /// How many attempts there are in all.
        attempts: u32,
        /// Whether each delay is anything up to that.
        jitter: bool,
    },
}

const HOUR: i64 = 3_600;
const INSTANT: Duration = Duration::from_nanos(1);

/// The component that every job runs.
pub fn task() -> TaskDigest {
    TaskDigest::of(b"simulated")
}

/// The component that is told of failures.
pub fn told_task() -> TaskDigest {
    TaskDigest::of(b"simulated, told of failures")
}

impl JobModel {
    /// A job that a client of a run that ends at `end` could want.
    pub fn draw(rng: &mut fastrand::Rng, now: Timestamp, end: Timestamp) -> Self {
        let slots = match rng.u8(0..10) {
            0..=3 => Slots::Now,
            4..=6 => Slots::Once(now + Duration::from_millis(rng.u64(0..8_000))),
            _ => Slots::cron(rng, now, end),
        };
        let mut drawn = Self {
            created_at: now,
            retry: Retry::draw(rng),
            misfire: draw_misfire(rng),
            lane: if rng.u8(0..4) == 0 { LANE_APART } else { LANE },
            // Half of the jobs let their runs overlap: what is stopped or skipped by a rule seldom comes back late.
            overlap: if rng.bool() {
                Overlap::Allow
            } else {
                *pick(
                    rng,
                    &[
                        Overlap::AllowUpTo(NonZeroU32::MIN.saturating_add(1)),
                        Overlap::Skip,
                        Overlap::BufferOne,
                        Overlap::BufferAll,
                        Overlap::CancelOther,
                        Overlap::TerminateOther,
                    ],
                )
            },
            data: Data::Old,
            splay: Duration::ZERO,
            bounds: Bounds::default(),
            tells: rng.u8(0..3) == 0,
            slots,
        };
        drawn.draw_splay(rng);
        drawn.draw_bounds(rng, now);
        drawn
    }

    /// A job that runs once, as soon as it can, in a lane of its own.
    pub fn prompt(now: Timestamp, slots: Slots, lane: &'static str) -> Self {
        Self {
            created_at: now,
            slots,
            retry: Retry::Delays(Vec::new()),
            misfire: Misfire::default(),
            lane,
            overlap: Overlap::Allow,
            splay: Duration::ZERO,
            bounds: Bounds::default(),
            tells: false,
            data: Data::Old,
        }
    }

    /// What runs at once cannot be spread.
    pub(super) fn draw_splay(&mut self, rng: &mut fastrand::Rng) {
        let spread = rng.u8(0..4) == 0 && self.slots != Slots::Now;
        self.splay = Duration::from_millis(if spread { *pick(rng, &[500, 1_500, 4_000, 10_000]) } else { 0 });
    }

    /// Only a schedule with more than one slot has bounds, and at least one slot lies within them.
    pub(super) fn draw_bounds(&mut self, rng: &mut fastrand::Rng, now: Timestamp) {
        self.bounds = Bounds::default();
        if rng.bool() || !matches!(self.slots, Slots::Cron { .. }) {
            return;
        }
        let mut some = |from: u64, to: u64| rng.bool().then(|| now + Duration::from_millis(rng.u64(from..to)));
        let (starts_at, ends_at) = (some(0, 8_000), some(8_000, 40_000));
        self.bounds = Bounds { starts_at, ends_at, max_runs: rng.bool().then(|| rng.u64(1..=6)) };
        if self.after(now).is_none() {
            self.bounds = Bounds::default();
        }
    }

    /// The definition that a request for this job makes.
    pub fn job(&self, id: JobId) -> Job {
        let named = |name: &str, digest| TaskRef { name: name.to_owned(), reference: name.to_owned(), digest };
        let told = OnFailure { task: named("told", told_task()), parameters: Bytes::from_static(b"{}") };
        Job {
            id,
            tenant: TenantId::default_tenant(),
            name: None,
            task: named("task", task()),
            schedule: self.schedule(),
            parameters: Bytes::new(),
            lane: self.lane.to_owned(),
            misfire: self.misfire,
            overlap: self.overlap,
            splay: self.splay,
            bounds: self.bounds,
            retry: self.retry.rule(),
            limits: RunLimits::default(),
            on_failure: self.tells.then_some(told),
            labels: BTreeMap::new(),
            created_at: self.created_at,
        }
    }

    /// The schedule as the request spells it.
    pub fn schedule(&self) -> ScheduleSpec {
        match &self.slots {
            Slots::Now => ScheduleSpec::now(),
            Slots::Once(at) => ScheduleSpec::once(at.to_string()),
            Slots::Cron { seconds, minutes, zoned } => {
                let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                let cron = ScheduleSpec::cron(format!("{} {} * * * *", list(seconds), list(minutes)));
                ScheduleSpec { time_zone: zoned.then(|| ZONE.to_owned()), ..cron }
            }
        }
    }

    /// The first slot.
    pub fn first(&self) -> Option<Timestamp> {
        match &self.slots {
            Slots::Now => Some(self.created_at),
            Slots::Once(at) => Some(*at),
            Slots::Cron { .. } => self.after(self.created_at),
        }
    }

    /// Whether its slots depend on zone data.
    pub fn is_zoned(&self) -> bool {
        matches!(self.slots, Slots::Cron { zoned: true, .. })
    }

    /// The slot that follows an instant.
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        let from = match self.bounds.starts_at {
            // A slot at the very instant of the begin counts.
            Some(start) if start > instant => start.saturating_sub(INSTANT),
            _ => instant,
        };
        self.slots.after(from, self.ahead()).filter(|slot| self.bounds.ends_at.is_none_or(|end| *slot <= end))
    }

    /// Whether it has no slot left once so many were admitted.
    pub fn is_used_up(&self, starts: u64) -> bool {
        self.bounds.max_runs.is_some_and(|max| starts >= max)
    }

    /// How long the due times of a slot may be spread behind it: no further than to the slot that the schedule has next, within bounds or not.
    pub fn window(&self, slot: Timestamp) -> Duration {
        self.slots.after(slot, self.ahead()).map_or(self.splay, |next| self.splay.min(next.saturating_since(slot)))
    }

    /// How many seconds its zone is ahead of UTC.
    fn ahead(&self) -> i64 {
        if self.is_zoned() { self.data.ahead() } else { 0 }
    }
}

impl Slots {
    /// A list of seconds within the minutes that the run is active in, so that nothing is due soon after it.
    pub(super) fn cron(rng: &mut fastrand::Rng, now: Timestamp, end: Timestamp) -> Self {
        let every = *pick(rng, &[2, 3, 5, 10, 20]);
        let from = rng.u32(0..every);
        let seconds: Vec<u32> = (from..60).step_by(every as usize).collect();
        let minute = |at: Timestamp| at.timestamp().div_euclid(60);
        let active = (minute(now)..=minute(end.max(now))).map(|minute| minute.rem_euclid(60) as u32);
        // Drawn apart, so that a seed keeps what else it stands for.
        let mut apart = rng.clone();
        let zoned = apart.u8(0..3) == 0;
        // By the old data it runs in some of the minutes, by the new data in others, or in the same.
        let of_zone = |minute: u32| match apart.u8(0..3) {
            0 => vec![minute + Data::Old.minutes_ahead()],
            1 => vec![minute + Data::New.minutes_ahead()],
            _ => vec![minute + Data::Old.minutes_ahead(), minute + Data::New.minutes_ahead()],
        };
        let mut minutes: Vec<u32> = match zoned {
            true => active.flat_map(of_zone).map(|minute| minute % 60).collect(),
            false => active.collect(),
        };
        minutes.sort_unstable();
        minutes.dedup();
        Self::Cron { seconds, minutes, zoned }
    }

    /// The instant of the schedule that follows another, in a zone so many seconds ahead of UTC.
    fn after(&self, instant: Timestamp, ahead: i64) -> Option<Timestamp> {
        let Self::Cron { seconds, minutes, .. } = self else { return None };
        let after = instant.timestamp() + ahead;
        let hour = after.div_euclid(HOUR) * HOUR;
        let offsets =
            minutes.iter().flat_map(|minute| seconds.iter().map(move |second| i64::from(minute * 60 + second)));
        let this_hour = offsets.clone().map(|offset| hour + offset).find(|slot| *slot > after);
        this_hour
            .or_else(|| offsets.map(|offset| hour + HOUR + offset).next())
            .map(|slot| Timestamp::from_unix_seconds(slot - ahead))
    }
}

impl Retry {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        if rng.u8(0..3) == 0 {
            return Self::Growing {
                first: Duration::from_millis(*pick(rng, &[10, 100, 400])),
                factor: rng.u32(1..=3),
                max: Duration::from_millis(*pick(rng, &[150, 1_000, 5_000])),
                attempts: rng.u32(1..=5),
                jitter: rng.bool(),
            };
        }
        let delays = (0..rng.usize(0..=3)).map(|_| Duration::from_millis(*pick(rng, &[0, 20, 100, 700, 3_000])));
        Self::Delays(delays.collect())
    }

    /// The rule as the request spells it.
    fn rule(&self) -> RetryRule {
        match self {
            Self::Delays(delays) => RetryRule::Delays(delays.clone()),
            Self::Growing { first, factor, max, attempts, jitter } => RetryRule::Exponential {
                first: *first,
                factor: f64::from(*factor),
                max: *max,
                attempts: *attempts,
                jitter: *jitter,
            },
        }
    }

    /// The shortest and the longest delay after the failure that is an execution's `count`th; `None`: it was the last attempt.
    pub fn after_failure(&self, count: usize) -> Option<(Duration, Duration)> {
        match self {
            Self::Delays(delays) => delays.get(count - 1).map(|delay| (*delay, *delay)),
            Self::Growing { first, factor, max, attempts, jitter } => {
                let longest = (1..count).fold(*first, |delay, _| delay * *factor).min(*max);
                let shortest = if *jitter { Duration::ZERO } else { longest };
                (count < *attempts as usize).then_some((shortest, longest))
            }
        }
    }
}

fn draw_misfire(rng: &mut fastrand::Rng) -> Misfire {
    let deadline = Duration::from_millis(*pick(rng, &[1_500, 4_000, 15_000, 3_600_000, 3_600_000]));
    let policy =
        *pick(rng, &[MisfirePolicy::RunAll, MisfirePolicy::RunAll, MisfirePolicy::RunLatest, MisfirePolicy::Skip]);
    Misfire { policy, deadline, cap: *pick(rng, &[1, 1, 2, 1_000]) }
}

fn pick<'a, T>(rng: &mut fastrand::Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(0..of.len())]
}
