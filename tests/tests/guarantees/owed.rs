//! What is late: it is set aside, goes behind what is on time, and loses nothing by that.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Execution, Outcome, State};
use compline_core::ids::{ClaimId, ExecutionId, JobId, SessionId, TenantId};
use compline_core::job::{LATE_GRACE, Overlap};
use compline_core::ledger::SkipReason;
use compline_core::schedule::ScheduleSpec;
use compline_server::ops::cancel::{CancelRequest, cancel};
use compline_server::ops::change::Change;
use compline_server::passes::beat::{self, Held};
use compline_server::passes::claim::{ClaimOutcome, ClaimRequest, claim};
use compline_server::passes::complete::{Reported, complete};
use compline_server::passes::owed::OwedRoom;
use compline_server::passes::parts::LaneParts;
use compline_server::passes::tick::tick;
use compline_store::tables::queue::{ByTime, Due, lanes_owed};

use crate::changes::{changed, edited};
use crate::on_both_backends;
use crate::world::{World, report};

on_both_backends! {
    what_is_late_goes_behind_what_is_on_time,
    what_was_owed_leaves_room_for_what_is_on_time,
    what_is_owed_can_be_cancelled_and_given_back,
    what_a_job_has_due_now_does_not_wait_for_what_it_owes,
    a_job_whose_runs_take_turns_keeps_them_in_order,
    a_lane_gets_no_more_of_what_is_owed_than_it_has_room_for,
}

const LATE: Duration = Duration::from_secs(LATE_GRACE.as_secs() + 1);

/// A job whose only slot is in an hour, and is found so late.
async fn found(world: &World, session: SessionId, late: Duration) -> ExecutionId {
    let at = world.ctx.env.now() + Duration::from_secs(3_600);
    let id = world.create(ScheduleSpec::once(at.to_string())).await;
    let Execution { slot, job, .. } = world.execution(id).await;
    // Takes the shards.
    world.tick_all(session).await;
    world.tick_at(&world.ctx, session, job, slot + late).await;
    id
}

async fn take(world: &World, node: &str, session: SessionId, limit: usize, owed_max: usize) -> ClaimOutcome {
    let lanes = [LaneParts { lane: "default".to_owned(), parts: (0..world.ctx.partitions).collect() }];
    let request = ClaimRequest {
        node,
        session,
        lanes: &lanes,
        limit,
        owed_max,
        claim: ClaimId::new(world.ctx.env.random_u128()),
        can_run: &|_| true,
    };
    claim(&world.ctx, &request).await.expect("a claim")
}

async fn what_is_late_goes_behind_what_is_on_time(world: World) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    for _ in 0..3 {
        let late = found(&world, session, LATE).await;
        assert!(matches!(world.execution(late).await.state, State::Queued(queued) if queued.owed));
    }
    let on_time = found(&world, session, LATE_GRACE).await;
    assert!(matches!(world.execution(on_time).await.state, State::Queued(queued) if !queued.owed));
    // First what is on time, however late it was queued, then what was owed.
    let first = take(&world, &node, session, 1, 1).await.claimed.remove(0);
    assert_eq!(first.execution.id, on_time);
    assert_eq!(take(&world, &node, session, 9, 9).await.claimed.len(), 3);
}

async fn what_was_owed_leaves_room_for_what_is_on_time(world: World) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    for _ in 0..4 {
        found(&world, session, LATE).await;
    }
    let some = take(&world, &node, session, 4, 3).await;
    assert_eq!((some.claimed.len(), some.owed_left), (3, true), "one worker is kept free");
    let none = take(&world, &node, session, 1, 0).await;
    assert_eq!((none.claimed.len(), none.owed_left), (0, true));
    let on_time = found(&world, session, Duration::from_millis(1)).await;
    let next = take(&world, &node, session, 1, 0).await;
    assert_eq!(next.claimed[0].execution.id, on_time);
    let last = take(&world, &node, session, 2, 2).await;
    assert_eq!((last.claimed.len(), last.owed_left), (1, false));
}

