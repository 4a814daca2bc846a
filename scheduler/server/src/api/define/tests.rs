use std::num::NonZeroU32;

use super::*;
use crate::json;
use compline_core::ids::TaskDigest;
use compline_core::job::{Bounds, Misfire, MisfirePolicy, Overlap};

/// The body of the interface's description.
const FULL: &str = r#"{"name":"nightly-billing","task":"billing@stable",
 "schedule":{"type":"CRON","value":"0 10 * * *","time_zone":"UTC","gap":"shift","fold":"first"},
 "parameters":{"region":"eu"},
 "lane":"default","misfire":{"policy":"run_all","deadline":"1h","cap":1000},"overlap":"allow","splay":"0s",
 "retry":{"delays":["10s","1m","10m"]},"limits":{"fuel":1000000000,"memory_bytes":67108864,"timeout":"30s"},
 "on_failure":{"task":"notify","parameters":{}},"labels":{"team":"billing"},"paused":false}"#;

fn read(text: &str) -> Result<Checked, Refusal> {
    match json::from_slice::<JobRequest>(text.as_bytes()) {
        Ok(request) => Checked::read(request, &Ceilings::default()),
        Err(json::JsonError::Unfit(refusal)) => Err(refusal),
        Err(json::JsonError::Broken(detail)) => panic!("{text}: {detail}"),
    }
}

fn create(text: &str, now: &str) -> Result<Job, Refusal> {
    let now: Timestamp = instant::parse(now).unwrap().into();
    let task = TaskRef { name: "billing".into(), reference: "billing".into(), digest: TaskDigest::of(b"x") };
    let birth = Birth { id: JobId::new(now, 7), tenant: TenantId::default_tenant(), task, on_failure: None, now };
    let checked = read(text)?;
    checked.check_ahead(birth.id, birth.now)?;
    Ok(checked.into_job(birth))
}

