//! Newer zone data: what is planned follows it once, what is due does not wait for it, and who has older data leaves zoned jobs alone.

use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Execution, State};
use compline_core::explain::{Facts, explain};
use compline_core::ids::{ExecutionId, JobId, SessionId};
use compline_core::ledger::{Entry, SkipReason};
use compline_core::schedule::ScheduleSpec;
use compline_core::schedule::zone::{ZoneData, ZoneVersion};
use compline_core::time::instant;
use compline_server::ctx::Ctx;
use compline_server::ops;
use compline_server::ops::change::{Change, JobRequest, change};
use compline_server::passes::{beat, lease, rezone};
use compline_store::backend::Read;
use compline_store::tables::session::Session;
use compline_store::tables::{job, ledger};
use futures::FutureExt;
use tokio::time::sleep;

use crate::nodes::{Fleet, SCHEDULER};
use crate::on_both_backends;
use crate::world::World;

on_both_backends!(
    c22_a_slot_to_come_follows_newer_zone_data_once,
    c22_what_newer_data_puts_into_the_past_is_left_out_and_accounted_for,
    c22_a_slot_whose_time_has_come_is_decided_as_it_was_planned,
    c22_jobs_without_a_zone_never_change,
    c22_what_is_planned_by_older_data_later_follows_too,
    a_move_in_the_middle_of_a_tick_wins,
    a_tick_in_the_middle_of_a_move_wins,
    a_pause_in_the_middle_of_a_move_wins,
    newer_data_in_the_middle_of_a_tick_wins,
);

const NEWER: &str = "2099a";

/// The worlds begin at 2027-01-15T08:00:00Z, which is 09:00 in Berlin.
fn at(text: &str) -> Timestamp {
    instant::parse(text).expect("an instant").into()
}

fn berlin(cron: &str) -> ScheduleSpec {
    ScheduleSpec { time_zone: Some("Europe/Berlin".to_owned()), ..ScheduleSpec::cron(cron) }
}

/// Data by which Berlin's clocks show what those of another place do.
fn newer(like: &str) -> ZoneData {
    ZoneData::default().called(NEWER).moving("Europe/Berlin", like)
}

async fn scheduler(ctx: &Ctx, node: &str) -> SessionId {
    let id = SessionId::new(ctx.env.now(), ctx.env.random_u128());
    let mut session = Session { roles: vec!["scheduler".to_owned()], ..Session::new(id, ctx.env.now()) };
    ctx.env.zones().version().as_str().clone_into(&mut session.versions.zones);
    assert!(beat::begin(ctx, node, &session, None).await.expect("a store"));
    let members = lease::Members { node: node.to_owned(), session: id, silent: std::collections::BTreeSet::new() };
    lease::balance(ctx, &members).await.expect("a store");
    id
}

async fn follow(ctx: &Ctx, job: JobId) -> usize {
    rezone::shard(ctx, job.shard(ctx.shards)).await.expect("a store")
}

async fn slot_of(world: &World, job: JobId) -> Option<Timestamp> {
    world.next_of_job(job).await.map(|next| next.slot)
}

async fn zones_of(world: &World, job: JobId) -> ZoneVersion {
    let run = world.ctx.store.transact(|tx| async move { job::get_run(&tx, job, Read::Snapshot).await });
    run.await.expect("a store").value.expect("a run").zones
}

async fn entries(world: &World, job: JobId) -> Vec<Entry> {
    let read = world.ctx.store.transact(|tx| async move { ledger::from(&tx, job, Timestamp::EPOCH, 100).await });
    read.await.expect("a store").value.into_iter().map(|entry| entry.expect("readable")).collect()
}

async fn created(world: &World, schedule: ScheduleSpec) -> JobId {
    let first: ExecutionId = world.create(schedule).await;
    world.execution(first).await.job
}