async fn what_is_owed_can_be_cancelled_and_given_back(world: World) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let at = world.ctx.env.now() + Duration::from_secs(3_600);
    let mut both = Vec::new();
    for _ in 0..2 {
        let id = world.create(ScheduleSpec::once(at.to_string())).await;
        let Execution { slot, job, .. } = world.execution(id).await;
        // The ticker's first pass only sets it aside.
        world.tick_all(session).await;
        let rows = [Due { at: slot, execution: id, job }];
        let ticked = tick(&world.ctx, session, id.shard(), ByTime::Due, &rows, slot + LATE).await.expect("a tick");
        assert_eq!((ticked.queued, ticked.set_aside, ticked.owed.len()), (0, 1, 1));
        let State::Owed(owed) = world.execution(id).await.state else { panic!("not set aside") };
        assert_eq!((&*owed.lane, owed.due, owed.again), ("default", slot, false));
        both.push((id, job, slot));
    }
    let [(cancelled, ..), (run, job, slot)] = both[..] else { panic!("two") };
    let tenant = TenantId::default_tenant();
    let request = CancelRequest { tenant: &tenant, id: cancelled, idempotency: None };
    cancel(&world.ctx, request).await.expect("a cancel");
    assert!(matches!(world.execution(cancelled).await.state, State::Cancelled { .. }));
    world.tick_at(&world.ctx, session, job, slot + LATE).await;
    assert_eq!(take(&world, &node, session, 9, 9).await.claimed.remove(0).execution.id, run);
    beat::hand_back_unheld(&world.ctx, &node, session, Held::default).await.expect("a store");
    assert!(matches!(world.execution(run).await.state, State::Queued(queued) if queued.owed), "it is owed still");
    let claimed = take(&world, &node, session, 9, 9).await.claimed.remove(0);
    let report = report(&world.ctx, &claimed, Outcome::Ok);
    let reported = complete(&world.ctx, &node, session, &[report]).await.expect("a store");
    assert_eq!(reported, [Reported::Recorded]);
    for id in [cancelled, run] {
        let left = world.ctx.store.transact(|tx| async move { lanes_owed(&tx, id.shard(), 9).await });
        assert!(left.await.expect("a store").value.is_empty(), "nothing is owed any more");
    }
}

/// Ticks what a job's shard has due until nothing is left, and no owed rows. Returns how many were set aside.
async fn catch_up(world: &World, session: SessionId, job: JobId, now: Timestamp) -> usize {
    let shard = job.shard(world.ctx.shards);
    let mut set_aside = 0;
    loop {
        let until = now + Duration::from_micros(1);
        let read = world.ctx.store.transact(|tx| async move { ByTime::Due.first(&tx, shard, None, until, 9).await });
        let (due, _) = read.await.expect("a store").value;
        if due.is_empty() {
            return set_aside;
        }
        set_aside += tick(&world.ctx, session, shard, ByTime::Due, &due, now).await.expect("a tick").set_aside;
    }
}

/// A job of every minute and its first slot.
async fn minutely(world: &World, session: SessionId, overlap: Overlap) -> (JobId, Timestamp) {
    let id = world.create_as(ScheduleSpec::cron("0 * * * * *"), |job| job.overlap = overlap).await;
    let Execution { slot, job, .. } = world.execution(id).await;
    // Takes the shards.
    world.tick_all(session).await;
    (job, slot)
}

const MINUTE: Duration = Duration::from_secs(60);

