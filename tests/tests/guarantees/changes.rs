//! What an owner does to a job, against whatever else happens at that moment, by the cases' ids.

use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Execution, Outcome, State};
use compline_core::ids::{ExecutionId, JobId, SessionId, TenantId};
use compline_core::job::JobState;
use compline_core::schedule::ScheduleSpec;
use compline_server::ctx::{Ctx, ParsedJob};
use compline_server::ops::change::{Change, ChangeError, JobRequest, change};
use compline_server::ops::idempotency::Idempotency;
use compline_server::ops::trigger::{self, BackfillError, Backfilled, Stretch, Triggered};
use compline_server::passes::claim::{ClaimRequest, claim};
use compline_server::passes::complete::{Reported, complete};
use compline_server::passes::lease::{Members, balance};
use compline_server::passes::parts::LaneParts;
use compline_server::passes::sweep::{Swept, sweep};
use compline_store::backend::Read;
use compline_store::tables::job::{self, JobRow};
use compline_tests::by_hand::tick_shard;
use futures::FutureExt;

use crate::on_both_backends;
use crate::world::{World, report};

on_both_backends!(
    c26_four_schedulers_that_all_tick_a_slot_make_one_execution_of_it,
    c35_a_run_longer_than_most_pushes_no_slot_off_the_grid,
    c30_a_pause_in_the_middle_of_a_tick_wins,
    c30_a_tick_in_the_middle_of_a_pause_wins,
    c26_an_edit_in_the_middle_of_a_tick_wins,
    c26_a_tick_in_the_middle_of_an_edit_wins,
    c31_a_deletion_in_the_middle_of_a_tick_wins,
    c31_a_deletion_in_the_middle_of_a_claim_wins,
    c31_a_deletion_in_the_middle_of_a_completion_lets_it_be,
    c30_a_trigger_in_the_middle_of_a_tick_disturbs_nobody,
    c30_a_resume_fires_nothing_at_once_and_an_edit_resumes_nothing,
    c30_a_run_goes_on_through_a_pause_and_a_paused_job_is_run_by_a_trigger,
    c39_a_finished_once_runs_again_only_at_a_new_time,
    c31_deleting_cancels_what_is_queued_and_keeps_the_history,
    c51_a_trigger_with_one_key_is_one_execution,
    c27_a_backfill_runs_each_slot_once_also_when_it_is_broken_off,
);

const MINUTELY: &str = "0 * * * * *";
const SECONDS_20: &str = "20 * * * * *";

/// A job with everything that a test does to it.
struct Owner {
    world: World,
    job: JobId,
    node: String,
    session: SessionId,
}

pub async fn edited(ctx: &Ctx, id: JobId, schedule: ScheduleSpec) -> Result<(), ChangeError> {
    let row = row(ctx, id).await;
    let mut definition = row.definition().expect("readable");
    definition.schedule = schedule;
    let new = ParsedJob::new(definition).expect("a schedule");
    changed(ctx, id, Change::Edit { base: row.revision, new: &new }).await
}

pub async fn changed(ctx: &Ctx, id: JobId, wanted: Change<'_>) -> Result<(), ChangeError> {
    let tenant = TenantId::default_tenant();
    change(ctx, JobRequest { tenant: &tenant, id, idempotency: None }, wanted).await.map(drop)
}

async fn row(ctx: &Ctx, id: JobId) -> JobRow {
    let read = ctx.store.transact(|tx| async move { job::get(&tx, id, Read::Snapshot).await });
    read.await.expect("a store").value.expect("a job")
}

async fn triggered(ctx: &Ctx, id: JobId, key: Option<&str>) -> Result<Triggered, ChangeError> {
    let tenant = TenantId::default_tenant();
    let idempotency = key.map(|key| Idempotency { key: key.to_owned(), body_hash: [1; 32] });
    trigger::trigger(ctx, JobRequest { tenant: &tenant, id, idempotency: idempotency.as_ref() }).await
}

