//! How an attempt ended, and what it used.

use serde::{Deserialize, Serialize};

/// How an attempt ended. Each is treated differently by somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The task did its work.
    Ok,
    /// The task said that it failed.
    Error {
        /// Whether it thinks another attempt can help.
        retryable: bool,
        /// Its own words.
        message: String,
    },
    /// The task broke: a panic, an out-of-bounds access, a stack overflow.
    Trap {
        /// What kind of break.
        message: String,
        /// Where, innermost first.
        backtrace: Vec<String>,
    },
    /// It used up its fuel.
    OutOfFuel,
    /// It did not end in time.
    TimedOut,
    /// It needs more memory than its limit to start.
    MemoryLimit,
    /// Its output is larger than the limit.
    OutputLimit,
    /// A command ended with another code than 0.
    Exit {
        /// The code.
        code: i32,
    },
    /// Its owner stopped it.
    Cancelled,
    /// Its node died or was cut off.
    WorkerLost,
    /// Our fault, not the task's.
    HostError {
        /// What happened.
        message: String,
    },
}

impl Outcome {
    /// The name that answers and metrics use.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error { .. } => "error",
            Self::Trap { .. } => "trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::TimedOut => "timed-out",
            Self::MemoryLimit => "memory-limit",
            Self::OutputLimit => "output-limit",
            Self::Exit { .. } => "exit",
            Self::Cancelled => "cancelled",
            Self::WorkerLost => "worker-lost",
            Self::HostError { .. } => "host-error",
        }
    }

    /// Whether the retry rule applies. A task that calls its failure permanent is believed.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Ok | Self::Error { retryable: false, .. } | Self::Cancelled => false,
            Self::Error { retryable: true, .. }
            | Self::Trap { .. }
            | Self::OutOfFuel
            | Self::TimedOut
            | Self::MemoryLimit
            | Self::OutputLimit
            | Self::Exit { .. }
            | Self::WorkerLost
            | Self::HostError { .. } => true,
        }
    }

    /// One sentence about a failure, for the execution's reason.
    pub fn reason(&self) -> String {
        match self {
            Self::Ok => "it did its work".to_owned(),
            Self::Error { message, .. } => format!("the task failed: {message}"),
            Self::Trap { message, .. } => format!("the task trapped: {message}"),
            Self::OutOfFuel => "the task ran out of fuel (`limits.fuel`)".to_owned(),
            Self::TimedOut => "the task did not end in time (`limits.timeout`)".to_owned(),
            Self::MemoryLimit => "the task needs more memory than its limit (`limits.memory_bytes`)".to_owned(),
            Self::OutputLimit => "the task's output is larger than the limit".to_owned(),
            Self::Exit { code } => format!("the command exited with code {code}"),
            Self::Cancelled => "it was cancelled".to_owned(),
            Self::WorkerLost => "its worker was lost".to_owned(),
            Self::HostError { message } => format!("the host failed: {message}"),
        }
    }
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Units of work.
    pub fuel: u64,
    /// Wall time, in microseconds.
    pub wall_micros: u64,
    /// The most memory at any moment.
    pub memory_peak_bytes: u64,
    /// Calls into the host.
    pub host_calls: u64,
}
