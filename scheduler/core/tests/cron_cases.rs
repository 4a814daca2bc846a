//! Cases retold from public bug reports of schedulers (`cases/cron.json`): the fires they must give, and the texts they must refuse.

use chrono::{DateTime, Utc};
use compline_core::schedule::Gap;
use compline_core::schedule::cron::{CronErrorKind, CronExpr, CronField};
use compline_core::schedule::zone::Zone;
use compline_core::time::instant;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    case: String,
    cron: String,
    zone: String,
    after: String,
    want: Want,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Want {
    Fires(Vec<String>),
    Refusal(String),
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("cases/cron.json")).expect("the list of cases is well-formed")
}

fn fires(expr: &CronExpr, zone: Zone, after: DateTime<Utc>) -> impl Iterator<Item = String> {
    let first = expr.next_after(after, zone);
    std::iter::successors(first, move |fire| expr.next_after(*fire, zone)).map(instant::format)
}

/// What is wrong with our answer to a case, if anything is.
fn fault(case: &Case) -> Option<String> {
    let after = instant::parse(&case.after).expect("the case names an instant");
    let zone = Zone::parse(&case.zone).expect("the case names a zone");
    let parsed = CronExpr::parse(&case.cron);
    match (&case.want, parsed) {
        (Want::Fires(want), Ok(expr)) => {
            let got: Vec<String> = fires(&expr, zone, after).take(want.len()).collect();
            (got != *want).then(|| format!("got {got:?}, want {want:?}"))
        }
        (Want::Fires(_), Err(error)) => Some(format!("refused: {error}")),
        (Want::Refusal(want), Err(error)) => {
            let kind = if want == "never" { CronErrorKind::NeverFires } else { CronErrorKind::Malformed };
            (error.kind != kind).then(|| format!("refused as {:?}: {error}", error.kind))
        }
        // A year that is over is sound text: it is the first slot that does not exist, and creation refuses that.
        (Want::Refusal(want), Ok(expr)) if want == "never" => {
            expr.next_after(after, zone).map(|fire| format!("fires at {fire}"))
        }
        (Want::Refusal(_), Ok(_)) => Some("accepted".to_owned()),
    }
}

/// One test for each case, so that each can be found by its id.
macro_rules! by_id {
    ($($name:ident: $id:literal, $count:literal;)+) => {
        $(#[test]
        fn $name() {
            let cases: Vec<_> = cases().into_iter().filter(|case| case.case == $id).collect();
            assert_eq!(cases.len(), $count, "the lists of {}", $id);
            for case in &cases {
                assert_eq!(fault(case), None, "{} {:?} [{}] after {}", case.case, case.cron, case.zone, case.after);
            }
        })+

        /// How many lists the tests above are about.
        const BY_ID: usize = 0 $(+ $count)+;
    };
}

by_id! {
    c01_weekday_numbers: "C01", 6;
    c03_a_star_with_a_step_in_a_day_field: "C03", 4;
    c04_steps: "C04", 9;
    c05_ranges_that_wrap_are_refused: "C05", 5;
    c06_last_days_nearest_weekdays_and_nth_weekdays: "C06", 7;
    c08_dates_that_never_come_are_refused: "C08", 5;
    c09_seconds_and_years: "C09", 7;
    c10_malformed_texts_are_refused: "C10", 49;
    c11_tolerant_forms_and_macros: "C11", 8;
    c13_the_hour_that_new_york_skips: "C13", 7;
    c14_the_hour_that_comes_twice: "C14", 6;
    c16_cairos_midnight_jump: "C16", 4;
    c17_midnight_jumps_of_history_and_changed_plans: "C17", 8;
    c19_the_day_that_apia_left_out: "C19", 3;
    c20_odd_offsets: "C20", 3;
    c22_ramadan_and_fresh_zone_data: "C22", 5;
    c25_exactly_on_the_instant_and_parts_of_a_second: "C25", 5;
}

