//! Runs one WebAssembly component once, safely. Knows nothing of jobs or stores.
//!
//! # From bytes to a report
//!
//! ```text
//!  bytes ── inspect ──▶ ComponentInfo           what it is, or a Refusal that says what to do
//!    │
//!    └── Compiler::compile ──▶ Program          in a bounded child process; cached by engine version and digest
//!                                │
//!                  Invocation ──▶ Program::run ──▶ RunReport
//! ```
//!
//! A [`Program`] is run any number of times, each time in a fresh instance from the [`Engine`]'s pool, so that nothing of one run is
//! left for the next. A run never fails to report: whatever happens is an [`Outcome`], and the guest's faults and the host's are
//! different ones ([`Outcome::HostError`] is the host's; all others are the guest's or the caller's).
//!
//! # What bounds a run
//!
//! | what | how | outcome |
//! | --- | --- | --- |
//! | computing | fuel, counted by the guest's own code | [`Outcome::OutOfFuel`] |
//! | time | a deadline beside the call: a computing guest yields at every epoch tick, a blocked one is dropped where it waits | [`Outcome::TimedOut`] |
//! | memory | one budget over all linear memories, one over all tables; refused growth is -1 for the guest and `memory_denied` in the report | [`Outcome::MemoryLimit`] if it can't start, else as the guest takes it |
//! | stack | a fixed part of the run's own stack | [`Outcome::Trap`] |
//! | output | counted while a command writes; after a task returns | [`Outcome::OutputLimit`] |
//! | log | counted per line; what does not fit is counted, not kept | none: the run goes on |
//!
//! # What a guest can reach
//!
//! The interfaces of `wit/`, and WASI 0.2 with nothing behind it: no directory, no network, no names, no environment, no arguments. It
//! can tell the time, sleep, and draw random numbers. An import that is not linked is refused by [`inspect`], before anything is compiled.
//!
//! # Where compiling happens
//!
//! A small component can keep a compiler busy for minutes and eat gigabytes, so a [`Compiler`] compiles in a child process
//! ([`CompilePlace::ChildProcess`], whose other side is [`compile_worker`]) under limits on wall time, CPU time and memory, few at a
//! time. No tokio thread compiles, loads or hashes, and neither does tokio's blocking pool.
//!
//! Compiled code is machine code: whoever can write the cache directory can do what this process can. It is created for its owner alone,
//! and nothing compiled is ever accepted from outside.

mod compile;
mod digest;
mod engine;
mod fault;
mod host;
mod inspect;
mod outcome;
mod program;
mod ticker;

pub use compile::{CompileError, CompileLimits, CompilePlace, Compiler, CompilerError, compile_worker};
pub use digest::{Digest, DigestError};
pub use engine::{
    CORE_INSTANCES_PER_RUN_MAX, Engine, EngineConfig, EngineError, MEMORIES_PER_RUN_MAX, TABLES_PER_RUN_MAX,
    engine_version,
};
pub use inspect::{COMPONENT_BYTES_MAX, ComponentInfo, Kind, Refusal, inspect};
pub use outcome::{
    Cost, ERROR_MESSAGE_BYTES_MAX, ExecutionInfo, Invocation, Limits, LogLevel, LogLine, Outcome, RunReport,
};
pub use program::{PARAMETERS_SCHEMA_BYTES_MAX, Program, SchemaError};
