//! The engine against oracles that share nothing with it: a scan of every day and second, and the crates `croner` and `cron` on the inputs
//! where they are known to be right.

mod common;

use std::str::FromStr;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use common::*;
use compline_core::schedule::cron::{CronErrorKind, CronExpr};
use compline_core::schedule::zone::Zone;
use compline_core::schedule::{Fold, Gap};
use croner::parser::{CronParser, Seconds};
use proptest::prelude::*;
use proptest::sample::select;

fn date(year: i32) -> NaiveDate {
    NaiveDate::from_ymd_opt(year, 1, 1).expect("a date")
}

/// Any instant from 2019 to 2041, with a fraction.
fn instants() -> impl Strategy<Value = DateTime<Utc>> {
    (1_546_300_800_i64..2_240_524_800, prop_oneof![Just(0_u32), 0..1_000_000_000_u32])
        .prop_map(|(seconds, nanos)| DateTime::from_timestamp(seconds, nanos).expect("an instant"))
}

fn ours(text: &str, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    CronExpr::parse(text).expect(text).next_after(after, Zone::utc())
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 65_536, failure_persistence: None, ..ProptestConfig::with_cases(4096) })]

    #[test]
    fn utc_agrees_with_a_scan_of_every_second(naive in any_expression(), after in instants()) {
        // Nine years hold every month, leap days included, on at least one of the weekdays that an unlucky pair of fields asks for.
        let until = date(2050);
        let expr = match CronExpr::parse(&naive.text) {
            Ok(expr) => expr,
            Err(error) => {
                prop_assert_eq!(error.kind, CronErrorKind::NeverFires, "{}: {}", naive.text, error);
                prop_assert_eq!(naive.next(date(2019).and_hms_opt(0, 0, 0).unwrap(), until), None, "{}", naive.text);
                return Ok(());
            }
        };
        prop_assert_eq!(expr.is_wildcard(), naive.wildcard);
        let mut at = after;
        for _ in 0..4 {
            let want = naive.next(at.naive_utc(), until).map(|fire| fire.and_utc());
            let got = expr.next_after(at, Zone::utc());
            match (want, got) {
                (None, Some(got)) => prop_assert!(got.date_naive() > until, "{} after {at}: {got}", naive.text),
                _ => prop_assert_eq!(want, got, "{} after {}", naive.text, at),
            }
            let Some(next) = got else { break };
            at = next;
        }
    }

    // croner is right in UTC where at most one day field restricts, or both do without steps and stars: it knows no star rule for
    // `*/2`, and reads `?` and our `L-3` in its own way. Weekday numbers are Unix ones, as ours.
    #[test]
    fn utc_agrees_with_croner(naive in one_day_field(), after in instants()) {
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        // It refuses `5/15`; such inputs are drawn again.
        let theirs = parser.parse(&naive.text);
        prop_assume!(theirs.is_ok());
        let theirs = theirs.expect("checked");
        let mut at = after;
        for _ in 0..3 {
            let Ok(next) = theirs.find_next_occurrence(&at, false) else { break };
            prop_assert_eq!(ours(&naive.text, at), Some(next), "{} after {}", naive.text, at);
            at = next;
        }
    }

    // cron is right in UTC up to 2100 with six fields, weekdays by name (its numbers are Quartz's) and at most one day field that
    // restricts (it always joins them with AND).
    #[test]
    fn utc_agrees_with_cron(naive in six_fields_by_name(), after in instants()) {
        // It refuses a step as large as its field (`*/60`), which is one value; such inputs are drawn again.
        let theirs = cron::Schedule::from_str(&naive.text);
        prop_assume!(theirs.is_ok());
        let theirs = theirs.expect("checked");
        let wanted: Vec<DateTime<Utc>> = theirs.after(&after).take(3).collect();
        let expr = CronExpr::parse(&naive.text).expect(&naive.text);
        let got: Vec<_> = std::iter::successors(expr.next_after(after, Zone::utc()), |at| expr.next_after(*at, Zone::utc()))
            .take(wanted.len())
            .collect();
        prop_assert_eq!(got, wanted, "{} after {}", naive.text, after);
    }

    #[test]
    fn fires_are_ordered_and_found_from_anywhere_between(
        naive in any_expression(),
        after in instants(),
        zone in zones(),
        gap in select(vec![None, Some(Gap::Shift), Some(Gap::Skip)]),
        fold in select(vec![None, Some(Fold::First), Some(Fold::Last), Some(Fold::Both)]),
        part in 0.0..1.0_f64,
    ) {
        let Ok(expr) = CronExpr::parse(&naive.text) else { return Ok(()) };
        let zone = Zone::parse(zone).expect(zone);
        let next = |at| expr.next_after_with(at, zone, gap, fold);
        let mut at = after;
        for _ in 0..6 {
            let Some(fire) = next(at) else { break };
            prop_assert!(fire > at && fire.timestamp_subsec_nanos() == 0, "{} after {at}: {fire}", naive.text);
            let between = at + TimeDelta::milliseconds(((fire - at).num_milliseconds() as f64 * part) as i64);
            prop_assert_eq!(next(between.min(fire - TimeDelta::nanoseconds(1))), Some(fire), "{} from {}", naive.text, between);
            at = fire;
        }
    }

    #[test]
    fn a_zone_moves_a_fixed_time_by_hours_and_loses_none(naive in any_expression(), after in instants(), zone in zones()) {
        prop_assume!(!naive.wildcard);
        let Ok(expr) = CronExpr::parse(&naive.text) else { return Ok(()) };
        let there = expr.next_after(after, Zone::parse(zone).expect(zone));
        // No zone is a whole day away from UTC. The clock of no zone skips a day in these years.
        let day = TimeDelta::days(1);
        if let Some(here) = expr.next_after(after + day, Zone::utc()) {
            prop_assert!(there.is_some_and(|there| there < here + day), "{} in {zone} after {after}: {there:?}", naive.text);
        }
        if let Some(there) = there {
            let here = expr.next_after(after - day, Zone::utc());
            prop_assert!(here.is_some_and(|here| here - day < there), "{} in {zone} after {after}: {here:?}", naive.text);
        }
    }

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        answered(&text);
    }

    #[test]
    fn any_text_of_the_alphabet_is_answered(text in "([0-9*/,?LWH#@-]|JAN|sun|MON|2027| | |\t){0,40}") {
        answered(&text);
    }

    #[test]
    fn near_misses_are_answered(naive in any_expression(), cut in any::<prop::sample::Index>(), with in "[0-9*/,?LW# -]{0,3}") {
        let at = cut.index(naive.text.len());
        let mut text = naive.text;
        text.replace_range(at..=at, &with);
        answered(&text);
    }
}

