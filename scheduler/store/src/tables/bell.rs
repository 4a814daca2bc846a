//! Bells: counters whose change wakes whoever watches them. They carry no data, and losing one costs latency only.

use bytes::Bytes;
use compline_core::ids::ShardId;

use crate::backend::Read;
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

/// Who is to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bell<'a> {
    /// The ticker of a shard: something is due sooner than it may think.
    Shard(ShardId),
    /// The executors of a lane: something is ready.
    Lane(&'a str),
    /// The schedulers: shards are free.
    Fleet,
}

impl Bell<'_> {
    /// The key to watch.
    pub fn key(self) -> Bytes {
        let key = KeyBuilder::new(Table::Bell);
        match self {
            Self::Shard(shard) => key.u8(1).shard(shard),
            Self::Lane(lane) => key.u8(2).name(lane),
            Self::Fleet => key.u8(3),
        }
        .build()
    }

    /// Rings. Blind, so that ringing never conflicts.
    pub fn ring(self, tx: &Tx) {
        tx.add(self.key(), 1);
    }

    /// How often it has rung so far. Whoever remembers the number sees a ring that its watch missed.
    pub async fn rings(self, tx: &Tx) -> Result<i64, StoreError> {
        let key = self.key();
        let Some(value) = tx.get(key.clone(), Read::Snapshot).await? else { return Ok(0) };
        let bytes = value.as_ref().try_into().map_err(|_| StoreError::unreadable("bell", &key, "not a counter"))?;
        Ok(i64::from_le_bytes(bytes))
    }
}
