//! What waits: due rows, by time within their shard, and ready rows, first in first out within a part of their lane.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, ShardId, TaskDigest};
use serde::{Deserialize, Serialize};

use crate::backend::{KeyValue, RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after, from_sortable};
use crate::{Stamp, StoreError, Tx};

const DUE: &str = "due";
const DUE_SCHEMA: u8 = 1;
const DUE_TIME_AT: usize = 3;
const OWED: &str = "owed";
const READY: &str = "ready";
const READY_SCHEMA: u8 = 1;

/// What leads the places of what was owed: behind all others of its lane.
const OWED_CLASS: u8 = 1;

/// The fairness zone of a server without tenants.
pub const ZONE_DEFAULT: u8 = 0;

/// One due row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// When.
    pub at: Timestamp,
    /// What.
    pub execution: ExecutionId,
    /// Whose.
    pub job: JobId,
}

/// Which of the two queues by time a row lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByTime<'a> {
    /// What is to come, and what is due.
    Due,
    /// What was due long ago and goes to this lane once there is room: a queue for each lane, so that one lane does not hold up another.
    Owed(&'a str),
}

impl ByTime<'_> {
    fn prefix(self, shard: ShardId) -> KeyBuilder {
        match self {
            Self::Due => KeyBuilder::new(Table::Due).shard(shard),
            Self::Owed(lane) => KeyBuilder::new(Table::Owed).shard(shard).name(lane),
        }
    }

    pub(crate) fn key(self, at: Timestamp, execution: ExecutionId) -> Bytes {
        self.prefix(execution.shard()).micros(at).execution(execution).build()
    }

    /// Puts an execution in.
    pub fn put(self, tx: &Tx, row: &Due) -> Result<(), StoreError> {
        tx.set(self.key(row.at, row.execution), super::encode(DUE, DUE_SCHEMA, &row.job)?.into());
        Ok(())
    }

    /// Takes an execution out.
    pub fn clear(self, tx: &Tx, at: Timestamp, execution: ExecutionId) {
        tx.clear(self.key(at, execution));
    }

    /// Which of these rows are there. Not part of conflict detection.
    pub async fn has(self, tx: &Tx, rows: &[Due]) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Bytes> = rows.iter().map(|row| self.key(row.at, row.execution)).collect();
        Ok(tx.get_many(&keys, Read::Snapshot).await?.iter().map(Option::is_some).collect())
    }

    /// Makes the commit depend on a row that was read as a snapshot.
    pub fn depend_on(self, tx: &Tx, at: Timestamp, execution: ExecutionId) {
        tx.depend_on(&self.key(at, execution));
    }

    /// The first rows of a shard that were due from `from` on and before `until`. A hint, not part of conflict detection. Rows that cannot be
    /// read are left out and returned as errors beside the others.
    pub async fn first(
        self,
        tx: &Tx,
        shard: ShardId,
        from: Option<Timestamp>,
        until: Timestamp,
        limit: usize,
    ) -> Result<(Vec<Due>, Vec<StoreError>), StoreError> {
        let begin = match from {
            Some(from) => self.prefix(shard).micros(from).build(),
            None => self.prefix(shard).build(),
        };
        self.rows(tx, shard, (begin, self.prefix(shard).micros(until).build()), limit).await
    }

    /// The same from behind a row on, whenever they were due.
    pub async fn behind(
        self,
        tx: &Tx,
        shard: ShardId,
        last: Option<Due>,
        limit: usize,
    ) -> Result<(Vec<Due>, Vec<StoreError>), StoreError> {
        let (first, end) = self.prefix(shard).prefix();
        let begin = last.map_or(first, |last| after(&self.key(last.at, last.execution)));
        self.rows(tx, shard, (begin, end), limit).await
    }

    async fn rows(
        self,
        tx: &Tx,
        shard: ShardId,
        (begin, end): (Bytes, Bytes),
        limit: usize,
    ) -> Result<(Vec<Due>, Vec<StoreError>), StoreError> {
        if begin >= end {
            return Ok((Vec::new(), Vec::new()));
        }
        let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
        let time_at = self.prefix(shard).len();
        let mut unreadable = Vec::new();
        let table = match self {
            Self::Due => DUE,
            Self::Owed(_) => OWED,
        };
        let read = |pair: &KeyValue| decode_at(table, time_at, &pair.key, &pair.value);
        let rows = pairs.iter().filter_map(|pair| read(pair).map_err(|error| unreadable.push(error)).ok()).collect();
        Ok((rows, unreadable))
    }
}

