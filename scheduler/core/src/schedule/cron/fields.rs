//! A parsed cron text as bit sets, and the search for the next matching wall-clock second.

use super::days::{DayRule, bits, year_kind};
use crate::schedule::civil::{DAY, Date, YEAR_MAX, YEAR_MIN, is_leap, month_days, weekday};

/// The longest wait for a year of a wanted kind: 29 February on a given weekday skips from 2072 to 2112, for example.
const YEARS_BETWEEN_KINDS_MAX: i32 = 40;

/// What each field allows. Bit n stands for the value n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u32,
    pub(super) days: DayRule,
    pub(super) months: u16,
    pub(super) years: Years,
    /// The second, minute or hour field starts with `*`: the schedule follows real time through clock changes.
    pub(super) wildcard: bool,
}

/// The years in which some day matches, so that the search never walks through an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Years {
    /// Every year of these kinds (see [`year_kind`]).
    OfKind(u16),
    /// Exactly these.
    Listed(Box<YearSet>),
}

impl Years {
    fn contains(&self, year: i32) -> bool {
        match self {
            Self::OfKind(_) => (YEAR_MIN..=YEAR_MAX).contains(&year),
            Self::Listed(set) => set.contains(year),
        }
    }

    fn at_or_after(&self, year: i32) -> Option<i32> {
        match self {
            Self::OfKind(kinds) => (year..=YEAR_MAX.min(year + YEARS_BETWEEN_KINDS_MAX))
                .find(|year| kinds & 1 << year_kind(*year, weekday(Date::new(*year, 1, 1).days())) != 0),
            Self::Listed(set) => set.at_or_after(year),
        }
    }
}

/// A set of years from 1970 to 9999.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct YearSet([u64; Self::WORDS]);

impl YearSet {
    const WORDS: usize = (YEAR_MAX - YEAR_MIN) as usize / 64 + 1;

    pub(super) fn empty() -> Self {
        Self([0; Self::WORDS])
    }

    pub(super) fn insert(&mut self, year: i32) {
        let bit = (year - YEAR_MIN) as usize;
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Drops the years whose kind is not among `kinds`.
    pub(super) fn keep_kinds(&mut self, kinds: u16) {
        let mut first_of_year = weekday(Date::new(YEAR_MIN, 1, 1).days());
        for year in YEAR_MIN..=YEAR_MAX {
            if kinds & 1 << year_kind(year, first_of_year) == 0 {
                let bit = (year - YEAR_MIN) as usize;
                self.0[bit / 64] &= !(1 << (bit % 64));
            }
            first_of_year = (first_of_year + if is_leap(year) { 2 } else { 1 }) % 7;
        }
    }

    fn contains(&self, year: i32) -> bool {
        let Ok(bit) = usize::try_from(year - YEAR_MIN) else { return false };
        self.0.get(bit / 64).is_some_and(|word| word & 1 << (bit % 64) != 0)
    }

    fn at_or_after(&self, year: i32) -> Option<i32> {
        let from = usize::try_from(year - YEAR_MIN).unwrap_or(0);
        let mut word = from / 64;
        let mut left = self.0.get(word)? & u64::MAX << (from % 64);
        while left == 0 {
            word += 1;
            left = *self.0.get(word)?;
        }
        Some(YEAR_MIN + (word * 64) as i32 + left.trailing_zeros() as i32)
    }
}

impl Fields {
    /// The first matching wall-clock second at or after `from`, both in local seconds since 1970. The work is bounded: the rest of one
    /// year, a jump to a year that is known to match, and at most the twelve months of that one.
    pub(super) fn at_or_after(&self, from: i64) -> Option<i64> {
        let from = from.max(0);
        let today = from / DAY;
        // 9999-12-31 is day 2,932,896: anything past it must not reach the date arithmetic, which counts years in 32 bits.
        if today > Date::new(YEAR_MAX, 12, 31).days() {
            return None;
        }
        let date = Date::from_days(today);
        if self.matches_day(date)
            && let Some(time) = self.time_at_or_after((from % DAY) as u32)
        {
            return Some(today * DAY + i64::from(time));
        }
        let next = self.day_after(date)?;
        Some(next.days() * DAY + i64::from(self.first_time()))
    }

    fn matches_day(&self, date: Date) -> bool {
        self.years.contains(date.year) && self.month_mask(date.year, date.month) & 1 << date.day != 0
    }

    /// The matching days of a month (bits 1 to 31); none when the month field leaves the month out.
    fn month_mask(&self, year: i32, month: u32) -> u32 {
        if self.months & 1 << month == 0 {
            return 0;
        }
        let first = weekday(Date::new(year, month, 1).days());
        self.days.mask(first, month_days(is_leap(year), month))
    }

    fn day_after(&self, date: Date) -> Option<Date> {
        if self.years.contains(date.year) {
            let later = self.month_mask(date.year, date.month) & (u64::MAX << (date.day + 1)) as u32;
            if later != 0 {
                return Some(Date::new(date.year, date.month, later.trailing_zeros()));
            }
            if let Some(found) = self.day_in(date.year, date.month + 1) {
                return Some(found);
            }
        }
        let year = self.years.at_or_after(date.year + 1)?;
        self.day_in(year, 1)
    }

    /// The first matching day of a year from the first of `month` on.
    fn day_in(&self, year: i32, month: u32) -> Option<Date> {
        let months = u32::from(self.months) & (u32::MAX << month);
        bits(months).find_map(|month| {
            let mask = self.month_mask(year, month);
            (mask != 0).then(|| Date::new(year, month, mask.trailing_zeros()))
        })
    }

    fn first_time(&self) -> u32 {
        self.hours.trailing_zeros() * 3600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros()
    }

    /// The first matching second of the day at or after `from`.
    fn time_at_or_after(&self, from: u32) -> Option<u32> {
        let (hour, minute, second) = (from / 3600, from / 60 % 60, from % 60);
        if self.hours & 1 << hour != 0 {
            if self.minutes & 1 << minute != 0
                && let Some(second) = at_or_after(self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = at_or_after(self.minutes, minute + 1) {
                return Some(hour * 3600 + minute * 60 + self.seconds.trailing_zeros());
            }
        }
        let hour = at_or_after(u64::from(self.hours), hour + 1)?;
        Some(hour * 3600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros())
    }
}

/// The lowest set bit that is not below `from`. `from` is at most 60.
fn at_or_after(mask: u64, from: u32) -> Option<u32> {
    let left = mask & u64::MAX << from;
    (left != 0).then(|| left.trailing_zeros())
}
