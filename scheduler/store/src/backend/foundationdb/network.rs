//! The client library's network thread: one per process, for all databases, for as long as the process lives.
//!
//! It can be started once and never again, so closing a store does not stop it. Nor can it be stopped when the process exits: by then the
//! library has torn down some of its own data, and stopping it crashes (seen with 7.3.79). So a process in which it runs ends by `_exit`, from a
//! handler that runs first at exit, and the library's data is never torn down under its thread. Nothing is lost by that: what was acknowledged
//! is on the cluster.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use ::foundationdb::api::{FdbApiBuilder, get_max_api_version};

use super::FoundationDbOpenError;

/// The version of the client's interface that this backend is written for.
const API_VERSION: i32 = 730;

static STARTED: OnceLock<Result<(), String>> = OnceLock::new();

/// Starts the network thread, unless it runs already.
pub(super) fn start() -> Result<(), FoundationDbOpenError> {
    STARTED.get_or_init(boot).clone().map_err(FoundationDbOpenError::Refused)
}

fn boot() -> Result<(), String> {
    let max = get_max_api_version();
    if max < API_VERSION {
        return Err(format!(
            "the FoundationDB client library (libfdb_c) of this machine is too old: it knows API version {max}, and {API_VERSION} is needed. \
             Install the package foundationdb-clients 7.3 from https://github.com/apple/foundationdb/releases"
        ));
    }
    let broken = |error| format!("the FoundationDB client library could not be started: {error}");
    let network = FdbApiBuilder::default().set_runtime_version(API_VERSION).build().map_err(broken)?;
    #[expect(
        unsafe_code,
        reason = "the network may run until a process ends that runs no exit handlers: see `end_at_exit`"
    )]
    let running = unsafe { network.boot() }.map_err(broken)?;
    // Its drop would stop the network.
    std::mem::forget(running);
    Ok(())
}

/// Lets the process end before anything that was set up until now is torn down. Called after each opening, since the library sets things up
/// late.
pub(super) fn end_at_exit() {
    #[expect(
        unsafe_code,
        reason = "the handler uses nothing but its argument; if it is not taken, the process exits as it would without"
    )]
    let _ = unsafe { on_exit(end, std::ptr::null_mut()) };
}

extern "C" fn end(status: c_int, _: *mut c_void) {
    #[expect(unsafe_code, reason = "it takes a number and does not return")]
    unsafe {
        libc::_exit(status)
    }
}

#[expect(
    unsafe_code,
    reason = "`atexit` with the exit status. glibc has it, and the client library needs glibc on Linux anyway"
)]
unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}
