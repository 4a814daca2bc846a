//! Cancelling, in every state, against whatever else happens at that moment.

use std::sync::Arc;
use std::time::Duration;

use compline_core::execution::{Execution, Outcome, State};
use compline_core::ids::{ExecutionId, TenantId};
use compline_core::schedule::ScheduleSpec;
use compline_server::ops::cancel::{CancelError, CancelRequest, Cancelled, cancel};
use compline_server::passes::complete::{Reported, complete};
use compline_server::passes::reap;
use compline_store::backend::{RangeQuery, Read};
use compline_store::keys::Table;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::on_both_backends;
use crate::world::{Runs, World, report};

on_both_backends!(
    what_waits_is_cancelled_at_once_and_leaves_no_place,
    a_cancelled_slot_is_followed_by_the_next_one,
    a_completion_in_time_wins_over_a_cancel,
    a_failure_after_a_cancel_is_not_tried_again,
    what_is_to_stop_ends_with_its_worker,
    what_is_over_cannot_be_cancelled,
);

async fn ask(world: &World, id: ExecutionId) -> Result<Cancelled, CancelError> {
    let tenant = TenantId::default_tenant();
    cancel(&world.ctx, CancelRequest { tenant: &tenant, id, idempotency: None }).await
}

async fn ask_well(world: &World, id: ExecutionId) -> Execution {
    ask(world, id).await.expect("a cancel").seen.execution
}

/// How many rows there are of what waits, runs or is told to stop.
async fn places(world: &World) -> usize {
    let mut places = 0;
    for table in [Table::Due, Table::Ready, Table::Running, Table::Cancel] {
        let (begin, end) = ([table as u8].to_vec().into(), [table as u8 + 1].to_vec().into());
        let query = RangeQuery { begin, end, limit: 100, reverse: false, read: Read::Snapshot };
        let query = &query;
        let read = world.ctx.store.transact(|tx| async move { tx.range(query).await });
        places += read.await.expect("a store").value.len();
    }
    places
}

fn is_cancelled(execution: &Execution) -> bool {
    matches!(execution.state, State::Cancelled { .. })
}

async fn what_waits_is_cancelled_at_once_and_leaves_no_place(world: World) {
    let sessions = world.begin_sessions(1).await;
    let (node, session) = &sessions[0];
    let pending = world.create(ScheduleSpec::now()).await;
    let cancelled = ask_well(&world, pending).await;
    assert!(is_cancelled(&cancelled) && cancelled.attempts.is_empty(), "{cancelled:?}");
    assert_eq!(places(&world).await, 0);

    let queued = world.create(ScheduleSpec::now()).await;
    world.tick_all(*session).await;
    assert!(matches!(world.execution(queued).await.state, State::Queued(_)));
    assert!(is_cancelled(&ask_well(&world, queued).await));
    assert_eq!(places(&world).await, 0);
    assert!(world.claim(node, *session, 10).await.claimed.is_empty());

    let retrying = world.create(ScheduleSpec::now()).await;
    world.tick_all(*session).await;
    let claimed = world.claim(node, *session, 1).await.claimed.remove(0);
    let failed = report(&world.ctx, &claimed, Outcome::TimedOut);
    complete(&world.ctx, node, *session, &[failed]).await.expect("a store");
    assert!(matches!(world.execution(retrying).await.state, State::Retrying { .. }));
    let cancelled = ask_well(&world, retrying).await;
    assert!(is_cancelled(&cancelled));
    assert_eq!((cancelled.attempts.len(), places(&world).await), (1, 0), "its history stays");
    // Again, it is what it was.
    assert_eq!(ask_well(&world, retrying).await, cancelled);
}

