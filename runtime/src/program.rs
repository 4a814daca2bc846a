//! A compiled component, ready to be run.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex};
use wasmtime_wasi::p2::bindings::CommandPre;

use crate::digest::Digest;
use crate::engine::Engine;
use crate::fault::{Ended, Phase};
use crate::host::bindings::TaskPre;
use crate::host::bindings::compline::task::types::{ErrorKind, TaskError};
use crate::host::limiter::Limiter;
use crate::host::{HANDLES_MAX, RunState};
use crate::inspect::{ComponentInfo, Kind, PARAMETERS_SCHEMA};
use crate::outcome::{Cost, ERROR_MESSAGE_BYTES_MAX, ExecutionInfo, Invocation, Limits, Outcome, RunReport};

/// The largest parameters schema.
pub const PARAMETERS_SCHEMA_BYTES_MAX: usize = 256 << 10;

/// A component that is compiled, linked and ready to be run any number of times. Cloning it is cheap.
#[derive(Clone)]
pub struct Program(Arc<Inner>);

pub(crate) struct Inner {
    engine: Engine,
    info: ComponentInfo,
    entry: Entry,
    parameters_schema: Option<ComponentExportIndex>,
}

enum Entry {
    Task(TaskPre<RunState>),
    Command(CommandPre<RunState>),
}

/// Why a component could not say which parameters it takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The call did not end well.
    #[error("`parameters-schema` ended with {}: {detail}", .outcome.kind())]
    Failed {
        /// How it ended.
        outcome: Outcome,
        /// What is known about it.
        detail: String,
    },
    /// The schema is too large to keep.
    #[error("the parameters schema has {found} bytes, and at most {PARAMETERS_SCHEMA_BYTES_MAX} are accepted")]
    TooLarge {
        /// Its size.
        found: usize,
    },
}

