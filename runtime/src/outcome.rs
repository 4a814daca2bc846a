//! What goes into a run and what comes out of it.

use std::time::Duration;

use bytes::Bytes;

/// At most so many bytes of a task's error message are kept.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 4096;

/// Which execution this is, as the guest sees it. By default it is a first attempt of nothing in particular.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionInfo {
    /// The same for every attempt of one execution.
    pub id: String,
    /// From 1.
    pub attempt: u32,
    /// The planned instant, RFC 3339 in UTC.
    pub slot: String,
    /// The job that this execution belongs to.
    pub job_id: String,
    /// Who owns the job.
    pub tenant: String,
    /// Milliseconds from the promised start to the actual one.
    pub lag_ms: u64,
}

impl Default for ExecutionInfo {
    fn default() -> Self {
        let nothing = String::new;
        Self { id: nothing(), attempt: 1, slot: nothing(), job_id: nothing(), tenant: nothing(), lag_ms: 0 }
    }
}

/// What one run may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Fuel is counted per guest instruction, and is comparable within one wasmtime version only.
    pub fuel: u64,
    /// All linear memories of the run together. Never more than the engine's own ceiling.
    pub memory_bytes: u64,
    /// From the first guest instruction to the last, time blocked in host calls included.
    pub wall: Duration,
    /// The largest output.
    pub output_bytes: usize,
    /// All log lines together, a byte more for each line.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 1_000_000_000,
            memory_bytes: 64 << 20,
            wall: Duration::from_secs(30),
            output_bytes: 64 << 10,
            log_bytes: 64 << 10,
        }
    }
}

/// One run to be made.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// What `compline:task/execution` answers.
    pub execution: ExecutionInfo,
    /// The argument of `run`, or the standard input of a command.
    pub input: Bytes,
    /// What the run may use.
    pub limits: Limits,
}

/// How a run ended. Each class is treated differently, so none is folded into another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done.
    Ok,
    /// The task says that it could not do its work.
    Error {
        /// Whether running the same attempt again can help.
        retryable: bool,
        /// The task's own words, cut at [`ERROR_MESSAGE_BYTES_MAX`].
        message: String,
    },
    /// The guest did something that WebAssembly or the contract forbids.
    Trap {
        /// What it did.
        message: String,
        /// The guest's frames, innermost first.
        backtrace: Vec<String>,
    },
    /// The guest used up its fuel.
    OutOfFuel,
    /// The wall-clock limit passed.
    TimedOut,
    /// The guest needs more memory, or larger tables, to start than its limit allows.
    MemoryLimit,
    /// The output is larger than its limit.
    OutputLimit,
    /// A command ended with this code, which is not 0.
    Exit(i32),
    /// The caller took the run back.
    Cancelled,
    /// It is not the guest's fault.
    HostError(String),
}

impl Outcome {
    /// The name that records, answers and metrics use.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error { .. } => "error",
            Self::Trap { .. } => "trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::TimedOut => "timed-out",
            Self::MemoryLimit => "memory-limit",
            Self::OutputLimit => "output-limit",
            Self::Exit(_) => "exit",
            Self::Cancelled => "cancelled",
            Self::HostError(_) => "host-error",
        }
    }
}

/// How serious a log line is, in the guest's own judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For whoever debugs the task.
    Debug,
    /// What is also used for standard error, and for a task's standard output.
    Info,
    /// Worth a look.
    Warn,
    /// Something went wrong.
    Error,
}

/// One line of a run's log.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogLine {
    /// How serious it is.
    pub level: LogLevel,
    /// The text, without its line end.
    pub message: String,
}

/// What one run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Fuel consumed.
    pub fuel: u64,
    /// From the first guest instruction to the end.
    pub wall: Duration,
    /// The most that all linear memories together have held.
    pub memory_peak_bytes: u64,
    /// Calls from the guest to the host, those of the guest's own runtime library included.
    pub host_calls: u64,
    /// Whether a request for memory or table space was refused at least once.
    pub memory_denied: bool,
}

/// All that is known about a run after it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// How it ended.
    pub outcome: Outcome,
    /// What the task returned; what a command wrote to standard output, also when it exited with a code.
    pub output: Option<Bytes>,
    /// The log, oldest line first.
    pub logs: Vec<LogLine>,
    /// Lines that did not fit [`Limits::log_bytes`].
    pub logs_dropped: u64,
    /// The last that was written to standard error, kept also when the log is full.
    pub stderr_tail: String,
    /// What it used.
    pub cost: Cost,
}

impl RunReport {
    /// A run that ended before any guest code ran.
    pub(crate) fn not_started(outcome: Outcome) -> Self {
        Self {
            outcome,
            output: None,
            logs: Vec::new(),
            logs_dropped: 0,
            stderr_tail: String::new(),
            cost: Cost::default(),
        }
    }
}
