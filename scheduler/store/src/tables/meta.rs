//! What holds for the whole store: fixed at its first start, read at every start.

use bytes::Bytes;
use compline_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backend::Read;
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "meta";
const SCHEMA: u8 = 1;

/// The rows by their names: what holds for the whole store, how many sessions were begun, the import that made the store.
const STORE: &[u8] = b"store";
const STARTS: &[u8] = b"starts";
const IMPORT: &[u8] = b"import";

/// The layout of this build's keys. A store with another layout is refused.
pub const LAYOUT: u32 = 1;

/// What holds for the whole store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The layout of the keys.
    pub layout: u32,
    /// How many shards there are.
    pub shards: u16,
    /// How many parts each lane has.
    pub partitions: u8,
    /// How often the store was imported or restored. It leads every fence.
    pub incarnation: u32,
}

fn key() -> Bytes {
    KeyBuilder::new(Table::Meta).bytes(STORE).build()
}

/// Whether this row of the table belongs to the store that it lies in, and means nothing in another one.
pub(crate) fn is_of_this_store_alone(key: &[u8]) -> bool {
    matches!(key.get(1..), Some(STORE | STARTS | IMPORT))
}

/// What the store says of itself, after writing `first` if it says nothing yet.
pub async fn get_or_init(tx: &Tx, first: &Meta) -> Result<Meta, StoreError> {
    if unfinished_import(tx).await?.is_some() {
        return Err(StoreError::Unavailable(
            "an import into it was interrupted, so it holds only a part: run the same `compline admin import` again, which goes on where it \
             stopped"
                .into(),
        ));
    }
    match get(tx).await? {
        Some(meta) => Ok(meta),
        None => {
            put(tx, first)?;
            Ok(first.clone())
        }
    }
}

/// What the store says of itself; `None` for one that was never started.
pub async fn get(tx: &Tx) -> Result<Option<Meta>, StoreError> {
    let key = key();
    let Some(value) = tx.get(key.clone(), Read::Serializable).await? else { return Ok(None) };
    let meta: Meta = super::decode(NAME, SCHEMA, &key, &value)?;
    if meta.layout != LAYOUT {
        let reason = format!("key layout {}, and this build knows {LAYOUT}", meta.layout);
        return Err(StoreError::unreadable(NAME, &key, reason));
    }
    Ok(Some(meta))
}

/// Writes what the store says of itself.
pub(crate) fn put(tx: &Tx, meta: &Meta) -> Result<(), StoreError> {
    tx.set(key(), super::encode(NAME, SCHEMA, meta)?.into());
    Ok(())
}

/// Counts sessions that begin, so that whoever needs all nodes to rest can tell whether one began in between. Blind: it never conflicts.
pub(super) fn note_start(tx: &Tx) {
    tx.add(KeyBuilder::new(Table::Meta).bytes(STARTS).build(), 1);
}

/// How many sessions were ever begun.
pub(crate) async fn starts(tx: &Tx) -> Result<i64, StoreError> {
    let key = KeyBuilder::new(Table::Meta).bytes(STARTS).build();
    let Some(value) = tx.get(key.clone(), Read::Serializable).await? else { return Ok(0) };
    let bytes = value.as_ref().try_into().map_err(|_| StoreError::unreadable(NAME, &key, "not a counter"))?;
    Ok(i64::from_le_bytes(bytes))
}

/// The import that made the store: which one, and how far it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImportRow {
    /// The file's last checksum.
    pub seal: [u8; 16],
    /// When the export was begun, for people.
    pub begun: Timestamp,
    /// The incarnation that the store will have.
    pub incarnation: u32,
    /// The frame to go on in.
    pub frame: FramePlace,
    /// How many records of that frame are in the store.
    pub done_in_frame: u32,
    /// How many records are in the store.
    pub records: u64,
    /// Once it is finished: how many sessions had been begun by then. A repeat of a finished import is no error until a node has started.
    pub finished_at_starts: Option<i64>,
}

/// Where a frame begins in a file, and the checksum before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FramePlace {
    pub offset: u64,
    pub chain: [u8; 16],
}

fn import_key() -> Bytes {
    KeyBuilder::new(Table::Meta).bytes(IMPORT).build()
}

/// The import that made the store, if one did.
pub(crate) async fn import(tx: &Tx) -> Result<Option<ImportRow>, StoreError> {
    let key = import_key();
    let value = tx.get(key.clone(), Read::Serializable).await?;
    value.map(|value| super::decode(NAME, SCHEMA, &key, &value)).transpose()
}

/// The import that is not finished, if there is one.
pub(crate) async fn unfinished_import(tx: &Tx) -> Result<Option<ImportRow>, StoreError> {
    Ok(import(tx).await?.filter(|row| row.finished_at_starts.is_none()))
}

/// Notes how far an import came.
pub(crate) fn put_import(tx: &Tx, row: &ImportRow) -> Result<(), StoreError> {
    tx.set(import_key(), super::encode(NAME, SCHEMA, row)?.into());
    Ok(())
}

/// Whether a row of this table, whichever it is, can be read.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    match key.get(1..) {
        Some(STORE) => super::decode::<Meta>(NAME, SCHEMA, key, value).map(drop),
        Some(IMPORT) => super::decode::<ImportRow>(NAME, SCHEMA, key, value).map(drop),
        Some(STARTS) if value.len() == size_of::<i64>() => Ok(()),
        Some(STARTS) => Err(StoreError::unreadable(NAME, key, "not a counter")),
        _ => Err(StoreError::unreadable(NAME, key, "this build knows no row of that name")),
    }
}
