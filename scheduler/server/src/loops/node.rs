//! One node: its session, and the loops of its roles. When a session is over, the node stops what it does in its name and begins another.

use std::sync::Arc;
use std::time::Duration;

use compline_core::ids::SessionId;
use compline_store::StoreError;
use compline_store::tables::session::{Session, Standing, Versions};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::executor::{Executor, Holding};
use super::{Runner, stops};

use super::overseer::Overseer;
use crate::config::Roles;
use crate::ctx::Ctx;
use crate::fleet::clocks::ClockLimits;
use crate::passes::beat::{self, Pulse};
use crate::passes::{lease, reap};

/// How long a node waits for runs to end that it stopped, before it gives them back.
const RUNS_STOP_MAX: Duration = Duration::from_secs(2);

/// How long a node that ends tries to say so; after that others take over when its session's time is up.
const LEAVE_MAX: Duration = Duration::from_secs(10);

/// A name is free when whoever had it has missed so many beats.
const NAME_BEATS: u32 = 3;

/// How a node behaves.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Its name, unique among the nodes of a store.
    pub name: String,
    /// What it does.
    pub roles: Roles,
    /// The lanes that its executor serves.
    pub lanes: Vec<String>,
    /// How many attempts it runs at once.
    pub workers: usize,
    /// How often it beats and looks at the others.
    pub beat: Duration,
    /// A scheduler whose counter stands still for so long loses its shards.
    pub lease_ttl: Duration,
    /// A node whose counter stands still for so long loses its session.
    pub session_ttl: Duration,
    /// How far clocks may be off.
    pub clock_limits: ClockLimits,
    /// Whether the store lets only one process in, so that every other session is known to be dead and nobody needs beats.
    pub exclusive: bool,
    /// For how long a stopping node waits for what it runs.
    pub drain: Duration,
}

impl NodeConfig {
    /// The defaults, for a node of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            roles: Roles::ALL,
            lanes: vec!["default".to_owned()],
            workers: 64,
            beat: Duration::from_secs(1),
            lease_ttl: Duration::from_secs(5),
            session_ttl: Duration::from_secs(15),
            clock_limits: ClockLimits::default(),
            exclusive: false,
            drain: Duration::from_secs(30),
        }
    }
}

/// Why a node ended by itself.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NodeError {
    /// The store is gone.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another node has its name, and lives.
    #[error(
        "another live node is called {name:?} (its counter moves): give this one another name with --node-name, or stop the other one"
    )]
    NameTaken {
        /// The name.
        name: String,
    },
}

/// A node.
pub struct Node {
    ctx: Arc<Ctx>,
    config: NodeConfig,
    runner: Option<Arc<dyn Runner>>,
    current: Mutex<SessionId>,
}

enum End {
    Stopped,
    SessionOver,
}

type ExecutorTask = Option<AbortOnDropHandle<Result<(), StoreError>>>;

impl Node {
    /// A node on this store.
    pub fn new(ctx: Arc<Ctx>, config: NodeConfig, runner: Arc<dyn Runner>) -> Arc<Self> {
        Self::with_runner(ctx, config, Some(runner))
    }

    /// A node that runs nothing, whatever its roles say: it needs no sandbox.
    pub fn without_runner(ctx: Arc<Ctx>, mut config: NodeConfig) -> Arc<Self> {
        config.roles.executor = false;
        Self::with_runner(ctx, config, None)
    }

    fn with_runner(ctx: Arc<Ctx>, config: NodeConfig, runner: Option<Arc<dyn Runner>>) -> Arc<Self> {
        Arc::new(Self { ctx, config, runner, current: Mutex::new(SessionId::NONE) })
    }

    /// The session that lasts now.
    pub fn session(&self) -> SessionId {
        *self.current.lock()
    }