async fn what_a_job_has_due_now_does_not_wait_for_what_it_owes(world: World) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let (job, first) = minutely(&world, session, Overlap::Allow).await;
    let now = first + 30 * MINUTE + Duration::from_secs(5);
    assert_eq!(catch_up(&world, session, job, now).await, 30, "each late slot, and none besides");
    let next = world.next_of_job(job).await.expect("a slot");
    assert_eq!(next.slot, first + 31 * MINUTE, "the schedule went on");
    // Nothing of what is owed is in the lane yet, and the one that is due now is.
    let claimed = take(&world, &node, session, 99, 99).await.claimed;
    let slots: Vec<_> = claimed.iter().map(|claimed| claimed.execution.slot).collect();
    assert_eq!(slots, [first + 30 * MINUTE]);
    // The rest follows, oldest first, each once.
    world.tick_at(&world.ctx, session, job, now).await;
    let mut slots = Vec::new();
    while let Some(claimed) = take(&world, &node, session, 1, 1).await.claimed.pop() {
        slots.push(claimed.execution.slot);
    }
    slots.sort_unstable();
    let owed: Vec<_> = (0..30).map(|minute| first + minute * MINUTE).collect();
    assert_eq!(slots, owed);
}

async fn a_job_whose_runs_take_turns_keeps_them_in_order(world: World) {
    let (_, session) = world.begin_sessions(1).await.remove(0);
    let (job, first) = minutely(&world, session, Overlap::BufferAll).await;
    let now = first + 3 * MINUTE + Duration::from_secs(5);
    assert_eq!(catch_up(&world, session, job, now).await, 1, "the schedule waits for it");
    assert_eq!(world.next_of_job(job).await.map(|next| next.slot), Some(first));
    world.tick_at(&world.ctx, session, job, now).await;
    assert_eq!(world.next_of_job(job).await.map(|next| next.slot), Some(first + MINUTE));
}

/// What a job owes is not run behind its owner's back.
#[tokio::test(start_paused = true)]
async fn what_is_owed_ends_with_a_pause_or_an_edit_of_its_slots() {
    for (act, reason) in [("pause", Some(SkipReason::Paused)), ("edit", Some(SkipReason::Edited)), ("none", None)] {
        let world = World::memory().await;
        let (node, session) = world.begin_sessions(1).await.remove(0);
        let (job, first) = minutely(&world, session, Overlap::Allow).await;
        tokio::time::advance(first.saturating_since(world.ctx.env.now()) + 3 * MINUTE - Duration::from_secs(1)).await;
        let now = world.ctx.env.now();
        assert_eq!(catch_up(&world, session, job, now).await, 3);
        match act {
            "pause" => {
                changed(&world.ctx, job, Change::Pause).await.expect("a pause");
                changed(&world.ctx, job, Change::Resume).await.expect("a resume");
            }
            "edit" => edited(&world.ctx, job, ScheduleSpec::cron("30 * * * * *")).await.expect("an edit"),
            _ => edited(&world.ctx, job, ScheduleSpec::cron("0 * * * * *")).await.expect("an edit"),
        }
        world.tick_at(&world.ctx, session, job, now).await;
        for execution in world.executions_of(job).await.iter().filter(|execution| execution.slot < now) {
            match (&execution.state, reason) {
                (State::Skipped { reason: is, .. }, Some(reason)) => assert_eq!(*is, reason, "{act}: {execution:?}"),
                (State::Queued(queued), None) => assert!(queued.owed, "{act}: {execution:?}"),
                _ => panic!("{act}: {execution:?}"),
            }
        }
        let claimed = take(&world, &node, session, 9, 9).await.claimed.len();
        assert_eq!(claimed, if reason.is_some() { 0 } else { 3 }, "{act}");
    }
}

async fn a_lane_gets_no_more_of_what_is_owed_than_it_has_room_for(world: World) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let room = OwedRoom::of(7);
    assert_eq!(room.take(&world.ctx, "default", 4).await.expect("a store"), 4);
    assert_eq!(room.take(&world.ctx, "default", 4).await.expect("a store"), 3, "until it is looked at again");
    for _ in 0..5 {
        found(&world, session, LATE).await;
    }
    let left = async |most: usize, lane: &str| OwedRoom::of(most).take(&world.ctx, lane, 9).await.expect("a store");
    assert_eq!(left(7, "default").await, 2, "five wait");
    assert_eq!(left(5, "default").await, 0);
    assert_eq!(left(5, "another").await, 5);
    take(&world, &node, session, 4, 4).await;
    assert_eq!(left(5, "default").await, 4, "as much as was taken");
}