async fn a_cancelled_slot_is_followed_by_the_next_one(world: World) {
    let first = world.create(ScheduleSpec::cron("0 * * * * *")).await;
    let slot = world.execution(first).await.slot;
    assert!(is_cancelled(&ask_well(&world, first).await));
    let next = world.next_of(first).await.expect("a next slot");
    assert_eq!(next.slot, slot + Duration::from_secs(60));
    assert!(matches!(world.execution(next.execution).await.state, State::Pending { .. }));
    assert_eq!(places(&world).await, 1);
    // An edit to slots before it, and back: what was cancelled stays so, whatever comes to it.
    let job = world.execution(first).await.job;
    crate::changes::edited(&world.ctx, job, ScheduleSpec::cron("0,30 * * * * *")).await.expect("an edit");
    let (_, session) = world.begin_sessions(1).await.remove(0);
    world.tick_all(session).await;
    let half = world.next_of_job(job).await.expect("a slot").slot;
    assert_eq!(half, slot.saturating_sub(Duration::from_secs(30)));
    assert_eq!(world.tick_at(&world.ctx, session, job, half).await.queued, 1);
    assert_eq!(world.next_of_job(job).await.map(|next| next.slot), Some(slot + Duration::from_secs(30)));
    assert!(is_cancelled(&world.execution(first).await));
    // The last slot has none behind it.
    let once = world.create(ScheduleSpec::now()).await;
    ask_well(&world, once).await;
    assert!(world.next_of(once).await.is_none());
}

/// A running execution, told to stop.
async fn told_to_stop(
    world: &World,
) -> (String, compline_core::ids::SessionId, compline_server::passes::claim::Claimed) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let id = world.create(ScheduleSpec::now()).await;
    world.tick_all(session).await;
    let claimed = world.claim(&node, session, 1).await.claimed.remove(0);
    let told = ask_well(world, id).await;
    assert!(matches!(&told.state, State::Running(running) if running.stop.is_some()), "{told:?}");
    assert_eq!(ask_well(world, id).await, told, "the first wish stays");
    assert_eq!(world.execution(id).await, told, "its fence is kept");
    (node, session, claimed)
}

async fn a_completion_in_time_wins_over_a_cancel(world: World) {
    let (node, session, claimed) = told_to_stop(&world).await;
    let done = report(&world.ctx, &claimed, Outcome::Ok);
    let answers = complete(&world.ctx, &node, session, &[done]).await.expect("a store");
    assert_eq!(answers, [Reported::Recorded]);
    assert!(matches!(world.execution(claimed.execution.id).await.state, State::Completed { .. }));
    assert!(matches!(ask(&world, claimed.execution.id).await, Err(CancelError::Over(_))));
    assert_eq!(places(&world).await, 0);
}

async fn a_failure_after_a_cancel_is_not_tried_again(world: World) {
    let (node, session, claimed) = told_to_stop(&world).await;
    let failed = report(&world.ctx, &claimed, Outcome::TimedOut);
    complete(&world.ctx, &node, session, &[failed]).await.expect("a store");
    let execution = world.execution(claimed.execution.id).await;
    assert!(is_cancelled(&execution), "{execution:?}");
    assert_eq!((execution.attempts[0].outcome.kind(), places(&world).await), ("timed-out", 0));
}

async fn what_is_to_stop_ends_with_its_worker(world: World) {
    let (node, _, claimed) = told_to_stop(&world).await;
    world.end_session(&node).await;
    assert_eq!(reap::give_back_orphans(&world.ctx).await.expect("a store"), 1);
    let execution = world.execution(claimed.execution.id).await;
    assert!(is_cancelled(&execution), "{execution:?}");
    assert_eq!((execution.attempts[0].outcome.kind(), places(&world).await), ("worker-lost", 0));
}

async fn what_is_over_cannot_be_cancelled(world: World) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let id = world.create(ScheduleSpec::now()).await;
    world.tick_all(session).await;
    let claimed = world.claim(&node, session, 1).await.claimed.remove(0);
    complete(&world.ctx, &node, session, &[report(&world.ctx, &claimed, Outcome::Ok)]).await.expect("a store");
    let before = world.execution(id).await;
    assert!(matches!(ask(&world, id).await, Err(CancelError::Over(seen)) if seen.execution == before));
    assert_eq!(world.execution(id).await, before);
    let nobody = ExecutionId::from_bytes([7; 20]);
    assert!(matches!(ask(&world, nobody).await, Err(CancelError::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn what_runs_stops_within_a_second() {
    let world = World::memory().await;
    let stop = CancellationToken::new();
    let node = world.run_node_with(Arc::new(Runs { endless: true, prepared: Notify::new() }), 1, &stop);
    let id = world.create(ScheduleSpec::now()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(matches!(world.execution(id).await.state, State::Running(_)));
    ask_well(&world, id).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let execution = world.execution(id).await;
    assert!(is_cancelled(&execution), "{execution:?}");
    assert_eq!((execution.attempts[0].outcome.kind(), places(&world).await), ("cancelled", 0));
    stop.cancel();
    node.await.expect("a node").expect("a store");
}
