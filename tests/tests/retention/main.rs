//! Retention (DESIGN promise 10, case C38): months of runs leave a bounded store, nothing that is open is ever removed, nothing is orphaned, and
//! a page's cursor outlives the row that it names.

#[path = "../guarantees/meddle.rs"]
#[expect(dead_code, reason = "each test takes what it needs of the world")]
mod meddle;
#[path = "../guarantees/world.rs"]
#[expect(dead_code, reason = "each test takes what it needs of the world")]
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_core::execution::{Outcome, State};
use compline_core::ids::{ExecutionId, SessionId, ShardId};
use compline_core::schedule::ScheduleSpec;
use compline_server::passes::claim::Claimed;
use compline_server::passes::complete::complete;
use compline_server::passes::retain::{self, Known, Retention};
use compline_store::check::{Report, check};
use compline_store::tables::history::{Listing, Page};
use world::{World, report};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The passes, with what they remember.
#[derive(Default)]
struct Keeper(BTreeMap<ShardId, Known>);

impl Keeper {
    async fn pass(&mut self, world: &World) -> usize {
        let (ctx, now) = (&world.ctx, world.ctx.env.now());
        let mut removed = 0;
        for shard in ctx.shards.all() {
            removed += retain::trim_asked(ctx, shard).await.expect("a store");
            let known = self.0.entry(shard).or_default();
            removed += retain::drop_old(ctx, shard, now, known).await.expect("a store");
        }
        retain::forget_finished(ctx, now).await.expect("a store");
        retain::forget_requests(ctx, now).await.expect("a store");
        removed
    }
}

async fn clean(world: &World) -> Report {
    let report = check(&world.ctx.store, |_, _| {}).await.expect("a store");
    assert_eq!(report.findings, [], "the tables agree");
    report
}

fn rows(report: &Report, table: &str) -> u64 {
    report.rows.iter().find(|(name, _)| *name == table).expect("a table").1
}

async fn end(world: &World, node: &str, session: SessionId, claimed: &Claimed, outcome: Outcome) {
    let report = report(&world.ctx, claimed, outcome);
    complete(&world.ctx, node, session, &[report]).await.expect("a store");
}