async fn backfilled(ctx: &Ctx, id: JobId, key: &str, stretch: Stretch) -> Result<Backfilled, BackfillError> {
    let tenant = TenantId::default_tenant();
    let idempotency = Idempotency { key: key.to_owned(), body_hash: [2; 32] };
    trigger::backfill(ctx, JobRequest { tenant: &tenant, id, idempotency: Some(&idempotency) }, stretch).await
}

impl Owner {
    async fn of(world: World, schedule: ScheduleSpec) -> Self {
        let (node, session) = world.begin_sessions(1).await.remove(0);
        let first = world.create(schedule).await;
        let job = world.execution(first).await.job;
        // The session gets its leases by this.
        world.tick_all(session).await;
        Self { world, job, node, session }
    }

    async fn next(&self) -> Option<Timestamp> {
        let job = self.job;
        let read = self.world.ctx.store.transact(|tx| async move { job::get_run(&tx, job, Read::Snapshot).await });
        read.await.expect("a store").value.expect("a run").next.map(|next| next.slot)
    }

    async fn change(&self, wanted: Change<'_>) -> Result<(), ChangeError> {
        changed(&self.world.ctx, self.job, wanted).await
    }

    /// Ticks at the job's next slot, and lets something happen just before that commits. Returns the slot and how many rows were queued.
    async fn tick_while<F>(&self, hook: impl FnOnce(Arc<Ctx>, JobId) -> F) -> (Timestamp, usize)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let slot = self.next().await.expect("a slot");
        let (ctx, meddled) = self.world.meddled(hook(self.world.ctx.clone(), self.job).boxed()).await;
        let ticked = self.world.tick_at(&ctx, self.session, self.job, slot).await;
        assert!(meddled.conflicts() > 0, "the tick did not depend on what happened in between");
        (slot, ticked.queued)
    }

    /// Changes the job, and lets its next slot be ticked just before that commits. Returns the slot.
    async fn change_while_ticked(&self, wanted: impl AsyncFnOnce(&Ctx, JobId)) -> Timestamp {
        let slot = self.next().await.expect("a slot");
        let (ctx, session, job) = (self.world.ctx.clone(), self.session, self.job);
        let shard = job.shard(ctx.shards);
        let tick = async move {
            assert_eq!(tick_shard(&ctx, session, shard, slot).await.expect("a store").queued, 1);
        };
        let (ctx, meddled) = self.world.meddled(tick.boxed()).await;
        wanted(&ctx, self.job).await;
        assert!(meddled.conflicts() > 0, "the change did not depend on the tick");
        slot
    }

    async fn executions(&self) -> Vec<Execution> {
        self.world.executions_of(self.job).await
    }

    async fn run_all(&self) -> usize {
        let claimed = self.world.claim(&self.node, self.session, 100).await.claimed;
        let reports: Vec<_> = claimed.iter().map(|claimed| report(&self.world.ctx, claimed, Outcome::Ok)).collect();
        complete(&self.world.ctx, &self.node, self.session, &reports).await.expect("a store");
        reports.len()
    }
}

async fn c30_a_pause_in_the_middle_of_a_tick_wins(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let hook = |ctx: Arc<Ctx>, id| async move { changed(&ctx, id, Change::Pause).await.expect("a pause") };
    let (_, queued) = owner.tick_while(hook).await;
    assert_eq!((queued, owner.next().await, owner.executions().await.len()), (0, None, 0));
}

async fn c30_a_tick_in_the_middle_of_a_pause_wins(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let pause = async |ctx: &Ctx, id| changed(ctx, id, Change::Pause).await.expect("a pause");
    owner.change_while_ticked(pause).await;
    assert_eq!(owner.next().await, None);
    let executions = owner.executions().await;
    assert!(matches!(&executions[..], [one] if matches!(one.state, State::Queued(_))), "{executions:?}");
    assert_eq!(owner.run_all().await, 1, "what is queued goes on");
}