    /// How it behaves.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Lives until `stop` is cancelled and what it holds is finished or given back, or until the store is gone.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), NodeError> {
        loop {
            let begun = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                begun = self.begin_session() => begun?,
            };
            *self.current.lock() = begun;
            self.ctx.fleet.set_own(begun);
            match self.live(begun, &stop).await? {
                End::Stopped => return Ok(self.leave(begun).await?),
                End::SessionOver => {
                    tracing::warn!(node = %self.config.name, session = %begun,
                        "the session is over: its runs were stopped, its shards and claims are others', and a new session begins");
                }
            }
        }
    }

    async fn begin_session(&self) -> Result<SessionId, NodeError> {
        let id = loop {
            let replaces = self.wait_for_name().await?;
            let session = self.new_session();
            if beat::begin(&self.ctx, &self.config.name, &session, replaces.as_ref()).await? {
                break session.id;
            }
        };
        if self.config.exclusive {
            let view = self.ctx.fleet.look(&self.ctx).await?;
            for other in view.nodes.iter().filter(|other| !other.is(id)) {
                reap::end_session(&self.ctx, other).await?;
            }
            let given_back = reap::give_back_orphans(&self.ctx).await?;
            if given_back > 0 {
                tracing::info!(given_back, "executions of an earlier life were given back to their lanes");
            }
        }
        Ok(id)
    }

    /// Waits until nobody who lives has this node's name. Of two nodes of one name the one that lives keeps it, and the other is refused; a node
    /// that died leaves it to whoever comes next, who takes it over when a few beats are missed. Returns the rows to replace.
    async fn wait_for_name(&self) -> Result<Option<beat::NodeRows>, NodeError> {
        let name = &self.config.name;
        let mut seen = beat::rows_of(&self.ctx, name).await?;
        let own = self.session();
        let mut since = Instant::now();
        let mut moves = 0;
        loop {
            let Some((session, _)) = &seen else { return Ok(None) };
            let holder = compline_store::tables::session::decode(name.as_bytes(), session).ok();
            if self.config.exclusive || holder.as_ref().is_some_and(|holder| holder.id == own) {
                return Ok(seen);
            }
            let beat = holder.map_or(self.config.beat, |holder| Duration::from_millis(u64::from(holder.beat_millis)));
            if since.elapsed() >= beat * NAME_BEATS {
                return Ok(seen);
            }
            tokio::time::sleep(beat / 4).await;
            let now = beat::rows_of(&self.ctx, name).await?;
            let beat_of = |rows: &Option<beat::NodeRows>| rows.as_ref().and_then(|(_, beat)| beat.clone());
            if beat_of(&now) != beat_of(&seen) {
                // One beat of a node that is dead may still land late; two are a sign of life.
                moves += 1;
                if moves >= 2 && now.is_some() {
                    return Err(NodeError::NameTaken { name: name.clone() });
                }
                since = Instant::now();
            }
            seen = now;
        }
    }

    fn new_session(&self) -> Session {
        let started_at = self.ctx.env.now();
        let millis = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        Session {
            roles: self.config.roles.names(),
            lanes: if self.config.roles.executor { self.config.lanes.clone() } else { Vec::new() },
            workers: if self.config.roles.executor { self.config.workers as u32 } else { 0 },
            versions: Versions {
                compline: env!("CARGO_PKG_VERSION").to_owned(),
                engine: compline_runtime::engine_version().to_owned(),
                zones: self.ctx.env.zones().version().as_str().to_owned(),
            },
            beat_millis: millis(self.config.beat),
            ttl_millis: millis(self.config.session_ttl),
            ..Session::new(SessionId::new(started_at, self.ctx.env.random_u128()), started_at)
        }
    }

    async fn leave(&self, session: SessionId) -> Result<(), StoreError> {
        let leaving = async {
            beat::hand_back_unheld(&self.ctx, &self.config.name, session, beat::Held::default).await?;
            lease::stand(&self.ctx, &self.config.name, session, Standing::Stopping).await?;
            beat::end(&self.ctx, &self.config.name, session).await
        };
        timeout(LEAVE_MAX, leaving).await.unwrap_or_else(|_| {
            tracing::warn!("the store does not answer: others take over when the session's time is up");
            Ok(())
        })
    }

    /// One session, from its begin to its end.
    async fn live(&self, session: SessionId, stop: &CancellationToken) -> Result<End, StoreError> {
        let over = CancellationToken::new();
        let holding = Arc::new(Holding::new(over.clone()));
        let mut executor = self.start_executor(session, &holding, stop, &over);
        // Dropped with this session, whatever ends it.
        let stops = stops::run(self.ctx.clone(), session, holding.clone());
        let _stops = AbortOnDropHandle::new(tokio::spawn(self.ctx.env.gated(stops)));
        let end = {
            let mut overseer = Box::pin(Overseer::new(&self.ctx, &self.config, session, stop.child_token()).run());
            let beats = self.beat_loop(session, &holding);
            tokio::pin!(beats);
            let end = tokio::select! {
                biased;
                () = stop.cancelled() => Ok(End::Stopped),
                () = &mut beats => Ok(End::SessionOver),
                ended = &mut overseer => ended.map(|()| End::SessionOver),
                ended = join(&mut executor), if executor.is_some() => {
                    executor = None;
                    match ended {
                        Ok(()) if stop.is_cancelled() => Ok(End::Stopped),
                        Ok(()) => Ok(End::SessionOver),
                        Err(error) => Err(error),
                    }
                }
            };
            // With it go the tickers, and its hold on what requests look at too.
            drop(overseer);
            if matches!(end, Ok(End::Stopped)) {
                // The beats go on while what runs is finished.
                tokio::select! {
                    biased;
                    () = &mut beats => Ok(End::SessionOver),
                    drained = self.drain(session, &mut executor) => drained.map(|()| End::Stopped),
                }
            } else {
                end
            }
        };
        over.cancel();
        // What was stopped must not run on while it is given back.
        if executor.is_some() && timeout(RUNS_STOP_MAX, join(&mut executor)).await.is_err() {
            tracing::warn!("runs did not stop within {RUNS_STOP_MAX:?}; their reports will be refused");
        }
        // One that was stopped while its session ended needs no other.
        if stop.is_cancelled() && end.is_ok() { Ok(End::Stopped) } else { end }
    }

    fn start_executor(
        &self,
        session: SessionId,
        holding: &Arc<Holding>,
        stop: &CancellationToken,
        over: &CancellationToken,
    ) -> ExecutorTask {
        let runner = self.runner.as_ref().filter(|_| self.config.roles.executor)?;
        let executor = Executor {
            ctx: self.ctx.clone(),
            node: self.config.name.as_str().into(),
            session,
            lanes: self.config.lanes.clone(),
            workers: self.config.workers,
            exclusive: self.config.exclusive,
            runner: runner.clone(),
            holding: holding.clone(),
        };
        Some(AbortOnDropHandle::new(tokio::spawn(self.ctx.env.gated(executor.run(stop.child_token(), over.clone())))))
    }

    /// Hands the shards over at once, and waits for what runs, for as long as it may take.
    async fn drain(&self, session: SessionId, executor: &mut ExecutorTask) -> Result<(), StoreError> {
        let step_down = lease::stand(&self.ctx, &self.config.name, session, Standing::Stopping);
        let finish = async {
            if executor.is_some() {
                let ended = join(executor).await;
                *executor = None;
                ended?;
            }
            Ok(())
        };
        match timeout(self.config.drain, async { tokio::try_join!(step_down, finish) }).await {
            Ok(done) => done.map(|_| ()),
            Err(_) => {
                tracing::warn!("runs did not end within {:?} and are given back", self.config.drain);
                Ok(())
            }
        }
    }

    /// Proves the session alive until it is over, or until that cannot be proved in time.
    async fn beat_loop(&self, session: SessionId, holding: &Holding) {
        if self.config.exclusive {
            return std::future::pending().await;
        }
        let mut pulse = Pulse { counter: 0, before_took: None, running: Vec::new() };
        let mut proved = Instant::now();
        let mut interval = tokio::time::interval(self.config.beat);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A node that cannot beat stops its runs before others give up on it.
        let patience = self.config.session_ttl * 2 / 3;
        loop {
            interval.tick().await;
            pulse.counter += 1;
            pulse.running = self.ctx.metrics.running_by_lane();
            // Others may have seen the beat as soon as it was sent, however late its answer is.
            let sent = Instant::now();
            let beaten = beat::beat(&self.ctx, &self.config.name, session, &pulse);
            let beaten = tokio::time::timeout_at(proved + patience, beaten).await;
            pulse.before_took = matches!(beaten, Ok(Ok(true))).then(|| sent.elapsed());
            match beaten {
                Ok(Ok(true)) => proved = sent,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "the beat failed"),
                Err(_) => {
                    tracing::error!("no beat for {patience:?}: this node stops its runs before others take them over");
                    return;
                }
            }
            if proved.elapsed() >= patience {
                return;
            }
            let handed_back = beat::hand_back_unheld(&self.ctx, &self.config.name, session, || holding.snapshot());
            match tokio::time::timeout_at(proved + patience, handed_back).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(count)) => tracing::info!(count, "executions whose claim was never answered were given back"),
                Ok(Err(error)) => tracing::warn!(%error, "giving back unheld executions failed"),
            }
        }
    }
}

async fn join(executor: &mut ExecutorTask) -> Result<(), StoreError> {
    match executor {
        Some(handle) => handle.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the executor broke");
            Ok(())
        }),
        None => std::future::pending().await,
    }
}
