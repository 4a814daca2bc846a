//! What a client means by a job, in the simulator's own words: which slots it has, and what is due after a failure. Nothing here asks the code
//! under test.

use std::num::NonZeroU32;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::job::{Misfire, MisfirePolicy, Overlap};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::retry::RetryRule;

use super::shape::{LANE, LANE_APART};

/// A job as its client means it.
#[derive(Debug, Clone)]
pub struct JobModel {
    /// When the request was made.
    pub created_at: Timestamp,
    /// When it runs.
    pub slots: Slots,
    /// How long after a failure it is tried again.
    pub retries: Vec<Duration>,
    /// Slots later than this do not run.
    pub deadline: Duration,
    /// The lane.
    pub lane: &'static str,
    /// What happens to a slot while earlier executions are live.
    pub overlap: Overlap,
}

/// When a job runs.
#[derive(Debug, Clone)]
pub enum Slots {
    /// At its creation.
    Now,
    /// At one instant.
    Once(Timestamp),
    /// At these seconds of these minutes of every hour.
    Cron {
        /// Sorted.
        seconds: Vec<u32>,
        /// Sorted.
        minutes: Vec<u32>,
    },
}

const HOUR: i64 = 3_600;

impl JobModel {
    /// A job that a client of a run that ends at `end` could want.
    pub fn draw(rng: &mut fastrand::Rng, now: Timestamp, end: Timestamp) -> Self {
        let slots = match rng.u8(0..10) {
            0..=3 => Slots::Now,
            4..=6 => Slots::Once(now + Duration::from_millis(rng.u64(0..8_000))),
            _ => Slots::cron(rng, now, end),
        };
        let retries = (0..rng.usize(0..=3)).map(|_| Duration::from_millis(*pick(rng, &[0, 20, 100, 700, 3_000])));
        Self {
            created_at: now,
            slots,
            retries: retries.collect(),
            deadline: Duration::from_millis(*pick(rng, &[1_500, 4_000, 3_600_000, 3_600_000])),
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
        }
    }

    /// The schedule as the request spells it.
    pub fn schedule(&self) -> ScheduleSpec {
        match &self.slots {
            Slots::Now => ScheduleSpec::now(),
            Slots::Once(at) => ScheduleSpec::once(at.to_string()),
            Slots::Cron { seconds, minutes } => {
                let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                ScheduleSpec::cron(format!("{} {} * * * *", list(seconds), list(minutes)))
            }
        }
    }

    /// The misfire rule as the request spells it.
    pub fn misfire(&self) -> Misfire {
        Misfire { policy: MisfirePolicy::RunAll, deadline: self.deadline, ..Misfire::default() }
    }

    /// The retry rule as the request spells it.
    pub fn retry(&self) -> RetryRule {
        RetryRule::Delays(self.retries.clone())
    }

    /// The first slot.
    pub fn first(&self) -> Option<Timestamp> {
        match &self.slots {
            Slots::Now => Some(self.created_at),
            Slots::Once(at) => Some(*at),
            Slots::Cron { .. } => self.after(self.created_at),
        }
    }

    /// The slot that follows an instant.
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        let Slots::Cron { seconds, minutes } = &self.slots else { return None };
        let after = instant.timestamp();
        let hour = after.div_euclid(HOUR) * HOUR;
        let offsets =
            minutes.iter().flat_map(|minute| seconds.iter().map(move |second| i64::from(minute * 60 + second)));
        let this_hour = offsets.clone().map(|offset| hour + offset).find(|slot| *slot > after);
        this_hour.or_else(|| offsets.map(|offset| hour + HOUR + offset).next()).map(Timestamp::from_unix_seconds)
    }
}

impl Slots {
    /// A list of seconds within the minutes that the run is active in, so that nothing is due soon after it.
    pub(super) fn cron(rng: &mut fastrand::Rng, now: Timestamp, end: Timestamp) -> Self {
        let every = *pick(rng, &[2, 3, 5, 10, 20]);
        let from = rng.u32(0..every);
        let seconds: Vec<u32> = (from..60).step_by(every as usize).collect();
        let minute = |at: Timestamp| at.timestamp().div_euclid(60);
        let mut minutes: Vec<u32> =
            (minute(now)..=minute(end.max(now))).map(|minute| minute.rem_euclid(60) as u32).collect();
        minutes.sort_unstable();
        minutes.dedup();
        Self::Cron { seconds, minutes }
    }
}

fn pick<'a, T>(rng: &mut fastrand::Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(0..of.len())]
}
