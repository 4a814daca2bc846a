//! From bytes to a program: a bounded place, a cache, and one compilation at a time for each component.

mod cache;
mod child;
mod error;
mod thread;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OnceCell, Semaphore};
use wasmtime::component::Component;

use self::cache::Cache;
pub use self::error::{CompileError, CompilerError};
use self::thread::on_thread;
pub use self::worker::compile_worker;
use crate::digest::Digest;
use crate::engine::Engine;
use crate::inspect::{ComponentInfo, inspect};
use crate::program::{self, Program};

/// Components that are loaded, hashed or looked at side by side.
const LOADS_PARALLEL_MAX: usize = 2;
/// Lasting failures that are remembered, so that uploading a compile bomb again costs nothing.
const FAILURES_MAX: usize = 1024;

/// Where compilation happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompilePlace {
    /// In a child process that calls [`compile_worker`] and nothing else. All limits hold.
    ChildProcess {
        /// The program, usually this process's own.
        program: PathBuf,
        /// What makes it call [`compile_worker`].
        args: Vec<OsString>,
    },
    /// On a thread of this process, for tools that compile what their own user hands them. A thread can't be killed: past the wall limit
    /// the caller gets its answer, the thread goes on, and its place stays taken until it is done. Memory and CPU time are not limited.
    InProcess,
}

/// What one compilation may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileLimits {
    /// From start to end.
    pub wall: Duration,
    /// Address space of the compiling process.
    pub memory_bytes: u64,
    /// Computing time of the compiling process, in whole seconds.
    pub cpu: Duration,
    /// Compilations side by side.
    pub parallel_max: usize,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self { wall: Duration::from_secs(120), memory_bytes: 2 << 30, cpu: Duration::from_secs(60), parallel_max: 1 }
    }
}

/// Makes programs. Cloning it is cheap.
#[derive(Clone)]
pub struct Compiler(Arc<Inner>);

struct Inner {
    engine: Engine,
    place: CompilePlace,
    limits: CompileLimits,
    cache: Option<Cache>,
    compilations: Arc<Semaphore>,
    loads: Semaphore,
    known: Mutex<Known>,
}

type Pending = Arc<OnceCell<Result<Program, CompileError>>>;

#[derive(Default)]
struct Known {
    pending: HashMap<Digest, Pending>,
    programs: HashMap<Digest, Weak<program::Inner>>,
    failures: HashMap<Digest, CompileError>,
    failures_by_age: VecDeque<Digest>,
}

impl Compiler {
    /// A compiler for an engine. `cache` is a directory for compiled code, created for its owner alone.
    pub fn new(
        engine: Engine,
        place: CompilePlace,
        limits: CompileLimits,
        cache: Option<PathBuf>,
    ) -> Result<Self, CompilerError> {
        let positive = [
            ("wall", !limits.wall.is_zero()),
            ("memory_bytes", limits.memory_bytes > 0),
            ("cpu", !limits.cpu.is_zero()),
            ("parallel_max", limits.parallel_max > 0),
        ];
        if let Some((field, _)) = positive.into_iter().find(|(_, positive)| !positive) {
            return Err(CompilerError::Limit { field });
        }
        let cache = cache.map(Cache::open).transpose()?;
        let compilations = Arc::new(Semaphore::new(limits.parallel_max));
        let loads = Semaphore::new(LOADS_PARALLEL_MAX);
        Ok(Self(Arc::new(Inner { engine, place, limits, cache, compilations, loads, known: Mutex::default() })))
    }

    /// Compiles a component, or finds it compiled. However many ask for one digest at once, it is compiled once; if the one who
    /// began is dropped, the next goes on from the start. Must be called on a tokio runtime.
    pub async fn compile(&self, digest: Digest, bytes: Bytes) -> Result<Program, CompileError> {
        let pending = match self.look_up(digest) {
            Ok(known) => return known,
            Err(pending) => pending,
        };
        let result = pending.get_or_init(|| self.make(digest, bytes)).await.clone();
        self.settle(digest, &pending, &result);
        result
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, digest: Digest) -> Result<Result<Program, CompileError>, Pending> {
        let mut known = self.known();
        if let Some(inner) = known.programs.get(&digest).and_then(Weak::upgrade) {
            return Ok(Ok(Program::from_inner(inner)));
        }
        if let Some(failure) = known.failures.get(&digest) {
            return Ok(Err(failure.clone()));
        }
        Err(Arc::clone(known.pending.entry(digest).or_default()))
    }