/// Each of four takes the others for dead, takes all shards, and ticks what is due, all at once and again and again.
async fn c26_four_schedulers_that_all_tick_a_slot_make_one_execution_of_it(world: World) {
    const SLOTS: usize = 8;
    let sessions = world.begin_sessions(4).await;
    let first = world.create(ScheduleSpec::cron("*/5 * * * *")).await;
    let job = world.execution(first).await.job;
    for round in 0..SLOTS {
        let slot = world.next_of_job(job).await.expect("a slot").slot;
        let ticks = sessions.iter().enumerate().map(|(number, (node, session))| {
            let others = sessions.iter().map(|(_, other)| *other).filter(|other| other != session).collect();
            let members = Members { node: node.clone(), session: *session, silent: others };
            // Between a tenth of a second and three seconds after the slot.
            let at = slot + Duration::from_millis(100 + 900 * number as u64);
            let world = &world;
            async move {
                balance(&world.ctx, &members).await.expect("a store").expect("a session");
                // One that has lost the shard by then, or finds nothing to do, carries on without an error.
                world.tick_at(&world.ctx, *session, job, at).await.queued
            }
        });
        let queued: usize = futures::future::join_all(ticks).await.into_iter().sum();
        assert_eq!(queued, 1, "round {round}");
        assert_eq!(world.next_of_job(job).await.map(|next| next.slot), Some(slot + Duration::from_secs(300)));
    }
    let slots: Vec<_> = world.executions_of(job).await.iter().map(|one| one.slot).collect();
    let steps: Vec<_> = slots.windows(2).map(|pair| pair[0].saturating_since(pair[1]).as_secs()).collect();
    assert_eq!(steps, [300; SLOTS], "one execution for each slot: {slots:?}");
}

/// Every quarter of an hour, with runs of 92 s that begin late: 96 a day and not 87.
async fn c35_a_run_longer_than_most_pushes_no_slot_off_the_grid(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron("*/15 * * * *")).await;
    let first = owner.next().await.expect("a slot");
    for run in 0..96_u64 {
        let slot = owner.next().await.expect("a slot");
        assert_eq!(slot, first + Duration::from_secs(900 * run), "planned by the grid");
        let late = slot + Duration::from_millis(run * 97 % 4_000);
        assert_eq!(owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, late).await.queued, 1);
        let claimed = owner.world.claim(&owner.node, owner.session, 1).await.claimed.remove(0);
        let mut done = report(&owner.world.ctx, &claimed, Outcome::Ok);
        (done.started_at, done.finished_at) = (late, late + Duration::from_secs(92));
        complete(&owner.world.ctx, &owner.node, owner.session, &[done]).await.expect("a store");
    }
    assert_eq!(owner.next().await, Some(first + Duration::from_secs(86_400)));
    assert_eq!(owner.executions().await.len(), 96 + 1);
}

async fn c26_an_edit_in_the_middle_of_a_tick_wins(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let hook = |ctx: Arc<Ctx>, id| async move {
        edited(&ctx, id, ScheduleSpec::cron(SECONDS_20)).await.expect("an edit");
    };
    let (slot, queued) = owner.tick_while(hook).await;
    let next = owner.next().await.expect("a slot");
    // By the clock of the edit the old slot is still to come, and so is one of the new schedule before it.
    assert_eq!((queued, next), (0, slot.saturating_sub(Duration::from_secs(40))));
    let executions = owner.executions().await;
    assert!(matches!(&executions[..], [one] if one.slot == next), "the stale slot is gone: {executions:?}");
}

