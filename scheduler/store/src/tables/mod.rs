//! One module per table, or per family of tables that are only written together.
//!
//! Every value begins with its schema version. A version that this build does not know is an error of that row, never "empty".

pub mod bell;
pub mod bucket;
pub mod cancel;
pub mod dead;
pub mod execution;
pub mod finished;
pub mod history;
pub mod job;
pub mod lease;
pub mod ledger;
pub mod live;
pub mod meta;
pub mod queue;
pub mod request;
pub mod running;
pub mod session;
pub mod task;
pub mod trim;
pub mod zones;

use bytes::Bytes;
use compline_core::ids::SessionId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

/// A row's value: its schema version, then its fields.
fn encode<T: Serialize>(table: &'static str, schema: u8, row: &T) -> Result<Vec<u8>, StoreError> {
    let mut value = Vec::with_capacity(128);
    value.push(schema);
    postcard::to_extend(row, value).map_err(|error| StoreError::unreadable(table, b"(being written)", error))
}

/// The fields of a value whose schema version is `schema`.
fn decode<T: DeserializeOwned>(table: &'static str, schema: u8, key: &[u8], value: &[u8]) -> Result<T, StoreError> {
    let fields = expect_schema(table, schema, key, value)?;
    postcard::from_bytes(fields).map_err(|error| StoreError::unreadable(table, key, error))
}

/// What follows the schema version, if it is the one that this build knows.
fn expect_schema<'a>(table: &'static str, schema: u8, key: &[u8], value: &'a [u8]) -> Result<&'a [u8], StoreError> {
    match value.split_first() {
        Some((found, fields)) if *found == schema => Ok(fields),
        Some((found, _)) => Err(StoreError::unreadable(
            table,
            key,
            format_args!(
                "schema version {found}, and this build knows {schema}: run the build that wrote it, or a newer one"
            ),
        )),
        None => Err(StoreError::unreadable(table, key, "empty value")),
    }
}

/// The fixed-size field at this place of a key.
pub(crate) fn key_field<const N: usize>(table: &'static str, key: &[u8], at: usize) -> Result<[u8; N], StoreError> {
    key.get(at..at + N)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| StoreError::unreadable(table, key, format_args!("no {N} bytes at {at}")))
}

/// The sessions that have rows in a table whose keys begin with the session, found by stepping from one to the next: as many reads as there
/// are sessions.
async fn sessions_of(tx: &Tx, table: Table) -> Result<Vec<SessionId>, StoreError> {
    let (mut begin, end) = KeyBuilder::new(table).prefix();
    let mut sessions = Vec::new();
    loop {
        let query = RangeQuery { begin, end: end.clone(), limit: 1, reverse: false, read: Read::Snapshot };
        let Some(pair) = tx.range(&query).await?.pop() else { return Ok(sessions) };
        let session = SessionId::from_bytes(key_field("session's", &pair.key, 1)?);
        sessions.push(session);
        begin = KeyBuilder::new(table).session(session).prefix().1;
    }
}

/// The empty value of rows that are keys only.
fn nothing() -> Bytes {
    Bytes::new()
}
