//! The one engine of a process: its configuration, its pool of slots and its ticker.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, WasmBacktraceDetails};

use crate::host::{self, RunState};
use crate::ticker::Ticker;

/// Linear memories that one run may have.
pub const MEMORIES_PER_RUN_MAX: u32 = 4;
/// Tables that one run may have.
pub const TABLES_PER_RUN_MAX: u32 = 8;
/// Core module instances that one run may have. A Python component links some dozens of them.
pub const CORE_INSTANCES_PER_RUN_MAX: u32 = 128;

/// What the host's own code may use of a run's stack, above what the guest may use.
const HOST_STACK_BYTES: usize = 1 << 20;
/// The bookkeeping of one instance; only a limit, nothing is set aside for it.
const INSTANCE_BYTES_MAX: usize = 4 << 20;
/// The version of wasmtime that the manifest asks for. A test holds it against the lock file.
const WASMTIME_VERSION: &str = "48.0.8";

/// What an engine can do. Sizes are ceilings for every run; a run's own [`crate::Limits`] can only be lower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Runs that may be in progress at once; more wait for a slot.
    pub concurrent_runs_max: u32,
    /// The most linear memory that a run may be given.
    pub memory_bytes_max: u64,
    /// The most table elements that a run may have, all tables together.
    pub table_elements_max: usize,
    /// Stack for guest code.
    pub wasm_stack_bytes: usize,
    /// How long guest code may compute before other work on its thread gets a turn.
    pub epoch_tick: Duration,
    /// Linear memory that a free slot may keep, wiped, instead of giving its pages back and faulting them in again. It takes effect only
    /// where the kernel can say which pages were written (Linux 6.7); elsewhere wiping costs more than it saves.
    pub memory_keep_resident_bytes: usize,
    /// The same for tables, on every kernel: they are small.
    pub table_keep_resident_bytes: usize,
    /// How many used memories are given back to the system in one go.
    pub decommit_batch: usize,
    /// Free slots that stay tied to the component they last ran, per memory pool.
    pub warm_slots_max: u32,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            concurrent_runs_max: 1024,
            memory_bytes_max: 256 << 20,
            table_elements_max: 100_000,
            wasm_stack_bytes: 1 << 20,
            epoch_tick: Duration::from_millis(5),
            memory_keep_resident_bytes: 64 << 10,
            table_keep_resident_bytes: 16 << 10,
            decommit_batch: 64,
            warm_slots_max: 100,
        }
    }
}

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A value that can't work.
    #[error("`{field}` must be {wanted}, not {found}")]
    Config {
        /// The field of [`EngineConfig`].
        field: &'static str,
        /// What would do.
        wanted: &'static str,
        /// What was given.
        found: String,
    },
    /// The system refused what the pool needs, mostly address space.
    #[error(
        "the sandbox could not be set up: {reason}. It reserves about 16 GiB of address space (not memory) for each \
         concurrent run: lower `concurrent_runs_max`, or raise `ulimit -v`"
    )]
    SetUp {
        /// wasmtime's words.
        reason: String,
    },
}

/// The engine of this process. Cloning it is cheap; the pool and the ticker end with the last clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    engine: wasmtime::Engine,
    linker: Linker<RunState>,
    slots: Semaphore,
    config: EngineConfig,
    ticker: Ticker,
}

