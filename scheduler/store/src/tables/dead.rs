//! Dead letters: executions that failed for good and wait for somebody to look. Self-contained, since they outlive their bucket.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::Execution;
use compline_core::ids::{ExecutionId, TenantId};
use compline_core::job::TaskRef;
use serde::{Deserialize, Serialize};

use super::execution::LogLine;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, from_sortable};
use crate::{StoreError, Tx};

const NAME: &str = "dead";
const SCHEMA: u8 = 1;
const PLACE_NAME: &str = "dead place";
const PLACE_SCHEMA: u8 = 1;

/// An execution that failed for good, with all that is needed to look at it and to run it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Who owns it.
    pub tenant: TenantId,
    /// What its job was called then.
    pub job_name: Option<String>,
    /// What it ran.
    pub task: TaskRef,
    /// Why it is here.
    pub kind: DeadKind,
    /// The execution, failed, with its attempts.
    pub execution: Execution,
    /// The last lines that its last attempt said.
    pub log_tail: Vec<LogLine>,
}

/// Why an execution is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeadKind {
    /// Its attempts are used up.
    Exhausted,
    /// The task called its failure permanent.
    Permanent,
    /// Too many workers were lost under it.
    Poison,
}

/// Where a dead letter is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lane that it died in.
    pub lane: String,
    /// When.
    pub at: Timestamp,
}

impl DeadKind {
    /// The word that answers use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Permanent => "permanent",
            Self::Poison => "poison",
        }
    }
}

fn key(place: &Place, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Dead).name(&place.lane).micros(place.at).execution(execution).build()
}

fn place_key(execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::DeadPlace).execution(execution).build()
}

/// Writes a dead letter.
pub fn put(tx: &Tx, place: &Place, letter: &DeadLetter) -> Result<(), StoreError> {
    let id = letter.execution.id;
    tx.set(place_key(id), super::encode(PLACE_NAME, PLACE_SCHEMA, place)?.into());
    tx.set(key(place, id), super::encode(NAME, SCHEMA, letter)?.into());
    Ok(())
}

/// The dead letter of an execution, and where it is. Serializable.
pub async fn get(tx: &Tx, execution: ExecutionId) -> Result<Option<(Place, DeadLetter)>, StoreError> {
    let at = place_key(execution);
    let Some(value) = tx.get(at.clone(), Read::Serializable).await? else { return Ok(None) };
    let place = decode_place(&at, &value)?;
    let at = key(&place, execution);
    let Some(value) = tx.get(at.clone(), Read::Serializable).await? else { return Ok(None) };
    Ok(Some((place, super::decode(NAME, SCHEMA, &at, &value)?)))
}

/// Where a dead letter is, in a row's value.
pub fn decode_place(key: &[u8], value: &[u8]) -> Result<Place, StoreError> {
    super::decode(PLACE_NAME, PLACE_SCHEMA, key, value)
}

/// Removes a dead letter.
pub fn clear(tx: &Tx, place: &Place, execution: ExecutionId) {
    tx.clear(key(place, execution));
    tx.clear(place_key(execution));
}

/// One entry of a listing.
#[derive(Debug)]
pub struct Entry {
    /// Its position, from which a later page continues. The row itself may be gone by then.
    pub key: Bytes,
    /// The lane.
    pub lane: String,
    /// When it died.
    pub at: Timestamp,
    /// The execution.
    pub execution: ExecutionId,
    /// What is known of it, or why it cannot be read.
    pub letter: Result<DeadLetter, StoreError>,
}

/// Dead letters of a lane, or of all lanes one after the other; within a lane oldest first, from behind `behind`. A listing may be a moment
/// stale.
pub async fn page(tx: &Tx, lane: Option<&str>, behind: Option<&Bytes>, limit: usize) -> Result<Vec<Entry>, StoreError> {
    let (mut begin, end) = range(lane);
    if let Some(behind) = behind {
        begin = begin.max(crate::keys::after(behind));
    }
    if begin >= end {
        return Ok(Vec::new());
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    pairs.into_iter().map(|pair| decode(pair.key, &pair.value)).collect()
}

/// Whether a cursor's key belongs to the listing of this lane, or of all.
pub fn contains(lane: Option<&str>, key: &[u8]) -> bool {
    let (begin, end) = range(lane);
    begin.as_ref() <= key && key < end.as_ref()
}

fn range(lane: Option<&str>) -> (Bytes, Bytes) {
    let prefix = KeyBuilder::new(Table::Dead);
    match lane {
        Some(lane) => prefix.name(lane).prefix(),
        None => prefix.prefix(),
    }
}

/// The entry with this key and value. An error: even the key is none.
pub fn decode(key: Bytes, value: &[u8]) -> Result<Entry, StoreError> {
    let short = || StoreError::unreadable(NAME, &key, "not a place among dead letters");
    let name = key.get(1..).and_then(|rest| rest.split(|byte| *byte == 0).next()).ok_or_else(short)?;
    let lane = std::str::from_utf8(name).map_err(|error| StoreError::unreadable(NAME, &key, error))?.to_owned();
    let time_at = 1 + lane.len() + 1;
    let micros = from_sortable(super::key_field(NAME, &key, time_at)?);
    let at = Timestamp::from_unix_micros(micros).ok_or_else(short)?;
    let execution = ExecutionId::from_bytes(super::key_field(NAME, &key, time_at + 8)?);
    let letter = super::decode(NAME, SCHEMA, &key, value);
    Ok(Entry { key, lane, at, execution, letter })
}
