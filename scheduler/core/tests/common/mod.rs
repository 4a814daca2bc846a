//! A cron expression as lists of values, matched by asking `chrono` about each day and second. It shares nothing with the engine: no bit
//! sets, no jumps, no calendar arithmetic of its own.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use chrono::{Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A text and what it means, written down while the text was made.
#[derive(Clone, Debug)]
pub struct Naive {
    pub text: String,
    pub seconds: Vec<u32>,
    pub minutes: Vec<u32>,
    pub hours: Vec<u32>,
    pub days: Vec<DayItem>,
    pub months: Vec<u32>,
    pub weekdays: Vec<WeekItem>,
    pub years: Option<Vec<u32>>,
    pub both: bool,
    pub wildcard: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum DayItem {
    Day(u32),
    BeforeLast(u64),
    LastWorkday,
    NearWorkday(u32),
}

#[derive(Clone, Copy, Debug)]
pub enum WeekItem {
    Weekday(u32),
    Nth(u32, u32),
    Last(u32),
}

impl DayItem {
    fn matches(self, date: NaiveDate) -> bool {
        let in_month = |date: NaiveDate| (1..=31).filter_map(move |day| date.with_day(day));
        let is_workday = |date: &NaiveDate| date.weekday().number_from_monday() <= 5;
        match self {
            Self::Day(day) => date.day() == day,
            Self::BeforeLast(back) => in_month(date).next_back() == date.checked_add_days(Days::new(back)),
            Self::LastWorkday => in_month(date).rfind(is_workday) == Some(date),
            Self::NearWorkday(day) => date.with_day(day).is_some_and(|wanted| {
                in_month(date).filter(is_workday).min_by_key(|candidate| (*candidate - wanted).num_days().abs())
                    == Some(date)
            }),
        }
    }
}

impl WeekItem {
    fn matches(self, date: NaiveDate) -> bool {
        let weekday = date.weekday().num_days_from_sunday();
        match self {
            Self::Weekday(day) => day % 7 == weekday,
            Self::Nth(day, nth) => day % 7 == weekday && (date.day() - 1) / 7 + 1 == nth,
            Self::Last(day) => day % 7 == weekday && (date + Days::new(7)).month() != date.month(),
        }
    }
}

impl Naive {
    pub fn matches_day(&self, date: NaiveDate) -> bool {
        let by_day = self.days.iter().any(|item| item.matches(date));
        let by_weekday = self.weekdays.iter().any(|item| item.matches(date));
        let by_year = self.years.as_ref().is_none_or(|years| years.contains(&(date.year() as u32)));
        let joined = if self.both { by_day && by_weekday } else { by_day || by_weekday };
        by_year && self.months.contains(&date.month()) && joined
    }

    pub fn matches(&self, at: NaiveDateTime) -> bool {
        self.seconds.contains(&at.second())
            && self.minutes.contains(&at.minute())
            && self.hours.contains(&at.hour())
            && self.matches_day(at.date())
    }