impl Program {
    /// Links what was compiled. Fails when a function that the component imports is not there, or has another type.
    pub(crate) fn link(engine: &Engine, component: &Component, info: ComponentInfo) -> wasmtime::Result<Self> {
        let linked = engine.linker().instantiate_pre(component)?;
        let parameters_schema =
            info.has_parameters_schema.then(|| component.get_export_index(None, PARAMETERS_SCHEMA)).flatten();
        let entry = match info.kind {
            Kind::Task => Entry::Task(TaskPre::new(linked)?),
            Kind::Command => Entry::Command(CommandPre::new(linked)?),
        };
        Ok(Self(Arc::new(Inner { engine: engine.clone(), info, entry, parameters_schema })))
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// The component's name.
    pub fn digest(&self) -> Digest {
        self.0.info.digest
    }

    /// What the component is.
    pub fn info(&self) -> &ComponentInfo {
        &self.0.info
    }

    /// Runs the component once, in an instance of its own. Ends when the guest does, at a limit, or soon after `cancel` resolves,
    /// also while the guest is blocked in a host call. Dropping the future ends the run too, and loses the report.
    ///
    /// Waits for a free slot first; that wait counts towards nothing, and `cancel` ends it.
    pub async fn run(&self, invocation: Invocation, cancel: impl Future<Output = ()> + Send) -> RunReport {
        let Invocation { execution, input, limits } = invocation;
        let mut cancel = std::pin::pin!(cancel);
        let slot = tokio::select! {
            biased;
            () = &mut cancel => return RunReport::not_started(Outcome::Cancelled),
            slot = self.0.engine.slots().acquire() => slot,
        };
        let Ok(_slot) = slot else {
            return RunReport::not_started(Outcome::HostError("the sandbox is shut down".into()));
        };
        let _running = self.0.engine.ticker().run_starts();
        let started = Instant::now();
        let mut store = match self.store(execution, &input, &limits) {
            Ok(store) => store,
            Err(error) => return RunReport::not_started(Outcome::HostError(format!("{error:#}"))),
        };
        let mut phase = Phase::Start;
        let ended = until(self.call(&mut store, &input, &mut phase), limits.wall, cancel).await;
        let (outcome, output) = match ended {
            Ended::Returned(Ok(returned)) => settle(returned, &limits),
            ended => (ended.outcome(phase, &store.data().limiter), None),
        };
        report(store, limits.fuel, started.elapsed(), outcome, output)
    }

    /// Asks the component which parameters it takes: `None` if it does not say. The call runs without a job, under small limits.
    pub async fn parameters_schema(&self) -> Result<Option<String>, SchemaError> {
        let Some(export) = &self.0.parameters_schema else { return Ok(None) };
        let limits = Limits { fuel: 100_000_000, wall: Duration::from_secs(2), ..Limits::default() };
        let Ok(_slot) = self.0.engine.slots().acquire().await else {
            let outcome = Outcome::HostError("the sandbox is shut down".into());
            return Err(SchemaError::Failed { outcome, detail: String::new() });
        };
        let _running = self.0.engine.ticker().run_starts();
        let failed = |outcome: Outcome, detail: String| SchemaError::Failed { outcome, detail };
        let mut store = self
            .store(ExecutionInfo::default(), &Bytes::new(), &limits)
            .map_err(|error| failed(Outcome::HostError(format!("{error:#}")), String::new()))?;
        let mut phase = Phase::Start;
        let ended =
            until(self.call_schema(&mut store, export, &mut phase), limits.wall, std::pin::pin!(pending())).await;
        match ended {
            Ended::Returned(Ok(schema)) if schema.len() > PARAMETERS_SCHEMA_BYTES_MAX => {
                Err(SchemaError::TooLarge { found: schema.len() })
            }
            Ended::Returned(Ok(schema)) => Ok(Some(schema)),
            ended => {
                let outcome = ended.outcome(phase, &store.data().limiter);
                let detail = store.data().capture.lock().finish().stderr_tail;
                Err(failed(outcome, detail))
            }
        }
    }

    fn store(&self, execution: ExecutionInfo, input: &Bytes, limits: &Limits) -> wasmtime::Result<Store<RunState>> {
        let config = self.0.engine.config();
        let limiter = Limiter::new(limits.memory_bytes.min(config.memory_bytes_max), config.table_elements_max);
        let state = RunState::new(self.0.info.kind, execution, input, limits, limiter);
        let mut store = Store::new(self.0.engine.wasmtime(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_max_component_handles(HANDLES_MAX);
        store.set_fuel(limits.fuel)?;
        // At every tick the guest lets others have the thread, and whoever waits for it looks at its deadline.
        store.epoch_deadline_async_yield_and_update(1);
        store.set_epoch_deadline(1);
        Ok(store)
    }

    async fn call(&self, store: &mut Store<RunState>, input: &[u8], phase: &mut Phase) -> wasmtime::Result<Returned> {
        match &self.0.entry {
            Entry::Task(task) => {
                let task = task.instantiate_async(&mut *store).await?;
                *phase = Phase::Call;
                Ok(Returned::Task(task.call_run(store, input).await?))
            }
            Entry::Command(command) => {
                let command = command.instantiate_async(&mut *store).await?;
                *phase = Phase::Call;
                Ok(Returned::Command(command.wasi_cli_run().call_run(store).await?))
            }
        }
    }

    async fn call_schema(
        &self,
        store: &mut Store<RunState>,
        export: &ComponentExportIndex,
        phase: &mut Phase,
    ) -> wasmtime::Result<String> {
        let linked = match &self.0.entry {
            Entry::Task(task) => task.instance_pre(),
            Entry::Command(command) => command.instance_pre(),
        };
        let instance = linked.instantiate_async(&mut *store).await?;
        *phase = Phase::Call;
        let (schema,) = instance.get_typed_func::<(), (String,)>(&mut *store, export)?.call_async(store, ()).await?;
        Ok(schema)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Program").field(&self.0.info.digest).finish()
    }
}

/// What the guest gave back.
enum Returned {
    Task(Result<Vec<u8>, TaskError>),
    Command(Result<(), ()>),
}

/// Runs guest code until it returns, its time is over, or the caller takes it back. The guest is polled first: most runs end at once
/// and then need no timer.
async fn until<T>(
    call: impl Future<Output = wasmtime::Result<T>>,
    wall: Duration,
    cancel: std::pin::Pin<&mut impl Future<Output = ()>>,
) -> Ended<T> {
    let deadline = tokio::time::sleep(wall);
    tokio::select! {
        biased;
        returned = crate::fault::without_panic(call) => match returned {
            Ok(returned) => Ended::Returned(returned),
            Err(panic) => Ended::Panicked(panic),
        },
        () = cancel => Ended::Cancelled,
        () = deadline => Ended::TimedOut,
    }
}

fn settle(returned: Returned, limits: &Limits) -> (Outcome, Option<Bytes>) {
    match returned {
        Returned::Task(Ok(output)) if output.len() > limits.output_bytes => (Outcome::OutputLimit, None),
        Returned::Task(Ok(output)) => (Outcome::Ok, Some(output.into())),
        Returned::Task(Err(TaskError { kind, mut message })) => {
            message.truncate(message.floor_char_boundary(ERROR_MESSAGE_BYTES_MAX));
            (Outcome::Error { retryable: matches!(kind, ErrorKind::Retryable), message }, None)
        }
        Returned::Command(Ok(())) => (Outcome::Ok, None),
        Returned::Command(Err(())) => (Outcome::Exit(1), None),
    }
}

fn report(store: Store<RunState>, fuel: u64, wall: Duration, outcome: Outcome, output: Option<Bytes>) -> RunReport {
    let left = store.get_fuel().unwrap_or(0);
    let state = store.into_data();
    let captured = state.capture.lock().finish();
    let is_command_output = matches!(outcome, Outcome::Ok | Outcome::Exit(_)) && output.is_none();
    RunReport {
        output: output.or(is_command_output.then_some(captured.output)),
        outcome,
        logs: captured.lines,
        logs_dropped: captured.dropped,
        stderr_tail: captured.stderr_tail,
        cost: Cost {
            fuel: fuel.saturating_sub(left),
            wall,
            memory_peak_bytes: state.limiter.memory_peak_bytes(),
            host_calls: state.host_calls,
            memory_denied: state.limiter.denied(),
        },
    }
}
