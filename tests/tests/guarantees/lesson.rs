//! The four guarantees that the lesson which this project was asked for from shows of its own example, by their names there: one leader while
//! another is refused, a stale epoch refused, ten workers and one winner, silence that gives the run back.

use std::collections::BTreeSet;

use compline_core::execution::State;
use compline_core::ids::{SessionId, ShardId};
use compline_core::schedule::ScheduleSpec;
use compline_server::passes::lease::{self, Members};
use compline_server::passes::reap;
use compline_store::backend::Read;
use compline_store::tables::{lease as leases, running};

use crate::on_both_backends;
use crate::world::World;

on_both_backends!(
    one_leader_while_another_is_refused,
    a_stale_epoch_is_refused,
    ten_workers_race_and_one_wins,
    silence_gives_the_run_back,
);

/// What a scheduler holds once it has taken its share, with these taken for silent.
async fn held(world: &World, (node, session): &(String, SessionId), silent: &[SessionId]) -> BTreeSet<ShardId> {
    let members = Members { node: node.clone(), session: *session, silent: silent.iter().copied().collect() };
    lease::balance(&world.ctx, &members).await.expect("a store").expect("a session that lasts")
}

async fn epoch(world: &World, shard: ShardId) -> leases::Lease {
    let read = world.ctx.store.transact(|tx| async move { leases::get(&tx, shard).await });
    read.await.expect("a store").value.expect("somebody has the shard")
}

async fn one_leader_while_another_is_refused(world: World) {
    let sessions = world.begin_sessions(2).await;
    let id = world.create(ScheduleSpec::now()).await;
    let (shard, job) = (id.shard(), world.execution(id).await.job);
    let shares = [held(&world, &sessions[0], &[]).await, held(&world, &sessions[1], &[]).await];
    assert!(shares[0].is_disjoint(&shares[1]), "no shard has two leaders");
    let leader = usize::from(shares[1].contains(&shard));
    assert!(shares[leader].contains(&shard), "and each has one");
    let before = epoch(&world, shard).await;
    for _ in 0..3 {
        assert!(
            !held(&world, &sessions[1 - leader], &[]).await.contains(&shard),
            "it is refused while the leader lives"
        );
    }
    assert_eq!(epoch(&world, shard).await, before);
    let now = world.ctx.env.now();
    let refused = world.tick_at(&world.ctx, sessions[1 - leader].1, job, now).await;
    assert!(refused.lost && refused.queued == 0, "{refused:?}");
    assert!(matches!(world.execution(id).await.state, State::Pending { .. }), "and changes nothing");
    let ticked = world.tick_at(&world.ctx, sessions[leader].1, job, now).await;
    assert!(!ticked.lost && ticked.queued == 1, "{ticked:?}");
}

async fn a_stale_epoch_is_refused(world: World) {
    let sessions = world.begin_sessions(2).await;
    let id = world.create(ScheduleSpec::now()).await;
    let (shard, job) = (id.shard(), world.execution(id).await.job);
    assert!(held(&world, &sessions[0], &[sessions[1].1]).await.contains(&shard));
    let stale = epoch(&world, shard).await;
    // The leader falls silent in the other's eyes, which takes over under a higher epoch; the leader knows nothing of it.
    assert!(held(&world, &sessions[1], &[sessions[0].1]).await.contains(&shard));
    let current = epoch(&world, shard).await;
    assert!(current.fence > stale.fence && current.owner == sessions[1].1, "{stale:?} {current:?}");
    let now = world.ctx.env.now();
    let refused = world.tick_at(&world.ctx, sessions[0].1, job, now).await;
    assert!(refused.lost && refused.queued == 0, "{refused:?}");
    assert!(matches!(world.execution(id).await.state, State::Pending { .. }), "a stale leader fires nothing");
    let ticked = world.tick_at(&world.ctx, sessions[1].1, job, now).await;
    assert!(!ticked.lost && ticked.queued == 1, "{ticked:?}");
}

async fn ten_workers_race_and_one_wins(world: World) {
    let sessions = world.begin_sessions(10).await;
    world.create(ScheduleSpec::now()).await;
    world.tick_all(sessions[0].1).await;
    let claims = sessions.iter().map(|(node, session)| world.claim(node, *session, 1));
    let outcomes = futures::future::join_all(claims).await;
    let winners: Vec<_> = outcomes.iter().filter(|outcome| !outcome.claimed.is_empty()).collect();
    assert_eq!(winners.len(), 1, "one claim wins, and the others see no error");
    let claimed = &winners[0].claimed[0];
    let row = world.execution(claimed.execution.id).await;
    assert!(matches!(&row.state, State::Running(running) if running.fence == claimed.fence), "{row:?}");
}

async fn silence_gives_the_run_back(world: World) {
    let sessions = world.begin_sessions(2).await;
    let [(first, first_session), (second, second_session)] = &sessions[..] else { panic!("two sessions") };
    world.create(ScheduleSpec::now()).await;
    world.tick_all(*second_session).await;
    let held = world.claim(first, *first_session, 1).await.claimed.remove(0);
    world.end_session(first).await;
    assert!(
        world.claim(first, *first_session, 1).await.session_over,
        "a claim of a session that is over takes nothing"
    );
    reap::give_back_orphans(&world.ctx).await.expect("a store");
    let session = *first_session;
    let left = world
        .ctx
        .store
        .transact(|tx| async move { running::of_session(&tx, session, None, 10, Read::Serializable).await })
        .await
        .expect("a read")
        .value;
    assert!(left.is_empty(), "the dead session holds nothing any more");
    let taken = world.claim(second, *second_session, 1).await.claimed.remove(0);
    assert_eq!((taken.execution.id, taken.execution.attempt_number()), (held.execution.id, 2));
}