/// The lanes to which a shard owes anything, found by stepping from one to the next: as many reads as there are such lanes, and at most `limit`.
pub async fn lanes_owed(tx: &Tx, shard: ShardId, limit: usize) -> Result<Vec<String>, StoreError> {
    lanes_behind(tx, &KeyBuilder::new(Table::Owed).shard(shard), limit).await
}

/// The due row with this key and value.
pub fn decode_due(key: &[u8], value: &[u8]) -> Result<Due, StoreError> {
    decode_at(DUE, DUE_TIME_AT, key, value)
}

/// The row of what is owed with this key and value, and its lane.
pub fn decode_owed<'a>(key: &'a [u8], value: &[u8]) -> Result<(&'a str, Due), StoreError> {
    let lane = lane_at(OWED, key, DUE_TIME_AT)?;
    Ok((lane, decode_at(OWED, DUE_TIME_AT + lane.len() + 1, key, value)?))
}

fn decode_at(table: &'static str, time_at: usize, key: &[u8], value: &[u8]) -> Result<Due, StoreError> {
    let micros = from_sortable(super::key_field(table, key, time_at)?);
    let at = Timestamp::from_unix_micros(micros)
        .ok_or_else(|| StoreError::unreadable(table, key, "instant out of range"))?;
    let execution = ExecutionId::from_bytes(super::key_field(table, key, time_at + 8)?);
    Ok(Due { at, execution, job: super::decode(table, DUE_SCHEMA, key, value)? })
}

/// The name that begins at this place of a key.
fn lane_at<'a>(table: &'static str, key: &'a [u8], at: usize) -> Result<&'a str, StoreError> {
    let name = key.get(at..).and_then(|rest| rest.split(|byte| *byte == 0).next());
    let name = name.ok_or_else(|| StoreError::unreadable(table, key, "it names no lane"))?;
    std::str::from_utf8(name).map_err(|error| StoreError::unreadable(table, key, error))
}

/// The names that follow a prefix in keys, each once.
async fn lanes_behind(tx: &Tx, prefix: &KeyBuilder, limit: usize) -> Result<Vec<String>, StoreError> {
    let at = prefix.len();
    let (mut begin, end) = prefix.clone().prefix();
    let mut lanes = Vec::new();
    while lanes.len() < limit {
        let query = RangeQuery { begin, end: end.clone(), limit: 1, reverse: false, read: Read::Snapshot };
        let Some(pair) = tx.range(&query).await?.pop() else { break };
        let lane = lane_at(READY, &pair.key, at)?.to_owned();
        begin = prefix.clone().name(&lane).prefix().1;
        lanes.push(lane);
    }
    Ok(lanes)
}

/// The due instant as its row's key has it: rounded up to a microsecond.
pub fn due_instant(at: Timestamp) -> Timestamp {
    Timestamp::from_unix_micros(at.unix_micros_ceil()).unwrap_or(at)
}

/// What a ready row says to a claimer, so that it can choose without reading more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// What.
    pub execution: ExecutionId,
    /// Whose.
    pub job: JobId,
    /// The component that it needs.
    pub digest: TaskDigest,
}

impl Ready {
    /// The value of its row.
    pub(crate) fn encode(&self) -> Result<Bytes, StoreError> {
        Ok(super::encode(READY, READY_SCHEMA, self)?.into())
    }

