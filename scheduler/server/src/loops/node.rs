//! One node: its session, and the loops of its roles. When a session is over, the node stops what it does in its name and begins another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compline_core::ids::{SessionId, ShardId};
use compline_store::StoreError;
use compline_store::tables::session::Session;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::executor::{Executor, Holding};
use super::{Runner, retention, stops, ticker};
use crate::config::Roles;
use crate::ctx::Ctx;
use crate::passes::beat;
use crate::passes::lease::{self, Members};
use crate::passes::reap::{self, NodeView, Observer};

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
            exclusive: false,
            drain: Duration::from_secs(30),
        }
    }
}

/// A node.
pub struct Node {
    ctx: Arc<Ctx>,
    config: NodeConfig,
    runner: Arc<dyn Runner>,
    current: Mutex<SessionId>,
}

enum End {
    Stopped,
    SessionOver,
}

impl Node {
    /// A node on this store.
    pub fn new(ctx: Arc<Ctx>, config: NodeConfig, runner: Arc<dyn Runner>) -> Arc<Self> {
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
    pub async fn run(&self, stop: CancellationToken) -> Result<(), StoreError> {
        loop {
            let session = self.begin_session().await?;
            *self.current.lock() = session;
            match self.live(session, &stop).await? {
                End::Stopped => return self.leave(session).await,
                End::SessionOver => {
                    tracing::warn!(node = %self.config.name, %session,
                        "the session is over: its runs were stopped and a new session begins");
                }
            }
        }
    }

    async fn begin_session(&self) -> Result<SessionId, StoreError> {
        let id = loop {
            let session = self.new_session();
            if beat::begin(&self.ctx, &self.config.name, &session).await? {
                break session.id;
            }
        };
        if self.config.exclusive {
            let others = Observer::default().observe(&self.ctx).await?;
            for other in others.iter().filter(|other| other.session.id != id) {
                reap::end_session(&self.ctx, other).await?;
            }
            let given_back = reap::give_back_orphans(&self.ctx).await?;
            if given_back > 0 {
                tracing::info!(given_back, "executions of an earlier life were given back to their lanes");
            }
        }
        Ok(id)
    }

    fn new_session(&self) -> Session {
        let started_at = self.ctx.env.now();
        Session {
            id: SessionId::new(started_at, self.ctx.env.random_u128()),
            started_at,
            roles: self.config.roles.names(),
            lanes: self.config.lanes.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    async fn leave(&self, session: SessionId) -> Result<(), StoreError> {
        beat::hand_back_unheld(&self.ctx, &self.config.name, session, beat::Held::default).await?;
        lease::release_all(&self.ctx, session).await?;
        beat::end(&self.ctx, &self.config.name, session).await
    }

    /// One session, from its begin to its end.
    async fn live(&self, session: SessionId, stop: &CancellationToken) -> Result<End, StoreError> {
        let over = CancellationToken::new();
        let holding = Arc::new(Holding::new(over.clone()));
        let executor = self.config.roles.executor.then(|| {
            let executor = Executor {
                ctx: self.ctx.clone(),
                node: self.config.name.as_str().into(),
                session,
                lanes: self.config.lanes.clone(),
                workers: self.config.workers,
                runner: self.runner.clone(),
                holding: holding.clone(),
            };
            AbortOnDropHandle::new(tokio::spawn(self.ctx.env.gated(executor.run(stop.child_token(), over.clone()))))
        });
        let mut executor = executor;
        let schedule = self.oversee(session, stop);
        let beats = self.beat_loop(session, &holding);
        // Dropped with this session, whatever ends it.
        let stops = stops::run(self.ctx.clone(), session, holding.clone());
        let _stops = AbortOnDropHandle::new(tokio::spawn(self.ctx.env.gated(stops)));
        tokio::pin!(schedule, beats);
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(End::Stopped),
            () = &mut beats => Ok(End::SessionOver),
            ended = &mut schedule => ended.map(|()| End::SessionOver),
            ended = join(&mut executor), if executor.is_some() => {
                executor = None;
                match ended {
                    Ok(()) if stop.is_cancelled() => Ok(End::Stopped),
                    Ok(()) => Ok(End::SessionOver),
                    Err(error) => Err(error),
                }
            }
        };
        if matches!(end, Ok(End::Stopped)) && executor.is_some() {
            // The beats go on while what runs is finished.
            tokio::select! {
                biased;
                ended = join(&mut executor) => ended?,
                () = tokio::time::sleep(self.config.drain) => tracing::warn!("runs did not end in time and are given back"),
                () = &mut beats => {}
            }
        }
        over.cancel();
        end
    }

    /// Proves the session alive until it is over, or until that cannot be proved in time.
    async fn beat_loop(&self, session: SessionId, holding: &Holding) {
        if self.config.exclusive {
            return std::future::pending().await;
        }
        let mut counter = 0;
        let mut proved = Instant::now();
        let mut interval = tokio::time::interval(self.config.beat);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // A node that cannot beat stops its runs before others give up on it.
        let patience = self.config.session_ttl * 2 / 3;
        loop {
            interval.tick().await;
            counter += 1;
            // Others may have seen the beat as soon as it was sent, however late its answer is.
            let sent = Instant::now();
            let beaten = beat::beat(&self.ctx, &self.config.name, session, counter);
            match tokio::time::timeout_at(proved + patience, beaten).await {
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

    /// The scheduler's part: ends dead sessions, gives back what they held, takes its share of the shards and ticks them.
    async fn oversee(&self, session: SessionId, stop: &CancellationToken) -> Result<(), StoreError> {
        if !self.config.roles.scheduler {
            return std::future::pending().await;
        }
        let mut observer = Observer::default();
        let mut tickers =
            Tickers { ctx: self.ctx.clone(), session, stop: stop.child_token(), running: BTreeMap::new() };
        let mut interval = tokio::time::interval(self.config.beat);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            match self.look_around(session, &mut observer).await {
                Ok(Some(mine)) => tickers.keep(&mine),
                Ok(None) => return Ok(()),
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => tracing::error!(%error, "looking after the other nodes failed and will be tried again"),
            }
        }
    }

    /// One look. Returns the shards that this session holds after it; `None`: the session is over.
    async fn look_around(
        &self,
        session: SessionId,
        observer: &mut Observer,
    ) -> Result<Option<BTreeSet<ShardId>>, StoreError> {
        let nodes = observer.observe(&self.ctx).await?;
        if !self.config.exclusive {
            for dead in nodes.iter().filter(|node| node.still_for >= self.config.session_ttl) {
                if reap::end_session(&self.ctx, dead).await? {
                    tracing::warn!(node = %dead.node, still_for = ?dead.still_for, "the node is dead: its session was ended");
                }
            }
            let given_back = reap::give_back_orphans(&self.ctx).await?;
            if given_back > 0 {
                tracing::info!(given_back, "executions of dead sessions were given back to their lanes");
            }
        }
        let schedules = |node: &&NodeView| {
            node.session.roles.iter().any(|role| role == "scheduler")
                && (node.session.id == session || node.still_for < self.config.lease_ttl)
        };
        let alive = nodes.iter().filter(schedules).map(|node| node.session.id).collect();
        let members = Members { node: self.config.name.clone(), session, alive };
        lease::balance(&self.ctx, &members).await
    }
}

async fn join(executor: &mut Option<AbortOnDropHandle<Result<(), StoreError>>>) -> Result<(), StoreError> {
    match executor {
        Some(handle) => handle.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the executor broke");
            Ok(())
        }),
        None => std::future::pending().await,
    }
}

/// The tickers of the shards that a session holds. Dropping it stops them.
struct Tickers {
    ctx: Arc<Ctx>,
    session: SessionId,
    stop: CancellationToken,
    running: BTreeMap<ShardId, AbortOnDropHandle<()>>,
}

impl Tickers {
    /// Lets exactly these shards be ticked.
    fn keep(&mut self, mine: &BTreeSet<ShardId>) {
        // One that ended by itself lost its lease, or broke; if the shard is ours again, it begins anew.
        self.running.retain(|shard, task| mine.contains(shard) && !task.is_finished());
        for shard in mine {
            let begin = || {
                let ticker = ticker::run(self.ctx.clone(), self.session, *shard, self.stop.clone());
                let retention = self.ctx.env.gated(retention::run(self.ctx.clone(), *shard));
                let both = async move {
                    // It ends with the ticker.
                    let _retention = AbortOnDropHandle::new(tokio::spawn(retention));
                    ticker.await;
                };
                AbortOnDropHandle::new(tokio::spawn(self.ctx.env.gated(both)))
            };
            self.running.entry(*shard).or_insert_with(begin);
        }
    }
}
