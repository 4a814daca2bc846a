//! Who ticks which shard. A lease is not authority: its row is, read by every tick's commit.

use bytes::{BufMut, Bytes, BytesMut};
use compline_core::ids::{Fence, SessionId, ShardId};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{Stamp, StoreError, Tx};

const NAME: &str = "lease";
const SCHEMA: u8 = 1;
const INCARNATION_AT: usize = 1;
const STAMP_AT: usize = 5;
const OWNER_AT: usize = STAMP_AT + Stamp::BYTES;
const SHARDS_MAX: usize = 65_536;

/// A shard's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The session that ticks the shard.
    pub owner: SessionId,
    /// The grant: another for every new owner.
    pub fence: Fence,
}

fn key(shard: ShardId) -> Bytes {
    KeyBuilder::new(Table::Lease).shard(shard).build()
}

/// A shard's lease, read so that a new owner makes this commit conflict.
pub async fn get(tx: &Tx, shard: ShardId) -> Result<Option<Lease>, StoreError> {
    let key = key(shard);
    let value = tx.get(key.clone(), Read::Serializable).await?;
    value.map(|value| decode(&key, &value)).transpose()
}

/// All leases, by shard. One that cannot be read is an error of its own shard.
pub async fn list(tx: &Tx, read: Read) -> Result<Vec<(ShardId, Result<Lease, StoreError>)>, StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Lease).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit: SHARDS_MAX, reverse: false, read }).await?;
    pairs.iter().map(|pair| Ok((shard_of(&pair.key)?, decode(&pair.key, &pair.value)))).collect()
}

/// Grants a shard to a session; the commit mints the fence.
pub fn grant(tx: &Tx, shard: ShardId, owner: SessionId, incarnation: u32) {
    let mut value = BytesMut::with_capacity(OWNER_AT + SessionId::BYTES);
    value.put_u8(SCHEMA);
    value.put_u32(incarnation);
    value.put_slice(&Stamp::unset(tx.next_stamp_index()).0);
    value.put_slice(owner.as_bytes());
    tx.set_stamped_value(key(shard), value.into(), STAMP_AT);
}

/// Gives a shard up.
pub fn release(tx: &Tx, shard: ShardId) {
    tx.clear(key(shard));
}

/// The shard that a lease's key names.
pub fn shard_of(key: &[u8]) -> Result<ShardId, StoreError> {
    Ok(ShardId(u16::from_be_bytes(super::key_field(NAME, key, 1)?)))
}

/// The lease in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Lease, StoreError> {
    super::expect_schema(NAME, SCHEMA, key, value)?;
    let incarnation = u32::from_be_bytes(super::key_field(NAME, value, INCARNATION_AT)?);
    Ok(Lease {
        owner: SessionId::from_bytes(super::key_field(NAME, value, OWNER_AT)?),
        fence: Fence::new(incarnation, super::key_field(NAME, value, STAMP_AT)?),
    })
}
