//! The promises that the project is known by, each as a test of its own, on both backends: one claim among ten racers, a stale fence that
//! changes nothing, rows of one commit that all stay, a job created a second before it is due, and an idle server that does almost nothing.

mod builds;
mod cancel;
mod changes;
mod clock;
mod failure;
mod lesson;
mod meddle;
mod moved;
mod nodes;
mod overlap;
mod owed;
mod versions;
mod world;
mod zones;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use compline_core::execution::{Outcome, State};
use compline_core::ids::{ExecutionId, TaskDigest};
use compline_core::schedule::ScheduleSpec;
use compline_server::passes::complete::Reported;
use compline_server::passes::{complete, reap};
use compline_store::backend::Read;
use compline_store::tables::queue::{Part, Ready};
use compline_store::tables::{execution, job};
use failure::{
    a_dead_letter_outlives_its_row_and_brings_it_back, a_dropped_letter_leaves_the_history_as_it_is,
    a_redriven_execution_keeps_its_id_and_history_and_begins_anew, poison_is_a_dead_letter_too,
    the_named_task_is_told_once_and_its_own_failure_tells_nobody,
    what_failed_for_good_is_a_dead_letter_with_its_reason,
};
use tokio_util::sync::CancellationToken;
use world::{World, report};

macro_rules! on_both_backends {
    ($($name:ident),+ $(,)?) => {
        mod on_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(crate::world::World::memory().await).await;
            })+
        }

        mod on_embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::World::embedded().await).await;
            })+
        }
    };
}
pub(crate) use on_both_backends;

on_both_backends!(
    a_report_with_a_stale_fence_is_refused_and_changes_nothing,
    two_batches_with_stamped_keys_in_one_commit_keep_all_their_rows,
    an_unreadable_job_keeps_only_its_own_run_from_being_given_back,
    what_failed_for_good_is_a_dead_letter_with_its_reason,
    poison_is_a_dead_letter_too,
    the_named_task_is_told_once_and_its_own_failure_tells_nobody,
    a_redriven_execution_keeps_its_id_and_history_and_begins_anew,
    a_dead_letter_outlives_its_row_and_brings_it_back,
    a_dropped_letter_leaves_the_history_as_it_is,
);

async fn a_report_with_a_stale_fence_is_refused_and_changes_nothing(world: World) {
    let sessions = world.begin_sessions(2).await;
    let [(first, first_session), (second, second_session)] = &sessions[..] else { panic!("two sessions") };
    world.create(ScheduleSpec::now()).await;
    world.tick_all(*first_session).await;
    let lost = world.claim(first, *first_session, 1).await.claimed.remove(0);
    // The first one is taken for dead; its node comes back under the same session row only in its own mind.
    world.end_session(first).await;
    assert_eq!(reap::give_back_orphans(&world.ctx).await.expect("a store"), 1);
    let won = world.claim(second, *second_session, 1).await.claimed.remove(0);
    assert_eq!(won.execution.id, lost.execution.id);
    assert!(won.fence > lost.fence, "a later grant is greater");
    let before = world.execution(won.execution.id).await;

    let late = report(&world.ctx, &lost, Outcome::Ok);
    // From its own session, and from one that lives: neither has the right.
    for (node, session) in &sessions {
        let answers =
            complete::complete(&world.ctx, node, *session, std::slice::from_ref(&late)).await.expect("a store");
        assert_eq!(answers, [Reported::Refused]);
        assert_eq!(world.execution(won.execution.id).await, before, "a stale report changed the row");
    }

    let good = report(&world.ctx, &won, Outcome::Ok);
    let mut answers =
        complete::complete(&world.ctx, second, *second_session, std::slice::from_ref(&good)).await.expect("a store");
    answers.extend(
        complete::complete(&world.ctx, second, *second_session, std::slice::from_ref(&good)).await.expect("a store"),
    );
    assert_eq!(answers, [Reported::Recorded, Reported::AlreadyRecorded], "the same report again is recognised");
    let after = world.execution(won.execution.id).await;
    assert!(matches!(after.state, State::Completed { .. }));
    let kinds: Vec<_> = after.attempts.iter().map(|attempt| attempt.outcome.kind()).collect();
    assert_eq!(kinds, ["worker-lost", "ok"]);
}

async fn two_batches_with_stamped_keys_in_one_commit_keep_all_their_rows(world: World) {
    const EACH: u8 = 100;
    let part = |partition| Part { lane: "default", owed: false, zone: 0, partition };
    let ready = |number: u8| Ready {
        execution: ExecutionId::from_bytes([number; 20]),
        job: world.job_id(u128::from(number)),
        digest: TaskDigest::of(&[number]),
    };
    // Both batches push to the same part, in one transaction, one after the other.
    let committed = world
        .ctx
        .store
        .transact(|tx| async move {
            for batch in 0..2 {
                for number in 0..EACH {
                    part(0).push(&tx, &ready(batch * EACH + number), tx.next_stamp_index())?;
                }
            }
            Ok(())
        })
        .await
        .expect("a commit");
    assert!(committed.stamp.is_some());
    let rows = world
        .ctx
        .store
        .transact(|tx| async move { part(0).first(&tx, None, 1_000).await })
        .await
        .expect("a read")
        .value;
    let stamps: BTreeSet<_> = rows.iter().map(|(stamp, _)| *stamp).collect();
    assert_eq!((rows.len(), stamps.len()), (2 * EACH as usize, 2 * EACH as usize));
    let order: Vec<u8> =
        rows.iter().map(|(_, ready)| ready.as_ref().expect("a readable row").execution.as_bytes()[0]).collect();
    assert_eq!(order, (0..2 * EACH).collect::<Vec<_>>(), "first in, first out");
}