#[test]
fn every_case_is_answered_right() {
    let cases = cases();
    let faults: Vec<String> = cases
        .iter()
        .filter_map(|case| fault(case).map(|fault| format!("{} {:?} [{}] {fault}", case.case, case.cron, case.zone)))
        .collect();
    assert_eq!(cases.len(), BY_ID, "each list has a test of its own");
    assert!(cases.len() >= 141, "cases are missing: only {}", cases.len());
    assert!(faults.is_empty(), "{} of {} cases are wrong:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// The malformed texts of case C10, each with the field that the refusal must name.
const MALFORMED: [(&str, CronField); 51] = {
    use CronField::*;
    [
        ("60 * * * *", Minute),
        ("* 24 * * *", Hour),
        ("0 0 0 * *", DayOfMonth),
        ("0 0 32 * *", DayOfMonth),
        ("0 0 * 13 *", Month),
        ("0 0 * 0 *", Month),
        ("0 0 * * 8", DayOfWeek),
        ("", Expression),
        ("   ", Expression),
        ("* * * *", Expression),
        ("* * * * * garbage", DayOfWeek),
        ("* * * * * * * *", Expression),
        ("1- * * * *", Minute),
        (",1 * * * *", Minute),
        ("1,,2 * * * *", Minute),
        ("12abc * * * *", Minute),
        ("-1 * * * *", Minute),
        ("1--2 * * * *", Minute),
        ("*/ * * * *", Minute),
        ("1/2/3 * * * *", Minute),
        ("5-3 * * * *", Minute),
        ("٥ * * * *", Minute),
        ("５ * * * *", Minute),
        ("* * * * сре", DayOfWeek),
        ("0 0 * MONDAY *", Month),
        ("MON 0 * * *", Minute),
        ("0 0 * * FOO", DayOfWeek),
        ("0 0 * * MON#6", DayOfWeek),
        ("0 0 * * 1#0", DayOfWeek),
        ("0 0 L-40 * *", DayOfMonth),
        ("TZ= * * * *", Expression),
        ("TZ=TZ=TZ=", Expression),
        ("@", Expression),
        ("@never", Expression),
        ("@reboot", Expression),
        ("@every 5m", Expression),
        ("H H * * *", Minute),
        ("0 0 * * ?#", DayOfWeek),
        ("1.5 * * * *", Minute),
        ("+5 * * * *", Minute),
        ("0x5 * * * *", Minute),
        ("0 0 * * 1L-2", DayOfWeek),
        ("0 0 W * *", DayOfMonth),
        ("0 0 0W * *", DayOfMonth),
        ("0 0 * * L", DayOfWeek),
        ("* * * JAN-FOO *", Month),
        ("99999999999999999999 * * * *", Minute),
        ("0 0 40W * *", DayOfMonth),
        ("0 0 1 1 JAN", DayOfWeek),
        ("0 10 * * ? 2027", Year),
        ("*\u{a0}* * * *", Expression),
    ]
};

#[test]
fn malformed_texts_are_refused_by_field() {
    for (text, field) in MALFORMED {
        let error = CronExpr::parse(text).expect_err(text);
        assert_eq!((error.kind, error.field), (CronErrorKind::Malformed, field), "{text:?}: {error}");
        let shown = error.to_string();
        assert!(shown.starts_with(field.name()) && shown.contains("; "), "{text:?}: {shown}");
    }
}

#[test]
fn texts_that_never_fire_are_refused_by_field() {
    for (text, field) in [
        ("0 0 30 2 *", CronField::DayOfMonth),
        ("0 0 31 2,4,6,9,11 ?", CronField::DayOfMonth),
        ("0 0 31W 2,4,6 *", CronField::DayOfMonth),
        ("0 0 L-29 2 *", CronField::DayOfMonth),
        ("0 0 0 29 2 ? 2027", CronField::Year),
        ("0 0 0 29 2 ? 1971/2", CronField::Year),
        ("0 0 0 29 2 * 2100,2200,2300,2500", CronField::Year),
        ("0 0 0 29 2 */7 2000-2003,2005-2027", CronField::Year),
    ] {
        let error = CronExpr::parse(text).expect_err(text);
        assert_eq!((error.kind, error.field), (CronErrorKind::NeverFires, field), "{text:?}: {error}");
    }
}

#[test]
fn refusals_show_the_fix() {
    for (text, shown) in [
        ("0 22-2 * * *", "hour: the range `22-2` runs backwards; if it is meant to wrap, write `22-23,0-2`"),
        (
            "0 8 * * FRI-MON",
            "day of week: the range `FRI-MON` runs backwards; if it is meant to wrap, write `FRI-SUN,MON`",
        ),
        ("0 8 * * 5-2", "day of week: the range `5-2` runs backwards; if it is meant to wrap, write `5-7,1-2`"),
        ("0 8 * * 7-2", "day of week: the range `7-2` runs backwards; if it is meant to wrap, write `0-2`"),
        (
            "0 8 1 nov-feb *",
            "month: the range `nov-feb` runs backwards; if it is meant to wrap, write `nov-DEC,JAN-feb`",
        ),
        ("58-2/2 * * * *", "minute: the range `58-2` runs backwards; if it is meant to wrap, write `0,2,58`"),
        ("0 0 1 11-2/3 *", "month: the range `11-2` runs backwards; if it is meant to wrap, write `2,11`"),
        (
            "*/90 * * * *",
            "minute: `*/90` has a step larger than the field, so it would never advance; use a whole number from 1 to 60 after the `/`",
        ),
        (
            "0 10 * * ? 2027",
            "year: six fields begin with seconds and have no year; put the seconds in front, as in `0 0 10 * * ? 2027`",
        ),
        (
            "H 3 * * *",
            "minute: `H` (a value picked by hash) is not part of this dialect; give a fixed value and spread the jobs with `splay`",
        ),
        (
            "H(0-9) 3 * * *",
            "minute: `H(0-9)` (a value picked by hash) is not part of this dialect; give a fixed value and spread the jobs with `splay`",
        ),
        (
            "0 0 * MONDAY *",
            "month: `MONDAY` is neither a number nor a name; use a number from 1 to 12 or a name from JAN to DEC",
        ),
        ("0 0 * * MONDAY", "day of week: `MONDAY` is not a name; names have three letters: MON"),
        (
            "0 0 * * L",
            "day of week: `L` alone does not say which weekday; write `FRIL` or `5L` for the last Friday of the month, `SAT` for every Saturday",
        ),
        ("? * * * *", "minute: `?` is only for the day fields, alone; write `*`"),
        ("0 0 0 * *", "day of month: `0` is out of range; use a number from 1 to 31"),
    ] {
        assert_eq!(CronExpr::parse(text).expect_err(text).to_string(), shown);
    }
    // What a refusal suggests is accepted.
    for text in
        ["0 22-23,0-2 * * *", "0 8 * * FRI-SUN,MON", "0 8 * * 5-7,1-2", "0 8 1 nov-DEC,JAN-feb *", "0 0 10 * * ? 2027"]
    {
        CronExpr::parse(text).expect(text);
    }
}

#[test]
fn the_text_stays_as_it_was_given() {
    for text in ["  5\t 6   *  *\t* ", "@DAILY", "00 08 * jan,FEB sUn", "0 0 ? * MON#1,fril"] {
        assert_eq!(CronExpr::parse(text).expect(text).as_str(), text);
    }
}

#[test]
fn length_is_limited_in_characters() {
    let at_limit = format!("{} * * * *", "0,".repeat(123) + "00");
    assert_eq!(at_limit.chars().count(), 256);
    CronExpr::parse(&at_limit).expect("256 characters are read");
    let error = CronExpr::parse(&format!("{at_limit} ")).expect_err("257 are not");
    assert_eq!(error.field, CronField::Expression);
    assert!(CronExpr::parse(&"*".repeat(10_000_000)).expect_err("too long").to_string().len() < 200);
}

/// Values that follow from the rules, counted by hand on a calendar, beyond the public cases.
#[test]
fn day_rules_by_hand() {
    let first = |text: &str, after: &str| {
        let expr = CronExpr::parse(text).expect(text);
        let after = instant::parse(after).expect("an instant");
        fires(&expr, Zone::utc(), after).take(3).map(|fire| fire[..10].to_owned()).collect::<Vec<_>>().join(" ")
    };
    for (text, after, want) in [
        ("0 0 L-3 * *", "2026-01-01T00:00:00Z", "2026-01-28 2026-02-25 2026-03-28"),
        ("0 0 L-30 * *", "2026-01-01T00:00:00Z", "2026-03-01 2026-05-01 2026-07-01"),
        // 31 May 2026 is a Sunday and 31 January a Saturday; the other months have no day 31, or are left out with it.
        ("0 0 31W * *", "2026-01-01T00:00:00Z", "2026-01-30 2026-03-31 2026-05-29"),
        ("0 0 15W,LW * *", "2026-08-01T00:00:00Z", "2026-08-14 2026-08-31 2026-09-15"),
        // Neither field begins with a star: either may match.
        ("0 0 L * MON#1", "2026-01-01T00:00:00Z", "2026-01-05 2026-01-31 2026-02-02"),
        ("0 0 5,* * MON", "2026-01-01T00:00:00Z", "2026-01-02 2026-01-03 2026-01-04"),
        // One does: both must.
        ("0 0 *,5 * MON", "2026-01-01T00:00:00Z", "2026-01-05 2026-01-12 2026-01-19"),
        ("0 0 13 * */5", "2026-01-01T00:00:00Z", "2026-02-13 2026-03-13 2026-09-13"),
        ("0 0 ? * ?", "2026-01-01T00:00:00Z", "2026-01-02 2026-01-03 2026-01-04"),
        ("0 0 * * 7/2", "2026-01-01T00:00:00Z", "2026-01-04 2026-01-11 2026-01-18"),
        ("0 0 * * 0-7", "2026-01-01T00:00:00Z", "2026-01-02 2026-01-03 2026-01-04"),
        ("0 0 * * SUN-SUN", "2026-01-01T00:00:00Z", "2026-01-04 2026-01-11 2026-01-18"),
        ("0 0 * * SUN-TUE", "2026-01-01T00:00:00Z", "2026-01-04 2026-01-05 2026-01-06"),
        // 29 February on a Sunday: 28 years apart, 40 across the common year 2100.
        ("0 0 29 2 */7", "2026-01-01T00:00:00Z", "2032-02-29 2060-02-29 2088-02-29"),
        ("0 0 29 2 */7", "2089-01-01T00:00:00Z", "2128-02-29 2156-02-29 2184-02-29"),
    ] {
        assert_eq!(first(text, after), want, "{text}");
    }
}

#[test]
fn the_edges_of_time() {
    let next = |text: &str, after: DateTime<Utc>| {
        CronExpr::parse(text).expect(text).next_after(after, Zone::utc()).map(instant::format)
    };
    let at = |text: &str| instant::parse(text).expect("an instant");
    let last = Some("9999-12-31T23:59:59Z".to_owned());
    assert_eq!(next("* * * * * *", at("9999-12-31T23:59:58Z")), last);
    assert_eq!(next("* * * * * *", at("9999-12-31T23:59:58.999999999Z")), last);
    assert_eq!(next("* * * * * *", at("9999-12-31T23:59:59Z")), None);
    assert_eq!(next("0 0 29 2 *", at("9996-02-29T00:00:00Z")), None);
    assert_eq!(next("59 59 23 31 12 ? 9999", at("2026-11-30T00:00:00Z")), last);
    assert_eq!(next("* * * * *", DateTime::<Utc>::MAX_UTC), None);
    // Nothing fires before 1970.
    assert_eq!(next("* * * * *", DateTime::<Utc>::MIN_UTC).as_deref(), Some("1970-01-01T00:00:00Z"));
    assert_eq!(next("* * * * *", at("1969-12-31T23:59:59.5Z")).as_deref(), Some("1970-01-01T00:00:00Z"));
    let mut zones: Vec<&str> = Zone::names().collect();
    zones.sort_unstable();
    for zone in zones {
        let zone = Zone::parse(zone).expect("a listed zone");
        let expr = CronExpr::parse("30 2 * * *").expect("sound");
        for after in
            [DateTime::<Utc>::MIN_UTC, at("9999-12-29T00:00:00Z"), at("9999-12-31T23:00:00Z"), DateTime::<Utc>::MAX_UTC]
        {
            assert!(expr.next_after(after, zone).is_none_or(|fire| fire > after));
        }
    }
}

#[test]
fn times_that_a_zone_always_skips_never_fire() {
    let zone = Zone::parse("America/New_York").expect("listed");
    let after = instant::parse("2026-11-30T00:00:00Z").expect("an instant");
    // 02:30 on the second Sunday of March, which is when the clock is put forward.
    for text in ["30 2 * 3 SUN#2", "0 30 2 ? 3 SUN#2 2027-9999"] {
        let expr = CronExpr::parse(text).expect(text);
        assert_eq!(expr.next_after_with(after, zone, Some(Gap::Skip), None), None, "{text}");
        assert!(expr.next_after_with(after, zone, Some(Gap::Shift), None).is_some(), "{text}");
    }
    // Before the rule of 2007 that Sunday had its 02:30, and it is found.
    let early = instant::parse("2005-01-01T00:00:00Z").expect("an instant");
    let expr = CronExpr::parse("30 2 * 3 SUN#2").expect("sound");
    let found = expr.next_after_with(early, zone, Some(Gap::Skip), None).map(instant::format);
    assert_eq!(found.as_deref(), Some("2005-03-13T07:30:00Z"));
}

#[test]
fn a_schedule_without_a_slot_is_refused_by_field() {
    let over = CronExpr::parse("0 0 0 1 1 ? 2020").expect("sound").never_again();
    assert_eq!((over.kind, over.field), (CronErrorKind::NeverFires, CronField::Year));
    let skipped = CronExpr::parse("30 2 * 3 SUN#2").expect("sound").never_again();
    assert_eq!((skipped.kind, skipped.field), (CronErrorKind::NeverFires, CronField::Expression));
}
