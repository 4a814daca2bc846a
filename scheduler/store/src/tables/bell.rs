//! Bells: counters whose change wakes whoever watches them. They carry no data, and losing one costs latency only.

use bytes::Bytes;
use compline_core::ids::ShardId;

use crate::Tx;
use crate::keys::{KeyBuilder, Table};

/// Who is to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bell<'a> {
    /// The ticker of a shard: something is due sooner than it may think.
    Shard(ShardId),
    /// The executors of a lane: something is ready.
    Lane(&'a str),
}

impl Bell<'_> {
    /// The key to watch.
    pub fn key(self) -> Bytes {
        let key = KeyBuilder::new(Table::Bell);
        match self {
            Self::Shard(shard) => key.u8(1).shard(shard),
            Self::Lane(lane) => key.u8(2).name(lane),
        }
        .build()
    }

    /// Rings. Blind, so that ringing never conflicts.
    pub fn ring(self, tx: &Tx) {
        tx.add(self.key(), 1);
    }
}
