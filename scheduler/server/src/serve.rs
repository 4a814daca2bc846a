//! `compline serve`: one process with a store, the loops of its roles, and the HTTP API.

use std::ffi::OsString;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use compline_runtime::{CompileLimits, CompilePlace, Compiler, CompilerError, Engine, EngineConfig, EngineError};
use compline_store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::api::{self, ApiState};
use crate::config::{ServeConfig, StoreLocation};
use crate::ctx::Ctx;
use crate::env::Env;
use crate::liveness::Liveness;
use crate::loops::{Node, NodeConfig, NodeError};
use crate::metrics::Metrics;
use crate::sandbox::Sandbox;
use crate::stores::{self, OpenError};

/// The hidden command by which the server's own binary becomes a compile worker.
pub const COMPILE_COMMAND: &str = "__compile";

/// The name of the node that an embedded store has, unless told otherwise.
const NODE_NAME: &str = "local";

/// How long a stopping server may take beyond its drain time. Past it the store, or a client, does not answer.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// How much of the host's name a node's name has.
const HOST_CHARS_MAX: usize = 48;

/// Why a server did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store cannot be opened, or refuses to go on.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The store on FoundationDB cannot be opened.
    #[error("the store was not opened")]
    Open(#[from] OpenError),
    /// The node ended by itself.
    #[error("the node ended")]
    Node(#[source] NodeError),
    /// The sandbox cannot be set up.
    #[error("the sandbox cannot be set up")]
    Engine(#[from] EngineError),
    /// The compiler cannot be set up.
    #[error("the compiler cannot be set up")]
    Compiler(#[from] CompilerError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: is another server running? `--listen` takes another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// It was told to stop, and something it waits for does not end.
    #[error(
        "it did not stop in time: the store or a client does not answer. What it held is taken over and runs again"
    )]
    Overdue,
    /// The system refused something that every server needs.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Serves until SIGTERM or SIGINT, then drains: it claims nothing more, finishes what runs, and gives back the rest. It ends soon after the
/// drain time whether the store answers or not. A second signal ends it at once; what it held then runs again elsewhere.
pub async fn run(config: ServeConfig) -> Result<(), ServeError> {
    let stop = CancellationToken::new();
    stop_on_signals(&stop)?;
    // The address comes first: a server that cannot be reached should not take over the store.
    let listener = match config.roles.api {
        true => Some(listen(config.listen).await?),
        false => None,
    };
    let store = stores::open(&config.store).await?;
    let served = tokio::select! {
        served = serve(&config, store.clone(), listener, &stop) => served,
        overdue = overdue(&stop, config.liveness.drain) => Err(overdue),
    };
    let closed = store.close().await;
    served?;
    Ok(closed?)
}

/// A store that is away is waited for without end, and so is a client that does not read: a server that stops cannot do either.
async fn overdue(stop: &CancellationToken, drain: Duration) -> ServeError {
    stop.cancelled().await;
    tokio::time::sleep(drain + STOP_WITHIN).await;
    ServeError::Overdue
}

async fn serve(
    config: &ServeConfig,
    store: Store,
    listener: Option<TcpListener>,
    stop: &CancellationToken,
) -> Result<(), ServeError> {
    let ctx = Ctx::open(store, Env::system(), Arc::new(Metrics::default())).await?;
    let ctx = Arc::new(ctx.keeping(config.retention));
    let node_config = node_config(config, &ctx.env);
    tracing::info!(node = %node_config.name, roles = ?config.roles.names(), "the node begins");
    // Only those that run tasks, or take them in, need a sandbox.
    let compiler = if config.roles.api || config.roles.executor { Some(compiler(config)?) } else { None };
    let node = match compiler.clone().filter(|_| config.roles.executor) {
        Some(compiler) => Node::new(ctx.clone(), node_config, Arc::new(Sandbox::new(ctx.store.clone(), compiler))),
        None => Node::without_runner(ctx.clone(), node_config),
    };
    let api = async {
        match (listener, compiler) {
            (Some(listener), Some(compiler)) => {
                serve_api(listener, ApiState::new(ctx, compiler, config.ceilings), stop.clone()).await
            }
            _ => Ok(()),
        }
    };
    let loops = async {
        let ended = node.run(stop.clone()).await;
        // A node that ends by itself takes the API with it: a server that does not schedule must not say that it does.
        stop.cancel();
        ended
    };
    let (api, loops) = tokio::join!(api, loops);
    loops.map_err(|error| match error {
        NodeError::Store(error) => ServeError::Store(error),
        error @ NodeError::NameTaken { .. } => ServeError::Node(error),
    })?;
    api
}

fn compiler(config: &ServeConfig) -> Result<Compiler, ServeError> {
    let runs = if config.roles.executor { config.workers.max(1) } else { 1 };
    let engine = Engine::new(EngineConfig {
        concurrent_runs_max: runs + EngineConfig::default().warm_slots_max,
        memory_bytes_max: config.ceilings.memory_bytes,
        ..EngineConfig::default()
    })?;
    Ok(Compiler::new(engine, compile_place()?, CompileLimits::default(), compiled_directory(&config.store))?)
}

async fn serve_api(listener: TcpListener, state: ApiState, stop: CancellationToken) -> Result<(), ServeError> {
    let address =
        listener.local_addr().map_err(|source| ServeError::System { what: "read the listening address", source })?;
    tracing::info!("listening on http://{address}");
    let served = axum::serve(listener, api::router(state)).with_graceful_shutdown(stop.cancelled_owned());
    served.into_future().await.map_err(|source| ServeError::System { what: "serve HTTP", source })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

/// The server's own binary, so that what compiles is what runs.
fn compile_place() -> Result<CompilePlace, ServeError> {
    let program =
        std::env::current_exe().map_err(|source| ServeError::System { what: "find its own binary", source })?;
    Ok(CompilePlace::ChildProcess { program, args: vec![OsString::from(COMPILE_COMMAND)] })
}

/// Where compiled components are kept: beside an embedded store, else where the system keeps what can be made again.
fn compiled_directory(store: &StoreLocation) -> Option<PathBuf> {
    match store {
        StoreLocation::Embedded(directory) => Some(directory.join("compiled")),
        StoreLocation::FoundationDb { .. } => {
            let set = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
            let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
            Some(caches.join("compline").join("compiled"))
        }
    }
}

fn node_config(config: &ServeConfig, env: &Env) -> NodeConfig {
    let exclusive = config.store.is_exclusive();
    let name = config.node_name.clone().unwrap_or_else(|| match exclusive {
        true => NODE_NAME.to_owned(),
        false => random_name(env),
    });
    let Liveness { beat, lease_ttl, session_ttl, drain, clock } = config.liveness;
    NodeConfig {
        roles: config.roles,
        lanes: config.lanes.clone(),
        workers: config.workers.max(1) as usize,
        beat,
        lease_ttl,
        session_ttl,
        drain,
        clock_limits: clock,
        exclusive,
        ..NodeConfig::new(name)
    }
}

/// The host's name, for people, and a random end, so that two nodes of one host, or of two hosts of one name, never meet.
fn random_name(env: &Env) -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let host: String = host
        .unwrap_or_default()
        .trim()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c))
        .take(HOST_CHARS_MAX)
        .collect();
    let host = if host.is_empty() { "node" } else { &host };
    format!("{host}-{:06x}", env.random_u64() & 0xff_ffff)
}

fn stop_on_signals(stop: &CancellationToken) -> Result<(), ServeError> {
    let broken = |source| ServeError::System { what: "listen to signals", source };
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: nothing more is claimed, what runs is finished; a second signal ends at once");
        stop.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(())
}
