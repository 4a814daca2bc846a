//! Tasks: names and tags, what each version is, and the components themselves, in chunks.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use compline_core::Timestamp;
use compline_core::ids::{TaskDigest, TenantId};
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{Store, StoreError, Tx};

const TASK: &str = "task";
const VERSION: &str = "version";
const BLOB: &str = "blob";
const MANIFEST: &str = "manifest";
const SCHEMA: u8 = 1;

/// The bytes of one chunk of a component.
pub const CHUNK_BYTES: usize = 90_000;
const CHUNKS_PER_COMMIT: usize = 8;

/// A task: a name for component versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// The version pushed last: what the name alone means.
    pub latest: TaskDigest,
    /// What each tag means.
    pub tags: BTreeMap<String, TaskDigest>,
    /// The versions pushed under this name, newest first, each with the time of its last push.
    pub versions: Vec<(TaskDigest, Timestamp)>,
}

/// One version of a task: what a component is, read when it was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskVersion {
    /// The version.
    pub digest: TaskDigest,
    /// The component's size.
    pub size_bytes: u64,
    /// Whether it is a `wasi:cli/run` command, not a task.
    pub is_command: bool,
    /// What it imports.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// The capabilities beyond the default that it needs.
    pub grants: Vec<String>,
    /// The JSON Schema of its parameters, if it says one.
    pub parameters_schema: Option<String>,
    /// When it was first pushed.
    pub pushed_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    size_bytes: u64,
    chunks: u32,
}

fn task_key(tenant: &TenantId, name: &str) -> Bytes {
    KeyBuilder::new(Table::Task).tenant(tenant).name(name).build()
}

fn version_key(tenant: &TenantId, digest: TaskDigest) -> Bytes {
    KeyBuilder::new(Table::Version).tenant(tenant).digest(digest).build()
}

fn manifest_key(digest: TaskDigest) -> Bytes {
    KeyBuilder::new(Table::Manifest).digest(digest).build()
}

/// The task of this name.
pub async fn get(tx: &Tx, tenant: &TenantId, name: &str, read: Read) -> Result<Option<Task>, StoreError> {
    let key = task_key(tenant, name);
    let value = tx.get(key.clone(), read).await?;
    value.map(|value| decode(&key, &value)).transpose()
}

/// The task in a row's value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Task, StoreError> {
    super::decode(TASK, SCHEMA, key, value)
}

/// What a version is, in a row's value.
pub fn decode_version(key: &[u8], value: &[u8]) -> Result<TaskVersion, StoreError> {
    super::decode(VERSION, SCHEMA, key, value)
}

/// The size and the number of chunks of a component, in a manifest's value.
pub fn decode_manifest(key: &[u8], value: &[u8]) -> Result<(u64, u32), StoreError> {
    let manifest: Manifest = super::decode(MANIFEST, SCHEMA, key, value)?;
    Ok((manifest.size_bytes, manifest.chunks))
}

/// Writes a task.
pub fn put(tx: &Tx, tenant: &TenantId, task: &Task) -> Result<(), StoreError> {
    tx.set(task_key(tenant, &task.name), super::encode(TASK, SCHEMA, task)?.into());
    Ok(())
}

