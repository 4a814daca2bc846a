//! Idempotency keys: what a request with this key did, so that a repeat does it no second time.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, TenantId};
use serde::{Deserialize, Serialize};

use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::{StoreError, Tx};

const NAME: &str = "request";
const SCHEMA: u8 = 2;

/// What a request did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The SHA-256 of route and body: a repeat has the same.
    pub body_hash: [u8; 32],
    /// What it made or changed.
    pub made: Made,
    /// When. The key is kept for a day.
    pub at: Timestamp,
}

/// What a request made or changed: what a repeat is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// A job.
    Job(JobId),
    /// An execution.
    Execution(ExecutionId),
    /// Executions of a job's past slots, asked for at this request's instant. Those that are missing are still to be made.
    Backfill(JobId),
    /// The same, and all of them are made.
    Backfilled(JobId),
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
    tx.set(KeyBuilder::new(Table::RequestTime).micros(row.at).tenant(tenant).bytes(name.as_bytes()).build(), nothing());
    Ok(())
}

/// Forgets the oldest requests from before an instant. Returns how many were looked at, at most `limit`, and how many were forgotten: a key
/// that was used again since is not.
pub async fn forget_before(tx: &Tx, until: Timestamp, limit: usize) -> Result<(usize, usize), StoreError> {
    let begin = KeyBuilder::new(Table::RequestTime).build();
    let end = KeyBuilder::new(Table::RequestTime).micros(until).build();
    let query = RangeQuery { begin: begin.clone(), end, limit, reverse: false, read: Read::Snapshot };
    let pairs = tx.range(&query).await?;
    let Some(last) = pairs.last() else { return Ok((0, 0)) };
    let keys: Vec<Bytes> = pairs
        .iter()
        .map(|pair| KeyBuilder::new(Table::Request).bytes(pair.key.get(9..).unwrap_or_default()).build())
        .collect();
    let values = tx.get_many(&keys, Read::Serializable).await?;
    let mut forgotten = 0;
    for (key, value) in keys.into_iter().zip(values) {
        // One that cannot be read stays, and is found by `admin check`.
        let old = value.is_some_and(|value| decode(&key, &value).is_ok_and(|row| row.at < until));
        if old {
            tx.clear(key);
            forgotten += 1;
        }
    }
    tx.clear_range(begin, after(&last.key));
    Ok((pairs.len(), forgotten))
}
