//! `job explain` of a job that lived through an outage, a clock change and a pause, and was edited in the end: the whole text.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Attempt, Cause, Cost, Event, Execution, Outcome, State};
use compline_core::explain::{Facts, Line, SLOTS_COUNTED_MAX, Verdict, explain, merge};
use compline_core::ids::{ExecutionId, Fence, JobId, ShardCount};
use compline_core::ledger::{Change, Mark, SkipReason, Stretch};
use compline_core::schedule::{Schedule, ScheduleSpec};
use compline_core::time::instant;

const JOB: JobId = JobId::from_bytes([7; 16]);

fn at(text: &str) -> Timestamp {
    instant::parse(text).unwrap().into()
}

fn york(cron: &str) -> ScheduleSpec {
    ScheduleSpec { time_zone: Some("America/New_York".to_owned()), ..ScheduleSpec::cron(cron) }
}

fn planned(slot: &str) -> Execution {
    let slot = at(slot);
    let id = ExecutionId::of_slot(JOB, slot, JOB.shard(ShardCount::new(4)));
    Execution::planned(id, JOB, slot, slot, Cause::Schedule)
}

fn ran(slot: &str, lag: Duration) -> Execution {
    let mut execution = planned(slot);
    let started = execution.slot + lag;
    execution.attempts.push(Attempt {
        number: 1,
        node: "local".to_owned(),
        fence: Fence::UNSET,
        due: execution.slot,
        queued_at: started,
        started_at: Some(started),
        finished_at: started + Duration::from_millis(30),
        outcome: Outcome::Ok,
        cost: Cost::default(),
    });
    execution.state = State::Completed { at: started + Duration::from_millis(30) };
    execution
}

fn skipped(slot: &str, reason: SkipReason, detail: &str) -> Execution {
    let execution = planned(slot);
    let skip = Event::Skip { at: execution.slot, reason, detail: detail.to_owned() };
    execution.apply(&skip).unwrap()
}

/// `30 2 * * *` in New York, March 2026: the clock skips 02:00 to 03:00 on the 8th.
fn words(executions: &[Execution], stretches: &[Stretch], marks: &[Mark], schedule: &ScheduleSpec) -> Vec<String> {
    let schedule: Schedule = schedule.parse().unwrap();
    let facts = Facts { job: JOB, schedule: &schedule, executions, stretches, marks };
    let lines = explain(&facts, at("2026-03-01T00:00:00Z"), at("2026-04-01T00:00:00Z")).unwrap();
    lines.iter().map(|line| line.words(&schedule)).collect()
}

#[test]
fn a_job_that_lived_through_an_outage_a_clock_change_and_a_pause() {
    let soon = Duration::from_millis(40);
    let executions = [
        ran("2026-03-01T07:30:00Z", soon),
        ran("2026-03-02T07:30:00Z", soon),
        // Nobody ticked from the evening of the 2nd to the morning of the 6th: three slots are over the deadline, the fourth is late.
        skipped("2026-03-03T07:30:00Z", SkipReason::Misfire, "misfire: 3d1h late"),
        ran("2026-03-06T07:30:00Z", Duration::from_secs(3_000)),
        ran("2026-03-07T07:30:00Z", soon),
        ran("2026-03-08T07:00:00Z", soon),
        ran("2026-03-09T06:30:00Z", soon),
        skipped("2026-03-10T06:30:00Z", SkipReason::Paused, "its job is paused"),
        ran("2026-03-14T06:30:00Z", soon),
        ran("2026-03-15T10:00:00Z", soon),
        planned("2026-03-16T10:00:00Z"),
    ];
    let stretch = |from, until, reason| Stretch { from: at(from), until: at(until), reason, detail: None };
    let stretches = [
        stretch("2026-03-04T07:30:00Z", "2026-03-06T07:20:00Z", SkipReason::Misfire),
        stretch("2026-03-10T06:30:01Z", "2026-03-13T12:00:00Z", SkipReason::Paused),
    ];
    let mark = |when, revision, change| Mark { at: at(when), revision, change };
    let marks = [
        mark("2026-03-09T15:00:00Z", 2, Change::Paused),
        mark("2026-03-13T12:00:00Z", 3, Change::Resumed),
        mark("2026-03-14T20:00:00Z", 4, Change::Edited { schedule_before: york("30 2 * * *") }),
    ];
    let expected = "\
2026-03-01T02:30:00-05:00 (2026-03-01T07:30:00Z) to 2026-03-02T02:30:00-05:00 (2026-03-02T07:30:00Z), 2 slots: ran on time
2026-03-03T02:30:00-05:00 (2026-03-03T07:30:00Z) to 2026-03-05T02:30:00-05:00 (2026-03-05T07:30:00Z), 3 slots: did not run: too late for the job's misfire rule
2026-03-06T02:30:00-05:00 (2026-03-06T07:30:00Z): ran 50m late
2026-03-07T02:30:00-05:00 (2026-03-07T07:30:00Z): ran on time
2026-03-08T03:00:00-04:00 (2026-03-08T07:00:00Z): ran on time; 02:30 does not exist that day; runs right after the jump
2026-03-09T02:30:00-04:00 (2026-03-09T06:30:00Z): ran on time
2026-03-09T11:00:00-04:00 (2026-03-09T15:00:00Z): the job was paused
2026-03-10T02:30:00-04:00 (2026-03-10T06:30:00Z) to 2026-03-13T02:30:00-04:00 (2026-03-13T06:30:00Z), 4 slots: did not run: the job was paused
2026-03-13T08:00:00-04:00 (2026-03-13T12:00:00Z): the job was resumed
2026-03-14T02:30:00-04:00 (2026-03-14T06:30:00Z): ran on time
2026-03-14T16:00:00-04:00 (2026-03-14T20:00:00Z): the job was edited; until then its schedule was `30 2 * * *` in America/New_York
2026-03-15T06:00:00-04:00 (2026-03-15T10:00:00Z): ran on time
2026-03-16T06:00:00-04:00 (2026-03-16T10:00:00Z): has not ended: PENDING";
    let told = words(&executions, &stretches, &marks, &york("0 6 * * *"));
    assert_eq!(told.join("\n"), expected);
}