/// A tenant's tasks by name, from behind `after`; one that cannot be read is an error of its own.
pub async fn list(
    tx: &Tx,
    tenant: &TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(String, Result<Task, StoreError>)>, StoreError> {
    let (mut begin, end) = KeyBuilder::new(Table::Task).tenant(tenant).prefix();
    if let Some(after) = after {
        begin = crate::keys::after(&task_key(tenant, after));
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    // A name ends with a zero byte.
    let name_at = task_key(tenant, "").len() - 1;
    let name = |key: &Bytes| {
        let name = key.get(name_at..key.len().saturating_sub(1));
        String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
    };
    Ok(pairs.iter().map(|pair| (name(&pair.key), decode(&pair.key, &pair.value))).collect())
}

/// What a version is.
pub async fn version(
    tx: &Tx,
    tenant: &TenantId,
    digest: TaskDigest,
    read: Read,
) -> Result<Option<TaskVersion>, StoreError> {
    let key = version_key(tenant, digest);
    let value = tx.get(key.clone(), read).await?;
    value.map(|value| decode_version(&key, &value)).transpose()
}

/// Writes what a version is.
pub fn put_version(tx: &Tx, tenant: &TenantId, version: &TaskVersion) -> Result<(), StoreError> {
    tx.set(version_key(tenant, version.digest), super::encode(VERSION, SCHEMA, version)?.into());
    Ok(())
}

/// Whether a component is stored whole.
pub async fn has_component(tx: &Tx, digest: TaskDigest) -> Result<bool, StoreError> {
    Ok(tx.get(manifest_key(digest), Read::Serializable).await?.is_some())
}

/// Stores a component under its digest, in several commits; the manifest comes last, so that a component is there whole or not at all.
/// Storing the same one again changes nothing, and costs one read.
pub async fn store_component(store: &Store, digest: TaskDigest, component: &Bytes) -> Result<(), StoreError> {
    if store.transact(|tx| async move { has_component(&tx, digest).await }).await?.value {
        return Ok(());
    }
    let chunks: Vec<Bytes> = (0..component.len())
        .step_by(CHUNK_BYTES)
        .map(|at| component.slice(at..component.len().min(at + CHUNK_BYTES)))
        .collect();
    for (group, part) in chunks.chunks(CHUNKS_PER_COMMIT).enumerate() {
        store
            .transact(|tx| async move {
                for (index, chunk) in part.iter().enumerate() {
                    let number = (group * CHUNKS_PER_COMMIT + index) as u32;
                    tx.set(KeyBuilder::new(Table::Blob).digest(digest).u32(number).build(), chunk.clone());
                }
                Ok(())
            })
            .await?;
    }
    let manifest = Manifest { size_bytes: component.len() as u64, chunks: chunks.len() as u32 };
    let manifest = Bytes::from(super::encode(MANIFEST, SCHEMA, &manifest)?);
    store
        .transact(|tx| {
            tx.set(manifest_key(digest), manifest.clone());
            async { Ok(()) }
        })
        .await?;
    Ok(())
}

/// A stored component, checked against its digest; `None` if there is none.
pub async fn load_component(store: &Store, digest: TaskDigest) -> Result<Option<Bytes>, StoreError> {
    let key = manifest_key(digest);
    let key = &key;
    let manifest = store.transact(|tx| async move {
        let value = tx.get(key.clone(), Read::Snapshot).await?;
        value.map(|value| super::decode::<Manifest>(MANIFEST, SCHEMA, key, &value)).transpose()
    });
    let Some(manifest) = manifest.await?.value else { return Ok(None) };
    let mut component = BytesMut::with_capacity(manifest.size_bytes as usize);
    for first in (0..manifest.chunks).step_by(CHUNKS_PER_COMMIT) {
        let begin = KeyBuilder::new(Table::Blob).digest(digest).u32(first).build();
        let last = manifest.chunks.min(first + CHUNKS_PER_COMMIT as u32);
        let end = KeyBuilder::new(Table::Blob).digest(digest).u32(last).build();
        let query = RangeQuery { begin, end, limit: CHUNKS_PER_COMMIT, reverse: false, read: Read::Snapshot };
        let query = &query;
        let pairs = store.transact(|tx| async move { tx.range(query).await }).await?.value;
        pairs.iter().for_each(|pair| component.extend_from_slice(&pair.value));
    }
    if TaskDigest::of(&component) != digest {
        return Err(StoreError::unreadable(
            BLOB,
            digest.as_bytes(),
            "the stored bytes do not have the digest of their key",
        ));
    }
    Ok(Some(component.freeze()))
}
