//! Heavy work on a thread of its own: tokio's threads are for guests, and its blocking pool is for nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use super::CompileError;
use crate::fault::panic_text;

/// The compiler recurses into deeply nested code.
const STACK_BYTES: usize = 16 << 20;

/// Does the work on a new thread. A panic is an error; dropping the future leaves the thread to finish for nobody.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
) -> Result<T, CompileError> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("compline-compile".into()).stack_size(STACK_BYTES);
    let spawned = thread.spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
            Err(CompileError::Crashed { detail: format!("it panicked: {}", panic_text(payload.as_ref())) })
        });
        // The one who asked may be gone.
        let _ = done.send(result);
    });
    if let Err(error) = spawned {
        return Err(CompileError::Host { reason: format!("a thread did not start: {error}") });
    }
    result.await.unwrap_or_else(|_| Err(CompileError::Host { reason: "a thread ended without an answer".into() }))
}