#[test]
fn the_full_body_is_accepted_and_nothing_of_it_is_lost() {
    let job = create(FULL, "2026-11-30T00:00:00Z").unwrap();
    assert_eq!(job.name.as_deref(), Some("nightly-billing"));
    assert_eq!(job.parameters.as_ref(), br#"{"region":"eu"}"#);
    assert_eq!((job.misfire, job.limits), (Misfire::default(), RunLimits::default()));
    assert_eq!(job.retry, RetryRule::default());
    assert_eq!(job.labels["team"], "billing");
    assert_eq!(job.schedule.value.as_deref(), Some("0 10 * * *"));
    let on_failure = read(FULL).unwrap().on_failure.unwrap();
    assert_eq!((on_failure.reference.as_str(), on_failure.parameters.as_ref()), ("notify", b"{}".as_slice()));
}

#[test]
fn two_fields_are_enough_and_null_is_the_default() {
    let short = create(r#"{"task":"a","schedule":{"type":"NOW"}}"#, "2026-11-30T00:00:00Z").unwrap();
    let nulls = create(
        r#"{"task":"a","schedule":{"type":"NOW","value":null},"name":null,"parameters":null,"lane":null,"misfire":null,"overlap":null,
            "splay":null,"retry":null,"limits":null,"on_failure":null,"labels":null,"paused":null}"#,
        "2026-11-30T00:00:00Z",
    );
    assert_eq!(short, nulls.unwrap());
    assert_eq!((short.lane.as_str(), short.parameters.len()), ("default", 0));
}

#[test]
fn every_fault_names_its_field() {
    let with = |fields: &str| format!(r#"{{"task":"a","schedule":{{"type":"CRON","value":"* * * * *"}},{fields}}}"#);
    for (fields, field) in [
        (r#""misfire_polcy":1"#, "misfire_polcy"),
        (r#""misfire":{"policy":"run_none"}"#, "misfire.policy"),
        (r#""misfire":{"policy":"skip","deadline":"1h"}"#, "misfire.deadline"),
        (r#""misfire":{"policy":"run_latest","cap":5}"#, "misfire.cap"),
        (r#""misfire":{"cap":0}"#, "misfire.cap"),
        (r#""misfire":{"deadline":"90"}"#, "misfire.deadline"),
        (r#""misfire":{"deadline":90}"#, "misfire.deadline"),
        (r#""misfire":{"deadline":"31d"}"#, "misfire.deadline"),
        (r#""overlap":"buffer_two""#, "overlap"),
        (r#""max_concurrent":0"#, "max_concurrent"),
        (r#""max_concurrent":1001"#, "max_concurrent"),
        (r#""overlap":"skip","max_concurrent":2"#, "max_concurrent"),
        (r#""splay":"31d""#, "splay"),
        (r#""starts_at":"2026-12-01T00:00:00""#, "starts_at"),
        (r#""ends_at":"soon""#, "ends_at"),
        (r#""starts_at":"2026-12-02T00:00:00Z","ends_at":"2026-12-01T00:00:00Z""#, "ends_at"),
        (r#""max_runs":0"#, "max_runs"),
        (r#""splay":"-1s""#, "splay"),
        (r#""on_failure":{"task":"no tify"}"#, "on_failure.task"),
        (r#""on_failure":{"tsk":"notify"}"#, "on_failure.tsk"),
        (r#""retry":{"delays":["1s","1 month"]}"#, "retry.delays[1]"),
        (r#""retry":{"delays":["16d","16d"]}"#, "retry.delays"),
        (r#""limits":{"fuel":0}"#, "limits.fuel"),
        (r#""limits":{"fuel":-1}"#, "limits.fuel"),
        (r#""limits":{"fuel":1.5}"#, "limits.fuel"),
        (r#""limits":{"fuel":18446744073709551616}"#, "limits.fuel"),
        (r#""limits":{"memory_bytes":1}"#, "limits.memory_bytes"),
        (r#""limits":{"memory_bytes":268435457}"#, "limits.memory_bytes"),
        (r#""limits":{"timeout":"0s"}"#, "limits.timeout"),
        (r#""limits":{"timeout":"61m"}"#, "limits.timeout"),
        (r#""lane":"a b""#, "lane"),
        (r#""lane":"a\u0000b""#, "lane"),
        (r#""labels":{"a b":"c"}"#, "labels.a b"),
        (r#""labels":{"team":5}"#, "labels.team"),
        (r#""labels":{"team":"a\nb"}"#, "labels.team"),
        (r#""name":" x""#, "name"),
    ] {
        let refusal = read(&with(fields)).unwrap_err();
        assert_eq!(refusal.field, field, "{fields}: {refusal}");
    }
}

#[test]
fn limits_are_met_exactly() {
    let with = |limits: &str| format!(r#"{{"task":"a","schedule":{{"type":"NOW"}},"limits":{limits}}}"#);
    for right in [
        r#"{"fuel":1,"memory_bytes":65536,"timeout":"1ms"}"#,
        r#"{"fuel":1000000000000,"memory_bytes":268435456,"timeout":"1h"}"#,
    ] {
        assert!(read(&with(right)).is_ok(), "{right}");
    }
    for wrong in [r#"{"fuel":1000000000001}"#, r#"{"memory_bytes":65535}"#, r#"{"timeout":"999us"}"#] {
        assert!(read(&with(wrong)).is_err(), "{wrong}");
    }
    let parameters = |length: usize| {
        format!(r#"{{"task":"a","schedule":{{"type":"NOW"}},"parameters":"{}"}}"#, "x".repeat(length - 2))
    };
    assert!(read(&parameters(65_536)).is_ok());
    assert_eq!(read(&parameters(65_537)).unwrap_err().field, "parameters");
}

#[test]
fn a_schedule_is_refused_with_its_field_and_the_fix() {
    let with = |schedule: &str| create(&format!(r#"{{"task":"a","schedule":{schedule}}}"#), "2026-11-30T00:00:00Z");
    for (schedule, field) in [
        (r#"{"type":"CRON","value":"* * *"}"#, "schedule.value"),
        (r#"{"type":"CRON","value":"0 0 30 2 *"}"#, "schedule.value"),
        (r#"{"type":"CRON","value":"0 0 0 1 1 * 2020"}"#, "schedule.value"),
        (r#"{"type":"CRON"}"#, "schedule.value"),
        (r#"{"type":"CRON","value":"* * * * *","time_zone":"Europe/Berln"}"#, "schedule.time_zone"),
        (r#"{"type":"CRON","value":"* * * * *","gap":"jump"}"#, "schedule.gap"),
        (r#"{"type":"NOW","value":"x"}"#, "schedule.value"),
        (r#"{"type":"now"}"#, "schedule.type"),
        (r#"{"typ":"NOW"}"#, "schedule.typ"),
        (r#"{"type":"ONCE","value":"2026-12-01T10:00:00"}"#, "schedule.value"),
        (r#"{"type":"ONCE","value":1764583200}"#, "schedule.value"),
        (r#"{"type":"ONCE","value":"2026-12-01T10:00:60Z"}"#, "schedule.value"),
    ] {
        let refusal = with(schedule).unwrap_err();
        assert_eq!(refusal.field, field, "{schedule}: {refusal}");
    }
    assert!(with(r#"{"type":"CRON","value":"0 24 * * *"}"#).unwrap_err().hint.is_some());
}

#[test]
fn a_once_in_the_past_runs_within_the_misfire_deadline_only() {
    let once = |value: &str, deadline: &str| {
        let text = format!(
            r#"{{"task":"a","schedule":{{"type":"ONCE","value":"{value}"}},"misfire":{{"deadline":"{deadline}"}}}}"#
        );
        create(&text, "2026-11-30T12:00:00Z")
    };
    assert!(once("2026-11-30T11:00:00Z", "1h").is_ok());
    let refusal = once("2026-11-30T10:59:59Z", "1h").unwrap_err();
    assert_eq!(refusal.field, "schedule.value");
    assert!(refusal.detail.contains("over by 1h1s"), "{}", refusal.detail);
    assert!(once("2020-01-01T00:00:00Z", "1h").is_err());
    assert!(once("2026-11-30T11:59:59Z", "0s").is_err());
    assert!(once("9999-12-31T23:59:59Z", "0s").is_ok());
}

#[test]
fn a_once_is_kept_in_utc() {
    let job = create(
        r#"{"task":"a","schedule":{"type":"ONCE","value":"2026-12-15T12:30:00","time_zone":"America/New_York"}}"#,
        "2026-11-30T12:00:00Z",
    );
    assert_eq!(job.unwrap().schedule, ScheduleSpec::once("2026-12-15T17:30:00Z"));
}

#[test]
fn rules_about_slots_are_kept() {
    let now = "2026-11-30T00:00:00Z";
    let job = create(
        r#"{"task":"a","schedule":{"type":"CRON","value":"0 10 * * *","time_zone":"America/New_York"},"misfire":{"policy":"run_latest"},
            "max_concurrent":3,"splay":"2m","starts_at":"2026-12-01T00:00:00","ends_at":"2027-01-01T00:00:00Z","max_runs":9}"#,
        now,
    );
    let job = job.unwrap();
    assert_eq!((job.misfire.policy, job.splay), (MisfirePolicy::RunLatest, Duration::from_secs(120)));
    assert_eq!(job.overlap, Overlap::AllowUpTo(NonZeroU32::new(3).unwrap()));
    let at = |text: &str| Some(Timestamp::from(instant::parse(text).unwrap()));
    let (starts_at, ends_at) = (at("2026-12-01T05:00:00Z"), at("2027-01-01T00:00:00Z"));
    assert_eq!(
        job.bounds,
        Bounds { starts_at, ends_at, max_runs: Some(9) },
        "a local time is one of the schedule's zone"
    );
}

#[test]
fn what_cannot_happen_is_refused_with_its_field() {
    let create = |kind: &str, fields: &str| {
        let text = format!(r#"{{"task":"a","schedule":{kind}{fields}}}"#);
        create(&text, "2026-11-30T12:00:00Z").map_err(|refusal| refusal.field)
    };
    let now = r#"{"type":"NOW"}"#;
    let once = |at: &str| format!(r#"{{"type":"ONCE","value":"{at}"}}"#);
    let cron = r#"{"type":"CRON","value":"0 10 * * *"}"#;
    for (kind, fields, field) in [
        (now, r#","splay":"10s""#, "splay"),
        (now, r#","max_runs":2"#, "max_runs"),
        (&once("2026-12-01T00:00:00Z"), r#","ends_at":"2026-12-02T00:00:00Z""#, "ends_at"),
        (cron, r#","ends_at":"2026-11-30T11:00:00Z""#, "ends_at"),
        (cron, r#","ends_at":"2026-12-01T09:59:59Z""#, "ends_at"),
        (cron, r#","starts_at":"2026-12-01T10:00:01Z","ends_at":"2026-12-02T09:00:00Z""#, "ends_at"),
        (r#"{"type":"CRON","value":"0 0 0 1 1 ? 2030"}"#, r#","starts_at":"2031-01-01T00:00:00Z""#, "starts_at"),
    ] {
        assert_eq!(create(kind, fields).unwrap_err(), field, "{kind}{fields}");
    }
    for (kind, fields) in
        [(cron, r#","ends_at":"2026-12-01T10:00:00Z""#), (&once("2026-12-30T00:00:00Z"), r#","splay":"1h""#)]
    {
        assert!(create(kind, fields).is_ok(), "{kind}{fields}");
    }
}

#[test]
fn c39_an_instant_in_the_past_runs_at_once_within_the_misfire_rule_and_is_refused_beyond_it() {
    let create = |at: &str, fields: &str| {
        let text = format!(r#"{{"task":"a","schedule":{{"type":"ONCE","value":"{at}"}}{fields}}}"#);
        create(&text, "2026-11-30T12:00:00Z").map(|job| job.schedule).map_err(|refusal| refusal.field)
    };
    let skip = r#","misfire":{"policy":"skip"}"#;
    for (at, fields) in [("2026-11-30T11:00:00Z", ""), ("2026-11-30T11:59:50Z", skip)] {
        assert_eq!(create(at, fields), Ok(ScheduleSpec::once(at)), "{fields}");
    }
    for (at, fields) in [("2020-01-01T00:00:00Z", ""), ("2026-11-30T10:59:59Z", ""), ("2026-11-30T11:59:49Z", skip)] {
        assert_eq!(create(at, fields), Err("schedule.value".to_owned()), "{at}{fields}");
    }
}
