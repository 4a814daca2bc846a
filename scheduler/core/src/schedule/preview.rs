//! The next fires of a schedule, each with its wall-clock time and the reason of what is odd about it.

use std::ops::Range;

use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};

use super::civil::DAY;
use super::clock_change::{Fold, Walk};
use super::zone::{Segment, Zone};
use super::{Gap, Schedule};

/// How many clock changes before a fire are looked at for times that were left out.
const CHANGES_BACK_MAX: usize = 8;

/// One planned instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    /// When, in UTC.
    pub at: DateTime<Utc>,
    /// The wall clock of the schedule's zone then, in RFC 3339 with its offset.
    pub local: String,
    /// What a clock change has to do with it.
    pub note: Option<String>,
}

impl Schedule {
    /// The first `count` slots of a job created at `created`.
    pub fn preview(&self, created: DateTime<Utc>, count: usize) -> Vec<Fire> {
        let slots = std::iter::successors(self.first_after(created), |slot| self.next_after(*slot)).take(count);
        let mut since = created;
        let mut fires = Vec::new();
        for at in slots {
            fires.push(self.fire(since, at));
            since = at;
        }
        fires
    }

    /// The slot at `at`, the first one after `since`.
    pub fn fire(&self, since: DateTime<Utc>, at: DateTime<Utc>) -> Fire {
        let Self::Cron { expr, zone, gap, fold } = self else {
            return Fire { at, local: local(Zone::utc(), at), note: None };
        };
        let note = Walk::new(expr, *zone, *gap, *fold).note(since.timestamp(), at.timestamp());
        Fire { at, local: local(*zone, at), note }
    }
}

fn local(zone: Zone, at: DateTime<Utc>) -> String {
    let offset = FixedOffset::east_opt(zone.offset_at(at.timestamp()));
    let text = offset.map(|offset| at.with_timezone(&offset).to_rfc3339_opts(SecondsFormat::AutoSi, false));
    text.unwrap_or_else(|| at.to_rfc3339())
}

impl Walk<'_> {
    /// What is odd about the fire at `at`, the first one after `since`. All in UTC seconds since 1970.
    fn note(&self, since: i64, at: i64) -> Option<String> {
        let segment = self.zone.segment(at);
        if at == segment.start
            && self.gap == Gap::Shift
            && let Some(times) = segment.made_up().and_then(|skipped| self.times_in(skipped))
        {
            return Some(match times {
                Times::One(time) => format!("{} does not exist that day; runs right after the jump", clock(time)),
                Times::Many(first, last) => format!(
                    "{} to {} do not exist that day; one run right after the jump stands for all of them",
                    clock(first),
                    clock(last)
                ),
            });
        }
        self.repeated(segment, at).or_else(|| self.left_out(segment, since))
    }

    fn repeated(&self, segment: Segment, at: i64) -> Option<String> {
        let local = at + segment.offset;
        let shows = |segment: &Segment| segment.repeats().is_some_and(|repeated| repeated.contains(&local));
        let (first, second) = (self.zone.after(segment).is_some_and(|later| shows(&later)), shows(&segment));
        let passes = match (first || second, self.fold) {
            (false, _) => return None,
            (true, Fold::First) => "runs the first time only",
            (true, Fold::Last) => "runs the last time only",
            (true, Fold::Both) if second => "this is the second time",
            (true, Fold::Both) => "this is the first time",
        };
        Some(format!("{} comes twice that day; {passes}", clock(local)))
    }

    /// Times that were due between `since` and the fire in `segment`, and that the clock jumped over for good.
    fn left_out(&self, segment: Segment, since: i64) -> Option<String> {
        let mut segment = segment;
        for _ in 0..CHANGES_BACK_MAX {
            if segment.start <= since || segment.start == Segment::OPEN_START {
                return None;
            }
            let made_up = self.gap == Gap::Shift && segment.made_up().is_some();
            if !made_up && let Some(times) = segment.skips().and_then(|skipped| self.times_in(skipped)) {
                let (Times::One(first) | Times::Many(first, _)) = times;
                let date = DateTime::from_timestamp(first, 0)?.format("%Y-%m-%d");
                return Some(match times {
                    Times::One(time) => format!("{} of {date} does not exist and is left out", clock(time)),
                    Times::Many(first, last) => {
                        format!("{} to {} of {date} do not exist and are left out", clock(first), clock(last))
                    }
                });
            }
            segment = self.zone.segment(segment.start - 1);
        }
        None
    }

    /// The first and the last due time in a stretch of wall-clock time.
    fn times_in(&self, stretch: Range<i64>) -> Option<Times> {
        let due = |from| self.expr.local_at_or_after(from).filter(|due| *due < stretch.end);
        let first = due(stretch.start)?;
        // Seconds may be due by the thousand: the last one is found by halving what is left.
        let (mut last, mut end) = (first, stretch.end);
        while end - last > 1 {
            let middle = last + (end - last) / 2;
            match due(middle) {
                Some(later) => last = later,
                None => end = middle,
            }
        }
        Some(if last == first { Times::One(first) } else { Times::Many(first, last) })
    }
}

