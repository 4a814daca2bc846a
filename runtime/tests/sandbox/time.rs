//! Wall limits and cancelling, also of guests that are blocked in a host call. Most tests stop the clock once
//! everything is compiled; it then jumps to the next deadline whenever all runs are blocked.

use std::future::pending;
use std::time::Duration;

use compline_runtime::{EngineConfig, Invocation, Limits, Outcome};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, pause};

use crate::guest;
use crate::support::{compile_on, engine_with, nanoseconds, program, run};

const TEN_SECONDS: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_millis(300);

fn sleeping(limits: Limits) -> Invocation {
    Invocation { input: nanoseconds(TEN_SECONDS), limits, ..Invocation::default() }
}

fn unlimited_fuel(wall: Duration) -> Limits {
    Limits { fuel: u64::MAX, wall, ..Limits::default() }
}

#[tokio::test]
async fn a_guest_blocked_in_a_host_call_is_ended_at_its_limit() {
    let program = program(guest::sleep()).await;
    pause();
    let report = program.run(sleeping(Limits { wall: LIMIT, ..Limits::default() }), pending()).await;
    assert_eq!(report.outcome, Outcome::TimedOut);
    assert!(report.cost.wall >= LIMIT && report.cost.wall < LIMIT + Duration::from_millis(5), "{:?}", report.cost.wall);
}

#[tokio::test]
async fn a_guest_may_sleep_within_its_limit() {
    let program = program(guest::sleep()).await;
    pause();
    let report = program.run(sleeping(Limits::default()), pending()).await;
    assert_eq!(report.outcome, Outcome::Ok);
    assert!(report.cost.wall >= TEN_SECONDS, "{:?}", report.cost.wall);
}

#[tokio::test]
async fn six_hundred_blocked_runs_starve_nobody() {
    let engine = engine_with(EngineConfig { concurrent_runs_max: 601, ..EngineConfig::default() });
    let sleeper = compile_on(&engine, guest::sleep()).await.unwrap();
    let healthy = compile_on(&engine, guest::echo()).await.unwrap();
    pause();
    let before = Instant::now();
    let mut blocked = JoinSet::new();
    for _ in 0..600 {
        let sleeper = sleeper.clone();
        let limits = Limits { wall: LIMIT, ..Limits::default() };
        blocked.spawn(async move { sleeper.run(sleeping(limits), pending()).await });
    }
    // This is the only thread there is: after it, each of them has come as far as its host call.
    yield_now().await;
    let report = run(&healthy, "still here", Limits::default()).await;
    assert_eq!((report.outcome, before.elapsed()), (Outcome::Ok, Duration::ZERO));
    while let Some(report) = blocked.join_next().await {
        assert_eq!(report.unwrap().outcome, Outcome::TimedOut);
    }
    assert!(before.elapsed() < LIMIT * 2, "they waited side by side: {:?}", before.elapsed());
}

#[tokio::test]
async fn a_computing_guest_is_ended_at_its_limit() {
    let program = program(guest::endless_loop()).await;
    let report = run(&program, "", unlimited_fuel(Duration::from_millis(50))).await;
    assert_eq!(report.outcome, Outcome::TimedOut);
    assert!(report.cost.fuel > 0, "what it used until then is known");
}

#[tokio::test]
async fn a_computing_guest_shares_its_thread_and_can_be_cancelled() {
    let engine = engine_with(EngineConfig { concurrent_runs_max: 8, ..EngineConfig::default() });
    let endless = compile_on(&engine, guest::endless_loop()).await.unwrap();
    let healthy = compile_on(&engine, guest::echo()).await.unwrap();
    let (cancel, cancelled) = oneshot::channel::<()>();
    let invocation = Invocation { limits: unlimited_fuel(Duration::from_secs(600)), ..Invocation::default() };
    let endless = endless.run(invocation, async {
        let _ = cancelled.await;
    });
    let healthy = async {
        let report = run(&healthy, "", Limits::default()).await;
        cancel.send(()).unwrap();
        report
    };
    // Both are polled by one task on one thread, the endless one first.
    let (endless, healthy) = tokio::join!(endless, healthy);
    assert_eq!((endless.outcome, healthy.outcome), (Outcome::Cancelled, Outcome::Ok));
}

#[tokio::test]
async fn cancelling_ends_a_blocked_guest_at_once() {
    let program = program(guest::sleep()).await;
    pause();
    let report = program.run(sleeping(Limits::default()), tokio::time::sleep(Duration::from_millis(20))).await;
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert!(report.cost.wall < Duration::from_millis(30), "{:?}", report.cost.wall);
}

#[tokio::test]
async fn runs_wait_for_a_free_slot_and_a_dropped_run_frees_its_own() {
    let engine = engine_with(EngineConfig { concurrent_runs_max: 1, ..EngineConfig::default() });
    let sleeper = compile_on(&engine, guest::sleep()).await.unwrap();
    let echo = compile_on(&engine, guest::echo()).await.unwrap();
    pause();
    let first = {
        let sleeper = sleeper.clone();
        tokio::spawn(async move { sleeper.run(sleeping(Limits::default()), pending()).await })
    };
    yield_now().await;
    let waiting = echo.run(Invocation::default(), tokio::time::sleep(Duration::from_secs(1))).await;
    assert_eq!((waiting.outcome, waiting.cost.wall), (Outcome::Cancelled, Duration::ZERO));
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(run(&echo, "", Limits::default()).await.outcome, Outcome::Ok);
}

#[tokio::test]
async fn more_runs_than_slots_all_end_well() {
    let engine = engine_with(EngineConfig { concurrent_runs_max: 2, ..EngineConfig::default() });
    let echo = compile_on(&engine, guest::echo()).await.unwrap();
    let mut runs = JoinSet::new();
    for _ in 0..40 {
        let echo = echo.clone();
        runs.spawn(async move { run(&echo, "", Limits::default()).await.outcome });
    }
    while let Some(outcome) = runs.join_next().await {
        assert_eq!(outcome.unwrap(), Outcome::Ok);
    }
}