    /// What a row's value says.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self, StoreError> {
        super::decode(READY, READY_SCHEMA, key, value)
    }
}

/// A part of a lane: the unit that claimers pick, so that they rarely meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The lane.
    pub lane: &'a str,
    /// Whether it is of what was owed, which waits behind all that was not.
    pub owed: bool,
    /// The fairness zone.
    pub zone: u8,
    /// The part.
    pub partition: u8,
}

/// What waits on time in a lane, and what was owed.
fn class(lane: &str, owed: bool) -> KeyBuilder {
    KeyBuilder::new(Table::Ready).name(lane).u8(if owed { OWED_CLASS } else { 0 })
}

/// How many executions wait in a lane that were owed, counted up to `limit`. Not part of conflict detection.
pub async fn owed_in(tx: &Tx, lane: &str, limit: usize) -> Result<usize, StoreError> {
    let (begin, end) = class(lane, true).prefix();
    Ok(tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?.len())
}

impl Part<'_> {
    /// The front of the keys of its rows, up to their stamps.
    pub(crate) fn prefix_bytes(self) -> Bytes {
        self.prefix().build()
    }

    fn prefix(self) -> KeyBuilder {
        class(self.lane, self.owed).u8(self.zone).u8(self.partition)
    }

    pub(crate) fn key(self, stamp: Stamp) -> Bytes {
        self.prefix().bytes(&stamp.0).build()
    }

    /// Puts an execution at the end. `index` is the one of its execution row in this commit.
    pub fn push(self, tx: &Tx, ready: &Ready, index: u16) -> Result<(), StoreError> {
        let prefix = self.prefix();
        let stamp_at = prefix.len();
        let key = prefix.bytes(&Stamp::unset(index).0).into_vec();
        tx.set_stamped_key(key, stamp_at, ready.encode()?);
        Ok(())
    }

    /// The lane, the zone, the part and the place of the ready row with this key, and what it says.
    pub fn decode<'a>(key: &'a [u8], value: &[u8]) -> Result<(Part<'a>, Stamp, Ready), StoreError> {
        let lane = lane_at(READY, key, 1)?;
        let [owed, zone, partition] = super::key_field(READY, key, 1 + lane.len() + 1)?;
        let part = Part { lane, owed: owed == OWED_CLASS, zone, partition };
        let stamp = Stamp(super::key_field(READY, key, part.prefix().len())?);
        Ok((part, stamp, Ready::decode(key, value)?))
    }

    /// The first rows behind `last`, each with its place. Not part of conflict detection: whoever takes one says so with [`Part::take`]. One
    /// that cannot be read is an error of its own.
    pub async fn first(
        self,
        tx: &Tx,
        last: Option<Stamp>,
        limit: usize,
    ) -> Result<Vec<(Stamp, Result<Ready, StoreError>)>, StoreError> {
        let at = self.prefix().len();
        let (mut begin, end) = self.prefix().prefix();
        if let Some(last) = last {
            begin = after(&self.prefix().bytes(&last.0).build());
        }
        let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
        pairs
            .iter()
            .map(|pair| {
                let stamp = Stamp(super::key_field(READY, &pair.key, at)?);
                Ok((stamp, Ready::decode(&pair.key, &pair.value)))
            })
            .collect()
    }

    /// Removes a row, and makes the commit fail if somebody else did.
    pub fn take(self, tx: &Tx, stamp: Stamp) {
        let key = self.key(stamp);
        tx.depend_on(&key);
        tx.clear(key);
    }
}

/// The lanes that have anything waiting, found by stepping from one to the next: as many reads as there are such lanes, and at most `limit`.
pub async fn waiting_lanes(tx: &Tx, limit: usize) -> Result<Vec<String>, StoreError> {
    lanes_behind(tx, &KeyBuilder::new(Table::Ready), limit).await
}
