//! What owners do to their jobs while these run: pause, resume, edit, delete, trigger, backfill; and cancel single executions. Like all clients
//! they lose patience and repeat themselves.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::State;
use compline_core::ids::{ExecutionId, JobId, TenantId};
use compline_server::ctx::Ctx;
use compline_server::env::Clock;
use compline_server::ops::cancel::{CancelError, CancelRequest, cancel};
use compline_server::ops::change::{Change, ChangeError, JobRequest, change};
use compline_server::ops::idempotency::Idempotency;
use compline_server::ops::trigger::{BackfillError, Stretch, backfill, trigger};
use compline_server::passes::sweep::sweep;
use compline_store::backend::Read;
use compline_store::tables::job;
use tokio::time::{Instant, timeout};

use super::model::{JobModel, Slots};
use super::shape::{LANE, LANE_APART};
use super::world::{Asked, CancelAnswer, Kind, World};

/// How often an owner repeats a request.
pub(super) const REPEATS_MAX: u32 = 20;

/// One owner, and how long it waits for an answer at first.
pub struct Owner<'a> {
    /// The world.
    pub world: &'a World,
    /// What it reaches the store by.
    pub ctx: &'a Ctx,
    /// How long it waits.
    pub patience: Duration,
}

/// What became of one try.
enum Try {
    Answered(Option<ExecutionId>, usize),
    /// There is nothing to ask for any more.
    Pointless,
    /// Another came first.
    Again,
    Broken(String),
}

