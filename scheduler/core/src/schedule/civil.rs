//! Civil (proleptic Gregorian) dates as plain integers.
//!
//! The cron search works on local seconds since 1970-01-01T00:00:00 *on the wall clock it is asked about*, so that one search serves
//! UTC and every zone. The day arithmetic is the well-known era method: a year counted from March has its leap day at the end, and
//! 400 years always have 146,097 days.

/// Seconds in a civil day. Zone changes are the zone layer's business; the wall clock itself always counts 24 hours.
pub(crate) const DAY: i64 = 86_400;
/// The first year that a schedule can fire in.
pub(crate) const YEAR_MIN: i32 = 1970;
/// The last year that a schedule can fire in: the last one that RFC 3339 can write.
pub(crate) const YEAR_MAX: i32 = 9999;

/// A calendar date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Date {
    pub(crate) year: i32,
    /// 1 to 12.
    pub(crate) month: u32,
    /// 1 to 31.
    pub(crate) day: u32,
}

impl Date {
    pub(crate) const fn new(year: i32, month: u32, day: u32) -> Self {
        Self { year, month, day }
    }

    /// Days since 1970-01-01.
    pub(crate) const fn days(self) -> i64 {
        let year = self.year as i64 - if self.month <= 2 { 1 } else { 0 };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (self.month as i64 + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day as i64 - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// The date that lies `days` after 1970-01-01. `days` must be within the years that fit an `i32`.
    pub(crate) const fn from_days(days: i64) -> Self {
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = (if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 }) as u32;
        let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
        Self { year: year as i32, month, day }
    }
}

pub(crate) const fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// How many days the month has.
pub(crate) const fn month_days(leap: bool, month: u32) -> u32 {
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The weekday of a day counted from 1970-01-01 (a Thursday): 0 is Sunday.
pub(crate) const fn weekday(days: i64) -> u32 {
    (days + 4).rem_euclid(7) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{Datelike, Days, NaiveDate};

    #[test]
    fn every_day_of_ten_thousand_years_agrees_with_chrono() {
        let epoch = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap();
        let mut date = NaiveDate::from_ymd_opt(1, 1, 1).unwrap();
        while date.year() <= YEAR_MAX {
            let ours = Date::new(date.year(), date.month(), date.day());
            let days = (date - epoch).num_days();
            assert_eq!(ours.days(), days, "{date}");
            assert_eq!(Date::from_days(days), ours, "{date}");
            assert_eq!(weekday(days), date.weekday().num_days_from_sunday(), "{date}");
            assert!(date.day() <= month_days(is_leap(date.year()), date.month()), "{date}");
            date = date + Days::new(1);
        }
    }
}