impl Engine {
    /// Sets aside the pool's address space and starts the ticker.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        check(&config)?;
        let set_up = |error: wasmtime::Error| EngineError::SetUp { reason: format!("{error:#}") };
        let mut settings = compile_settings();
        settings.max_wasm_stack(config.wasm_stack_bytes);
        settings.async_stack_size(config.wasm_stack_bytes + HOST_STACK_BYTES);
        settings.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(&config)));
        let engine = wasmtime::Engine::new(&settings).map_err(set_up)?;
        let linker = host::linker(&engine).map_err(set_up)?;
        let slots = Semaphore::new(config.concurrent_runs_max as usize);
        let ticker = Ticker::start(engine.weak(), config.epoch_tick)
            .map_err(|error| EngineError::SetUp { reason: format!("the ticker thread did not start: {error}") })?;
        Ok(Self(Arc::new(Inner { engine, linker, slots, config, ticker })))
    }

    /// What it was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.0.config
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.0.engine
    }

    pub(crate) fn linker(&self) -> &Linker<RunState> {
        &self.0.linker
    }

    pub(crate) fn slots(&self) -> &Semaphore {
        &self.0.slots
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// Names all that makes compiled code unusable elsewhere: wasmtime's version, the processor, and the settings that code is generated
/// under. Two processes with the same name can use each other's compiled code, and fuel counts of equal names can be compared.
pub fn engine_version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Fingerprint(Sha256::new());
        match wasmtime::Engine::new(&compile_settings()) {
            Ok(engine) => std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut hash),
            // Nothing compiles on such a machine either, so nothing is ever stored under this name.
            Err(error) => hash.0.update(error.to_string()),
        }
        let fingerprint = data_encoding::HEXLOWER.encode(&hash.0.finalize()[..8]);
        format!("wasmtime-{WASMTIME_VERSION}-{}-{fingerprint}", std::env::consts::ARCH)
    });
    &VERSION
}

/// The settings that decide which code is generated: the same for the engine and for the process that compiles.
pub(crate) fn compile_settings() -> Config {
    let mut settings = Config::new();
    settings.consume_fuel(true);
    settings.epoch_interruption(true);
    settings.cranelift_opt_level(OptLevel::Speed);
    settings.relaxed_simd_deterministic(true);
    // Function names come from the name section. Reading DWARF at a trap would let a guest make the host work for it.
    settings.wasm_backtrace_details(WasmBacktraceDetails::Disable);
    // Only native profilers want it, and registering it makes loading slow.
    settings.native_unwind_info(false);
    settings.parallel_compilation(false);
    settings
}

fn pool(config: &EngineConfig) -> PoolingAllocationConfig {
    let runs = config.concurrent_runs_max;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(runs);
    pool.total_core_instances(runs.saturating_mul(CORE_INSTANCES_PER_RUN_MAX));
    pool.total_memories(runs.saturating_mul(MEMORIES_PER_RUN_MAX));
    pool.total_tables(runs.saturating_mul(TABLES_PER_RUN_MAX));
    pool.total_stacks(runs);
    pool.max_core_instances_per_component(CORE_INSTANCES_PER_RUN_MAX);
    pool.max_memories_per_component(MEMORIES_PER_RUN_MAX);
    pool.max_memories_per_module(MEMORIES_PER_RUN_MAX);
    pool.max_tables_per_component(TABLES_PER_RUN_MAX);
    pool.max_tables_per_module(TABLES_PER_RUN_MAX);
    pool.max_core_instance_size(INSTANCE_BYTES_MAX);
    pool.max_component_instance_size(INSTANCE_BYTES_MAX);
    pool.max_memory_size(usize::try_from(config.memory_bytes_max).unwrap_or(usize::MAX));
    pool.table_elements(config.table_elements_max);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes);
        pool.linear_memory_keep_resident(config.memory_keep_resident_bytes);
    }
    pool.table_keep_resident(config.table_keep_resident_bytes);
    pool.decommit_batch_size(config.decommit_batch);
    pool.max_unused_warm_slots(config.warm_slots_max);
    pool
}

fn check(config: &EngineConfig) -> Result<(), EngineError> {
    let refuse = |field, wanted, found: String| Err(EngineError::Config { field, wanted, found });
    if config.concurrent_runs_max == 0 {
        return refuse("concurrent_runs_max", "at least 1", "0".into());
    }
    if config.memory_bytes_max == 0 || config.memory_bytes_max > 4 << 30 {
        return refuse("memory_bytes_max", "from 1 byte to 4 GiB", config.memory_bytes_max.to_string());
    }
    if config.wasm_stack_bytes < 64 << 10 || config.wasm_stack_bytes > 64 << 20 {
        return refuse("wasm_stack_bytes", "from 64 KiB to 64 MiB", config.wasm_stack_bytes.to_string());
    }
    if config.epoch_tick.is_zero() {
        return refuse("epoch_tick", "longer than 0", "0".into());
    }
    if config.decommit_batch == 0 {
        return refuse("decommit_batch", "at least 1", "0".into());
    }
    Ok(())
}

/// A hasher whose result is the same in every process, which the standard one does not promise.
struct Fingerprint(Sha256);

impl std::hash::Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
