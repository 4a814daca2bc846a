//! What is late: it is set aside, goes behind what is on time, and loses nothing by that.

use std::time::Duration;

use compline_core::execution::{Execution, Outcome, State};
use compline_core::ids::{ClaimId, ExecutionId, SessionId, TenantId};
use compline_core::job::LATE_GRACE;
use compline_core::schedule::ScheduleSpec;
use compline_server::ops::cancel::{CancelRequest, cancel};
use compline_server::passes::beat::{self, Held};
use compline_server::passes::claim::{ClaimOutcome, ClaimRequest, claim};
use compline_server::passes::complete::{Reported, complete};
use compline_server::passes::owed::OwedRoom;
use compline_server::passes::parts::LaneParts;
use compline_server::passes::tick::tick;
use compline_store::tables::queue::{ByTime, Due, lanes_owed};

use crate::on_both_backends;
use crate::world::{World, report};

on_both_backends! {
    what_is_late_goes_behind_what_is_on_time,
    what_was_owed_leaves_room_for_what_is_on_time,
    what_is_owed_can_be_cancelled_and_given_back,
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