fn failure() -> Outcome {
    Outcome::Error { retryable: false, message: "no".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn c38_months_of_runs_leave_a_bounded_store_with_every_live_execution_in_it() {
    let kept = Retention { age: 10 * DAY, runs_per_job: 40, failures_per_job: 10, ..Retention::default() };
    let world = keeping(World::memory().await, kept);
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let mut rng = fastrand::Rng::with_seed(38);
    for _ in 0..3 {
        world.create(ScheduleSpec::cron("0 * * * *")).await;
    }
    world.create(ScheduleSpec::cron("*/30 * * * *")).await;
    let mut keeper = Keeper::default();
    let (mut live, mut ran, mut removed) = (Vec::new(), 0, 0);
    for step in 0..60 * 8 {
        if step % 8 == 0 {
            world.create(ScheduleSpec::now()).await;
        }
        tokio::time::advance(3 * HOUR).await;
        for _ in 0..7 {
            world.tick_all(session).await;
            for claimed in world.claim(&node, session, 256).await.claimed {
                ran += 1;
                match rng.u8(0..60) {
                    0 => live.push(claimed),
                    1..=6 => end(&world, &node, session, &claimed, failure()).await,
                    _ => end(&world, &node, session, &claimed, Outcome::Ok).await,
                }
            }
        }
        removed += keeper.pass(&world).await;
        if step % 40 == 39 {
            let report = clean(&world).await;
            // Three hourly jobs by age and count, the busy one by count, the others by age; a job asks one time in 64.
            let bound = 4 * (40 + 10 + 400) + 12 + live.len() as u64;
            assert!(rows(&report, "execution") <= bound, "{:?}, at most {bound}", report.rows);
            assert!(rows(&report, "job") <= 4 + 12 + live.len() as u64, "{:?}", report.rows);
            for claimed in &live {
                let row = world.execution(claimed.execution.id).await;
                assert!(matches!(row.state, State::Running(_)), "{row:?}");
            }
        }
    }
    assert!(
        ran > 2_000 && removed > 3_000 && live.len() > 20,
        "{ran} ran, {removed} were removed, {} are live",
        live.len()
    );
    // What was live all the time ends at last, and goes with the next pass.
    for claimed in live.drain(..) {
        end(&world, &node, session, &claimed, Outcome::Ok).await;
    }
    tokio::time::advance(11 * DAY).await;
    keeper.pass(&world).await;
    let report = clean(&world).await;
    // Each recurring job has its next slot, which is due and was never ticked.
    assert_eq!(rows(&report, "execution"), 4, "{:?}", report.rows);
    assert_eq!((rows(&report, "job"), rows(&report, "finished")), (4, 0), "{:?}", report.rows);
    assert!(rows(&report, "bucket") <= 4 && rows(&report, "dropping") == 0, "{:?}", report.rows);
}

#[tokio::test(start_paused = true)]
async fn c38_a_bucket_with_an_open_execution_loses_the_others_and_goes_when_that_ends() {
    let world = keeping(World::memory().await, Retention { age: DAY, ..Retention::default() });
    let (node, session) = world.begin_sessions(1).await.remove(0);
    let first = world.create(ScheduleSpec::cron("*/5 * * * * *")).await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        tokio::time::advance(Duration::from_secs(5)).await;
        world.tick_all(session).await;
        claimed.extend(world.claim(&node, session, 256).await.claimed);
    }
    assert_eq!((claimed.len(), claimed[0].execution.id), (3, first));
    let open = claimed.remove(1);
    end(&world, &node, session, &claimed[0], Outcome::Ok).await;
    end(&world, &node, session, &claimed[1], failure()).await;
    let mut keeper = Keeper::default();
    assert_eq!(keeper.pass(&world).await, 0, "nothing is old");

    // The page that a reader holds ends at the newest one; what it names is removed, and the next page goes on all the same (C38).
    let job = open.execution.job;
    let page = |before| Page { before, limit: 1, ..Page::default() };
    let newest = listed(&world, Listing::FailedOfJob(job), page(None)).await;
    assert_eq!(newest[0].0, claimed[1].execution.id);

    tokio::time::advance(26 * HOUR).await;
    assert_eq!(keeper.pass(&world).await, 2);
    assert_eq!(keeper.pass(&world).await, 0, "nothing in it has ended since");
    let report = clean(&world).await;
    assert_eq!((rows(&report, "execution"), rows(&report, "failed"), rows(&report, "dropping")), (2, 0, 0));
    assert!(matches!(world.execution(open.execution.id).await.state, State::Running(_)));
    assert_eq!(listed(&world, Listing::FailedOfJob(job), page(Some(newest[0].1.clone()))).await, []);
    let all = listed(&world, Listing::OfJob(job), Page { limit: 10, ..Page::default() }).await;
    let behind = listed(&world, Listing::OfJob(job), page(Some(all[0].1.clone()))).await;
    assert_eq!(behind.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [open.execution.id]);

    end(&world, &node, session, &open, Outcome::Ok).await;
    assert_eq!(keeper.pass(&world).await, 1);
    // What is left is the next slot, pending in its old hour.
    assert_eq!(rows(&clean(&world).await, "execution"), 1);
}

async fn listed(world: &World, listing: Listing<'_>, page: Page) -> Vec<(ExecutionId, Bytes)> {
    let page = &page;
    let read = world.ctx.store.transact(|tx| async move { listing.page(&tx, page).await });
    read.await.expect("a store").value.into_iter().map(|entry| (entry.execution, entry.key)).collect()
}

fn keeping(mut world: World, retention: Retention) -> World {
    let ctx = Arc::into_inner(world.ctx).expect("nobody else has the context yet");
    world.ctx = Arc::new(ctx.keeping(retention));
    world
}
