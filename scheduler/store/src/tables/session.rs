//! Nodes: who is alive, and the counter that proves it.
//!
//! The session row changes at a node's start and when it is reaped, never by a beat: so claim, complete and beat can read it serializably
//! without meeting anybody.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::SessionId;
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "session";
const SCHEMA: u8 = 1;
const BEAT_NAME: &str = "beat";
const NODES_MAX: usize = 10_000;

/// The life of a node that lasts now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Which life.
    pub id: SessionId,
    /// When it began, by the node's own clock.
    pub started_at: Timestamp,
    /// `api`, `scheduler`, `executor`.
    pub roles: Vec<String>,
    /// The lanes that its executor serves.
    pub lanes: Vec<String>,
    /// The version of its binary.
    pub version: String,
}

fn key(node: &str) -> Bytes {
    KeyBuilder::new(Table::Session).name(node).build()
}

fn beat_key(node: &str) -> Bytes {
    KeyBuilder::new(Table::Beat).name(node).build()
}

/// A node's session.
pub async fn get(tx: &Tx, node: &str, read: Read) -> Result<Option<Session>, StoreError> {
    let key = key(node);
    let value = tx.get(key.clone(), read).await?;
    value.map(|value| decode(&key, &value)).transpose()
}

/// Whether this is still the node's session. Every write that a session makes depends on it.
pub async fn is_current(tx: &Tx, node: &str, session: SessionId) -> Result<bool, StoreError> {
    Ok(get(tx, node, Read::Serializable).await?.is_some_and(|current| current.id == session))
}

/// Begins a node's session, and counts it.
pub fn put(tx: &Tx, node: &str, session: &Session) -> Result<(), StoreError> {
    tx.set(key(node), super::encode(NAME, SCHEMA, session)?.into());
    super::meta::note_start(tx);
    Ok(())
}

/// Ends a node's session.
pub fn clear(tx: &Tx, node: &str) {
    tx.clear(key(node));
    tx.clear(beat_key(node));
}

/// All nodes with their sessions and beats.
pub async fn list(tx: &Tx, read: Read) -> Result<Vec<(String, Session, u64)>, StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Session).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit: NODES_MAX, reverse: false, read }).await?;
    let mut nodes = Vec::with_capacity(pairs.len());
    for pair in pairs {
        nodes.push((node_of(&pair.key)?.to_owned(), decode(&pair.key, &pair.value)?));
    }
    let keys: Vec<Bytes> = nodes.iter().map(|(name, _)| beat_key(name)).collect();
    let beats = tx.get_many(&keys, Read::Snapshot).await?;
    let beat = |key: &Bytes, value: Option<Bytes>| value.map_or(Ok(0), |value| decode_beat(key, &value));
    let beats = keys.iter().zip(beats).map(|(key, value)| beat(key, value)).collect::<Result<Vec<u64>, _>>()?;
    Ok(nodes.into_iter().zip(beats).map(|((name, session), beat)| (name, session, beat)).collect())
}

/// The session in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Session, StoreError> {
    super::decode(NAME, SCHEMA, key, value)
}

/// The node that the key of a session or of a beat names.
pub fn node_of(key: &[u8]) -> Result<&str, StoreError> {
    let name = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
    std::str::from_utf8(name).map_err(|error| StoreError::unreadable(NAME, key, error))
}

/// A node's counter; 0 if it never beat.
pub async fn beat(tx: &Tx, node: &str, read: Read) -> Result<u64, StoreError> {
    let key = beat_key(node);
    let value = tx.get(key.clone(), read).await?;
    value.map_or(Ok(0), |value| decode_beat(&key, &value))
}

/// The counter in a beat's value.
pub fn decode_beat(key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
    super::decode(BEAT_NAME, SCHEMA, key, value)
}

/// Sets a node's counter. Only the node itself writes it.
pub fn put_beat(tx: &Tx, node: &str, counter: u64) -> Result<(), StoreError> {
    tx.set(beat_key(node), super::encode(BEAT_NAME, SCHEMA, &counter)?.into());
    Ok(())
}