async fn c22_a_slot_to_come_follows_newer_zone_data_once(world: World) {
    let older = scheduler(&world.ctx, "older").await;
    let job = created(&world, berlin("30 9 * * *")).await;
    let utc = created(&world, ScheduleSpec::cron("30 8 * * *")).await;
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T08:30:00Z")));
    assert_eq!(zones_of(&world, job).await, *world.ctx.env.zones().version());

    let new = world.with_zones(newer("Europe/London")).await;
    let session = scheduler(&new.ctx, "newer").await;
    assert_eq!(follow(&world.ctx, job).await, 0, "who has older data moves nothing");
    assert_eq!(follow(&new.ctx, job).await, 1);
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T09:30:00Z")));
    assert_eq!(zones_of(&world, job).await.as_str(), NEWER);
    assert_eq!(follow(&new.ctx, job).await, 0, "once");
    assert_eq!(world.executions_of(job).await.len(), 1, "what was planned before leaves no trace");

    // The former owner of the shards ticks nothing any more, and had it one it would leave the zoned job alone.
    let lost = world.tick_at(&world.ctx, older, job, at("2027-01-15T09:30:00Z")).await;
    assert!(lost.lost, "{lost:?}");
    let ticked = world.tick_at(&world.ctx, session, job, at("2027-01-15T09:30:00Z")).await;
    assert_eq!((ticked.queued, slot_of(&world, job).await), (0, Some(at("2027-01-15T09:30:00Z"))));
    assert_eq!(world.tick_at(&world.ctx, session, utc, at("2027-01-15T08:30:00Z")).await.queued, 1);

    let ticked = world.tick_at(&new.ctx, session, job, at("2027-01-15T09:30:00Z")).await;
    assert_eq!((ticked.queued, slot_of(&world, job).await), (1, Some(at("2027-01-16T09:30:00Z"))));
    let moved = entries(&world, job).await;
    assert!(matches!(&moved[..], [Entry::Mark(_)]), "{moved:?}");
    let [Entry::Mark(mark)] = &moved[..] else { panic!("one mark") };
    let schedule = berlin("30 9 * * *").parse_by(new.ctx.env.zones()).expect("a schedule");
    let marks = [mark.clone()];
    let facts = Facts { job, schedule: &schedule, executions: &[], stretches: &[], marks: &marks };
    let lines = explain(&facts, Timestamp::EPOCH, at("2028-01-01T00:00:00Z")).expect("a story");
    let words = lines[0].words(&schedule);
    assert!(
        words.contains("zone data 2099a came, and its next slot, until then 2027-01-15T08:30:00Z, was planned anew"),
        "{words}"
    );
}

async fn c22_what_newer_data_puts_into_the_past_is_left_out_and_accounted_for(world: World) {
    let job = created(&world, berlin("30 9 * * *")).await;
    // An hour and more ago, by now.
    let new = world.with_zones(newer("Asia/Dubai")).await;
    scheduler(&new.ctx, "newer").await;
    assert_eq!(follow(&new.ctx, job).await, 1);
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-16T05:30:00Z")), "no past slot fires");
    // The job was created after its time: nothing was left out.
    let told = entries(&world, job).await;
    assert!(matches!(&told[..], [Entry::Mark(_)]), "{told:?}");

    // One that is older than the slot that went by unseen.
    let yesterday = world.ctx.env.now().saturating_sub(Duration::from_secs(86_400));
    let first = world.create_as(berlin("30 9 * * *"), |job| job.created_at = yesterday).await;
    let job = world.execution(first).await.job;
    let session = scheduler(&world.ctx, "older").await;
    let tick = lease_and_tick(&world, session, job, world.ctx.env.now()).await;
    assert_eq!(tick, 0, "with older data it is left alone");
    let new_tick = new.tick_at(&new.ctx, lease_of(&new, job).await, job, world.ctx.env.now()).await;
    assert_eq!(new_tick.ended, 1, "yesterday's slot is a day late");
}

/// The session that ticks the shard of a job.
async fn lease_of(world: &World, id: JobId) -> SessionId {
    let shard = id.shard(world.ctx.shards);
    let read = world.ctx.store.transact(|tx| async move { compline_store::tables::lease::get(&tx, shard).await });
    read.await.expect("a store").value.expect("a lease").owner
}

async fn lease_and_tick(world: &World, session: SessionId, job: JobId, now: Timestamp) -> usize {
    let ticked = world.tick_at(&world.ctx, session, job, now).await;
    ticked.queued + ticked.ended
}

async fn c22_a_slot_whose_time_has_come_is_decided_as_it_was_planned(world: World) {
    let now = world.ctx.env.now();
    let earlier = now.saturating_sub(Duration::from_secs(600));
    let first = world.create_as(berlin("55 8 * * *"), |job| job.created_at = earlier).await;
    let job = world.execution(first).await.job;
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T07:55:00Z")), "five minutes ago");
    let new = world.with_zones(newer("Europe/London")).await;
    let session = scheduler(&new.ctx, "newer").await;
    assert_eq!(follow(&new.ctx, job).await, 0);
    let ticked = world.tick_at(&new.ctx, session, job, now).await;
    assert_eq!((ticked.queued, slot_of(&world, job).await), (1, Some(at("2027-01-15T08:55:00Z"))));
    assert_eq!(zones_of(&world, job).await.as_str(), NEWER, "what follows is by the newer data");
}

