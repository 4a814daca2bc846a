//! Pushing tasks and finding them again.
//!
//! A push is inspected, compiled, asked for its parameters schema, stored in chunks, and named last: a name never points at something that
//! does not run. The same bytes again are the same version, and are neither compiled nor stored a second time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_core::ids::{TaskDigest, TenantId};
use compline_runtime::{CompileError, Compiler, ComponentInfo, Kind, Refusal as ComponentRefusal, inspect};
use compline_store::backend::Read;
use compline_store::tables::task::{self, Task, TaskVersion};
use compline_store::{StoreError, Tx};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::ctx::Ctx;
use crate::ops::schema::ParametersSchema;
use crate::words::TaskName;

/// A client waits so long for its push; then it is told to ask again.
pub const PUSH_WAIT: Duration = Duration::from_secs(10);
/// Pushes that are in memory side by side.
const PUSHES_MAX: usize = 8;
/// Ended pushes that are remembered for clients that were told to ask again.
const REMEMBERED_MAX: usize = 1_000;
/// Versions that a task's row remembers.
const VERSIONS_MAX: usize = 100;
/// Tags that a task may have.
pub const TAGS_MAX: usize = 200;

/// Pushes in progress, and those that failed after their client had been told to ask again.
#[derive(Debug)]
pub struct Pushes {
    places: Arc<Semaphore>,
    late: Mutex<HashMap<TaskDigest, LatePush>>,
}

impl Default for Pushes {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PUSHES_MAX)), late: Mutex::default() }
    }
}

/// A push whose client was told to ask again.
#[derive(Debug, Clone)]
pub struct LatePush {
    /// The name that it is pushed under.
    pub name: String,
    /// What it is.
    pub info: ComponentInfo,
    /// Why it failed; `None` while it compiles.
    pub failed: Option<String>,
}

/// A component to push.
#[derive(Debug, Clone)]
pub struct Push {
    /// Its owner.
    pub tenant: TenantId,
    /// The task that it is a version of.
    pub name: String,
    /// The tags that point at it from now on.
    pub tags: Vec<String>,
    /// Its bytes.
    pub component: Bytes,
}

/// How a push stands.
#[derive(Debug, Clone)]
pub enum Pushed {
    /// It is done.
    Ready(Box<Found>),
    /// It still compiles.
    Compiling(Box<ComponentInfo>),
}

/// Why a push failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PushError {
    /// The bytes are not a task.
    #[error(transparent)]
    Refused(#[from] ComponentRefusal),
    /// They do not compile, or could not be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// What it says about its parameters can't be used.
    #[error("{0}")]
    Schema(String),
    /// The task has as many tags as it may have.
    #[error("the task would have more than {TAGS_MAX} tags")]
    TooManyTags,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is going down.
    #[error("the server is shutting down")]
    Stopped,
}

/// A version that was found, and the words for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The task; `None` if it was asked for by its digest.
    pub task: Option<Task>,
    /// The version.
    pub version: TaskVersion,
}

impl Found {
    /// The tags that point at this version.
    pub fn tags(&self) -> Vec<String> {
        let tags = self.task.iter().flat_map(|task| &task.tags);
        tags.filter(|(_, digest)| **digest == self.version.digest).map(|(tag, _)| tag.clone()).collect()
    }
}

/// Pushes a component. The work goes on when the caller stops waiting.
pub async fn push(ctx: &Arc<Ctx>, compiler: &Compiler, pushes: &Arc<Pushes>, push: Push) -> Result<Pushed, PushError> {
    let place = pushes.places.clone().acquire_owned().await.map_err(|_| PushError::Stopped)?;
    let component = push.component.clone();
    let info = tokio::task::spawn_blocking(move || inspect(&component)).await.map_err(|_| PushError::Stopped)??;
    let digest = TaskDigest::from_bytes(*info.digest.as_bytes());
    if let Some(found) = name_known(ctx, &push, digest).await? {
        return Ok(Pushed::Ready(Box::new(found)));
    }
    let (ctx, compiler, known) = (ctx.clone(), compiler.clone(), info.clone());
    let late = LatePush { name: push.name.clone(), info: info.clone(), failed: None };
    let mut work = tokio::spawn(async move {
        let _place = place;
        finish(&ctx, &compiler, &push, &known).await
    });
    if let Ok(ended) = tokio::time::timeout(PUSH_WAIT, &mut work).await {
        return Ok(Pushed::Ready(Box::new(ended.map_err(|_| PushError::Stopped)??)));
    }
    pushes.remember(digest, late);
    let pushes = pushes.clone();
    tokio::spawn(async move {
        let failed = match work.await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the server failed on it; its log says why".to_owned()),
        };
        pushes.ended(digest, failed);
    });
    Ok(Pushed::Compiling(Box::new(info)))
}

impl Pushes {
    /// The push of this version or under this name, if its client was told to ask again and it is not stored yet.
    pub fn late(&self, name: &TaskName) -> Option<LatePush> {
        let late = self.late.lock();
        match name {
            TaskName::Digest(digest) => late.get(digest).cloned(),
            TaskName::Named { name, tag: None } => late.values().find(|push| push.name == *name).cloned(),
            TaskName::Named { tag: Some(_), .. } => None,
        }
    }

    fn remember(&self, digest: TaskDigest, push: LatePush) {
        let mut late = self.late.lock();
        if late.len() >= REMEMBERED_MAX {
            late.retain(|_, push| push.failed.is_none());
        }
        late.insert(digest, push);
    }

