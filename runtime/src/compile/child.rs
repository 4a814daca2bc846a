//! The child process that compiles, seen from its parent.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use nix::sys::signal::Signal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::worker::{self, EXIT_INVALID, EXIT_OVER_MEMORY, Request};
use super::{CompileError, CompileLimits};

/// What is kept of the child's standard error.
const REASON_BYTES_MAX: u64 = 16 << 10;
/// How the standard library words a failed allocation before it aborts.
const ABORTED_FOR_MEMORY: &str = "memory allocation of ";

struct Finished {
    status: ExitStatus,
    code: Vec<u8>,
    reason: String,
}

/// Compiles in a child process. The child is killed at the wall limit, and when the caller no longer waits.
pub(super) async fn compile(
    program: &Path,
    args: &[OsString],
    limits: &CompileLimits,
    component: Bytes,
) -> Result<Vec<u8>, CompileError> {
    let host = |what: &str, error: io::Error| CompileError::Host {
        reason: format!("{what} `{}`: {error}", program.display()),
    };
    let child = Command::new(program)
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| host("can't start", error))?;
    let request = Request { memory_bytes: limits.memory_bytes, cpu_seconds: limits.cpu.as_secs().max(1) };
    match tokio::time::timeout(limits.wall, converse(child, request, &component, limits.memory_bytes)).await {
        Err(_) => Err(CompileError::OverTime { limit: limits.wall }),
        Ok(Err(error)) => Err(host("lost contact with", error)),
        Ok(Ok(finished)) => judge(finished, limits),
    }
}

async fn converse(mut child: Child, request: Request, component: &[u8], code_bytes_max: u64) -> io::Result<Finished> {
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("it has no standard streams"));
    };
    let ask = async move {
        // A child that dies early closes the pipe; its exit status says more than that.
        let _ = stdin.write_all(&request.encode()).await;
        let _ = stdin.write_all(component).await;
    };
    let ((), code, reason) = tokio::join!(ask, read(stdout, code_bytes_max), read(stderr, REASON_BYTES_MAX));
    let status = child.wait().await?;
    Ok(Finished { status, code: code?, reason: String::from_utf8_lossy(&reason?).trim().to_owned() })
}

/// Reads to the end, and keeps no more than it should.
async fn read(mut from: impl AsyncRead + Unpin, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    (&mut from).take(bytes_max).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(kept)
}

fn judge(finished: Finished, limits: &CompileLimits) -> Result<Vec<u8>, CompileError> {
    let Finished { status, code, reason } = finished;
    if status.success() {
        let header = worker::answer_header();
        return match code.strip_prefix(header.as_bytes()) {
            Some(code) => Ok(code.to_vec()),
            None => Err(CompileError::Host {
                reason:
                    "the compiling program is not of this version: restart after an update, and check how it is started"
                        .into(),
            }),
        };
    }
    let over_memory = CompileError::OverMemory { limit_bytes: limits.memory_bytes };
    if status.code() == Some(EXIT_INVALID.into()) {
        return Err(CompileError::Invalid { reason });
    }
    if status.code() == Some(EXIT_OVER_MEMORY.into()) || reason.contains(ABORTED_FOR_MEMORY) {
        return Err(over_memory);
    }
    if status.signal() == Some(Signal::SIGXCPU as i32) {
        return Err(CompileError::OverCpu { limit: limits.cpu });
    }
    let last_words = reason.lines().last().unwrap_or("it said nothing");
    Err(CompileError::Crashed { detail: format!("{status}: {last_words}") })
}
