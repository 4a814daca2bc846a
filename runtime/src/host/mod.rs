//! What a guest finds on the host's side: the state of one run, and the interfaces linked to it.
//!
//! Everything is denied that is not listed here: the WASI context has no directory, no network, no environment and no arguments.

pub(crate) mod capture;
pub(crate) mod limiter;
mod stdio;

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use self::capture::SharedCapture;
use self::limiter::Limiter;
use self::stdio::{Sink, Stdio};
use crate::inspect::Kind;
use crate::outcome::{ExecutionInfo, Limits, LogLevel};

/// What a command finds as the name that it was started under.
const COMMAND_NAME: &str = "task";
/// Things of the host that a guest may hold at once: streams, timers, sockets. Each costs the host memory that no guest limit counts.
pub(crate) const HANDLES_MAX: usize = 4096;
/// Random bytes that a guest may ask for in one call.
const RANDOM_BYTES_MAX: u64 = 1 << 20;

pub(crate) mod bindings {
    //! Generated from `wit/`, so that the host can't drift from the contract.

    wasmtime::component::bindgen!({
        path: "../wit",
        world: "compline:task/task",
        exports: { default: async },
    });
}

use self::bindings::compline::task::{execution, log};

/// All that belongs to one run, and ends with it.
pub(crate) struct RunState {
    wasi: WasiCtx,
    table: ResourceTable,
    execution: ExecutionInfo,
    pub(crate) limiter: Limiter,
    pub(crate) capture: SharedCapture,
    pub(crate) host_calls: u64,
}

impl RunState {
    pub(crate) fn new(kind: Kind, execution: ExecutionInfo, input: &Bytes, limits: &Limits, limiter: Limiter) -> Self {
        let capture = SharedCapture::new(limits);
        let stream = |sink| Stdio { capture: Arc::clone(&capture.0), sink };
        let mut wasi = WasiCtxBuilder::new();
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        wasi.max_random_size(RANDOM_BYTES_MAX);
        wasi.stderr(stream(Sink::Stderr));
        match kind {
            Kind::Task => {
                wasi.stdout(stream(Sink::StdoutLines));
            }
            Kind::Command => {
                wasi.arg(COMMAND_NAME);
                wasi.stdin(MemoryInputPipe::new(input.clone()));
                wasi.stdout(stream(Sink::Output));
            }
        }
        let mut table = ResourceTable::new();
        // A timer is two entries: itself, and what it is waited for with.
        table.set_max_capacity(2 * HANDLES_MAX);
        Self { wasi: wasi.build(), table, execution, limiter, capture, host_calls: 0 }
    }

    /// The view through which every call of one of our own interfaces goes.
    fn called(&mut self) -> &mut Self {
        self.host_calls += 1;
        self
    }
}

/// Every WASI call goes through here exactly once, which makes it the place to count them.
impl WasiView for RunState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.host_calls += 1;
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl bindings::compline::task::types::Host for RunState {}

impl execution::Host for RunState {
    fn get(&mut self) -> execution::Info {
        let info = &self.execution;
        execution::Info {
            id: info.id.clone(),
            attempt: info.attempt,
            slot: info.slot.clone(),
            job_id: info.job_id.clone(),
            tenant: info.tenant.clone(),
            lag_ms: info.lag_ms,
        }
    }
}

impl log::Host for RunState {
    fn write(&mut self, level: log::Level, message: String) {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.capture.lock().log(level, message);
    }
}

/// The linker with everything that a component may import. [`crate::inspect`] accepts exactly the interfaces that are linked here.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<RunState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    bindings::Task::add_to_linker::<_, HasSelf<RunState>>(&mut linker, RunState::called)?;
    Ok(linker)
}