    fn ended(&self, digest: TaskDigest, failed: Option<String>) {
        let mut late = self.late.lock();
        match failed {
            None => drop(late.remove(&digest)),
            Some(reason) => {
                if let Some(push) = late.get_mut(&digest) {
                    push.failed = Some(reason);
                }
            }
        }
    }
}

/// Names a version that the tenant has already.
async fn name_known(ctx: &Ctx, push: &Push, digest: TaskDigest) -> Result<Option<Found>, PushError> {
    let named = ctx.store.transact(|tx| async move {
        let known = task::version(&tx, &push.tenant, digest, Read::Serializable).await?;
        let Some(version) = known else { return Ok(Ok(None)) };
        if !task::has_component(&tx, digest).await? {
            return Ok(Ok(None));
        }
        Ok(name_version(ctx, &tx, push, version).await?.map(Some))
    });
    named.await?.value
}

async fn finish(ctx: &Ctx, compiler: &Compiler, push: &Push, info: &ComponentInfo) -> Result<Found, PushError> {
    let program = compiler.compile(info.digest, push.component.clone()).await?;
    let schema = program.parameters_schema().await.map_err(|error| PushError::Schema(error.to_string()))?;
    if let Some(text) = &schema {
        ParametersSchema::parse(text).map_err(PushError::Schema)?;
    }
    let digest = TaskDigest::from_bytes(*info.digest.as_bytes());
    task::store_component(&ctx.store, digest, &push.component).await?;
    let version = TaskVersion {
        digest,
        size_bytes: info.size_bytes,
        is_command: info.kind == Kind::Command,
        imports: info.imports.clone(),
        exports: info.exports.clone(),
        grants: info.grants.clone(),
        parameters_schema: schema,
        pushed_at: ctx.env.now(),
    };
    let version = &version;
    let named = ctx.store.transact(|tx| async move {
        task::put_version(&tx, &push.tenant, version)?;
        name_version(ctx, &tx, push, version.clone()).await
    });
    named.await?.value
}

/// Makes name and tags point at a version.
async fn name_version(
    ctx: &Ctx,
    tx: &Tx,
    push: &Push,
    version: TaskVersion,
) -> Result<Result<Found, PushError>, StoreError> {
    let digest = version.digest;
    let known = task::get(tx, &push.tenant, &push.name, Read::Serializable).await?;
    let mut task = known.unwrap_or_else(|| Task {
        name: push.name.clone(),
        latest: digest,
        tags: Default::default(),
        versions: Vec::new(),
    });
    task.latest = digest;
    task.tags.extend(push.tags.iter().map(|tag| (tag.clone(), digest)));
    if task.tags.len() > TAGS_MAX {
        return Ok(Err(PushError::TooManyTags));
    }
    task.versions.retain(|(known, _)| *known != digest);
    task.versions.insert(0, (digest, ctx.env.now()));
    task.versions.truncate(VERSIONS_MAX);
    task::put(tx, &push.tenant, &task)?;
    Ok(Ok(Found { task: Some(task), version }))
}

/// The version that a user's words mean.
pub async fn find(ctx: &Ctx, tenant: &TenantId, name: &TaskName) -> Result<Option<Found>, StoreError> {
    Ok(ctx.store.transact(|tx| async move { find_in(&tx, tenant, name).await }).await?.value)
}

async fn find_in(tx: &Tx, tenant: &TenantId, name: &TaskName) -> Result<Option<Found>, StoreError> {
    let (task, digest) = match name {
        TaskName::Digest(digest) => (None, *digest),
        TaskName::Named { name, tag } => {
            let Some(task) = task::get(tx, tenant, name, Read::Snapshot).await? else { return Ok(None) };
            let digest = match tag {
                None => Some(task.latest),
                Some(tag) => task.tags.get(tag).copied(),
            };
            let Some(digest) = digest else { return Ok(None) };
            (Some(task), digest)
        }
    };
    let version = task::version(tx, tenant, digest, Read::Snapshot).await?;
    Ok(version.map(|version| Found { task, version }))
}

/// The bytes of a version.
pub async fn component(ctx: &Ctx, found: &Found) -> Result<Option<Bytes>, StoreError> {
    task::load_component(&ctx.store, found.version.digest).await
}

/// A tenant's tasks by name, from behind `after`, each with its latest version; and the name behind which the rest begins, if there may be more.
/// One that cannot be read is passed over.
pub async fn list(
    ctx: &Ctx,
    tenant: &TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<Found>, Option<String>), StoreError> {
    let listed = ctx.store.transact(|tx| async move {
        let mut found = Vec::new();
        let rows = task::list(&tx, tenant, after, limit).await?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|(name, _)| name.clone());
        for (_, task) in rows {
            let Some(task) = ctx.readable(task) else { continue };
            let version = ctx.if_readable(task::version(&tx, tenant, task.latest, Read::Snapshot).await)?.flatten();
            found.extend(version.map(|version| Found { task: Some(task), version }));
        }
        Ok((found, next))
    });
    Ok(listed.await?.value)
}

/// The names of a tenant's tasks, for advice about a mistyped one.
pub async fn names(ctx: &Ctx, tenant: &TenantId) -> Result<Vec<String>, StoreError> {
    let names = ctx.store.transact(|tx| async move { task::list(&tx, tenant, None, 200).await });
    Ok(names.await?.value.into_iter().map(|(name, _)| name).collect())
}
