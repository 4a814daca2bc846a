//! Idempotency keys: what a request with this key did, so that a repeat does it no second time.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{JobId, TenantId};
use serde::{Deserialize, Serialize};

use crate::backend::Read;
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "request";
const SCHEMA: u8 = 1;

/// What a request did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The SHA-256 of route and body: a repeat has the same.
    pub body_hash: [u8; 32],
    /// The job that it made.
    pub job: JobId,
    /// When. The key is kept for a day.
    pub at: Timestamp,
}

fn key(tenant: &TenantId, name: &str) -> Bytes {
    KeyBuilder::new(Table::Request).tenant(tenant).bytes(name.as_bytes()).build()
}

/// What the request with this key did, if there was one.
pub async fn get(tx: &Tx, tenant: &TenantId, name: &str) -> Result<Option<RequestRow>, StoreError> {
    let key = key(tenant, name);
    let value = tx.get(key.clone(), Read::Serializable).await?;
    value.map(|value| decode(&key, &value)).transpose()
}

/// What a request did, in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<RequestRow, StoreError> {
    super::decode(NAME, SCHEMA, key, value)
}

/// Remembers what a request did, in the transaction that does it.
pub fn put(tx: &Tx, tenant: &TenantId, name: &str, row: &RequestRow) -> Result<(), StoreError> {
    tx.set(key(tenant, name), super::encode(NAME, SCHEMA, row)?.into());
    Ok(())
}
