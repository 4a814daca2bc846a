//! The client library's network thread: one per process, for all databases, for as long as the process lives.
//!
//! It can be started once and never again, so closing a store does not stop it. It must be stopped before the process exits, because the
//! library's own data is torn down then; a handler that runs at exit does that, however the process comes to exit.

use std::sync::OnceLock;

use ::foundationdb::api::{FdbApiBuilder, NetworkAutoStop, get_max_api_version};
use parking_lot::Mutex;

use super::FoundationDbOpenError;

/// The version of the client's interface that this backend is written for.
const API_VERSION: i32 = 730;

static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
static RUNNING: Mutex<Option<NetworkAutoStop>> = Mutex::new(None);

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
        reason = "the network must be stopped before the process exits; `stop_at_exit` is registered for that"
    )]
    let running = unsafe {
        if libc::atexit(stop_at_exit) != 0 {
            return Err("the system takes no more handlers to run at exit".to_owned());
        }
        network.boot().map_err(broken)?
    };
    *RUNNING.lock() = Some(running);
    Ok(())
}

extern "C" fn stop_at_exit() {
    let running = RUNNING.lock().take();
    drop(running);
}
