//! What of a job is live, and what waits for that: only of jobs with an overlap rule.
//!
//! A tick decides by these rows and reads them serializably; whoever ends an execution clears its row and reads who waits. So the two meet: either
//! the tick sees that the live one has ended, or the one that ends it sees who waits and wakes them.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId};

use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, from_sortable};
use crate::{StoreError, Tx};

const NAME: &str = "live";
const SCHEMA: u8 = 1;
const KIND_AT: usize = 1 + JobId::BYTES;
const LIVE: u8 = 0;
const WAITING: u8 = 1;

/// An execution that waits until another one of its job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Its job.
    pub job: JobId,
    /// When it was due, as its due row had it.
    pub due: Timestamp,
    /// Which.
    pub execution: ExecutionId,
    /// Whether only the job's schedule wants it, so that a rule may drop it.
    pub scheduled: bool,
}

/// A row of this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// It is live.
    Live(JobId, ExecutionId),
    /// It waits.
    Waiting(Waiting),
}

fn live_key(job: JobId, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Live).job(job).u8(LIVE).execution(execution).build()
}

fn waiting_key(waiting: &Waiting) -> Bytes {
    waiting_key_of(waiting.job, waiting.due, waiting.execution)
}

/// The key of the row of an execution that waits.
pub(crate) fn waiting_key_of(job: JobId, due: Timestamp, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Live).job(job).u8(WAITING).micros(due).execution(execution).build()
}

/// Counts an execution as live.
pub fn put(tx: &Tx, job: JobId, execution: ExecutionId) {
    tx.set(live_key(job, execution), nothing());
}

/// Counts it no longer.
pub fn clear(tx: &Tx, job: JobId, execution: ExecutionId) {
    tx.clear(live_key(job, execution));
}

/// Lets an execution wait.
pub fn put_waiting(tx: &Tx, waiting: &Waiting) {
    tx.set(waiting_key(waiting), Bytes::copy_from_slice(&[SCHEMA, u8::from(waiting.scheduled)]));
}

/// Lets it wait no longer. Only its job, its due time and its id matter.
pub fn clear_waiting(tx: &Tx, waiting: &Waiting) {
    tx.clear(waiting_key(waiting));
}

/// What is live of a job. Part of conflict detection: another one that begins or ends meanwhile makes the commit fail.
pub async fn of_job(tx: &Tx, job: JobId, limit: usize) -> Result<Vec<ExecutionId>, StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Live).job(job).u8(LIVE).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Serializable }).await?;
    let id = |key: &Bytes| super::key_field(NAME, key, KIND_AT + 1).map(ExecutionId::from_bytes);
    pairs.iter().map(|pair| id(&pair.key)).collect()
}

/// Who waits, in the order in which they were due, and the rows among the first `limit` that cannot be read. Part of conflict detection.
pub async fn waiting(tx: &Tx, job: JobId, limit: usize) -> Result<(Vec<Waiting>, Vec<StoreError>), StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Live).job(job).u8(WAITING).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Serializable }).await?;
    let (mut waiting, mut unreadable) = (Vec::with_capacity(pairs.len()), Vec::new());
    for pair in &pairs {
        match decode_waiting(&pair.key, &pair.value) {
            Ok(row) => waiting.push(row),
            Err(error) => unreadable.push(error),
        }
    }
    Ok((waiting, unreadable))
}

/// Who has waited for longest, of those whose rows can be read. Part of conflict detection.
pub async fn first_waiting(tx: &Tx, job: JobId, limit: usize) -> Result<Option<Waiting>, StoreError> {
    let (waiting, unreadable) = waiting(tx, job, 1).await?;
    if unreadable.is_empty() {
        return Ok(waiting.first().copied());
    }
    Ok(self::waiting(tx, job, limit).await?.0.first().copied())
}

/// The row with this key and value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Row, StoreError> {
    let [kind] = super::key_field(NAME, key, KIND_AT)?;
    match kind {
        LIVE => Ok(Row::Live(
            JobId::from_bytes(super::key_field(NAME, key, 1)?),
            ExecutionId::from_bytes(super::key_field(NAME, key, KIND_AT + 1)?),
        )),
        WAITING => decode_waiting(key, value).map(Row::Waiting),
        other => Err(StoreError::unreadable(NAME, key, format_args!("unknown kind {other}"))),
    }
}

fn decode_waiting(key: &[u8], value: &[u8]) -> Result<Waiting, StoreError> {
    let micros = from_sortable(super::key_field(NAME, key, KIND_AT + 1)?);
    let due =
        Timestamp::from_unix_micros(micros).ok_or_else(|| StoreError::unreadable(NAME, key, "instant out of range"))?;
    let scheduled = match super::expect_schema(NAME, SCHEMA, key, value)? {
        [scheduled @ (0 | 1)] => *scheduled == 1,
        _ => return Err(StoreError::unreadable(NAME, key, "neither scheduled nor asked for")),
    };
    Ok(Waiting {
        job: JobId::from_bytes(super::key_field(NAME, key, 1)?),
        due,
        execution: ExecutionId::from_bytes(super::key_field(NAME, key, KIND_AT + 9)?),
        scheduled,
    })
}