    /// Every caller of one compilation comes by here; the first one settles it.
    fn settle(&self, digest: Digest, pending: &Pending, result: &Result<Program, CompileError>) {
        let mut known = self.known();
        if !known.pending.get(&digest).is_some_and(|current| Arc::ptr_eq(current, pending)) {
            return;
        }
        known.pending.remove(&digest);
        match result {
            Ok(program) => {
                known.programs.retain(|_, program| program.strong_count() > 0);
                known.programs.insert(digest, Arc::downgrade(program.inner()));
            }
            // Whoever asked for a digest and handed in other bytes must not spoil it for the others.
            Err(CompileError::WrongDigest { .. }) => {}
            Err(error) if error.is_lasting() => known.remember_failure(digest, error.clone()),
            Err(_) => {}
        }
    }

    async fn make(&self, digest: Digest, bytes: Bytes) -> Result<Program, CompileError> {
        let inner = Arc::clone(&self.0);
        let component = bytes.clone();
        let looked_at = self.load(move || {
            let info = inspect(&component)?;
            if info.digest != digest {
                return Err(CompileError::WrongDigest { wanted: digest, found: info.digest });
            }
            let cached = inner.cache.as_ref().and_then(|cache| inner.look_in(cache, &info));
            Ok((info, cached))
        });
        let (info, cached) = looked_at.await?;
        if let Some(program) = cached {
            return Ok(program);
        }
        let code = self.generate(bytes).await?;
        let inner = Arc::clone(&self.0);
        self.load(move || {
            let program = inner.program(&code, info)?;
            if let Some(cache) = &inner.cache {
                cache.put(digest, &code);
            }
            Ok(program)
        })
        .await
    }

    /// Runs the compiler in its place, and waits for a free one before.
    async fn generate(&self, bytes: Bytes) -> Result<Vec<u8>, CompileError> {
        let closed = |_| CompileError::Host { reason: "the compiler is shut down".into() };
        let permit = Arc::clone(&self.0.compilations).acquire_owned().await.map_err(closed)?;
        match &self.0.place {
            CompilePlace::ChildProcess { program, args } => {
                let code = child::compile(program, args, &self.0.limits, bytes).await;
                drop(permit);
                code
            }
            CompilePlace::InProcess => {
                let engine = self.0.engine.clone();
                let compiling = on_thread(move || {
                    let code = engine.wasmtime().precompile_component(&bytes);
                    drop(permit);
                    code.map_err(|error| CompileError::Invalid { reason: format!("{error:#}") })
                });
                let limit = self.0.limits.wall;
                tokio::time::timeout(limit, compiling).await.unwrap_or(Err(CompileError::OverTime { limit }))
            }
        }
    }

    async fn load<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
    ) -> Result<T, CompileError> {
        let closed = |_| CompileError::Host { reason: "the compiler is shut down".into() };
        let _permit = self.0.loads.acquire().await.map_err(closed)?;
        on_thread(work).await
    }
}

impl Inner {
    /// A cached form that does not load is compiled again: a cache is never a reason to fail.
    fn look_in(&self, cache: &Cache, info: &ComponentInfo) -> Option<Program> {
        let code = cache.get(info.digest)?;
        match self.program(&code, info.clone()) {
            Ok(program) => Some(program),
            Err(error) => {
                tracing::warn!(digest = %info.digest, %error, "a cached component does not load; compiling it again");
                None
            }
        }
    }

    fn program(&self, code: &[u8], info: ComponentInfo) -> Result<Program, CompileError> {
        let component = deserialize(self.engine.wasmtime(), code)
            .map_err(|error| CompileError::OverCeiling { reason: format!("{error:#}") })?;
        Program::link(&self.engine, &component, info)
            .map_err(|error| CompileError::Link { reason: format!("{error:#}") })
    }
}

impl Known {
    fn remember_failure(&mut self, digest: Digest, error: CompileError) {
        if self.failures_by_age.len() >= FAILURES_MAX
            && let Some(oldest) = self.failures_by_age.pop_front()
        {
            self.failures.remove(&oldest);
        }
        if self.failures.insert(digest, error).is_none() {
            self.failures_by_age.push_back(digest);
        }
    }
}

#[expect(unsafe_code, reason = "wasmtime can't know who wrote the machine code that it is handed")]
fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: `code` was generated by wasmtime, of this very version and with these settings (wasmtime checks both), either just now by
    // our own compiler, or earlier and kept in a directory that its owner alone can write, with a checksum that has been compared.
    unsafe { Component::deserialize(engine, code) }
}
