//! create: idempotency key, job and first slot, in one transaction.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::{JobId, TenantId};
use compline_core::job::{JobRun, JobState};
use compline_core::tick::{first_execution, planned_slot};
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::job::JobRow;
use compline_store::tables::queue::Due;
use compline_store::tables::request::RequestRow;
use compline_store::tables::{execution, history, job, queue, request};
use compline_store::{StoreError, Tx};

use crate::ctx::{Ctx, ParsedJob};
use crate::loops::LOOK_AHEAD;

/// For how long an idempotency key is remembered.
pub const IDEMPOTENCY_TTL: Duration = Duration::from_secs(24 * 3_600);

/// How many fires an answer to a creation shows.
const NEXT_FIRES: usize = 5;

/// A job to create.
#[derive(Debug)]
pub struct NewJob {
    /// The job, with its id and the time of its creation.
    pub job: ParsedJob,
    /// The request's key, if it has one.
    pub idempotency: Option<Idempotency>,
}

/// By what a repeated request is recognised.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// The SHA-256 of route and body.
    pub body_hash: [u8; 32],
}

/// A job that was created, now or by an earlier request with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The job.
    pub job_id: JobId,
    /// Whether an earlier request created it.
    pub replayed: bool,
    /// The first slots from its creation on.
    pub next_fires: Vec<Timestamp>,
}

/// Why a job was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The key belongs to another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// There is no slot.
    #[error("this schedule never fires")]
    NeverFires,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The job that an earlier request with this key created, if the key is still remembered and the request was the same.
pub async fn created_earlier(
    ctx: &Ctx,
    tenant: &TenantId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Created>, CreateError> {
    let known = ctx.store.transact(|tx| async move { request::get(&tx, tenant, &idempotency.key).await }).await?.value;
    match known.filter(|known| now.saturating_since(known.at) < IDEMPOTENCY_TTL) {
        Some(known) if known.body_hash == idempotency.body_hash => replay(ctx, known.job).await.map(Some),
        Some(_) => Err(CreateError::KeyReused),
        None => Ok(None),
    }
}

enum Made {
    New,
    Earlier(JobId),
    KeyReused,
}

/// Creates a job. When it returns, the job is durable. Repeating it with the same idempotency key is safe, and so is a retry of the
/// transaction without one: the job's id is made before it.
pub async fn create_job(ctx: &Ctx, new: &NewJob) -> Result<Created, CreateError> {
    let ParsedJob { job, schedule } = &new.job;
    let first = schedule.first_after(job.created_at.to_utc()).ok_or(CreateError::NeverFires)?;
    let row = JobRow::new(1, JobState::Active, job)?;
    let row = &row;
    let made = ctx
        .store
        .transact(|tx| async move {
            if let Some(earlier) = earlier(&tx, new).await? {
                return Ok(earlier);
            }
            write(ctx, &tx, new, row, first.into())?;
            Ok(Made::New)
        })
        .await?
        .value;
    match made {
        Made::New => Ok(Created { job_id: job.id, replayed: false, next_fires: next_fires(&new.job) }),
        Made::Earlier(id) if id == job.id => {
            Ok(Created { job_id: id, replayed: false, next_fires: next_fires(&new.job) })
        }
        Made::Earlier(id) => replay(ctx, id).await,
        Made::KeyReused => Err(CreateError::KeyReused),
    }
}

/// What an earlier request with this key, or an earlier run of this transaction, did.
async fn earlier(tx: &Tx, new: &NewJob) -> Result<Option<Made>, StoreError> {
    let job = &new.job.job;
    if let Some(idempotency) = &new.idempotency
        && let Some(known) = request::get(tx, &job.tenant, &idempotency.key).await?
        && job.created_at.saturating_since(known.at) < IDEMPOTENCY_TTL
    {
        let same = known.body_hash == idempotency.body_hash;
        return Ok(Some(if same { Made::Earlier(known.job) } else { Made::KeyReused }));
    }
    if tx.maybe_committed() && job::get(tx, job.id, Read::Serializable).await?.is_some() {
        return Ok(Some(Made::Earlier(job.id)));
    }
    Ok(None)
}

fn write(ctx: &Ctx, tx: &Tx, new: &NewJob, row: &JobRow, first: Timestamp) -> Result<(), StoreError> {
    let job = &new.job.job;
    let execution = first_execution(job.id, first, ctx.shards);
    let next = planned_slot(&execution);
    // An earlier run of this transaction whose result is unknown can still land, after this one and after the job's first slot has run. It
    // must conflict then, or it would begin the slot again.
    tx.depend_on(&job::key(job.id));
    job::put(tx, job.id, row);
    job::put_run(tx, job.id, &JobRun { next: Some(next), ..JobRun::default() })?;
    job::add_to_listings(tx, job);
    execution::put(tx, &execution)?;
    execution::add_open(tx, execution.id.shard(), execution.id.bucket_hour(), 1);
    history::add(tx, &job.tenant, &execution);
    let due = Due { at: queue::due_instant(next.due), execution: execution.id, job: job.id };
    queue::put_due(tx, &due)?;
    // A ticker may have read ahead while this transaction took its time, so the job's own clock is not taken at its word.
    if due.at <= job.created_at + 2 * LOOK_AHEAD {
        Bell::Shard(execution.id.shard()).ring(tx);
    }
    if let Some(idempotency) = &new.idempotency {
        let row = RequestRow { body_hash: idempotency.body_hash, job: job.id, at: job.created_at };
        request::put(tx, &job.tenant, &idempotency.key, &row)?;
    }
    Ok(())
}

async fn replay(ctx: &Ctx, id: JobId) -> Result<Created, CreateError> {
    let row = ctx.store.transact(|tx| async move { job::get(&tx, id, Read::Snapshot).await }).await?.value;
    let next_fires = match row {
        Some(row) => next_fires(&*ctx.jobs.parsed(id, &row)?),
        None => Vec::new(),
    };
    Ok(Created { job_id: id, replayed: true, next_fires })
}

fn next_fires(parsed: &ParsedJob) -> Vec<Timestamp> {
    let schedule = &parsed.schedule;
    let first = schedule.first_after(parsed.job.created_at.to_utc());
    std::iter::successors(first, |slot| schedule.next_after(*slot)).take(NEXT_FIRES).map(Timestamp::from).collect()
}