async fn c26_a_tick_in_the_middle_of_an_edit_wins(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let edit = async |ctx: &Ctx, id| {
        let row = row(&owner.world.ctx, id).await;
        let mut definition = row.definition().expect("readable");
        definition.schedule = ScheduleSpec::cron(SECONDS_20);
        let new = ParsedJob::new(definition).expect("a schedule");
        changed(ctx, id, Change::Edit { base: row.revision, new: &new }).await.expect("an edit");
    };
    let slot = owner.change_while_ticked(edit).await;
    let executions = owner.executions().await;
    let states: Vec<_> = executions.iter().map(|one| (one.slot, one.state.name())).collect();
    let next = owner.next().await.expect("a slot");
    assert!(states.contains(&(slot, "QUEUED")) && states.contains(&(next, "PENDING")), "{states:?}");
    assert_eq!(states.len(), 2);
}

async fn c31_a_deletion_in_the_middle_of_a_tick_wins(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let hook = |ctx: Arc<Ctx>, id| async move { changed(&ctx, id, Change::Delete).await.expect("a deletion") };
    let (_, queued) = owner.tick_while(hook).await;
    assert_eq!((queued, owner.next().await, owner.executions().await.len()), (0, None, 0));
}

async fn c31_a_deletion_in_the_middle_of_a_claim_wins(world: World) {
    let owner = Owner::of(world, ScheduleSpec::now()).await;
    let (ctx, id) = (owner.world.ctx.clone(), owner.job);
    let hook = async move { changed(&ctx, id, Change::Delete).await.expect("a deletion") };
    let (ctx, meddled) = owner.world.meddled(hook.boxed()).await;
    let parts = (0..ctx.partitions).collect();
    let lanes = [LaneParts { lane: "default".to_owned(), parts }];
    let request = ClaimRequest {
        node: &owner.node,
        session: owner.session,
        lanes: &lanes,
        limit: 1,
        owed_max: 1,
        claim: compline_core::ids::ClaimId::new(1),
        can_run: &|_| true,
    };
    let claimed = claim(&ctx, &request).await.expect("a claim sees no error").claimed;
    assert!(claimed.is_empty() && meddled.conflicts() > 0, "{claimed:?}");
    let executions = owner.executions().await;
    assert!(matches!(&executions[..], [one] if matches!(one.state, State::Cancelled { .. })), "{executions:?}");
}

async fn c31_a_deletion_in_the_middle_of_a_completion_lets_it_be(world: World) {
    let owner = Owner::of(world, ScheduleSpec::now()).await;
    let claimed = owner.world.claim(&owner.node, owner.session, 1).await.claimed.remove(0);
    let (ctx, id) = (owner.world.ctx.clone(), owner.job);
    let hook = async move {
        changed(&ctx, id, Change::Delete).await.expect("a deletion");
        assert_eq!(sweep(&ctx, id, true).await.expect("a store"), Swept { cancelled: 0, told: 1 });
    };
    let (ctx, _) = owner.world.meddled(hook.boxed()).await;
    let done = report(&ctx, &claimed, Outcome::Ok);
    let answers = complete(&ctx, &owner.node, owner.session, &[done]).await.expect("a store");
    assert_eq!(answers, [Reported::Recorded]);
    let executions = owner.executions().await;
    assert!(matches!(&executions[..], [one] if matches!(one.state, State::Completed { .. })), "{executions:?}");
}

async fn c30_a_trigger_in_the_middle_of_a_tick_disturbs_nobody(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let slot = owner.next().await.expect("a slot");
    let (ctx, id) = (owner.world.ctx.clone(), owner.job);
    let hook = async move {
        triggered(&ctx, id, None).await.expect("a trigger");
    };
    let (ctx, meddled) = owner.world.meddled(hook.boxed()).await;
    let ticked = owner.world.tick_at(&ctx, owner.session, owner.job, slot).await;
    assert_eq!((ticked.queued, meddled.conflicts()), (1, 0));
    assert_eq!(owner.next().await, Some(slot + Duration::from_secs(60)), "a trigger moves no schedule");
    assert_eq!(owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, slot).await.queued, 1);
    assert_eq!(owner.run_all().await, 2);
}