enum Times {
    One(i64),
    Many(i64, i64),
}

/// The time of day, with seconds where there are any.
fn clock(local: i64) -> String {
    let time = local.rem_euclid(DAY);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    if second == 0 { format!("{hour:02}:{minute:02}") } else { format!("{hour:02}:{minute:02}:{second:02}") }
}

#[cfg(test)]
mod tests {
    use crate::schedule::{Fold, Gap, Schedule, ScheduleSpec};
    use crate::time::instant;

    fn preview(spec: &ScheduleSpec, after: &str, count: usize) -> Vec<(String, String, String)> {
        let schedule: Schedule = spec.parse().unwrap();
        let fires = schedule.preview(instant::parse(after).unwrap(), count);
        fires.into_iter().map(|fire| (instant::format(fire.at), fire.local, fire.note.unwrap_or_default())).collect()
    }

    fn zoned(cron: &str, zone: &str) -> ScheduleSpec {
        ScheduleSpec { time_zone: Some(zone.to_owned()), ..ScheduleSpec::cron(cron) }
    }

    #[test]
    fn every_oddity_has_its_reason() {
        let york = |cron: &str| zoned(cron, "America/New_York");
        let skip = |cron: &str| ScheduleSpec { gap: Some(Gap::Skip), ..york(cron) };
        let fold = |fold: Fold| ScheduleSpec { fold: Some(fold), ..york("30 1 * * *") };
        for (spec, after, at, local, note) in [
            (
                york("30 2 * * *"),
                "2026-03-07T12:00:00Z",
                "2026-03-08T07:00:00Z",
                "2026-03-08T03:00:00-04:00",
                "02:30 does not exist that day; runs right after the jump",
            ),
            (
                york("0,10,30 2 * * *"),
                "2026-03-07T12:00:00Z",
                "2026-03-08T07:00:00Z",
                "2026-03-08T03:00:00-04:00",
                "02:00 to 02:30 do not exist that day; one run right after the jump stands for all of them",
            ),
            (
                skip("30 2 * * *"),
                "2026-03-07T12:00:00Z",
                "2026-03-09T06:30:00Z",
                "2026-03-09T02:30:00-04:00",
                "02:30 of 2026-03-08 does not exist and is left out",
            ),
            (
                york("*/20 * * * *"),
                "2026-03-08T06:45:00Z",
                "2026-03-08T07:00:00Z",
                "2026-03-08T03:00:00-04:00",
                "02:00 to 02:40 of 2026-03-08 do not exist and are left out",
            ),
            (
                zoned("0 12 30 12 *", "Pacific/Apia"),
                "2011-12-01T00:00:00Z",
                "2012-12-29T22:00:00Z",
                "2012-12-30T12:00:00+14:00",
                "12:00 of 2011-12-30 does not exist and is left out",
            ),
            (
                york("30 1 * * *"),
                "2026-10-31T12:00:00Z",
                "2026-11-01T05:30:00Z",
                "2026-11-01T01:30:00-04:00",
                "01:30 comes twice that day; runs the first time only",
            ),
            (
                fold(Fold::Last),
                "2026-10-31T12:00:00Z",
                "2026-11-01T06:30:00Z",
                "2026-11-01T01:30:00-05:00",
                "01:30 comes twice that day; runs the last time only",
            ),
            (
                fold(Fold::Both),
                "2026-11-01T05:30:00Z",
                "2026-11-01T06:30:00Z",
                "2026-11-01T01:30:00-05:00",
                "01:30 comes twice that day; this is the second time",
            ),
            (york("30 1 * * *"), "2026-11-01T12:00:00Z", "2026-11-02T06:30:00Z", "2026-11-02T01:30:00-05:00", ""),
        ] {
            let expected = (at.to_owned(), local.to_owned(), note.to_owned());
            assert_eq!(preview(&spec, after, 1), [expected], "{spec:?}");
        }
    }

    #[test]
    fn a_change_is_noted_once() {
        let shift = zoned("30 2 * * *", "America/New_York");
        let skip = ScheduleSpec { gap: Some(Gap::Skip), ..shift.clone() };
        for (spec, at) in [(shift, "2026-03-08T07:00:00Z"), (skip, "2026-03-09T06:30:00Z")] {
            let fires = preview(&spec, "2026-03-07T00:00:00Z", 6);
            let noted: Vec<&str> = fires.iter().filter(|fire| !fire.2.is_empty()).map(|fire| fire.0.as_str()).collect();
            assert_eq!(noted, [at]);
        }
    }

    #[test]
    fn one_slot_is_shown_as_one() {
        let fires = preview(&ScheduleSpec::once("2026-12-01T10:00:00+01:00"), "2026-11-30T00:00:00Z", 5);
        assert_eq!(fires, [("2026-12-01T09:00:00Z".to_owned(), "2026-12-01T09:00:00+00:00".to_owned(), String::new())]);
    }
}
