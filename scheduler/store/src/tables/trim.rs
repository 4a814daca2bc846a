//! Jobs whose history is to be trimmed. Whoever adds to a history asks for it, one time in so many, in the transaction that adds.

use bytes::Bytes;
use compline_core::ids::{ExecutionId, JobId, ShardId};

use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "trim";

/// One addition in so many asks, chosen by the execution's hash: jobs of one rhythm do not ask in one commit.
pub const EVERY: u16 = 64;

fn key(shard: ShardId, job: JobId) -> Bytes {
    KeyBuilder::new(Table::Trim).shard(shard).job(job).build()
}

/// Asks, if it is this execution's turn to.
pub(super) fn ask_now_and_then(tx: &Tx, job: JobId, execution: ExecutionId) {
    let bytes = execution.as_bytes();
    if u16::from_be_bytes([bytes[7], bytes[8]]).is_multiple_of(EVERY) {
        ask(tx, execution.shard(), job);
    }
}

/// Asks for a job's history to be trimmed.
pub fn ask(tx: &Tx, shard: ShardId, job: JobId) {
    tx.set(key(shard, job), nothing());
}

/// The jobs of a shard that were asked for. A hint, not part of conflict detection.
pub async fn asked(tx: &Tx, shard: ShardId, limit: usize) -> Result<Vec<JobId>, StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Trim).shard(shard).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    pairs.iter().map(|pair| decode(&pair.key)).collect()
}

/// It was done. Whoever asks in between makes this conflict.
pub fn done(tx: &Tx, shard: ShardId, job: JobId) {
    let key = key(shard, job);
    tx.depend_on(&key);
    tx.clear(key);
}

/// The job of the row with this key.
pub fn decode(key: &[u8]) -> Result<JobId, StoreError> {
    Ok(JobId::from_bytes(super::key_field(NAME, key, 3)?))
}
