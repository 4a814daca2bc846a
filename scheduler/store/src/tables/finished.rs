//! Jobs whose schedule is over, by the hour after which nothing of them is needed: they go with their last bucket.

use bytes::Bytes;
use compline_core::ids::JobId;

use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::{StoreError, Tx};

const NAME: &str = "finished";

fn key(hour: u32, job: JobId) -> Bytes {
    KeyBuilder::new(Table::Finished).u32(hour).job(job).build()
}

/// Notes that a job's schedule ended, or that it was deleted, with executions up to this hour.
pub fn put(tx: &Tx, hour: u32, job: JobId) {
    tx.set(key(hour, job), nothing());
}

/// Takes the note back.
pub fn clear(tx: &Tx, hour: u32, job: JobId) {
    tx.clear(key(hour, job));
}

/// The notes of hours before this one, oldest first, from behind `last`. A hint, not part of conflict detection.
pub async fn before(
    tx: &Tx,
    hour: u32,
    last: Option<(u32, JobId)>,
    limit: usize,
) -> Result<Vec<(u32, JobId)>, StoreError> {
    let begin = last.map_or_else(|| KeyBuilder::new(Table::Finished).build(), |(hour, job)| after(&key(hour, job)));
    let end = KeyBuilder::new(Table::Finished).u32(hour).build();
    if begin >= end {
        return Ok(Vec::new());
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    pairs.iter().map(|pair| decode(&pair.key)).collect()
}

/// The hour and the job of the note with this key.
pub fn decode(key: &[u8]) -> Result<(u32, JobId), StoreError> {
    let hour = u32::from_be_bytes(super::key_field(NAME, key, 1)?);
    Ok((hour, JobId::from_bytes(super::key_field(NAME, key, 1 + size_of::<u32>())?)))
}
