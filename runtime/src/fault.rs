//! Tells apart whose fault it is when a run does not return.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::host::capture::OutputOverLimit;
use crate::host::limiter::Limiter;
use crate::outcome::Outcome;

/// A report carries at most so many frames.
const BACKTRACE_FRAMES_MAX: usize = 32;

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Memories and tables are being set up, and start functions run.
    Start,
    /// The export is being called: what fails now, without being a trap, is a breach of the canonical ABI.
    Call,
}

/// How a call into a guest ended.
pub(crate) enum Ended<T> {
    Returned(wasmtime::Result<T>),
    TimedOut,
    Cancelled,
    Panicked(String),
}

impl<T> Ended<T> {
    /// The outcome of a call that returned no value. (A returned value is the caller's to judge.)
    pub(crate) fn outcome(self, phase: Phase, limiter: &Limiter) -> Outcome {
        match self {
            Self::Returned(Ok(_)) => Outcome::Ok,
            Self::Returned(Err(error)) => classify(&error, phase, limiter),
            Self::TimedOut => Outcome::TimedOut,
            Self::Cancelled => Outcome::Cancelled,
            Self::Panicked(panic) => Outcome::HostError(format!("the host panicked: {panic}")),
        }
    }
}

fn classify(error: &wasmtime::Error, phase: Phase, limiter: &Limiter) -> Outcome {
    if let Some(I32Exit(code)) = error.downcast_ref() {
        return if *code == 0 { Outcome::Ok } else { Outcome::Exit(*code) };
    }
    if error.is::<OutputOverLimit>() {
        return Outcome::OutputLimit;
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Outcome::HostError(format!("no free slot in the sandbox: {error:#}"));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Outcome::OutOfFuel,
        Some(Trap::StackOverflow) => trap("stack overflow: the calls are nested too deeply".into(), error),
        Some(other) => {
            let text = other.to_string();
            trap(text.strip_prefix("wasm trap: ").unwrap_or(&text).to_owned(), error)
        }
        None if phase == Phase::Call => trap(error.root_cause().to_string(), error),
        None if limiter.denied() => Outcome::MemoryLimit,
        None => Outcome::HostError(format!("{error:#}")),
    }
}

fn trap(message: String, error: &wasmtime::Error) -> Outcome {
    let backtrace = error.downcast_ref::<WasmBacktrace>().map_or_else(Vec::new, |backtrace| {
        let frames = backtrace.frames().iter().take(BACKTRACE_FRAMES_MAX);
        frames.map(frame).collect()
    });
    Outcome::Trap { message, backtrace }
}

fn frame(frame: &wasmtime::FrameInfo) -> String {
    let name = frame.func_name().map_or_else(|| format!("<function {}>", frame.func_index()), demangled);
    match frame.module_offset() {
        Some(offset) => format!("{name} @ {offset:#x}"),
        None => name,
    }
}

/// A Rust symbol as its author wrote it, without the hash.
fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

/// Polls a future, and turns a panic inside it into an error: a fault in one run must not take its worker thread's other runs along.
pub(crate) async fn without_panic<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => std::task::Poll::Ready(Err(panic_text(payload.as_ref()))),
    })
    .await
}

pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::without_panic;

    #[tokio::test]
    async fn a_panic_becomes_its_message_and_a_value_stays_one() {
        let panicking = async {
            tokio::task::yield_now().await;
            panic!("slot {} is gone", 7)
        };
        let ended: Result<(), String> = without_panic(panicking).await;
        assert_eq!(ended, Err("slot 7 is gone".to_owned()));
        assert_eq!(without_panic(async { 5 }).await, Ok(5));
    }
}
