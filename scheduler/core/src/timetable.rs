//! A job's slots: what its schedule says, within its bounds, and when each slot is due.

use std::iter;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::Timestamp;
use crate::execution::{Cause, Execution};
use crate::ids::{ExecutionId, JobId, ShardCount};
use crate::job::Bounds;
use crate::schedule::Schedule;

/// A job's slots.
#[derive(Debug, Clone, Copy)]
pub struct Timetable<'a> {
    /// The job.
    pub job: JobId,
    /// Its schedule.
    pub schedule: &'a Schedule,
    /// Its bounds.
    pub bounds: Bounds,
    /// The window over which its starts are spread.
    pub splay: Duration,
    /// Slots that are left out, see [`crate::job::JobRun::taken`].
    pub taken: &'a [Timestamp],
}

const TICK: Duration = Duration::from_nanos(1);

impl Timetable<'_> {
    /// The first slot of a job created at `created`, see [`Schedule::first_after`].
    pub fn first(&self, created: Timestamp) -> Option<Timestamp> {
        self.within(self.schedule.first_after(self.from(created).to_utc()))
    }

    /// The slot that follows an instant.
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        let mut slot = self.schedule.next_after(self.from(instant).to_utc())?;
        while self.taken.contains(&slot.into()) {
            slot = self.schedule.next_after(slot)?;
        }
        self.within(Some(slot))
    }

    /// The slot itself if it is one, else the one that follows.
    pub fn at_or_after(&self, instant: Timestamp) -> Option<Timestamp> {
        self.after(instant.saturating_sub(TICK))
    }

    /// The newest slot after one instant and not after another: as many steps as the stretch's length has digits, however many slots it has.
    pub fn newest(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let found = |from: i64| self.after(Timestamp::from_unix_seconds(from)).filter(|slot| *slot <= until);
        let mut newest = self.after(after).filter(|slot| *slot <= until)?;
        // Slots of a schedule that has more than one are whole seconds. Between these two seconds the last slot lies: there is one after `low`.
        let (mut low, mut high) = (newest.timestamp() - 1, until.timestamp());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match found(middle) {
                Some(slot) => {
                    newest = slot;
                    low = middle.max(slot.timestamp() - 1);
                }
                None => high = middle,
            }
        }
        Some(newest)
    }

    /// When a slot is due: at its instant, or later by its splay.
    ///
    /// The delay is a fraction of the window that is fixed by a hash of the job, so that a job keeps its distance from the full minute for ever
    /// and many jobs of one schedule are spread evenly. The window ends before the next slot: no slot is passed by its successor.
    pub fn due(&self, slot: Timestamp) -> Timestamp {
        if self.splay.is_zero() {
            return slot;
        }
        let to_next = self.schedule.next_after(slot.to_utc()).map(|next| Timestamp::from(next).saturating_since(slot));
        let window = to_next.map_or(self.splay, |to_next| self.splay.min(to_next));
        let hash = Sha256::digest([b"splay".as_slice(), self.job.as_bytes()].concat());
        let fraction = u64::from_be_bytes(std::array::from_fn(|at| hash[at]));
        let micros = (u128::from(fraction) * window.as_micros()) >> 64;
        slot + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The next slots from this one on, of a job that has admitted `starts` of them.
    pub fn fires(&self, first: Option<Timestamp>, starts: u64) -> impl Iterator<Item = Timestamp> {
        let left = self.bounds.max_runs.map_or(u64::MAX, |max| max.saturating_sub(starts));
        iter::successors(first, |slot| self.after(*slot)).take(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Whether a job that has admitted `starts` slots admits no more.
    pub fn is_used_up(&self, starts: u64) -> bool {
        self.bounds.max_runs.is_some_and(|max| starts >= max)
    }

    /// The row of a slot that is planned.
    pub fn execution(&self, slot: Timestamp, shards: ShardCount) -> Execution {
        let id = ExecutionId::of_slot(self.job, slot, self.job.shard(shards));
        Execution::planned(id, self.job, slot, self.due(slot), Cause::Schedule)
    }

    fn from(&self, instant: Timestamp) -> Timestamp {
        self.bounds.starts_at.map_or(instant, |start| instant.max(start.saturating_sub(TICK)))
    }

    fn within(&self, slot: Option<chrono::DateTime<chrono::Utc>>) -> Option<Timestamp> {
        slot.map(Timestamp::from).filter(|slot| self.bounds.ends_at.is_none_or(|end| *slot <= end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::cron::CronExpr;
    use crate::schedule::zone::Zone;

    fn at(text: &str) -> Timestamp {
        crate::time::instant::parse(text).unwrap().into()
    }

    fn cron(text: &str) -> Schedule {
        Schedule::cron(CronExpr::parse(text).unwrap(), Zone::utc())
    }

    fn table(schedule: &Schedule, splay: u64, bounds: Bounds) -> Timetable<'_> {
        let splay = Duration::from_secs(splay);
        Timetable { job: JobId::new(Timestamp::EPOCH, 7), schedule, bounds, splay, taken: &[] }
    }

    #[test]
    fn c35_an_hourly_job_spread_over_two_minutes_starts_once_an_hour_within_them() {
        let hourly = cron("0 * * * *");
        let mut delays = Vec::new();
        for random in 0..200 {
            let table =
                Timetable { job: JobId::new(Timestamp::EPOCH, random), ..table(&hourly, 120, Bounds::default()) };
            let slots: Vec<_> = table.fires(table.first(at("2026-01-01T00:00:00Z")), 0).take(24).collect();
            let due: Vec<_> = slots.iter().map(|slot| table.due(*slot).saturating_since(*slot)).collect();
            assert!(due.iter().all(|delay| *delay == due[0] && *delay < Duration::from_secs(120)), "steady: {due:?}");
            assert_eq!(slots[23].saturating_since(slots[0]), Duration::from_secs(23 * 3_600), "planned by the hour");
            delays.push(due[0].as_secs());
        }
        for quarter in 0..4 {
            let count = delays.iter().filter(|delay| **delay / 30 == quarter).count();
            assert!((25..=75).contains(&count), "200 jobs are spread over the window: {count} in quarter {quarter}");
        }
    }

    #[test]
    fn a_splay_longer_than_the_period_ends_before_the_next_slot() {
        let uneven = cron("0,1,30 * * * *");
        for random in 0..100 {
            let table =
                Timetable { job: JobId::new(Timestamp::EPOCH, random), ..table(&uneven, 86_400, Bounds::default()) };
            let mut slot = table.first(at("2026-01-01T00:00:00Z")).unwrap();
            for _ in 0..6 {
                let next = table.after(slot).unwrap();
                assert!(slot <= table.due(slot) && table.due(slot) < next);
                slot = next;
            }
        }
    }

    #[test]
    fn bounds_keep_the_slots_on_them_and_none_beyond() {
        let minutely = cron("* * * * *");
        let (starts_at, ends_at) = (at("2026-01-01T00:10:00Z"), at("2026-01-01T00:12:00Z"));
        let bounds = Bounds { starts_at: Some(starts_at), ends_at: Some(ends_at), max_runs: None };
        let bounded = table(&minutely, 0, bounds);
        let first = bounded.first(at("2026-01-01T00:00:30Z"));
        assert_eq!(bounded.fires(first, 0).count(), 3);
        assert_eq!((first, bounded.after(ends_at)), (Some(starts_at), None));
        let two = table(&minutely, 0, Bounds { max_runs: Some(2), ..bounds });
        assert_eq!((two.fires(first, 0).count(), two.fires(first, 1).count(), two.fires(first, 2).count()), (2, 1, 0));
        assert!(two.is_used_up(2) && !two.is_used_up(1));
    }

    #[test]
    fn a_slot_that_is_taken_is_left_out() {
        let minutely = cron("* * * * *");
        let taken = [at("2026-01-01T00:02:00Z"), at("2026-01-01T00:03:00Z")];
        let table = Timetable { taken: &taken, ..table(&minutely, 0, Bounds::default()) };
        let fires: Vec<_> = table.fires(table.first(at("2026-01-01T00:00:00Z")), 0).take(2).collect();
        assert_eq!(fires, [at("2026-01-01T00:01:00Z"), at("2026-01-01T00:04:00Z")]);
    }

    #[test]
    fn the_newest_slot_is_the_one_that_counting_finds() {
        for text in ["* * * * *", "0 3 * * 1", "*/7 1-5 * * * *", "0 0 29 2 *"] {
            let schedule = cron(text);
            let table = table(&schedule, 0, Bounds::default());
            for (after, length) in [(0, 1), (5, 60), (17, 3_600), (1_000, 86_400), (77, 700_000)] {
                let after = at("2028-02-28T00:00:00Z") + Duration::from_secs(after);
                let until = after + Duration::from_secs(length);
                let counted = iter::successors(table.after(after), |slot| table.after(*slot))
                    .take_while(|slot| *slot <= until)
                    .last();
                assert_eq!(table.newest(after, until), counted, "{text} in {after}..{until}");
            }
        }
    }
}
