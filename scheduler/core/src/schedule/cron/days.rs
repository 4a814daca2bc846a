//! Which days of a month match: the two day fields and the rule that joins them.

use crate::schedule::civil::{is_leap, month_days};

/// Both day fields, as bit sets. A bit set for days of the month uses bits 1 to 31, one for weekdays bits 0 (Sunday) to 6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DayRule {
    /// Plain days of the month.
    pub(super) days: u32,
    /// Bit n: the day n days before the last one (`L` is bit 0, `L-3` is bit 3).
    pub(super) before_last: u32,
    /// `LW`: the last Monday-to-Friday day.
    pub(super) last_workday: bool,
    /// `nW`: the Monday-to-Friday day nearest to day n, in the same month.
    pub(super) near_workday: u32,
    /// Plain weekdays.
    pub(super) weekdays: u8,
    /// `d#n`: weekdays per occurrence in the month, the first at index 0.
    pub(super) nth: [u8; 5],
    /// `dL`: weekdays whose last occurrence matches.
    pub(super) last_of: u8,
    /// True: a day must match both fields. False: one is enough.
    pub(super) both: bool,
}

impl DayRule {
    /// The days (bits 1 to 31) that match in a month of `len` days whose first day falls on weekday `first` (0 is Sunday).
    pub(super) fn mask(&self, first: u32, len: u32) -> u32 {
        let exists = (1_u64 << (len + 1)) - 2;
        let by_day = self.by_day(first, len);
        let by_weekday = self.by_weekday(first, len);
        let joined = if self.both { by_day & by_weekday } else { by_day | by_weekday };
        (joined & exists) as u32
    }

    fn by_day(&self, first: u32, len: u32) -> u64 {
        let mut mask = u64::from(self.days);
        for n in bits(self.before_last).filter(|n| *n < len) {
            mask |= 1 << (len - n);
        }
        // Day 31 does not exist in a 30-day month, and neither does the workday nearest to it.
        for day in bits(self.near_workday).filter(|day| *day <= len) {
            mask |= 1 << nearest_workday(day, first, len);
        }
        if self.last_workday {
            mask |= 1 << nearest_workday(len, first, len);
        }
        mask
    }

    fn by_weekday(&self, first: u32, len: u32) -> u64 {
        const EVERY_WEEK: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
        let mut mask = (week_from(self.weekdays, first) * EVERY_WEEK) << 1;
        for (n, weekdays) in self.nth.iter().enumerate() {
            mask |= week_from(*weekdays, first) << (7 * n + 1);
        }
        // The last seven days hold each weekday once.
        mask | week_from(self.last_of, (first + len - 7) % 7) << (len - 6)
    }

    /// Whether some day of a year of this kind matches. There are 14 kinds: leap or not, and the weekday of 1 January.
    pub(super) fn matches_in(&self, leap: bool, first_of_year: u32, months: u16) -> bool {
        let mut first = first_of_year;
        for month in 1..=12 {
            let len = month_days(leap, month);
            if months & 1 << month != 0 && self.mask(first, len) != 0 {
                return true;
            }
            first = (first + len) % 7;
        }
        false
    }
}

/// The kind of a year for [`DayRule::matches_in`], as a bit number below 14.
pub(super) fn year_kind(year: i32, first_of_year: u32) -> u32 {
    first_of_year + if is_leap(year) { 7 } else { 0 }
}

/// The numbers of the bits that are set, lowest first.
pub(super) fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < 32).then_some(bit)
    })
}

/// A week of seven days that begins on weekday `first`: bit i is set where day i falls on one of `weekdays`.
fn week_from(weekdays: u8, first: u32) -> u64 {
    let weekdays = u64::from(weekdays);
    (weekdays >> first | weekdays << (7 - first)) & 0x7f
}

/// The Monday-to-Friday day nearest to `day` that lies in the same month.
fn nearest_workday(day: u32, first: u32, len: u32) -> u32 {
    match (first + day - 1) % 7 {
        0 if day == len => day - 2,
        0 => day + 1,
        6 if day == 1 => 3,
        6 => day - 1,
        _ => day,
    }
}
