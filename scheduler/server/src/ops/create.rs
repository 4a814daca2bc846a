//! create: idempotency key, job and first slot, in one transaction.

use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::job::{JobRun, JobState};
use compline_core::tick::planned_slot;
use compline_store::backend::Read;
use compline_store::tables::job;
use compline_store::tables::job::JobRow;
use compline_store::tables::request::Made;
use compline_store::{StoreError, Tx};

use super::idempotency::{self, Earlier, Idempotency};
use super::plan::write_planned;
use crate::ctx::{Ctx, ParsedJob};
use crate::passes::rezone;

/// How many fires an answer to a creation shows.
const NEXT_FIRES: usize = 5;

/// A job to create.
#[derive(Debug)]
pub struct NewJob {
    /// The job, with its id and the time of its creation.
    pub job: ParsedJob,
    /// Whether its schedule rests until it is resumed.
    pub paused: bool,
    /// The request's key, if it has one.
    pub idempotency: Option<Idempotency>,
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

enum Outcome {
    New,
    Earlier(JobId),
    KeyReused,
}

/// Creates a job. When it returns, the job is durable. Repeating it with the same idempotency key is safe, and so is a retry of the
/// transaction without one: the job's id is made before it.
pub async fn create_job(ctx: &Ctx, new: &NewJob) -> Result<Created, CreateError> {
    let job = &new.job.job;
    let first = new.job.timetable().first(job.created_at).ok_or(CreateError::NeverFires)?;
    let row = JobRow::new(1, if new.paused { JobState::Paused } else { JobState::Active }, job)?;
    let row = &row;
    let made = ctx
        .store
        .transact(|tx| async move {
            if let Some(earlier) = earlier(&tx, new).await? {
                return Ok(earlier);
            }
            write(ctx, &tx, new, row, first).await?;
            Ok(Outcome::New)
        })
        .await?
        .value;
    match made {
        Outcome::New => Ok(Created { job_id: job.id, replayed: false, next_fires: next_fires(&new.job) }),
        Outcome::Earlier(id) if id == job.id => {
            Ok(Created { job_id: id, replayed: false, next_fires: next_fires(&new.job) })
        }
        Outcome::Earlier(id) => replay(ctx, id).await,
        Outcome::KeyReused => Err(CreateError::KeyReused),
    }
}

/// What an earlier request with this key, or an earlier run of this transaction, did.
async fn earlier(tx: &Tx, new: &NewJob) -> Result<Option<Outcome>, StoreError> {
    let job = &new.job.job;
    match idempotency::earlier(tx, &job.tenant, new.idempotency.as_ref(), job.created_at).await? {
        Some(Earlier::Same(Made::Job(known))) => return Ok(Some(Outcome::Earlier(known))),
        Some(_) => return Ok(Some(Outcome::KeyReused)),
        None => {}
    }
    if tx.maybe_committed() && job::get(tx, job.id, Read::Serializable).await?.is_some() {
        return Ok(Some(Outcome::Earlier(job.id)));
    }
    Ok(None)
}

async fn write(ctx: &Ctx, tx: &Tx, new: &NewJob, row: &JobRow, first: Timestamp) -> Result<(), StoreError> {
    let job = &new.job.job;
    let execution = new.job.timetable().execution(first, ctx.shards);
    // An earlier run of this transaction whose result is unknown can still land, after this one and after the job's first slot has run. It
    // must conflict then, or it would begin the slot again.
    tx.depend_on(&job::key(job.id));
    job::put(tx, job.id, row);
    job::add_to_listings(tx, job);
    if new.paused {
        job::put_run(tx, job.id, &JobRun { paused_from: Some(first), ..JobRun::default() })?;
    } else {
        let zones = rezone::planned_by(ctx, tx, &new.job.schedule, job.id.shard(ctx.shards)).await?;
        job::put_run(tx, job.id, &JobRun { next: Some(planned_slot(&execution)), zones, ..JobRun::default() })?;
        write_planned(tx, &new.job, &execution, job.created_at)?;
    }
    idempotency::remember(tx, &job.tenant, new.idempotency.as_ref(), Made::Job(job.id), job.created_at)
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
    let timetable = parsed.timetable();
    timetable.fires(timetable.first(parsed.job.created_at), 0).take(NEXT_FIRES).collect()
}