async fn an_unreadable_job_keeps_only_its_own_run_from_being_given_back(world: World) {
    let sessions = world.begin_sessions(2).await;
    let [(first, first_session), (second, second_session)] = &sessions[..] else { panic!("two sessions") };
    let bad = world.create(ScheduleSpec::now()).await;
    let good = world.create(ScheduleSpec::now()).await;
    world.tick_all(*first_session).await;
    assert_eq!(world.claim(first, *first_session, 2).await.claimed.len(), 2);
    let key = job::key(world.execution(bad).await.job);
    let row = world.swap(&key, Bytes::from_static(b"\xffnot a job")).await;
    world.end_session(first).await;
    assert_eq!(reap::give_back_orphans(&world.ctx).await.expect("its neighbour goes on"), 1);
    let taken = world.claim(second, *second_session, 2).await.claimed;
    assert_eq!(taken.iter().map(|claimed| claimed.execution.id).collect::<Vec<_>>(), [good]);
    // Nothing is lost: once the row can be read again, so can the run be given back.
    world.swap(&key, row).await;
    assert_eq!(reap::give_back_orphans(&world.ctx).await.expect("a store"), 1);
    let taken = world.claim(second, *second_session, 2).await.claimed;
    assert_eq!(taken.iter().map(|claimed| claimed.execution.id).collect::<Vec<_>>(), [bad]);
}

#[tokio::test(start_paused = true)]
async fn a_job_created_one_second_before_it_is_due_runs_on_time() {
    let world = World::memory().await;
    let stop = CancellationToken::new();
    let node = world.run_node(&stop);
    // Everybody has read ahead by then, and knows of nothing.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let due = world.ctx.env.now() + Duration::from_secs(1);
    let once = world.create(ScheduleSpec::once(due.to_string())).await;
    let now = world.create(ScheduleSpec::now()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (execution, promised) in [(once, due), (now, world.execution(now).await.slot)] {
        let execution = world.execution(execution).await;
        assert!(matches!(execution.state, State::Completed { .. }), "{execution:?}");
        let started = execution.attempts[0].started_at.expect("a start");
        assert!(started >= promised, "started early: {started} before {promised}");
        let lag = started.saturating_since(promised);
        assert!(lag <= Duration::from_millis(50), "started {lag:?} late, in a world where nothing takes time");
    }
    stop.cancel();
    node.await.expect("a node").expect("a store");
}

/// Counts, not times: what an idle node reads and writes does not depend on how many jobs are not due.
#[tokio::test(start_paused = true)]
async fn an_idle_server_does_the_same_little_whatever_is_defined() {
    let mut costs = Vec::new();
    for jobs in [1, 1_000] {
        let world = World::memory().await;
        for _ in 0..jobs {
            world.create(ScheduleSpec::cron("0 0 1 1 *")).await;
        }
        let stop = CancellationToken::new();
        let node = world.run_node(&stop);
        // By then every shard's retention has been round once, and has done what creating the jobs asked it to.
        tokio::time::sleep(world.ctx.retention.every + Duration::from_secs(10)).await;
        let before = world.ctx.store.cost();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let after = world.ctx.store.cost();
        costs.push((after.key_reads - before.key_reads, after.commits - before.commits));
        stop.cancel();
        node.await.expect("a node").expect("a store");
    }
    let [(few_reads, few_commits), (many_reads, many_commits)] = costs[..] else { panic!("two worlds") };
    assert!(
        few_reads.abs_diff(many_reads) * 20 <= few_reads,
        "{few_reads} reads with one job, {many_reads} with a thousand"
    );
    assert_eq!((few_commits, many_commits), (0, 0), "an idle node writes nothing");
    // Per second: sixteen bells looked at four times, leases and sessions once.
    assert!(many_reads < 60 * 150, "{many_reads} reads in an idle minute");
}

#[tokio::test]
async fn rows_of_one_commit_share_a_versionstamp_and_differ_by_index() {
    let world = World::embedded().await;
    let sessions = world.begin_sessions(1).await;
    for _ in 0..20 {
        world.create(ScheduleSpec::now()).await;
    }
    world.tick_all(sessions[0].1).await;
    let claimed = world.claim(&sessions[0].0, sessions[0].1, 20).await.claimed;
    let fences: BTreeSet<_> = claimed.iter().map(|claimed| claimed.fence).collect();
    assert_eq!((claimed.len(), fences.len()), (20, 20), "every execution has a fence of its own");
    for claimed in &claimed {
        let id = claimed.execution.id;
        let row = world.ctx.store.transact(|tx| async move { execution::get(&tx, id, Read::Snapshot).await }).await;
        let row = row.expect("a read").value.expect("a row");
        assert!(matches!(&row.execution.state, State::Running(running) if running.fence == claimed.fence));
    }
}