#[test]
fn a_left_out_time_and_a_repeated_one_are_told_at_the_slot_that_follows_and_at_the_slot() {
    let schedule = ScheduleSpec { gap: Some(compline_core::schedule::Gap::Skip), ..york("30 2 * * *") };
    let soon = Duration::ZERO;
    let told = words(&[ran("2026-03-07T07:30:00Z", soon), ran("2026-03-09T06:30:00Z", soon)], &[], &[], &schedule);
    assert_eq!(
        told[1],
        "2026-03-09T02:30:00-04:00 (2026-03-09T06:30:00Z): ran on time; 02:30 of 2026-03-08 does not exist and is left out"
    );
}

#[test]
fn a_year_of_missed_minutes_is_a_line_whose_count_is_bounded() {
    let schedule: Schedule = ScheduleSpec::cron("* * * * *").parse().unwrap();
    let (from, until) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let stretches = [Stretch { from, until, reason: SkipReason::Paused, detail: None }];
    let facts = Facts { job: JOB, schedule: &schedule, executions: &[], stretches: &stretches, marks: &[] };
    let lines = explain(&facts, from, until).unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((line.first, line.last), (from, at("2026-12-31T23:59:00Z")));
    assert_eq!((line.slots, line.uncounted), (SLOTS_COUNTED_MAX, true));
    assert!(line.words(&schedule).contains("more than 100000 slots: did not run: the job was paused"));
    // Only the part that is asked for.
    let hour = explain(&facts, from, at("2026-01-01T01:00:00Z")).unwrap();
    assert_eq!((hour[0].slots, hour[0].uncounted), (60, false));
}

#[test]
fn answers_that_follow_one_another_join_and_failures_keep_their_reasons() {
    let line = |minute: u64, verdict: Verdict, detail: Option<&str>| {
        let slot = at("2026-01-01T00:00:00Z") + Duration::from_secs(60 * minute);
        let detail = detail.map(str::to_owned);
        Line { first: slot, last: slot, slots: 1, uncounted: false, verdict, lag_max: None, detail, note: None }
    };
    let lines = [
        line(0, Verdict::Ran, None),
        line(1, Verdict::Ran, None),
        line(2, Verdict::Failed, Some("a trap")),
        line(3, Verdict::Failed, Some("out of fuel")),
        line(4, Verdict::Skipped(SkipReason::Overlap), None),
        line(5, Verdict::Skipped(SkipReason::Quota), None),
    ];
    let slots: Vec<u64> = merge(lines).iter().map(|line| line.slots).collect();
    assert_eq!(slots, [2, 1, 1, 1, 1]);
}
