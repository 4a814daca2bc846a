//! Executions, their logs, and how many of a bucket are still open.
//!
//! A row carries one stamp, in front of its fields, where the store can put it in at the commit. What it means follows from the state: of a
//! queued execution it is the place in its lane, of a running one it is the fence.

use bytes::{BufMut, Bytes, BytesMut};
use compline_core::execution::{Execution, Running, State};
use compline_core::ids::{ExecutionId, Fence, ShardId};
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{Stamp, StoreError, Tx};

const NAME: &str = "execution";
const SCHEMA: u8 = 6;
const INCARNATION_AT: usize = 1;
const STAMP_AT: usize = 5;
const FIELDS_AT: usize = STAMP_AT + Stamp::BYTES;

const BUCKET_NAME: &str = "bucket";
const LOG_NAME: &str = "log";
const LOG_SCHEMA: u8 = 1;
const LOG_CHUNK_BYTES: usize = 80_000;

/// An execution's row.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionRow {
    /// The execution. The fence of a running one is in its place.
    pub execution: Execution,
    /// The place in its lane, of a queued one; of others, what the last stamp was.
    pub stamp: Stamp,
}

/// The key of an execution's row.
pub fn key(id: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Execution).shard(id.shard()).execution(id).build()
}

/// The rows of several executions. A row that cannot be read is an error of its own.
pub async fn get_many(
    tx: &Tx,
    ids: &[ExecutionId],
    read: Read,
) -> Result<Vec<Result<Option<ExecutionRow>, StoreError>>, StoreError> {
    let keys: Vec<Bytes> = ids.iter().map(|id| key(*id)).collect();
    let values = tx.get_many(&keys, read).await?;
    Ok(keys.iter().zip(values).map(|(key, value)| value.map(|value| decode(key, &value)).transpose()).collect())
}

/// The row of an execution.
pub async fn get(tx: &Tx, id: ExecutionId, read: Read) -> Result<Option<ExecutionRow>, StoreError> {
    get_many(tx, &[id], read).await?.pop().unwrap_or(Ok(None))
}

/// Writes the row of an execution that is neither queued nor running.
pub fn put(tx: &Tx, execution: &Execution) -> Result<(), StoreError> {
    let value = encode(execution, 0, Stamp([0; Stamp::BYTES]))?;
    tx.set(key(execution.id), value.freeze());
    Ok(())
}

/// Writes the row of an execution that this commit queues or lets run. `index` tells its stamp from the others of the commit.
pub fn put_stamped(tx: &Tx, execution: &Execution, incarnation: u32, index: u16) -> Result<(), StoreError> {
    let value = encode(execution, incarnation, Stamp::unset(index))?;
    tx.set_stamped_value(key(execution.id), value.into(), STAMP_AT);
    Ok(())
}

/// Writes the row of a running execution that goes on running under the fence that it has.
pub fn put_running(tx: &Tx, execution: &Execution, running: &Running) -> Result<(), StoreError> {
    let (incarnation, stamp) = running.fence.parts();
    let value = encode(execution, incarnation, Stamp(stamp))?;
    tx.set(key(execution.id), value.freeze());
    Ok(())
}

fn encode(execution: &Execution, incarnation: u32, stamp: Stamp) -> Result<BytesMut, StoreError> {
    let fields =
        postcard::to_allocvec(execution).map_err(|error| StoreError::unreadable(NAME, b"(being written)", error))?;
    let mut value = BytesMut::with_capacity(FIELDS_AT + fields.len());
    value.put_u8(SCHEMA);
    value.put_u32(incarnation);
    value.put_slice(&stamp.0);
    value.put_slice(&fields);
    Ok(value)
}

/// A queued execution's value without the stamp of the store that it lies in.
pub(crate) fn without_stamp(value: &[u8]) -> Bytes {
    let mut bare = BytesMut::from(value);
    bare[INCARNATION_AT..FIELDS_AT].fill(0);
    bare.freeze()
}

/// The value of a queued execution that has no stamp.
pub(crate) fn encode_without_stamp(execution: &Execution) -> Result<Bytes, StoreError> {
    encode(execution, 0, Stamp([0; Stamp::BYTES])).map(BytesMut::freeze)
}

/// Gives a queued execution's value the stamp of this commit.
pub(crate) fn restamp(tx: &Tx, key: Bytes, value: &[u8], incarnation: u32, index: u16) {
    let mut stamped = value.to_vec();
    stamped[INCARNATION_AT..STAMP_AT].copy_from_slice(&incarnation.to_be_bytes());
    stamped[STAMP_AT..FIELDS_AT].copy_from_slice(&Stamp::unset(index).0);
    tx.set_stamped_value(key, stamped, STAMP_AT);
}

/// The incarnation in which a row got its stamp.
pub(crate) fn incarnation(key: &[u8], value: &[u8]) -> Result<u32, StoreError> {
    Ok(u32::from_be_bytes(
        super::key_field(NAME, value, INCARNATION_AT)
            .map_err(|_| StoreError::unreadable(NAME, key, "shorter than its head"))?,
    ))
}