async fn c22_jobs_without_a_zone_never_change(world: World) {
    let mut jobs = Vec::new();
    for schedule in [
        ScheduleSpec::cron("30 9 * * *"),
        ScheduleSpec { time_zone: Some("UTC".to_owned()), ..ScheduleSpec::cron("30 9 * * *") },
        ScheduleSpec::once("2027-01-15T09:30:00Z"),
    ] {
        let job = created(&world, schedule).await;
        jobs.push((job, world.next_of_job(job).await));
    }
    let new = world.with_zones(newer("Europe/London").moving("UTC", "Asia/Tokyo")).await;
    scheduler(&new.ctx, "newer").await;
    for (job, before) in jobs {
        assert_eq!(follow(&new.ctx, job).await, 0);
        assert_eq!(world.next_of_job(job).await, before);
        assert!(zones_of(&world, job).await.is_none() && entries(&world, job).await.is_empty());
    }
}

async fn c22_what_is_planned_by_older_data_later_follows_too(world: World) {
    let new = world.with_zones(newer("Europe/London")).await;
    scheduler(&new.ctx, "newer").await;
    for shard in new.ctx.shards.all() {
        assert_eq!(rezone::shard(&new.ctx, shard).await.expect("a store"), 0);
    }
    // By way of an API that has older data: as soon as it has planned, the shard is to be gone through again.
    let job = created(&world, berlin("30 9 * * *")).await;
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T08:30:00Z")));
    assert_eq!((follow(&new.ctx, job).await, follow(&new.ctx, job).await), (1, 0));
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T09:30:00Z")));
    // Newer data that comes with a creation is newer for all.
    let newest = world.with_zones(newer("Europe/London").called("2099b")).await;
    created(&newest, berlin("0 0 1 1 *")).await;
    let session = lease_of(&new, job).await;
    assert_eq!(world.tick_at(&new.ctx, session, job, at("2027-01-15T09:30:00Z")).await.queued, 0);
}

fn is_pending(execution: &Execution) -> bool {
    matches!(execution.state, State::Pending { .. })
}

async fn a_move_in_the_middle_of_a_tick_wins(world: World) {
    let job = created(&world, berlin("30 9 * * *")).await;
    let new = world.with_zones(newer("Europe/London")).await;
    let session = scheduler(&new.ctx, "newer").await;
    let ctx = new.ctx.clone();
    let hook = async move { assert_eq!(follow(&ctx, job).await, 1) };
    let (ctx, meddled) = new.meddled(hook.boxed()).await;
    // A ticker whose clock is ahead; the move is made by one whose clock is right.
    let ticked = new.tick_at(&ctx, session, job, at("2027-01-15T08:30:00Z")).await;
    assert!(meddled.conflicts() > 0 && ticked.queued == 0, "{ticked:?}");
    let executions = world.executions_of(job).await;
    assert!(matches!(&executions[..], [one] if is_pending(one)), "{executions:?}");
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T09:30:00Z")));
}

async fn a_tick_in_the_middle_of_a_move_wins(world: World) {
    let job = created(&world, berlin("30 9 * * *")).await;
    let new = Arc::new(world.with_zones(newer("Europe/London")).await);
    let session = scheduler(&new.ctx, "newer").await;
    let ticks = new.clone();
    let hook = async move {
        let ticked = ticks.tick_at(&ticks.ctx, session, job, at("2027-01-15T08:30:00Z")).await;
        assert_eq!(ticked.queued, 1);
    };
    let (ctx, meddled) = new.meddled(hook.boxed()).await;
    assert_eq!(follow(&ctx, job).await, 0, "what was ticked is not moved");
    assert!(meddled.conflicts() > 0);
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T09:30:00Z")));
    assert_eq!(world.executions_of(job).await.len(), 2, "the one that was due, and the next");
}