    /// The first match strictly after `after`, looking at every day and every second of a matching day, until `until`.
    pub fn next(&self, after: NaiveDateTime, until: NaiveDate) -> Option<NaiveDateTime> {
        let mut date = after.date();
        while date <= until {
            if self.matches_day(date) {
                let found = (0..86_400)
                    .filter_map(|second| NaiveTime::from_num_seconds_from_midnight_opt(second, 0))
                    .map(|time| date.and_time(time))
                    .find(|at| *at > after && self.matches(*at));
                if found.is_some() {
                    return found;
                }
            }
            date = date + Days::new(1);
        }
        None
    }
}

/// A field of numbers: its text and its values.
pub type Field = (String, Vec<u32>);

fn stepped(low: u32, high: u32, step: u32) -> Vec<u32> {
    (low..=high).filter(|value| (value - low).is_multiple_of(step)).collect()
}

/// One item of a list.
fn item(min: u32, max: u32) -> impl Strategy<Value = Field> {
    let bounds = (min..=max, min..=max).prop_map(|(one, other)| (one.min(other), one.max(other)));
    (bounds, 1..=max - min + 1, 0..5).prop_map(move |((low, high), step, shape)| match shape {
        0 | 1 => (format!("{low}"), vec![low]),
        2 => (format!("{low}-{high}"), stepped(low, high, 1)),
        3 => (format!("{low}-{high}/{step}"), stepped(low, high, step)),
        _ => (format!("{low}/{step}"), stepped(low, max, step)),
    })
}

fn joined(items: Vec<Field>) -> Field {
    let texts: Vec<String> = items.iter().map(|(text, _)| text.clone()).collect();
    (texts.join(","), items.into_iter().flat_map(|(_, values)| values).collect())
}

/// Any field of numbers.
pub fn numbers(min: u32, max: u32) -> impl Strategy<Value = Field> {
    prop_oneof![
        2 => Just(("*".to_owned(), stepped(min, max, 1))),
        2 => (1..=max - min + 1).prop_map(move |step| (format!("*/{step}"), stepped(min, max, step))),
        6 => vec(item(min, max), 1..4).prop_map(joined),
    ]
}

/// Months, sometimes by name.
pub fn months() -> impl Strategy<Value = Field> {
    const NAMES: [&str; 12] = ["jan", "FEB", "Mar", "apr", "MAY", "Jun", "jul", "AUG", "Sep", "oct", "NOV", "Dec"];
    let named = vec(1..=12_u32, 1..4).prop_map(|months| {
        let names: Vec<&str> = months.iter().map(|month| NAMES[*month as usize - 1]).collect();
        (names.join(","), months)
    });
    prop_oneof![3 => Just(("*".to_owned(), stepped(1, 12, 1))), 2 => numbers(1, 12), 1 => named]
}

pub type Days_ = (String, Vec<DayItem>);
pub type Weekdays = (String, Vec<WeekItem>);

fn joined_items<T>(items: Vec<(String, Vec<T>)>) -> (String, Vec<T>) {
    let texts: Vec<String> = items.iter().map(|(text, _)| text.clone()).collect();
    (texts.join(","), items.into_iter().flat_map(|(_, values)| values).collect())
}

pub fn any_day() -> impl Strategy<Value = Days_> {
    let all = || (1..=31).map(DayItem::Day).collect::<Vec<_>>();
    select(vec![("*".to_owned(), all()), ("?".to_owned(), all())])
}

pub fn days_of_month() -> impl Strategy<Value = Days_> {
    let plain = numbers(1, 31).prop_map(|(text, days)| (text, days.into_iter().map(DayItem::Day).collect()));
    let special = prop_oneof![
        Just(("L".to_owned(), vec![DayItem::BeforeLast(0)])),
        Just(("lw".to_owned(), vec![DayItem::LastWorkday])),
        (1..=30_u64).prop_map(|back| (format!("L-{back}"), vec![DayItem::BeforeLast(back)])),
        (1..=31_u32).prop_map(|day| (format!("{day}W"), vec![DayItem::NearWorkday(day)])),
        (1..=31_u32).prop_map(|day| (format!("{day:02}"), vec![DayItem::Day(day)])),
    ];
    prop_oneof![2 => any_day(), 2 => plain, 3 => vec(special, 1..4).prop_map(joined_items)]
}

const WEEKDAYS: [&str; 8] = ["SUN", "mon", "Tue", "wed", "THU", "fri", "Sat", "sun"];

pub fn any_weekday() -> impl Strategy<Value = Weekdays> {
    let all = || (0..7).map(WeekItem::Weekday).collect::<Vec<_>>();
    select(vec![("*".to_owned(), all()), ("?".to_owned(), all())])
}

/// Weekdays by name alone, which all dialects read alike.
pub fn named_weekdays() -> impl Strategy<Value = Weekdays> {
    vec(0..7_u32, 1..4).prop_map(|days| {
        let names: Vec<&str> = days.iter().map(|day| WEEKDAYS[*day as usize]).collect();
        (names.join(","), days.into_iter().map(WeekItem::Weekday).collect())
    })
}

pub fn weekdays() -> impl Strategy<Value = Weekdays> {
    let plain = prop_oneof![
        (1..=7_u32).prop_map(|step| (format!("*/{step}"), stepped(0, 6, step))),
        (0..=7_u32, 0..=7_u32).prop_map(|(one, other)| {
            let (low, high) = (one.min(other), one.max(other));
            (format!("{low}-{high}"), stepped(low, high, 1))
        }),
        // A range of names that ends with the week's Sunday.
        (1..=7_u32).prop_map(|low| (
            format!("{}-SUN", WEEKDAYS[low as usize]),
            if low == 7 { vec![0] } else { stepped(low, 7, 1) }
        )),
    ]
    .prop_map(|(text, days)| (text, days.into_iter().map(WeekItem::Weekday).collect::<Vec<_>>()));
    let special = prop_oneof![
        (0..=7_u32).prop_map(|day| (format!("{day}"), vec![WeekItem::Weekday(day)])),
        (0..=7_u32, 1..=5_u32).prop_map(|(day, nth)| (format!("{day}#{nth}"), vec![WeekItem::Nth(day, nth)])),
        (0..=7_u32, 1..=5_u32)
            .prop_map(|(day, nth)| (format!("{}#{nth}", WEEKDAYS[day as usize]), vec![WeekItem::Nth(day, nth)])),
        (0..=7_u32).prop_map(|day| (format!("{day}L"), vec![WeekItem::Last(day)])),
        (0..=7_u32).prop_map(|day| (format!("{}l", WEEKDAYS[day as usize]), vec![WeekItem::Last(day)])),
    ];
    prop_oneof![2 => any_weekday(), 1 => named_weekdays(), 2 => plain, 3 => vec(special, 1..4).prop_map(joined_items)]
}

/// Five, six or seven fields from their parts.
pub fn expressions(
    days: impl Strategy<Value = Days_>,
    weekdays: impl Strategy<Value = Weekdays>,
    years: impl Strategy<Value = Field>,
    seconds: bool,
) -> impl Strategy<Value = Naive> {
    let gap = select(vec![" ", "  ", "\t"]);
    let fields = (numbers(0, 59), numbers(0, 59), numbers(0, 23), days, months(), weekdays, years);
    (fields, 5..=7_usize, gap).prop_map(move |((second, minute, hour, day, month, weekday, year), count, gap)| {
        let count = if seconds { count } else { 5 };
        let mut texts: Vec<&str> = vec![&minute.0, &hour.0, &day.0, &month.0, &weekday.0];
        if count >= 6 {
            texts.insert(0, &second.0);
        }
        if count == 7 {
            texts.push(&year.0);
        }
        let wildcard = texts[..count.min(6) - 3].iter().any(|text| text.starts_with('*'));
        Naive {
            text: texts.join(gap),
            both: day.0.starts_with(['*', '?']) || weekday.0.starts_with(['*', '?']),
            wildcard,
            seconds: if count >= 6 { second.1 } else { vec![0] },
            minutes: minute.1,
            hours: hour.1,
            days: day.1,
            months: month.1,
            weekdays: weekday.1,
            years: (count == 7).then_some(year.1),
        }
    })
}

/// Anything the dialect can say.
pub fn any_expression() -> impl Strategy<Value = Naive> {
    let years = prop_oneof![
        Just(("*".to_owned(), (1970..=9999).collect::<Vec<_>>())),
        vec(item(2020, 2040), 1..4).prop_map(joined)
    ];
    // `2031/n` counts to 9999; the oracle's own list ends in 2040, so open ends are spelled out.
    let years = years.prop_filter("open-ended years", |(text, _)| {
        text.split(',').all(|item| item == "*" || item.contains('-') || !item.contains('/'))
    });
    expressions(days_of_month(), weekdays(), years, true)
}