async fn c30_a_resume_fires_nothing_at_once_and_an_edit_resumes_nothing(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let before = owner.next().await;
    owner.change(Change::Pause).await.expect("a pause");
    owner.change(Change::Pause).await.expect("a pause of a paused job is none");
    edited(&owner.world.ctx, owner.job, ScheduleSpec::cron(SECONDS_20)).await.expect("an edit");
    let row = row(&owner.world.ctx, owner.job).await;
    assert_eq!((row.state, row.revision, owner.next().await), (JobState::Paused, 2, None));
    edited(&owner.world.ctx, owner.job, ScheduleSpec::cron(MINUTELY)).await.expect("an edit");
    owner.change(Change::Resume).await.expect("a resume");
    owner.change(Change::Resume).await.expect("a resume of an active job is none");
    let executions = owner.executions().await;
    assert!(matches!(&executions[..], [one] if matches!(one.state, State::Pending { .. })), "{executions:?}");
    assert_eq!(owner.next().await, before, "the slot that was taken back is planned again");
    let now = owner.world.ctx.env.now();
    assert!(owner.next().await.is_some_and(|next| next > now));
}

async fn c30_a_run_goes_on_through_a_pause_and_a_paused_job_is_run_by_a_trigger(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let slot = owner.next().await.expect("a slot");
    owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, slot).await;
    let claimed = owner.world.claim(&owner.node, owner.session, 1).await.claimed.remove(0);
    owner.change(Change::Pause).await.expect("a pause");
    let done = report(&owner.world.ctx, &claimed, Outcome::Ok);
    complete(&owner.world.ctx, &owner.node, owner.session, &[done]).await.expect("a store");
    let row = row(&owner.world.ctx, owner.job).await;
    assert_eq!((row.state, owner.next().await), (JobState::Paused, None), "the run's end resumes nothing");
    let asked = triggered(&owner.world.ctx, owner.job, None).await.expect("a trigger").execution;
    owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, slot).await;
    assert_eq!(owner.run_all().await, 1);
    assert!(matches!(owner.world.execution(asked).await.state, State::Completed { .. }));
    assert_eq!(owner.next().await, None);
}

async fn c39_a_finished_once_runs_again_only_at_a_new_time(world: World) {
    let at = world.ctx.env.now();
    let owner = Owner::of(world, ScheduleSpec::once(at.to_string())).await;
    assert_eq!(owner.run_all().await, 1);
    for wanted in [Change::Pause, Change::Resume] {
        owner.change(wanted).await.expect("a change");
    }
    assert_eq!((owner.next().await, owner.executions().await.len()), (None, 1));
    // The same time again is no new one.
    edited(&owner.world.ctx, owner.job, ScheduleSpec::once(at.to_string())).await.expect("an edit");
    assert_eq!((owner.next().await, owner.executions().await.len()), (None, 1));
    let later = owner.world.ctx.env.now() + Duration::from_secs(60);
    edited(&owner.world.ctx, owner.job, ScheduleSpec::once(later.to_string())).await.expect("an edit");
    assert_eq!(owner.next().await, Some(later));
    let due = later + Duration::from_millis(1);
    owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, due).await;
    assert_eq!((owner.run_all().await, owner.next().await), (1, None));
}