/// The execution in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<ExecutionRow, StoreError> {
    super::expect_schema(NAME, SCHEMA, key, value)?;
    let incarnation = u32::from_be_bytes(super::key_field(NAME, value, INCARNATION_AT)?);
    let stamp = Stamp(super::key_field(NAME, value, STAMP_AT)?);
    let mut execution: Execution =
        postcard::from_bytes(&value[FIELDS_AT..]).map_err(|error| StoreError::unreadable(NAME, key, error))?;
    if let State::Running(running) = &mut execution.state {
        running.fence = Fence::new(incarnation, stamp.0);
    }
    Ok(ExecutionRow { execution, stamp })
}

/// Removes the row of an execution whose time never came.
pub fn remove(tx: &Tx, id: ExecutionId) {
    tx.clear(key(id));
}

/// Counts rows of buckets that are open: `delta` more of them.
pub fn add_open(tx: &Tx, shard: ShardId, hour: u32, delta: i64) {
    if delta != 0 {
        tx.add(bucket_key(shard, hour), delta);
    }
}

/// How many rows of a bucket are open; `None` if the bucket has no counter, and so no rows.
pub async fn open_in(tx: &Tx, shard: ShardId, hour: u32, read: Read) -> Result<Option<i64>, StoreError> {
    let key = bucket_key(shard, hour);
    let value = tx.get(key.clone(), read).await?;
    Ok(value.map(|value| decode_bucket(&key, &value)).transpose()?.map(|(_, _, open)| open))
}

/// The key of a bucket's counter.
pub(crate) fn bucket_key(shard: ShardId, hour: u32) -> Bytes {
    KeyBuilder::new(Table::Bucket).shard(shard).u32(hour).build()
}

/// The shard, the hour and how many are open, of the bucket with this key and value.
pub fn decode_bucket(key: &[u8], value: &[u8]) -> Result<(ShardId, u32, i64), StoreError> {
    let shard = ShardId(u16::from_be_bytes(super::key_field(BUCKET_NAME, key, 1)?));
    let hour = u32::from_be_bytes(super::key_field(BUCKET_NAME, key, 3)?);
    let open = value.try_into().map_err(|_| StoreError::unreadable(BUCKET_NAME, key, "not a counter"))?;
    Ok((shard, hour, i64::from_le_bytes(open)))
}

/// Where the executions of a bucket lie.
pub(crate) fn bucket_range(shard: ShardId, hour: u32) -> (Bytes, Bytes) {
    let second = |hour: u64| (hour * 3_600).to_be_bytes();
    let at = |hour: u64| KeyBuilder::new(Table::Execution).shard(shard).bytes(&second(hour)[3..]).build();
    (at(u64::from(hour)), at(u64::from(hour) + 1))
}

/// One line of a run's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// The line.
    pub message: String,
}

/// Writes the log of an attempt.
pub fn put_log(tx: &Tx, id: ExecutionId, attempt: u32, lines: &[LogLine]) -> Result<(), StoreError> {
    let mut chunk = 0;
    let mut rest = lines;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |line: &&LogLine| {
            bytes += line.message.len() + line.level.len() + 8;
            bytes <= LOG_CHUNK_BYTES
        };
        // A line that is larger than a chunk gets one to itself: the sandbox caps lines below the limit of a value.
        let count = rest.iter().take_while(fits).count().max(1);
        let (head, tail) = rest.split_at(count);
        let key = log_prefix(id).u32(attempt).u16(chunk).build();
        tx.set(key, super::encode(LOG_NAME, LOG_SCHEMA, &head)?.into());
        rest = tail;
        chunk += 1;
    }
    Ok(())
}

/// The log of an execution: every attempt's lines, oldest first.
pub async fn log(tx: &Tx, id: ExecutionId) -> Result<Vec<(u32, Vec<LogLine>)>, StoreError> {
    let (begin, end) = log_prefix(id).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit: 10_000, reverse: false, read: Read::Snapshot }).await?;
    let mut attempts: Vec<(u32, Vec<LogLine>)> = Vec::new();
    for pair in pairs {
        let (_, attempt, lines) = decode_log(&pair.key, &pair.value)?;
        match attempts.last_mut() {
            Some((number, known)) if *number == attempt => known.extend(lines),
            _ => attempts.push((attempt, lines)),
        }
    }
    Ok(attempts)
}

/// The execution, the attempt and the lines of the chunk with this key and value.
pub fn decode_log(key: &[u8], value: &[u8]) -> Result<(ExecutionId, u32, Vec<LogLine>), StoreError> {
    let id = ExecutionId::from_bytes(super::key_field(LOG_NAME, key, 3)?);
    let attempt = u32::from_be_bytes(super::key_field(LOG_NAME, key, 3 + ExecutionId::BYTES)?);
    Ok((id, attempt, super::decode(LOG_NAME, LOG_SCHEMA, key, value)?))
}

pub(super) fn log_prefix(id: ExecutionId) -> KeyBuilder {
    KeyBuilder::new(Table::Log).shard(id.shard()).execution(id)
}
