//! A store that was moved: everything goes on in the new one, once, and what the old one granted counts for nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use compline_core::execution::{Outcome, State};
use compline_core::ids::{ExecutionId, TenantId};
use compline_core::schedule::ScheduleSpec;
use compline_server::ops::transfer::{Proof, quiet};
use compline_server::passes::complete;
use compline_server::passes::complete::Reported;
use compline_store::Store;
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::tables::history::{Listing, Page};
use compline_store::transfer::{ExportOptions, export, import};
use tokio_util::sync::CancellationToken;

use crate::world::{World, report};

/// The store of one world as a new world's, on the memory backend.
async fn moved(world: &World) -> World {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("export");
    let source = &world.ctx.store;
    let at_rest = quiet(source, Proof::Exclusive, |_| {}).await.expect("no node runs");
    let options = ExportOptions { now: world.ctx.env.now(), build: String::new() };
    export(source, &file, &options, at_rest, &mut |_| {}).await.expect("an export");
    let backend = MemoryBackend::new(MemoryOptions::default());
    let target = Store::new(backend.clone());
    let at_rest = quiet(&target, Proof::Exclusive, |_| {}).await.expect("no node runs");
    import(&target, &file, at_rest, &mut |_| {}).await.expect("an import");
    World::seen_by(backend, world.ctx.env.clone(), None).await
}

async fn history(world: &World) -> Vec<ExecutionId> {
    let tenant = &TenantId::default_tenant();
    let page = &Page { limit: 1_000, ..Page::default() };
    let read = world.ctx.store.transact(|tx| async move { Listing::OfTenant(tenant).page(&tx, page).await });
    read.await.expect("a store").value.into_iter().map(|entry| entry.execution).collect()
}

#[tokio::test(start_paused = true)]
async fn a_moved_store_runs_its_backlog_once_and_refuses_the_old_ones_fences() {
    let world = World::memory().await;
    let sessions = world.begin_sessions(1).await;
    let (node, session) = &sessions[0];
    let mut created = BTreeSet::new();
    for number in 0..40 {
        created.insert(world.create_once(ScheduleSpec::now(), &format!("key {number}")).await.0);
    }
    world.tick_all(*session).await;
    let taken = world.claim(node, *session, 7).await.claimed;
    assert_eq!(taken.len(), 7);
    let listed = history(&world).await;

    let there = moved(&world).await;
    assert_eq!((there.ctx.shards, there.ctx.partitions), (world.ctx.shards, world.ctx.partitions));
    assert!(there.ctx.incarnation > world.ctx.incarnation);
    assert_eq!(history(&there).await, listed, "history pages");
    let (job, replayed) = there.create_once(ScheduleSpec::now(), "key 3").await;
    assert!(replayed && created.contains(&job), "an idempotency key replays");

    // The old executor reports in the new store, under whatever session.
    let sessions = there.begin_sessions(1).await;
    let (new_node, new_session) = &sessions[0];
    for claimed in &taken {
        let late = [report(&world.ctx, claimed, Outcome::Ok)];
        for (node, session) in [(node, session), (new_node, new_session)] {
            let answers = complete::complete(&there.ctx, node, *session, &late).await.expect("a store");
            assert_eq!(answers, [Reported::Refused]);
        }
        // And in the old one, where its session was ended.
        let answers = complete::complete(&world.ctx, node, *session, &late).await.expect("a store");
        assert_eq!(answers, [Reported::Refused]);
    }
    let again = there.claim(new_node, *new_session, 100).await.claimed;
    let jobs: Vec<_> = again.iter().map(|claimed| claimed.execution.job).collect();
    assert_eq!(jobs.len(), created.len(), "each once");
    assert_eq!(jobs.into_iter().collect::<BTreeSet<_>>(), created);
    let newest = taken.iter().map(|claimed| claimed.fence).max().expect("some were taken");
    for claimed in &again {
        assert!(claimed.fence > newest, "every fence of the new store is greater than all of the old one");
        assert_eq!(claimed.execution.attempt_number(), 1, "being handed back was no attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn the_slots_of_a_moved_store_fire_on_time() {
    let world = World::memory().await;
    let stop = CancellationToken::new();
    let node = world.run_node(&stop);
    world.create(ScheduleSpec::cron("* * * * * *")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.cancel();
    node.await.expect("a node").expect("a store");
    let before = history(&world).await.len();
    assert!(before >= 5, "{before}");

    let there = moved(&world).await;
    let stop = CancellationToken::new();
    let node = there.run_node(&stop);
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.cancel();
    node.await.expect("a node").expect("a store");
    let all = history(&there).await;
    let mut slots = BTreeSet::new();
    for id in &all {
        let execution = there.execution(*id).await;
        assert!(slots.insert(execution.slot), "one execution per slot: {}", execution.slot);
        let is_done = matches!(execution.state, State::Completed { .. });
        assert!(is_done || *id == all[0], "only the newest is still to come: {execution:?}");
    }
    assert!(all.len() >= before + 4, "{} after {before}", all.len());
}