impl Owner<'_> {
    /// Does something to one of the jobs that there are.
    pub async fn act(&self, number: String, rng: &mut fastrand::Rng) {
        let jobs: Vec<JobId> = self.world.record.lock().answers.iter().map(|answer| answer.job).collect();
        if jobs.is_empty() {
            return;
        }
        let id = jobs[rng.usize(0..jobs.len())];
        let Some(model) = self.world.record.lock().asked.get(&id).cloned() else { return };
        let recurs = matches!(model.slots, Slots::Cron { .. });
        let acts = self.world.shape.acts;
        let kind = match rng.u8(0..20) {
            _ if !acts.is_empty() => acts[rng.usize(0..acts.len())],
            0..=3 => return self.cancel_some(id, &model, rng).await,
            16..=19 => return self.mourn(rng).await,
            4..=6 if recurs => Kind::Pause,
            7..=9 if recurs => Kind::Resume,
            10..=11 if recurs => Kind::Edit,
            12 if recurs => Kind::Backfill,
            13 => Kind::Delete { stop_running: rng.bool() },
            _ => Kind::Trigger,
        };
        if matches!(kind, Kind::Pause | Kind::Resume | Kind::Edit) && !recurs {
            return;
        }
        let keyed = matches!(kind, Kind::Trigger | Kind::Backfill) || rng.bool();
        let key = keyed.then_some(number);
        let edited = (kind == Kind::Edit).then(|| edited(&model, self.world, rng));
        let asked = {
            let mut record = self.world.record.lock();
            if let Some(edited) = &edited {
                record.edits.entry(id).or_default().push(edited.clone());
            }
            record.changes.push(Asked { job: id, kind, key: key.clone(), answered: None, execution: None, made: 0 });
            record.changes.len() - 1
        };
        let stretch = self.stretch(rng);
        for repeat in 0..REPEATS_MAX {
            let tried = self.try_once(id, kind, key.as_deref(), edited.as_ref(), stretch);
            let tried = match timeout(self.patience * (repeat + 1), tried).await {
                Ok(tried) => tried,
                Err(_) => {
                    self.world.record.lock().events.requests_abandoned += 1;
                    continue;
                }
            };
            let mut record = self.world.record.lock();
            match tried {
                Try::Answered(execution, made) => {
                    let asked = &mut record.changes[asked];
                    (asked.answered, asked.execution, asked.made) = (Some(Instant::now()), execution, made);
                    return;
                }
                Try::Pointless => return,
                Try::Again => {}
                Try::Broken(why) => return record.broken.push(format!("{kind:?} of {id} failed for good: {why}")),
            }
        }
    }

    fn stretch(&self, rng: &mut fastrand::Rng) -> Stretch {
        let to = self.world.clock.now();
        Stretch { from: to.saturating_sub(Duration::from_secs(rng.u64(5..=60))), to }
    }

    async fn try_once(
        &self,
        id: JobId,
        kind: Kind,
        key: Option<&str>,
        edited: Option<&JobModel>,
        stretch: Stretch,
    ) -> Try {
        let tenant = TenantId::default_tenant();
        let idempotency = key.map(|key| Idempotency { key: key.to_owned(), body_hash: [9; 32] });
        let request = JobRequest { tenant: &tenant, id, idempotency: idempotency.as_ref() };
        let changed = match kind {
            Kind::Pause => change(self.ctx, request, Change::Pause).await.map(|_| (None, 0)),
            Kind::Resume => change(self.ctx, request, Change::Resume).await.map(|_| (None, 0)),
            Kind::Edit => self.edit(request, edited).await,
            Kind::Delete { stop_running } => match change(self.ctx, request, Change::Delete).await {
                Ok(_) => sweep(self.ctx, id, stop_running).await.map(|_| (None, 0)).map_err(ChangeError::from),
                Err(error) => Err(error),
            },
            Kind::Trigger => trigger(self.ctx, request).await.map(|triggered| (Some(triggered.execution), 1)),
            Kind::Backfill => match backfill(self.ctx, request, stretch).await {
                Ok(filled) => Ok((None, filled.slots)),
                Err(BackfillError::Change(error)) => Err(error),
                Err(error @ BackfillError::TooMany) => return Try::Broken(error.to_string()),
            },
        };
        match changed {
            Ok((execution, made)) => Try::Answered(execution, made),
            // A job that is over and has no history left is forgotten.
            Err(ChangeError::Deleted | ChangeError::Unknown) => Try::Pointless,
            Err(ChangeError::Moved(_)) => Try::Again,
            Err(error) => Try::Broken(error.to_string()),
        }
    }

    async fn edit(
        &self,
        request: JobRequest<'_>,
        edited: Option<&JobModel>,
    ) -> Result<(Option<ExecutionId>, usize), ChangeError> {
        let id = request.id;
        let read = self.ctx.store.transact(|tx| async move { job::get(&tx, id, Read::Snapshot).await });
        let (Some(row), Some(edited)) = (read.await?.value, edited) else { return Err(ChangeError::Unknown) };
        let mut definition = row.definition()?;
        // Everything else is as it was.
        definition.schedule = edited.schedule();
        edited.lane.clone_into(&mut definition.lane);
        (definition.splay, definition.bounds) = (edited.splay, edited.bounds);
        let new = self.ctx.parse(definition).map_err(|_| ChangeError::Unknown)?;
        change(self.ctx, request, Change::Edit { base: row.revision, new: &new }).await.map(|_| (None, 0))
    }

    /// Cancels an execution of a job: one of the last before now, or the next.
    async fn cancel_some(&self, job: JobId, model: &JobModel, rng: &mut fastrand::Rng) {
        let now = self.world.clock.now();
        let next = |slot: &Timestamp| model.after(*slot).filter(|_| *slot <= now);
        let mut slots: Vec<_> = std::iter::successors(model.first(), next).collect();
        // The newest ones are where something still happens.
        let newest = slots.split_off(slots.len().saturating_sub(3));
        if newest.is_empty() {
            return;
        }
        let slot = newest[rng.usize(0..newest.len())];
        let id = ExecutionId::of_slot(job, slot, job.shard(self.world.shards()));
        for repeat in 0..REPEATS_MAX {
            self.world.record.lock().cancels.insert(id);
            let tenant = TenantId::default_tenant();
            let request = CancelRequest { tenant: &tenant, id, idempotency: None };
            match timeout(self.patience * (repeat + 1), cancel(self.ctx, request)).await {
                Ok(Ok(cancelled)) => {
                    let over = matches!(cancelled.seen.execution.state, State::Cancelled { .. });
                    let mut record = self.world.record.lock();
                    return record.cancel_answers.push(CancelAnswer { execution: id, over, at: Instant::now() });
                }
                // A slot that an outage passed over, or that an edit took back, has no execution.
                Ok(Err(CancelError::Unknown | CancelError::Over(_))) => return,
                Ok(Err(error)) => {
                    return self.world.record.lock().broken.push(format!("a cancel failed for good: {error}"));
                }
                Err(_) => self.world.record.lock().events.requests_abandoned += 1,
            }
        }
    }
}

/// Another schedule within the same minutes, or the same in another lane, spread or bounded otherwise, or all of that.
fn edited(model: &JobModel, world: &World, rng: &mut fastrand::Rng) -> JobModel {
    let now = world.clock.now();
    let mut edited = JobModel { lane: if rng.bool() { LANE } else { LANE_APART }, ..model.clone() };
    match rng.u8(0..8) {
        0 => {}
        1 => edited.draw_splay(rng),
        2 => edited.draw_bounds(rng, now),
        _ => edited.slots = Slots::cron(rng, now, now + world.shape.active),
    }
    edited
}
