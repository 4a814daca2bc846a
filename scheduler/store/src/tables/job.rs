//! Jobs: the definition with its revision and state, and what changes with every slot.

use bytes::{BufMut, Bytes, BytesMut};
use compline_core::ids::{JobId, TenantId};
use compline_core::job::{Job, JobRun, JobState};

use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "job";
const SCHEMA: u8 = 2;
const RUN_NAME: &str = "job run";
const RUN_SCHEMA: u8 = 6;

/// A job's row. Its head (revision, state) is readable without decoding the definition, so that tick and claim can use a cached one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// From 1; raised by every edit.
    pub revision: u64,
    /// Whether its schedule goes on.
    pub state: JobState,
    definition: Bytes,
}

impl JobRow {
    /// A row of this definition.
    pub fn new(revision: u64, state: JobState, job: &Job) -> Result<Self, StoreError> {
        Ok(Self { revision, state, definition: super::encode(NAME, SCHEMA, job)?.into() })
    }

    /// The same definition in another state.
    #[must_use]
    pub fn in_state(&self, state: JobState) -> Self {
        Self { state, ..self.clone() }
    }

    /// The definition.
    pub fn definition(&self) -> Result<Job, StoreError> {
        super::decode(NAME, SCHEMA, b"(definition)", &self.definition)
    }
}

/// The key of a job's row: what an edit changes, and so what tick and claim depend on.
pub fn key(job: JobId) -> Bytes {
    KeyBuilder::new(Table::Job).job(job).build()
}

pub(crate) fn run_key(job: JobId) -> Bytes {
    KeyBuilder::new(Table::JobRun).job(job).build()
}

/// The rows of several jobs. A row that cannot be read is an error of its own.
pub async fn get_many(
    tx: &Tx,
    jobs: &[JobId],
    read: Read,
) -> Result<Vec<Result<Option<JobRow>, StoreError>>, StoreError> {
    let keys: Vec<Bytes> = jobs.iter().map(|job| key(*job)).collect();
    let values = tx.get_many(&keys, read).await?;
    Ok(keys.iter().zip(values).map(|(key, value)| value.map(|value| decode_row(key, &value)).transpose()).collect())
}

/// The row of a job.
pub async fn get(tx: &Tx, job: JobId, read: Read) -> Result<Option<JobRow>, StoreError> {
    get_many(tx, &[job], read).await?.pop().unwrap_or(Ok(None))
}

/// Writes a job's row.
pub fn put(tx: &Tx, job: JobId, row: &JobRow) {
    let mut value = BytesMut::with_capacity(10 + row.definition.len());
    value.put_u8(SCHEMA);
    value.put_u64(row.revision);
    value.put_u8(match row.state {
        JobState::Active => 0,
        JobState::Paused => 1,
        JobState::Deleted => 2,
    });
    value.put_slice(&row.definition);
    tx.set(key(job), value.freeze());
}

/// The job in a row's value.
pub fn decode_row(key: &Bytes, value: &Bytes) -> Result<JobRow, StoreError> {
    super::expect_schema(NAME, SCHEMA, key, value)?;
    let short = || StoreError::unreadable(NAME, key, "shorter than its head");
    let revision = value.get(1..9).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes).ok_or_else(short)?;
    let state = match value.get(9).ok_or_else(short)? {
        0 => JobState::Active,
        1 => JobState::Paused,
        2 => JobState::Deleted,
        other => return Err(StoreError::unreadable(NAME, key, format_args!("unknown state {other}"))),
    };
    Ok(JobRow { revision, state, definition: value.slice(10..) })
}

/// What the policies of several jobs read.
pub async fn get_runs(
    tx: &Tx,
    jobs: &[JobId],
    read: Read,
) -> Result<Vec<Result<Option<JobRun>, StoreError>>, StoreError> {
    let keys: Vec<Bytes> = jobs.iter().map(|job| run_key(*job)).collect();
    let values = tx.get_many(&keys, read).await?;
    Ok(keys.iter().zip(values).map(|(key, value)| value.map(|value| decode_run(key, &value)).transpose()).collect())
}

/// What a job's policies read.
pub async fn get_run(tx: &Tx, job: JobId, read: Read) -> Result<Option<JobRun>, StoreError> {
    get_runs(tx, &[job], read).await?.pop().unwrap_or(Ok(None))
}

/// What a job's policies read, in a row's value.
pub fn decode_run(key: &[u8], value: &[u8]) -> Result<JobRun, StoreError> {
    super::decode(RUN_NAME, RUN_SCHEMA, key, value)
}

/// The job that the key of a job's row, or of its run's, names.
pub fn id_of(key: &[u8]) -> Result<JobId, StoreError> {
    Ok(JobId::from_bytes(super::key_field(NAME, key, 1)?))
}

/// Writes what a job's policies read.
pub fn put_run(tx: &Tx, job: JobId, run: &JobRun) -> Result<(), StoreError> {
    tx.set(run_key(job), super::encode(RUN_NAME, RUN_SCHEMA, run)?.into());
    Ok(())
}

/// Lists a new job under its tenant.
pub fn add_to_listings(tx: &Tx, job: &Job) {
    tx.set(tenant_key(&job.tenant, job.id), nothing());
}

/// Removes a job with everything that is kept of it. Its executions must be gone.
pub fn remove(tx: &Tx, job: &Job) {
    tx.clear(key(job.id));
    tx.clear(run_key(job.id));
    tx.clear(tenant_key(&job.tenant, job.id));
    let (begin, end) = KeyBuilder::new(Table::Ledger).job(job.id).prefix();
    tx.clear_range(begin, end);
}

pub(crate) fn tenant_key(tenant: &TenantId, job: JobId) -> Bytes {
    KeyBuilder::new(Table::TenantJob).tenant(tenant).job(job).build()
}

/// A tenant's jobs, newest first, from behind `before`.
pub async fn list(tx: &Tx, tenant: &TenantId, before: Option<JobId>, limit: usize) -> Result<Vec<JobId>, StoreError> {
    let (begin, mut end) = KeyBuilder::new(Table::TenantJob).tenant(tenant).prefix();
    if let Some(before) = before {
        end = KeyBuilder::new(Table::TenantJob).tenant(tenant).job(before).build();
    }
    trailing_ids(tx, RangeQuery { begin, end, limit, reverse: true, read: Read::Snapshot }).await
}

async fn trailing_ids(tx: &Tx, query: RangeQuery) -> Result<Vec<JobId>, StoreError> {
    let pairs = tx.range(&query).await?;
    let id = |key: &Bytes| {
        let at = key.len().saturating_sub(JobId::BYTES);
        Ok(JobId::from_bytes(super::key_field(NAME, key, at)?))
    };
    pairs.iter().map(|pair| id(&pair.key)).collect()
}
