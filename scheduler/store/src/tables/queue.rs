//! What waits: due rows, by time within their shard, and ready rows, first in first out within a part of their lane.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, ShardId, TaskDigest};
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after, from_sortable};
use crate::{Stamp, StoreError, Tx};

const DUE: &str = "due";
const DUE_SCHEMA: u8 = 1;
const DUE_TIME_AT: usize = 3;
const READY: &str = "ready";
const READY_SCHEMA: u8 = 1;

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

pub(crate) fn due_key(at: Timestamp, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Due).shard(execution.shard()).micros(at).execution(execution).build()
}

/// Plans an execution for an instant.
pub fn put_due(tx: &Tx, due: &Due) -> Result<(), StoreError> {
    tx.set(due_key(due.at, due.execution), super::encode(DUE, DUE_SCHEMA, &due.job)?.into());
    Ok(())
}

/// Removes a due row.
pub fn clear_due(tx: &Tx, at: Timestamp, execution: ExecutionId) {
    tx.clear(due_key(at, execution));
}

/// Which of these due rows are there. Not part of conflict detection.
pub async fn are_due(tx: &Tx, rows: &[Due]) -> Result<Vec<bool>, StoreError> {
    let keys: Vec<Bytes> = rows.iter().map(|row| due_key(row.at, row.execution)).collect();
    Ok(tx.get_many(&keys, Read::Snapshot).await?.iter().map(Option::is_some).collect())
}

/// Makes the commit depend on a due row that was read as a snapshot.
pub fn depend_on_due(tx: &Tx, at: Timestamp, execution: ExecutionId) {
    tx.depend_on(&due_key(at, execution));
}

/// The first rows of a shard that are due before `until`. A hint, not part of conflict detection. Rows that cannot be read are left out
/// and returned as errors beside the others.
pub async fn due_until(
    tx: &Tx,
    shard: ShardId,
    until: Timestamp,
    limit: usize,
) -> Result<(Vec<Due>, Vec<StoreError>), StoreError> {
    let begin = KeyBuilder::new(Table::Due).shard(shard).build();
    let end = KeyBuilder::new(Table::Due).shard(shard).micros(until).build();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    let mut unreadable = Vec::new();
    let rows = pairs
        .iter()
        .filter_map(|pair| decode_due(&pair.key, &pair.value).map_err(|error| unreadable.push(error)).ok())
        .collect();
    Ok((rows, unreadable))
}

/// The due row with this key and value.
pub fn decode_due(key: &[u8], value: &[u8]) -> Result<Due, StoreError> {
    let micros = from_sortable(super::key_field(DUE, key, DUE_TIME_AT)?);
    let at =
        Timestamp::from_unix_micros(micros).ok_or_else(|| StoreError::unreadable(DUE, key, "instant out of range"))?;
    let execution = ExecutionId::from_bytes(super::key_field(DUE, key, DUE_TIME_AT + 8)?);
    Ok(Due { at, execution, job: super::decode(DUE, DUE_SCHEMA, key, value)? })
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
    /// The fairness zone.
    pub zone: u8,
    /// The part.
    pub partition: u8,
}

impl Part<'_> {
    /// The front of the keys of its rows, up to their stamps.
    pub(crate) fn prefix_bytes(self) -> Bytes {
        self.prefix().build()
    }

    fn prefix(self) -> KeyBuilder {
        KeyBuilder::new(Table::Ready).name(self.lane).u8(self.zone).u8(self.partition)
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
        let short = || StoreError::unreadable(READY, key, "not a place in a lane");
        let name = key.get(1..).and_then(|rest| rest.split(|byte| *byte == 0).next()).ok_or_else(short)?;
        let lane = std::str::from_utf8(name).map_err(|error| StoreError::unreadable(READY, key, error))?;
        let [zone, partition] = super::key_field(READY, key, 1 + lane.len() + 1)?;
        let part = Part { lane, zone, partition };
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
    let (mut begin, end) = KeyBuilder::new(Table::Ready).prefix();
    let mut lanes = Vec::new();
    while lanes.len() < limit {
        let query = RangeQuery { begin, end: end.clone(), limit: 1, reverse: false, read: Read::Snapshot };
        let Some(pair) = tx.range(&query).await?.pop() else { break };
        let name = pair.key[1..].split(|byte| *byte == 0).next().unwrap_or_default();
        let lane =
            std::str::from_utf8(name).map_err(|error| StoreError::unreadable(READY, &pair.key, error))?.to_owned();
        begin = KeyBuilder::new(Table::Ready).name(&lane).prefix().1;
        lanes.push(lane);
    }
    Ok(lanes)
}
