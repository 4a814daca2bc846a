//! Which zone data slots are planned by: the newest that any node brought, and how far each shard's planned slots have followed it.

use bytes::Bytes;
use compline_core::ids::ShardId;
use compline_core::schedule::zone::ZoneVersion;
use serde::{Deserialize, Serialize};

use crate::backend::Read;
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "zones";
const SCHEMA: u8 = 1;

/// How far the planned slots of a shard have followed the zone data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Every slot that was still to come was planned by this data, or newer, when the shard was last gone through.
    pub version: ZoneVersion,
    /// How often a node with older data than the newest has planned a slot here.
    pub outdated: u64,
    /// How often it had by the begin of the last time: if that is less, the shard is to be gone through again.
    pub outdated_then: u64,
}

fn newest_key() -> Bytes {
    KeyBuilder::new(Table::Zones).build()
}

fn shard_key(shard: ShardId) -> Bytes {
    KeyBuilder::new(Table::Zones).shard(shard).build()
}

/// The newest zone data that a node which plans slots ever had here; the empty version if there was none.
pub async fn newest(tx: &Tx, read: Read) -> Result<ZoneVersion, StoreError> {
    let key = newest_key();
    let value = tx.get(key.clone(), read).await?;
    Ok(value.map(|value| super::decode(NAME, SCHEMA, &key, &value)).transpose()?.unwrap_or_default())
}

/// Raises the newest version to this one. Whoever planned or ticked by the former one at the same moment conflicts.
pub async fn raise(tx: &Tx, version: &ZoneVersion) -> Result<(), StoreError> {
    if newest(tx, Read::Serializable).await? < *version {
        tx.set(newest_key(), super::encode(NAME, SCHEMA, version)?.into());
    }
    Ok(())
}

/// How far the planned slots of a shard have followed.
pub async fn followed(tx: &Tx, shard: ShardId, read: Read) -> Result<Followed, StoreError> {
    let key = shard_key(shard);
    let value = tx.get(key.clone(), read).await?;
    Ok(value.map(|value| super::decode(NAME, SCHEMA, &key, &value)).transpose()?.unwrap_or_default())
}

/// Writes how far the planned slots of a shard have followed.
pub fn put_followed(tx: &Tx, shard: ShardId, followed: &Followed) -> Result<(), StoreError> {
    tx.set(shard_key(shard), super::encode(NAME, SCHEMA, followed)?.into());
    Ok(())
}

/// The newest version in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<ZoneVersion, StoreError> {
    super::decode(NAME, SCHEMA, key, value)
}

/// Whether a row of this table can be read.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    match key.len() {
        1 => super::decode::<ZoneVersion>(NAME, SCHEMA, key, value).map(drop),
        3 => super::decode::<Followed>(NAME, SCHEMA, key, value).map(drop),
        _ => Err(StoreError::unreadable(NAME, key, "neither the newest version nor a shard's")),
    }
}
