//! Buckets: the executions of one shard and one hour, which retention removes together.

use bytes::Bytes;
use compline_core::ids::{ExecutionId, ShardId};

use super::execution::{self, ExecutionRow, bucket_key, bucket_range};
use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::{StoreError, Tx};

/// The buckets of a shard before this hour, oldest first, from behind `last`, each with how many of its executions are open. A hint, not part
/// of conflict detection.
pub async fn before(
    tx: &Tx,
    shard: ShardId,
    hour: u32,
    last: Option<u32>,
    limit: usize,
) -> Result<Vec<(u32, Result<i64, StoreError>)>, StoreError> {
    let begin = last.map_or_else(|| bucket_key(shard, 0), |last| after(&bucket_key(shard, last)));
    let end = bucket_key(shard, hour);
    if begin >= end {
        return Ok(Vec::new());
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    let hour_of = |key: &Bytes| Ok(u32::from_be_bytes(super::key_field("bucket", key, 3)?));
    let row = |pair: &crate::backend::KeyValue| {
        let open = execution::decode_bucket(&pair.key, &pair.value).map(|(_, _, open)| open);
        Ok((hour_of(&pair.key)?, open))
    };
    pairs.iter().map(row).collect()
}

fn dropping_key(shard: ShardId, hour: u32) -> Bytes {
    KeyBuilder::new(Table::Dropping).shard(shard).u32(hour).build()
}

/// Marks a bucket as being dropped: what has ended in it is gone from now on, though its rows go in steps.
pub fn set_dropping(tx: &Tx, shard: ShardId, hour: u32) {
    tx.set(dropping_key(shard, hour), nothing());
}

/// Takes the mark back.
pub fn clear_dropping(tx: &Tx, shard: ShardId, hour: u32) {
    tx.clear(dropping_key(shard, hour));
}

/// Which of these executions lie in buckets that are being dropped.
pub async fn are_dropping(tx: &Tx, ids: &[ExecutionId], read: Read) -> Result<Vec<bool>, StoreError> {
    let keys: Vec<Bytes> = ids.iter().map(|id| dropping_key(id.shard(), id.bucket_hour())).collect();
    Ok(tx.get_many(&keys, read).await?.iter().map(Option::is_some).collect())
}

/// Whether a bucket is being dropped.
pub async fn is_dropping(tx: &Tx, shard: ShardId, hour: u32, read: Read) -> Result<bool, StoreError> {
    Ok(tx.get(dropping_key(shard, hour), read).await?.is_some())
}

/// The shard and the hour of the mark with this key.
pub fn decode_dropping(key: &[u8]) -> Result<(ShardId, u32), StoreError> {
    let shard = ShardId(u16::from_be_bytes(super::key_field("dropping", key, 1)?));
    Ok((shard, u32::from_be_bytes(super::key_field("dropping", key, 3)?)))
}

/// Executions of a bucket in the order of their ids, from behind `last`, read so that a change of any of them makes this commit conflict. The
/// key of each tells which it is, whether it can be read or not.
pub async fn rows(
    tx: &Tx,
    shard: ShardId,
    hour: u32,
    last: Option<&Bytes>,
    limit: usize,
) -> Result<Vec<(Bytes, Result<ExecutionRow, StoreError>)>, StoreError> {
    let (mut begin, end) = bucket_range(shard, hour);
    if let Some(last) = last {
        begin = after(last);
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Serializable }).await?;
    let row = |pair: crate::backend::KeyValue| {
        let row = execution::decode(&pair.key, &pair.value);
        (pair.key, row)
    };
    Ok(pairs.into_iter().map(row).collect())
}

/// Removes the executions from `first` to `last` of one shard, with their logs.
pub fn clear_span(tx: &Tx, first: ExecutionId, last: ExecutionId) {
    tx.clear_range(execution::key(first), after(&execution::key(last)));
    tx.clear_range(execution::log_prefix(first).build(), execution::log_prefix(last).prefix().1);
}

/// Removes one execution, with its log if it has one.
pub async fn clear_one(tx: &Tx, id: ExecutionId) -> Result<(), StoreError> {
    tx.clear(execution::key(id));
    let (begin, end) = execution::log_prefix(id).prefix();
    let query = RangeQuery { begin, end, limit: 1, reverse: false, read: Read::Snapshot };
    if !tx.range(&query).await?.is_empty() {
        tx.clear_range(query.begin, query.end);
    }
    Ok(())
}

/// Removes a bucket's counter and its mark.
pub fn forget(tx: &Tx, shard: ShardId, hour: u32) {
    tx.clear(bucket_key(shard, hour));
    clear_dropping(tx, shard, hour);
}
