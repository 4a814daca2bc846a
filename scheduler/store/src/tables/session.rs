//! Nodes: who is alive, and the counter that proves it.
//!
//! The session row changes at a node's start, when it is reaped, and when it steps down from scheduling or comes back to it, never by a beat:
//! so claim, complete and beat can read it serializably without meeting anybody.
//!
//! Others judge a node by whether the bytes of its beat row change. They need not be able to read them: a node of another version that lives is
//! not taken for dead.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::SessionId;
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "session";
const SCHEMA: u8 = 2;
const BEAT_NAME: &str = "beat";
const BEAT_SCHEMA: u8 = 2;
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
    /// How many attempts it runs at once.
    pub workers: u32,
    /// What it is made of.
    pub versions: Versions,
    /// How often it beats, in milliseconds.
    pub beat_millis: u32,
    /// After so many milliseconds without a beat others may end the session. The node itself stops before.
    pub ttl_millis: u32,
    /// Whether it takes part in scheduling.
    pub standing: Standing,
}

/// The versions of what a node is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The program.
    pub compline: String,
    /// The sandbox's engine.
    pub engine: String,
    /// The time-zone data.
    pub zones: String,
}

/// Whether a scheduler takes its share of the shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It does.
    #[default]
    Active,
    /// Its clock is off too far: it ticks nothing until that is over.
    Aside,
    /// It was told to end, and finishes what runs.
    Stopping,
}

impl Session {
    /// A life without roles.
    pub fn new(id: SessionId, started_at: Timestamp) -> Self {
        Self {
            id,
            started_at,
            roles: Vec::new(),
            lanes: Vec::new(),
            workers: 0,
            versions: Versions::default(),
            beat_millis: 1_000,
            ttl_millis: 15_000,
            standing: Standing::Active,
        }
    }

    /// Whether it has a role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own == role)
    }
}

/// What a node says with each beat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// How often it has beaten in this session.
    pub counter: u64,
    /// Its wall clock, read after the beat was begun.
    pub wall: Timestamp,
    /// How long the beat before this one took from its begin to its answer, in microseconds; `None` if it was not answered.
    pub before_took_micros: Option<u64>,
    /// How many attempts it runs, by lane.
    pub running: Vec<(String, u32)>,
}

/// A node as the store has it. What cannot be read is an error of this row alone.
#[derive(Debug, Clone)]
pub struct NodeRow {
    /// Its name.
    pub node: String,
    /// The session row, whatever it says.
    pub session_bytes: Bytes,
    /// Its session.
    pub session: Result<Session, StoreError>,
    /// The beat row, whatever it says.
    pub beat_bytes: Option<Bytes>,
    /// Its last beat.
    pub beat: Result<Option<Beat>, StoreError>,
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
pub fn begin(tx: &Tx, node: &str, session: &Session) -> Result<(), StoreError> {
    super::meta::note_start(tx);
    put(tx, node, session)
}

/// Changes what a session says.
pub fn put(tx: &Tx, node: &str, session: &Session) -> Result<(), StoreError> {
    tx.set(key(node), super::encode(NAME, SCHEMA, session)?.into());
    Ok(())
}

/// Ends a node's session.
pub fn clear(tx: &Tx, node: &str) {
    tx.clear(key(node));
    tx.clear(beat_key(node));
}

/// All nodes, by name.
pub async fn list(tx: &Tx, read: Read) -> Result<Vec<NodeRow>, StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Session).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit: NODES_MAX, reverse: false, read }).await?;
    let mut names = Vec::with_capacity(pairs.len());
    for pair in &pairs {
        names.push(node_of(&pair.key)?.to_owned());
    }
    let keys: Vec<Bytes> = names.iter().map(|name| beat_key(name)).collect();
    let beats = tx.get_many(&keys, read).await?;
    let row = |((node, pair), (beat_key, beat))| node_row(node, pair, beat_key, beat);
    Ok(names.into_iter().zip(pairs).zip(keys.iter().zip(beats)).map(row).collect())
}

fn node_row(node: String, pair: crate::backend::KeyValue, beat_key: &Bytes, beat: Option<Bytes>) -> NodeRow {
    NodeRow {
        node,
        session: decode(&pair.key, &pair.value),
        session_bytes: pair.value,
        beat: beat.as_ref().map(|value| decode_beat(beat_key, value)).transpose(),
        beat_bytes: beat,
    }
}

/// The rows of one node, as bytes: its session and its beat. Whoever replaces or ends a session first sees that neither has changed.
pub async fn bytes_of(tx: &Tx, node: &str, read: Read) -> Result<Option<(Bytes, Option<Bytes>)>, StoreError> {
    let mut rows = tx.get_many(&[key(node), beat_key(node)], read).await?;
    let beat = rows.pop().flatten();
    Ok(rows.pop().flatten().map(|session| (session, beat)))
}

/// The session in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Session, StoreError> {
    super::decode(NAME, SCHEMA, key, value)
}

/// The beat in a row's value.
pub fn decode_beat(key: &[u8], value: &[u8]) -> Result<Beat, StoreError> {
    super::decode(BEAT_NAME, BEAT_SCHEMA, key, value)
}

/// The node that the key of a session or of a beat names.
pub fn node_of(key: &[u8]) -> Result<&str, StoreError> {
    let name = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
    std::str::from_utf8(name).map_err(|error| StoreError::unreadable(NAME, key, error))
}

/// A node's last beat.
pub async fn beat(tx: &Tx, node: &str, read: Read) -> Result<Option<Beat>, StoreError> {
    let key = beat_key(node);
    let value = tx.get(key.clone(), read).await?;
    value.map(|value| decode_beat(&key, &value)).transpose()
}

/// Writes a node's beat. Only the node itself does.
pub fn put_beat(tx: &Tx, node: &str, beat: &Beat) -> Result<(), StoreError> {
    tx.set(beat_key(node), super::encode(BEAT_NAME, BEAT_SCHEMA, beat)?.into());
    Ok(())
}