/// The parser answers, an answer is usable, and a refusal has all its parts.
fn answered(text: &str) {
    match CronExpr::parse(text) {
        Ok(expr) => {
            assert_eq!(expr.as_str(), text);
            let after = DateTime::UNIX_EPOCH - TimeDelta::seconds(1);
            assert!(
                expr.next_after(after, Zone::utc()).is_some_and(|fire| fire > after),
                "{text:?} was accepted and never fires"
            );
        }
        Err(error) => assert!(!error.detail.is_empty() && !error.hint.is_empty(), "{text:?}: {error:?}"),
    }
}

fn every_year() -> impl Strategy<Value = Field> {
    Just(("*".to_owned(), (1970..=9999).collect()))
}

fn one_day_field() -> impl Strategy<Value = Naive> {
    let star = || any_day().prop_map(|(_, days)| ("*".to_owned(), days));
    let star_week = || any_weekday().prop_map(|(_, days)| ("*".to_owned(), days));
    let plain = || numbers(1, 31).prop_map(|(text, days)| (text, days.into_iter().map(DayItem::Day).collect()));
    let single = || (1..=28_u32).prop_map(|day| (day.to_string(), vec![DayItem::Day(day)]));
    prop_oneof![
        expressions(plain(), star_week(), every_year(), false),
        expressions(star(), named_weekdays(), every_year(), false),
        expressions(single(), named_weekdays(), every_year(), false),
    ]
    .prop_filter("a day that comes", |naive| CronExpr::parse(&naive.text).is_ok())
}

fn six_fields_by_name() -> impl Strategy<Value = Naive> {
    let star = || any_day().prop_map(|(_, days)| ("*".to_owned(), days));
    let star_week = || any_weekday().prop_map(|(_, days)| ("*".to_owned(), days));
    let plain = numbers(1, 31).prop_map(|(text, days)| (text, days.into_iter().map(DayItem::Day).collect()));
    prop_oneof![
        expressions(plain, star_week(), every_year(), true),
        expressions(star(), named_weekdays(), every_year(), true),
    ]
    .prop_filter("six fields, and a day that comes", |naive| {
        naive.text.split_whitespace().count() == 6 && CronExpr::parse(&naive.text).is_ok()
    })
}

fn zones() -> impl Strategy<Value = &'static str> {
    select(Zone::names().collect::<Vec<_>>())
}
