//! What holds for the whole store: fixed at its first start, read at every start.

use serde::{Deserialize, Serialize};

use crate::backend::Read;
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "meta";
const SCHEMA: u8 = 1;

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

/// What the store says of itself, after writing `first` if it says nothing yet.
pub async fn get_or_init(tx: &Tx, first: &Meta) -> Result<Meta, StoreError> {
    let key = KeyBuilder::new(Table::Meta).bytes(b"store").build();
    match tx.get(key.clone(), Read::Serializable).await? {
        Some(value) => {
            let meta: Meta = super::decode(NAME, SCHEMA, &key, &value)?;
            if meta.layout != LAYOUT {
                let reason = format!("key layout {}, and this build knows {LAYOUT}", meta.layout);
                return Err(StoreError::unreadable(NAME, &key, reason));
            }
            Ok(meta)
        }
        None => {
            tx.set(key, super::encode(NAME, SCHEMA, first)?.into());
            Ok(first.clone())
        }
    }
}
