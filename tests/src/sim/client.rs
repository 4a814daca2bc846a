//! A client: it creates jobs as the API does, loses patience, and repeats itself under the same key.

use std::sync::Arc;
use std::time::Duration;

use compline_core::ids::JobId;
use compline_server::ctx::Ctx;
use compline_server::env::{Clock, Env};
use compline_server::metrics::Metrics;
use compline_server::ops::create::{Created, NewJob, create_job};
use compline_server::ops::idempotency::Idempotency;
use compline_store::Store;
use compline_store::backend::memory::MemoryBackend;
use tokio::time::{Instant, timeout};

use super::backend::SignedBackend;
use super::model::{JobModel, Slots};
use super::owner::Owner;
use super::world::{Answer, World};

/// How often a client repeats a request.
const REPEATS_MAX: u32 = 20;

/// Makes a client's requests, spread over the active part of the run.
pub async fn run(world: Arc<World>, number: usize, backend: Arc<MemoryBackend>, mut rng: fastrand::Rng) {
    let data = world.shape.client_data(number);
    let ctx = match open(&world, number, backend, rng.u64(..)).await {
        Ok(ctx) => ctx,
        Err(error) => return world.record.lock().broken.push(format!("client-{number} could not begin: {error}")),
    };
    let pause = world.shape.active / (world.shape.requests as u32 + 1);
    let end = world.clock.now() + world.shape.active;
    for request in 0..world.shape.requests {
        tokio::time::sleep(pause.mul_f64(rng.f64() * 1.8)).await;
        let model = JobModel { data, ..JobModel::draw(&mut rng, world.clock.now(), end) };
        let key = rng.bool().then(|| format!("client-{number} request-{request}"));
        let patience = Duration::from_millis(rng.u64(1..=2_000));
        let crowd = key.is_none() && !matches!(model.slots, Slots::Cron { .. }) && rng.u8(0..4) == 0;
        let jobs = if crowd { rng.usize(2..=20) } else { 1 };
        for _ in 0..jobs {
            ask(&world, &ctx, &model, key.as_deref(), patience).await;
        }
        if key.is_some() && rng.bool() {
            ask(&world, &ctx, &model, key.as_deref(), patience * 4).await;
        }
        for act in 0..rng.u32(0..=2) {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..2_500))).await;
            let owner = Owner { world: &world, ctx: &ctx, patience };
            owner.act(format!("client-{number} act-{request}-{act}"), &mut rng).await;
        }
    }
}

/// What a client reaches the store by.
pub(super) async fn open(
    world: &World,
    number: usize,
    backend: Arc<MemoryBackend>,
    seed: u64,
) -> Result<Ctx, compline_store::StoreError> {
    let data = world.shape.client_data(number);
    let author = world.author(format!("client-{number}"), data);
    let env = Env::injected(Arc::new(world.clock), seed).by_zones(data.zones());
    let store = Store::new(SignedBackend::new(backend, author, world.pulse.clone(), None));
    Ctx::open(store, env, Arc::new(Metrics::default())).await
}

/// One request, repeated until it is answered if it has a key. Returns the job of the answer.
pub(super) async fn ask(
    world: &World,
    ctx: &Ctx,
    model: &JobModel,
    key: Option<&str>,
    patience: Duration,
) -> Option<JobId> {
    for repeat in 0..REPEATS_MAX {
        // As in the API, each request makes a job of its own, and the key decides whether it is the one.
        let model = JobModel { created_at: ctx.env.now(), ..model.clone() };
        // Once its last slot is over the API would refuse it.
        model.first()?;
        let id = JobId::new(model.created_at, ctx.env.random_u128());
        world.record.lock().asked.insert(id, model.clone());
        let new = match new_job(ctx, id, &model, key) {
            Ok(new) => new,
            Err(error) => {
                world.record.lock().broken.push(format!("{:?} is refused: {error}", model.slots));
                return None;
            }
        };
        match timeout(patience * (repeat + 1), create_job(ctx, &new)).await {
            Ok(Ok(Created { job_id, replayed, .. })) => {
                let mut record = world.record.lock();
                record.events.requests_replayed += u64::from(replayed);
                record.answers.push(Answer { job: job_id, key: key.map(str::to_owned), at: Instant::now() });
                return Some(job_id);
            }
            Ok(Err(error)) => {
                world.record.lock().broken.push(format!("a request failed for good: {error}"));
                return None;
            }
            Err(_) => world.record.lock().events.requests_abandoned += 1,
        }
        // Without a key a repeat would be another job.
        key?;
    }
    None
}

fn new_job(
    ctx: &Ctx,
    id: JobId,
    model: &JobModel,
    key: Option<&str>,
) -> Result<NewJob, compline_core::schedule::ScheduleError> {
    let idempotency = key.map(|key| Idempotency { key: key.to_owned(), body_hash: [7; 32] });
    Ok(NewJob { job: ctx.parse(model.job(id))?, paused: false, idempotency })
}
