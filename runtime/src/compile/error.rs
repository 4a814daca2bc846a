//! Why a component did not become a program.

use std::path::PathBuf;
use std::time::Duration;

use crate::digest::Digest;
use crate::inspect::Refusal;

/// Why a component did not become a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The bytes are not a task.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The bytes are not the ones that were asked for.
    #[error("the bytes are those of {found}, not of {wanted}: they were damaged on their way")]
    WrongDigest {
        /// What was asked for.
        wanted: Digest,
        /// What the bytes are.
        found: Digest,
    },
    /// The compiler does not accept the code.
    #[error("the component does not compile: {reason}. Build it again with a released toolchain")]
    Invalid {
        /// The compiler's words.
        reason: String,
    },
    /// A function is missing, or has another type, in an interface that is otherwise there.
    #[error(
        "the component does not fit the interfaces that are provided: {reason}. Build it against the versions named here"
    )]
    Link {
        /// The linker's words.
        reason: String,
    },
    /// It needs more than any run is given here.
    #[error("the component needs more than any run is given here: {reason}. Lower its initial memories and tables")]
    OverCeiling {
        /// What is too large, and by how much.
        reason: String,
    },
    /// Compiling took too long by the clock. Trying again may help when the machine is less busy.
    #[error("compiling took longer than {}s: make the component smaller, or split its largest function", .limit.as_secs_f64())]
    OverTime {
        /// The limit.
        limit: Duration,
    },
    /// Compiling took too much computing time.
    #[error("compiling took more than {}s of computing: make the component smaller, or split its largest function", .limit.as_secs_f64())]
    OverCpu {
        /// The limit.
        limit: Duration,
    },
    /// Compiling took too much memory.
    #[error("compiling took more than {} MiB of memory: make the component smaller, or split its largest function", .limit_bytes >> 20)]
    OverMemory {
        /// The limit.
        limit_bytes: u64,
    },
    /// The compiler crashed on it. Only the process that compiled it was lost.
    #[error(
        "the compiler crashed on this component ({detail}): build it with another optimisation level, and report this"
    )]
    Crashed {
        /// What is known.
        detail: String,
    },
    /// It is not the component's fault.
    #[error("the component could not be compiled, which is not its fault: {reason}")]
    Host {
        /// What went wrong.
        reason: String,
    },
}

impl CompileError {
    /// Whether the same bytes would end the same way again, so that there is no point in compiling them again.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::WrongDigest { .. }
            | Self::Invalid { .. }
            | Self::Link { .. }
            | Self::OverCeiling { .. }
            | Self::OverCpu { .. }
            | Self::OverMemory { .. } => true,
            Self::OverTime { .. } | Self::Crashed { .. } | Self::Host { .. } => false,
        }
    }

    /// Whether the host is to blame and not the component.
    pub fn is_host_fault(&self) -> bool {
        matches!(self, Self::Host { .. })
    }
}

/// Why there is no compiler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompilerError {
    /// The cache directory can't be used.
    #[error("the cache directory `{}` can't be used: make it writable, or choose another", .path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A limit that can't work.
    #[error("`{field}` must be more than 0")]
    Limit {
        /// The field of [`super::CompileLimits`].
        field: &'static str,
    },
}
