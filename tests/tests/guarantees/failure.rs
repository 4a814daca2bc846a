//! Failure is bounded and visible: dead letters with their reason, a task that is told once, and a redrive that keeps id and history.

use std::time::Duration;

use bytes::Bytes;
use compline_core::execution::{Cause, Execution, Outcome, State};
use compline_core::ids::{ExecutionId, SessionId, TaskDigest};
use compline_core::job::{Job, OnFailure, TaskRef};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::retry::RetryRule;
use compline_server::passes::complete::Reported;
use compline_server::passes::redrive::{Answer, Wanted, drop_letters, redrive};
use compline_server::passes::{complete, reap};
use compline_store::backend::Read;
use compline_store::tables::dead::{self, DeadKind, DeadLetter};
use compline_store::tables::execution as rows;
use compline_store::tables::execution::LogLine;
use compline_store::tables::history::{Listing, Page};

use crate::world::{World, report};

fn handler() -> OnFailure {
    OnFailure {
        task: TaskRef { name: "tell".to_owned(), reference: "tell".to_owned(), digest: TaskDigest::of(b"tell") },
        parameters: Bytes::from_static(br#"{"to":"ops"}"#),
    }
}

fn without_retries(job: &mut Job) {
    job.retry = RetryRule::Delays(Vec::new());
}

/// Ticks, claims what waits and reports `outcome` on all of it. Returns what ran.
async fn run_all(world: &World, session: SessionId, outcome: &Outcome) -> Vec<ExecutionId> {
    world.tick_all(session).await;
    let claimed = world.claim("node-0", session, 10).await.claimed;
    let reports: Vec<_> = claimed
        .iter()
        .map(|claimed| {
            let line = |number: u32| LogLine { level: "error".to_owned(), message: format!("line {number}") };
            complete::Report { logs: (0..50).map(line).collect(), ..report(&world.ctx, claimed, outcome.clone()) }
        })
        .collect();
    let answers = complete::complete(&world.ctx, "node-0", session, &reports).await.expect("a store");
    assert!(answers.iter().all(|answer| *answer == Reported::Recorded), "{answers:?}");
    claimed.iter().map(|claimed| claimed.execution.id).collect()
}

async fn letter(world: &World, id: ExecutionId) -> Option<DeadLetter> {
    let read = world.ctx.store.transact(|tx| async move { dead::get(&tx, id).await });
    read.await.expect("a store").value.map(|(_, letter)| letter)
}

async fn listed_as_failed(world: &World, execution: &Execution) -> bool {
    let listing = Listing::FailedOfJob(execution.job);
    let page = Page { limit: 10, ..Page::default() };
    let page = &page;
    let read = world.ctx.store.transact(|tx| async move { listing.page(&tx, page).await });
    read.await.expect("a store").value.iter().any(|entry| entry.execution == execution.id)
}

async fn redrive_now(world: &World, id: ExecutionId) -> Answer {
    let wanted = [Wanted { execution: id, at: world.ctx.env.now() }];
    redrive(&world.ctx, &wanted).await.expect("a store")[0]
}

fn permanent() -> Outcome {
    Outcome::Error { retryable: false, message: "no such account".to_owned() }
}

pub async fn what_failed_for_good_is_a_dead_letter_with_its_reason(world: World) {
    let (_, session) = world.begin_sessions(1).await[0].clone();
    let exhausted = world.create_as(ScheduleSpec::now(), without_retries).await;
    run_all(&world, session, &Outcome::TimedOut).await;
    let hopeless = world.create(ScheduleSpec::now()).await;
    run_all(&world, session, &permanent()).await;
    let first = letter(&world, exhausted).await.expect("a letter");
    assert_eq!(first.kind, DeadKind::Exhausted);
    assert_eq!(first.log_tail.len(), 20, "the last lines only");
    assert_eq!(first.log_tail[19].message, "line 49");
    assert_eq!(first.execution, world.execution(exhausted).await);
    let second = letter(&world, hopeless).await.expect("a letter");
    assert_eq!(second.kind, DeadKind::Permanent, "it had retries left, and the task said no");
    assert!(matches!(&second.execution.state, State::Failed { reason, .. } if reason.contains("no such account")));
}

pub async fn poison_is_a_dead_letter_too(world: World) {
    let id = world.create(ScheduleSpec::now()).await;
    for _ in 0..3 {
        let (node, session) = world.begin_sessions(1).await[0].clone();
        world.tick_all(session).await;
        assert_eq!(world.claim(&node, session, 1).await.claimed.len(), 1);
        world.end_session(&node).await;
        assert_eq!(reap::give_back_orphans(&world.ctx).await.expect("a store"), 1);
    }
    let letter = letter(&world, id).await.expect("a letter");
    assert_eq!((letter.kind, letter.execution.attempts.len()), (DeadKind::Poison, 3));
    // Once more: the lost workers of its earlier life count no more.
    assert_eq!(redrive_now(&world, id).await, Answer::Done);
    let (_, session) = world.begin_sessions(1).await[0].clone();
    assert_eq!(run_all(&world, session, &Outcome::Ok).await, [id]);
}

pub async fn the_named_task_is_told_once_and_its_own_failure_tells_nobody(world: World) {
    let (_, session) = world.begin_sessions(1).await[0].clone();
    let failed = world
        .create_as(ScheduleSpec::now(), |job| {
            without_retries(job);
            job.on_failure = Some(handler());
        })
        .await;
    assert_eq!(run_all(&world, session, &permanent()).await, [failed]);
    let told = run_all(&world, session, &permanent()).await;
    let [told] = told[..] else { panic!("one execution is told: {told:?}") };
    let row = world.execution(told).await;
    assert_eq!(row.cause, Cause::Failure { of: failed });
    let instead = row.instead.as_ref().expect("a task of its own");
    assert_eq!(instead.task, handler().task);
    let input: serde_json::Value = serde_json::from_slice(&instead.input).expect("JSON");
    assert_eq!(input["parameters"]["to"], "ops");
    let failure = &input["failure"];
    assert_eq!(failure["execution_id"], failed.to_string());
    assert_eq!((&failure["kind"], &failure["outcome"]["kind"]), (&"permanent".into(), &"error".into()));
    assert_eq!(failure["log_tail"][19]["message"], "line 49");
    assert!(matches!(row.state, State::Failed { .. }), "its own failure is recorded");
    assert!(letter(&world, told).await.is_some());
    assert!(run_all(&world, session, &Outcome::Ok).await.is_empty(), "and tells nobody");
    // A second failure of the same execution is another one to tell of.
    assert_eq!(redrive_now(&world, failed).await, Answer::Done);
    assert_eq!(run_all(&world, session, &permanent()).await, [failed]);
    let again = run_all(&world, session, &Outcome::Ok).await;
    assert!(again.len() == 1 && again[0] != told, "{again:?}");
}

pub async fn a_redriven_execution_keeps_its_id_and_history_and_begins_anew(world: World) {
    let (_, session) = world.begin_sessions(1).await[0].clone();
    let id = world.create_as(ScheduleSpec::now(), |job| job.retry = RetryRule::Delays(vec![Duration::ZERO])).await;
    run_all(&world, session, &Outcome::TimedOut).await;
    run_all(&world, session, &Outcome::TimedOut).await;
    assert!(listed_as_failed(&world, &world.execution(id).await).await);
    assert_eq!(redrive_now(&world, id).await, Answer::Done);
    assert_eq!(redrive_now(&world, id).await, Answer::NotFailed, "a repeat is harmless");
    assert!(letter(&world, id).await.is_none());
    assert!(!listed_as_failed(&world, &world.execution(id).await).await);
    run_all(&world, session, &Outcome::TimedOut).await;
    let row = world.execution(id).await;
    assert!(matches!(row.state, State::Retrying { .. }), "its attempts are counted anew: {row:?}");
    run_all(&world, session, &Outcome::Ok).await;
    let row = world.execution(id).await;
    assert!(matches!(row.state, State::Completed { .. }), "{row:?}");
    assert_eq!(row.attempts.len(), 4, "and none is forgotten");
}

pub async fn a_dead_letter_outlives_its_row_and_brings_it_back(world: World) {
    let (_, session) = world.begin_sessions(1).await[0].clone();
    let id = world.create_as(ScheduleSpec::now(), without_retries).await;
    run_all(&world, session, &Outcome::OutOfFuel).await;
    let removed = world.ctx.store.transact(|tx| async move {
        tx.clear(rows::key(id));
        Ok(())
    });
    removed.await.expect("a store");
    assert_eq!(redrive_now(&world, id).await, Answer::Done);
    assert_eq!(run_all(&world, session, &Outcome::Ok).await, [id]);
    let read = world.ctx.store.transact(|tx| async move { rows::get(&tx, id, Read::Snapshot).await });
    assert_eq!(read.await.expect("a store").value.expect("a row").execution.attempts.len(), 2);
}

pub async fn a_dropped_letter_leaves_the_history_as_it_is(world: World) {
    let (_, session) = world.begin_sessions(1).await[0].clone();
    let id = world.create_as(ScheduleSpec::now(), without_retries).await;
    run_all(&world, session, &Outcome::OutOfFuel).await;
    assert_eq!(drop_letters(&world.ctx, &[id]).await.expect("a store"), [Answer::Done]);
    assert_eq!(drop_letters(&world.ctx, &[id]).await.expect("a store"), [Answer::Unknown]);
    assert!(letter(&world, id).await.is_none());
    assert!(listed_as_failed(&world, &world.execution(id).await).await);
    assert_eq!(redrive_now(&world, id).await, Answer::Done, "it can still be redriven by its id");
}