async fn a_pause_in_the_middle_of_a_move_wins(world: World) {
    let job = created(&world, berlin("30 9 * * *")).await;
    let new = world.with_zones(newer("Europe/London")).await;
    scheduler(&new.ctx, "newer").await;
    let ctx = world.ctx.clone();
    let hook = async move {
        let tenant = compline_core::ids::TenantId::default_tenant();
        change(&ctx, JobRequest { tenant: &tenant, id: job, idempotency: None }, Change::Pause).await.expect("a pause");
    };
    let (ctx, meddled) = new.meddled(hook.boxed()).await;
    assert_eq!(follow(&ctx, job).await, 0);
    assert!(meddled.conflicts() > 0);
    assert_eq!((slot_of(&world, job).await, world.executions_of(job).await.len()), (None, 0));
}

async fn newer_data_in_the_middle_of_a_tick_wins(world: World) {
    let job = created(&world, berlin("30 9 * * *")).await;
    let session = scheduler(&world.ctx, "older").await;
    let new = world.with_zones(newer("Europe/London")).await;
    let hook = async move {
        // It begins, and takes no shard yet.
        let ctx = &new.ctx;
        let id = SessionId::new(ctx.env.now(), 9);
        let begun = Session { roles: vec!["scheduler".to_owned()], ..Session::new(id, ctx.env.now()) };
        assert!(beat::begin(ctx, "newer", &begun, None).await.expect("a store"));
    };
    let (ctx, meddled) = world.meddled(hook.boxed()).await;
    let ticked = world.tick_at(&ctx, session, job, at("2027-01-15T08:30:00Z")).await;
    assert!(meddled.conflicts() > 0 && ticked.queued == 0 && !ticked.lost, "{ticked:?}");
    assert_eq!(slot_of(&world, job).await, Some(at("2027-01-15T08:30:00Z")), "it waits for who has newer data");
}

#[tokio::test(start_paused = true)]
async fn who_has_older_zone_data_gives_way_and_alone_leaves_zoned_jobs_alone() {
    let fleet = Fleet::new().await;
    let older = fleet.begin("older", SCHEDULER).await;
    fleet.until_spread(&[&older], &[16], Duration::from_secs(2)).await;
    let zoned = created(&fleet.world, berlin("* * * * *")).await;
    let utc = created(&fleet.world, ScheduleSpec::cron("* * * * *")).await;
    let taken = async |job: JobId| fleet.world.executions_of(job).await.iter().filter(|one| !is_pending(one)).count();
    sleep(Duration::from_secs(125)).await;
    assert_eq!((taken(zoned).await, taken(utc).await), (2, 2));

    let first = fleet.begin_by("newer", SCHEDULER, newer("Europe/London")).await;
    fleet.until_spread(&[&older, &first], &[0, 16], Duration::from_secs(5)).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!((taken(zoned).await, taken(utc).await), (4, 4), "nothing is left out on the way");

    // The only one with newer data dies: others go on with what they may.
    first.gate.close();
    fleet.until_spread(&[&older], &[16], Duration::from_secs(20)).await;
    sleep(Duration::from_secs(180)).await;
    assert_eq!(taken(utc).await, 7);
    let rested = taken(zoned).await;
    assert!(rested <= 5, "{rested}");
    let ctx = &older.world.ctx;
    assert_eq!(ctx.newer_zones.known(), Some(ZoneVersion::new(NEWER)));
    assert!(ctx.metrics.render(&ctx.store).contains("compline_zone_data_outdated 1"));
    let nodes = ops::fleet::nodes(ctx).await.expect("a store");
    let versions = |name: &str| {
        let node = nodes.view.nodes.iter().find(|node| node.node == name)?;
        Some(node.session.as_ref()?.versions.zones.clone())
    };
    assert!(versions("older").is_some_and(|version| version.as_str() < nodes.zones.as_str()));

    let second = fleet.begin_by("newer-2", SCHEDULER, newer("Europe/London")).await;
    fleet.until_spread(&[&older, &second], &[0, 16], Duration::from_secs(5)).await;
    sleep(Duration::from_secs(2)).await;
    let slots: Vec<_> = fleet.world.executions_of(zoned).await.iter().map(|one| one.slot).collect();
    let minutes: Vec<_> = slots.windows(2).map(|pair| pair[0].saturating_since(pair[1])).collect();
    assert!(minutes.iter().all(|gap| *gap == Duration::from_secs(60)), "each minute once: {slots:?}");
    assert_eq!(taken(zoned).await, taken(utc).await, "what rested runs late");
    assert!(
        !entries(&fleet.world, zoned)
            .await
            .iter()
            .any(|entry| matches!(entry, Entry::Stretch(stretch) if stretch.reason == SkipReason::ZoneData))
    );
}
