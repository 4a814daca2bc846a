//! Slots that come while one runs, through the real passes: who waits goes on with the report that ends the other, and jobs without a rule pay
//! nothing for it.

use std::time::Duration;

use compline_core::execution::{Execution, Outcome, State};
use compline_core::ids::SessionId;
use compline_core::job::Overlap;
use compline_core::ledger::SkipReason;
use compline_core::schedule::ScheduleSpec;
use compline_server::passes::claim::Claimed;
use compline_server::passes::complete::{Reported, complete};

use crate::on_both_backends;
use crate::world::{World, report};

on_both_backends!(
    who_waits_goes_on_when_the_other_has_ended,
    who_is_terminated_reports_too_late,
    who_is_cancelled_may_report_in_time,
    a_job_without_a_rule_writes_no_more_than_before,
);

const MINUTE: Duration = Duration::from_secs(60);

/// A minute job whose first slot runs, with the executions of its next slots after two more ticks.
async fn two_more_slots(world: &World, overlap: Overlap) -> (String, SessionId, Claimed, Vec<Execution>) {
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let first = world.create_as(ScheduleSpec::cron("* * * * *"), |job| job.overlap = overlap).await;
    world.tick_all(session).await;
    let planned = world.execution(first).await;
    world.tick_at(&world.ctx, session, planned.job, planned.slot).await;
    let claimed = world.claim(&node, session, 1).await.claimed.remove(0);
    for minutes in 1..=2 {
        world.tick_at(&world.ctx, session, planned.job, planned.slot + MINUTE * minutes).await;
    }
    let mut all = world.executions_of(planned.job).await;
    all.retain(|execution| !matches!(execution.state, State::Pending { .. }));
    all.reverse();
    (node, session, claimed, all)
}

async fn end(world: &World, node: &str, session: SessionId, claimed: &Claimed) -> Reported {
    let report = report(&world.ctx, claimed, Outcome::Ok);
    complete(&world.ctx, node, session, &[report]).await.expect("a store").remove(0)
}

async fn who_waits_goes_on_when_the_other_has_ended(world: World) {
    let (node, session, claimed, all) = two_more_slots(&world, Overlap::BufferOne).await;
    let [first, second, third] = &all[..] else { panic!("three slots: {all:?}") };
    assert!(matches!(first.state, State::Running(_)));
    assert!(matches!(second.state, State::Skipped { reason: SkipReason::Overlap, .. }), "{second:?}");
    assert!(matches!(third.state, State::Waiting { .. }), "{third:?}");
    assert_eq!(end(&world, &node, session, &claimed).await, Reported::Recorded);
    // The report itself made it due: no other slot has to come.
    let ticked = world.tick_at(&world.ctx, session, third.job, third.slot + Duration::from_secs(1)).await;
    assert_eq!(ticked.queued, 1);
    assert_eq!(world.claim(&node, session, 9).await.claimed[0].execution.id, third.id);
}

async fn who_is_terminated_reports_too_late(world: World) {
    let (node, session, claimed, all) = two_more_slots(&world, Overlap::TerminateOther).await;
    assert!(matches!(&all[0].state, State::Cancelled { reason, .. } if reason.contains("terminate_other")), "{all:?}");
    assert!(matches!(all[2].state, State::Queued(_)), "{all:?}");
    assert_eq!(end(&world, &node, session, &claimed).await, Reported::AlreadyRecorded);
    assert_eq!(world.execution(all[0].id).await, all[0], "a report that comes too late changes nothing");
}

async fn who_is_cancelled_may_report_in_time(world: World) {
    let (node, session, claimed, all) = two_more_slots(&world, Overlap::CancelOther).await;
    assert!(matches!(&all[0].state, State::Running(running) if running.stop.is_some()), "{all:?}");
    assert!(matches!(all[2].state, State::Waiting { .. }), "{all:?}");
    assert_eq!(end(&world, &node, session, &claimed).await, Reported::Recorded, "it had done its work");
    let ticked = world.tick_at(&world.ctx, session, all[2].job, all[2].slot).await;
    assert_eq!(ticked.queued, 1);
}

async fn a_job_without_a_rule_writes_no_more_than_before(world: World) {
    let mut writes = Vec::new();
    let (node, session) = world.begin_sessions(1).await.remove(0);
    for overlap in [Overlap::Allow, Overlap::BufferAll] {
        let first = world.create_as(ScheduleSpec::cron("0 0 * * *"), |job| job.overlap = overlap).await;
        world.tick_all(session).await;
        let planned = world.execution(first).await;
        let before = world.ctx.store.cost().key_writes;
        world.tick_at(&world.ctx, session, planned.job, planned.slot).await;
        let claimed = world.claim(&node, session, 1).await.claimed.remove(0);
        end(&world, &node, session, &claimed).await;
        writes.push(world.ctx.store.cost().key_writes - before);
    }
    let [plain, ruled] = writes[..] else { panic!("two jobs: {writes:?}") };
    // Tick: due, execution, ready, job run, the next execution with its due row, two listings, the hour's count, a bell for the lane and the
    // shard. Claim: ready, execution, running. Complete: execution, running, the hour's count.
    assert!(plain <= 17, "{plain}");
    assert!(ruled <= plain + 2, "with a rule: one row more, set and cleared: {writes:?}");
}