async fn c31_deleting_cancels_what_is_queued_and_keeps_the_history(world: World) {
    const TRIGGERS: usize = 600;
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let slot = owner.next().await.expect("a slot");
    owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, slot).await;
    let claimed = owner.world.claim(&owner.node, owner.session, 1).await.claimed.remove(0);
    for _ in 0..TRIGGERS {
        triggered(&owner.world.ctx, owner.job, None).await.expect("a trigger");
    }
    let now = owner.world.ctx.env.now();
    owner.world.tick_at(&owner.world.ctx, owner.session, owner.job, now).await;
    owner.change(Change::Delete).await.expect("a deletion");
    let ctx = &owner.world.ctx;
    assert_eq!(sweep(ctx, owner.job, false).await.expect("a store"), Swept { cancelled: TRIGGERS, told: 0 });
    assert_eq!(sweep(ctx, owner.job, true).await.expect("a store"), Swept { cancelled: 0, told: 1 });
    owner.change(Change::Delete).await.expect("a deletion of a deleted job is none");
    assert_eq!(owner.run_all().await, 0, "nothing is claimed any more");
    for wanted in [Change::Pause, Change::Resume] {
        assert!(matches!(owner.change(wanted).await, Err(ChangeError::Deleted)));
    }
    assert!(matches!(edited(ctx, owner.job, ScheduleSpec::now()).await, Err(ChangeError::Deleted)));
    assert!(matches!(triggered(ctx, owner.job, None).await, Err(ChangeError::Deleted)));
    // The one that runs fails: it is told to stop, so it is not tried again.
    let failed = report(ctx, &claimed, Outcome::TimedOut);
    complete(ctx, &owner.node, owner.session, &[failed]).await.expect("a store");
    let executions = owner.executions().await;
    assert_eq!(executions.len(), TRIGGERS + 1, "its history stays");
    assert!(executions.iter().all(|one| matches!(one.state, State::Cancelled { .. })));
}

async fn c51_a_trigger_with_one_key_is_one_execution(world: World) {
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let ctx = &owner.world.ctx;
    let same: Vec<_> = futures::future::join_all((0..20).map(|_| triggered(ctx, owner.job, Some("k")))).await;
    let ids: std::collections::BTreeSet<ExecutionId> =
        same.into_iter().map(|one| one.expect("a trigger").execution).collect();
    assert_eq!(ids.len(), 1);
    let again = triggered(ctx, owner.job, Some("k")).await.expect("a trigger");
    assert!(again.replayed && ids.contains(&again.execution));
    let stretch = Stretch { from: ctx.env.now(), to: ctx.env.now() + Duration::from_secs(1) };
    let other = backfilled(ctx, owner.job, "k", stretch).await;
    assert!(matches!(other, Err(BackfillError::Change(ChangeError::KeyReused))), "{other:?}");
}

async fn c27_a_backfill_runs_each_slot_once_also_when_it_is_broken_off(world: World) {
    const SLOTS: usize = 300;
    let owner = Owner::of(world, ScheduleSpec::cron(MINUTELY)).await;
    let (ctx, before) = (&owner.world.ctx, owner.next().await);
    let to = owner.world.ctx.env.now();
    let stretch = Stretch { from: to.saturating_sub(Duration::from_secs(60 * SLOTS as u64)), to };
    // Broken off: of three transactions the second is never made.
    let (broken, _) = owner.world.meddled(std::future::ready(()).boxed()).await;
    let half = backfilled(&broken, owner.job, "k", stretch);
    let _ = futures::poll!(std::pin::pin!(half));
    let filled = backfilled(ctx, owner.job, "k", stretch).await.expect("a backfill");
    assert_eq!(filled.slots, SLOTS);
    let again = backfilled(ctx, owner.job, "k", stretch).await.expect("a backfill");
    assert!(again.replayed && again.slots == SLOTS);
    assert_eq!(owner.next().await, before, "the schedule stays as it is");
    let mut slots: Vec<_> = owner.executions().await.iter().map(|one| one.slot).filter(|slot| *slot < to).collect();
    slots.dedup();
    assert_eq!(slots.len(), SLOTS, "each slot once");
    let many = Stretch { from: to.saturating_sub(Duration::from_secs(60 * 10_001)), to };
    assert!(matches!(backfilled(ctx, owner.job, "m", many).await, Err(BackfillError::TooMany)));
    owner.change(Change::Delete).await.expect("a deletion");
    let deleted = backfilled(ctx, owner.job, "d", stretch).await;
    assert!(matches!(deleted, Err(BackfillError::Change(ChangeError::Deleted))));
}
