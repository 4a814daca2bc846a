//! The executor's runner that runs real components: compiled once, kept ready, each attempt in a fresh sandbox.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use compline_core::execution::{Cost, Outcome};
use compline_core::ids::TaskDigest;
use compline_core::job::RunLimits;
use compline_runtime::{Compiler, Digest, ExecutionInfo, Invocation, Limits, LogLevel, Program, RunReport};
use compline_store::Store;
use compline_store::tables::execution::LogLine;
use compline_store::tables::task::load_component;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::loops::{Ran, Run, Runner};

/// How many components a node keeps ready. The one that was used longest ago makes room.
const PROGRAMS_MAX: usize = 512;

/// How long a component that could not be made ready through no fault of its own waits for the next try.
const PREPARE_AGAIN: Duration = Duration::from_secs(1);

/// Runs components in the sandbox.
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    compiler: Compiler,
    programs: RwLock<HashMap<TaskDigest, Prepared>>,
    preparing: Mutex<HashSet<TaskDigest>>,
    prepared: Notify,
    uses: AtomicU64,
}

struct Prepared {
    /// The program, or why there will never be one.
    program: Result<Program, String>,
    last_use: AtomicU64,
}

impl Sandbox {
    /// A sandbox for the components of this store.
    pub fn new(store: Store, compiler: Compiler) -> Self {
        let inner = Inner {
            store,
            compiler,
            programs: RwLock::default(),
            preparing: Mutex::default(),
            prepared: Notify::new(),
            uses: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl Inner {
    async fn prepare(&self, digest: TaskDigest) {
        match self.load_and_compile(digest).await {
            Ok(program) => self.keep(digest, program),
            Err(error) => {
                tracing::warn!(%digest, error, "the component could not be made ready and will be tried again");
                tokio::time::sleep(PREPARE_AGAIN).await;
            }
        }
        self.preparing.lock().remove(&digest);
        self.prepared.notify_one();
    }

    /// The program, or why there is none: for good (inside) or for now (outside).
    async fn load_and_compile(&self, digest: TaskDigest) -> Result<Result<Program, String>, String> {
        let component = load_component(&self.store, digest).await.map_err(|error| error.to_string())?;
        let Some(component) = component else { return Ok(Err("the component is not in the store".to_owned())) };
        match self.compiler.compile(Digest::of(&component), component).await {
            Ok(program) => Ok(Ok(program)),
            Err(error) if error.is_lasting() => Ok(Err(error.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn keep(&self, digest: TaskDigest, program: Result<Program, String>) {
        let mut programs = self.programs.write();
        if programs.len() >= PROGRAMS_MAX {
            let oldest = programs.iter().min_by_key(|(_, prepared)| prepared.last_use.load(Ordering::Relaxed));
            if let Some(oldest) = oldest.map(|(digest, _)| *digest) {
                programs.remove(&oldest);
            }
        }
        programs.insert(digest, Prepared { program, last_use: AtomicU64::new(self.next_use()) });
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    fn program(&self, digest: &TaskDigest) -> Option<Result<Program, String>> {
        let programs = self.programs.read();
        let prepared = programs.get(digest)?;
        prepared.last_use.store(self.next_use(), Ordering::Relaxed);
        Some(prepared.program.clone())
    }
}

#[async_trait]
impl Runner for Sandbox {
    fn can_run(&self, digest: &TaskDigest) -> bool {
        self.inner.programs.read().contains_key(digest)
    }

    fn prepare(&self, digest: TaskDigest) {
        if self.can_run(&digest) || !self.inner.preparing.lock().insert(digest) {
            return;
        }
        let inner = self.inner.clone();
        tokio::spawn(async move { inner.prepare(digest).await });
    }

    fn prepared(&self) -> &Notify {
        &self.inner.prepared
    }

    async fn run(&self, run: &Run, cancel: &CancellationToken) -> Ran {
        match self.inner.program(&run.execution.task(&run.job.job).digest) {
            Some(Ok(program)) => ran(program.run(invocation(run), cancel.cancelled()).await),
            Some(Err(reason)) => host_error(format!("the component cannot be run: {reason}")),
            None => host_error("the component made room for others before it ran".to_owned()),
        }
    }
}

fn invocation(run: &Run) -> Invocation {
    let job = &run.job.job;
    Invocation {
        execution: ExecutionInfo {
            id: run.execution.id.to_string(),
            attempt: run.execution.attempt_number(),
            slot: run.execution.slot.to_string(),
            job_id: job.id.to_string(),
            tenant: job.tenant.as_str().to_owned(),
            lag_ms: u64::try_from(run.lag.as_millis()).unwrap_or(u64::MAX),
        },
        input: run.execution.input(job).clone(),
        limits: limits(&job.limits),
    }
}

/// What a job's limits mean to the sandbox.
pub fn limits(job: &RunLimits) -> Limits {
    Limits { fuel: job.fuel, memory_bytes: job.memory_bytes, wall: job.timeout, ..Limits::default() }
}

fn ran(report: RunReport) -> Ran {
    let mut logs: Vec<LogLine> = report
        .logs
        .into_iter()
        .map(|line| LogLine { level: level_name(line.level).to_owned(), message: line.message })
        .collect();
    if report.logs_dropped > 0 {
        let message = format!("({} more lines did not fit the limit of this run's log)", report.logs_dropped);
        logs.push(LogLine { level: level_name(LogLevel::Warn).to_owned(), message });
    }
    Ran {
        outcome: outcome(report.outcome),
        cost: Cost {
            fuel: report.cost.fuel,
            wall_micros: u64::try_from(report.cost.wall.as_micros()).unwrap_or(u64::MAX),
            memory_peak_bytes: report.cost.memory_peak_bytes,
            host_calls: report.cost.host_calls,
        },
        output: report.output,
        logs,
    }
}

/// The name of a log level in rows and answers.
pub fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

fn outcome(outcome: compline_runtime::Outcome) -> Outcome {
    use compline_runtime::Outcome as Ended;
    match outcome {
        Ended::Ok => Outcome::Ok,
        Ended::Error { retryable, message } => Outcome::Error { retryable, message },
        Ended::Trap { message, backtrace } => Outcome::Trap { message, backtrace },
        Ended::OutOfFuel => Outcome::OutOfFuel,
        Ended::TimedOut => Outcome::TimedOut,
        Ended::MemoryLimit => Outcome::MemoryLimit,
        Ended::OutputLimit => Outcome::OutputLimit,
        Ended::Exit(code) => Outcome::Exit { code },
        Ended::Cancelled => Outcome::Cancelled,
        Ended::HostError(message) => Outcome::HostError { message },
    }
}

fn host_error(message: String) -> Ran {
    Ran { outcome: Outcome::HostError { message }, cost: Cost::default(), output: None, logs: Vec::new() }
}
