//! What a node does about the others: looks at them, judges their clocks and its own, and, as a scheduler, ends the dead, gives back what they
//! held, takes its share of the shards and ticks them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compline_core::ids::{SessionId, ShardId};
use compline_store::StoreError;
use compline_store::tables::bell::Bell;
use compline_store::tables::session::{Session, Standing};
use futures::future::{BoxFuture, FutureExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{NodeConfig, retention, ticker, zones};
use crate::ctx::Ctx;
use crate::fleet::FleetView;
use crate::fleet::clocks::Clocks;
use crate::passes::lease::{self, Members};
use crate::passes::reap;

/// Looks are this far apart from the beat, by chance, so that over many looks beats are seen at every age: that is what makes offsets narrow.
const LOOK_JITTER: f64 = 0.15;

/// One session's overseer.
pub(super) struct Overseer<'a> {
    ctx: &'a Arc<Ctx>,
    config: &'a NodeConfig,
    session: SessionId,
    standing: Standing,
    tickers: Tickers,
    /// Nodes whose clocks were warned about.
    warned: BTreeSet<String>,
}

impl<'a> Overseer<'a> {
    pub(super) fn new(ctx: &'a Arc<Ctx>, config: &'a NodeConfig, session: SessionId, stop: CancellationToken) -> Self {
        let tickers = Tickers { ctx: ctx.clone(), session, stop, running: BTreeMap::new() };
        Self { ctx, config, session, standing: Standing::Active, tickers, warned: BTreeSet::new() }
    }

    /// Oversees until the session is over.
    pub(super) async fn run(mut self) -> Result<(), StoreError> {
        if self.config.exclusive && !self.config.roles.scheduler {
            return std::future::pending().await;
        }
        loop {
            // Watched from before the look, so that no shard is given up unseen between the two.
            let bell = self.watch_bell().await?;
            let wait = match self.look().await {
                Ok(Some(wait)) => wait,
                Ok(None) => return Ok(()),
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "looking after the other nodes failed and will be tried again");
                    self.config.beat
                }
            };
            tokio::select! {
                biased;
                () = bell => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Ends when shards are given up. Nobody needs to be told of that who takes none.
    async fn watch_bell(&self) -> Result<BoxFuture<'static, ()>, StoreError> {
        if self.config.exclusive || !self.config.roles.scheduler {
            return Ok(Box::pin(std::future::pending()));
        }
        self.ctx.store.watch(Bell::Fleet.key()).await
    }

    /// One look. Returns how long the next one can wait; `None`: the session is over.
    async fn look(&mut self) -> Result<Option<Duration>, StoreError> {
        self.ctx.newer_zones.look(self.ctx).await?;
        if self.config.exclusive {
            // Every other session is over, and nobody's clock is there to compare with.
            let members = Members { node: self.config.name.clone(), session: self.session, silent: BTreeSet::new() };
            return Ok(lease::balance(self.ctx, &members).await?.map(|mine| {
                self.keep(&mine);
                self.config.beat
            }));
        }
        let view = self.ctx.fleet.look(self.ctx).await?;
        let looked = Instant::now();
        self.judge_clocks(&view).await?;
        if self.config.roles.scheduler {
            self.reap(&view).await?;
            let silent = view.nodes.iter().filter(|node| node.still_for >= self.silence_max());
            let silent = silent.filter_map(|node| node.session.as_ref()).map(|session| session.id).collect();
            let members = Members { node: self.config.name.clone(), session: self.session, silent };
            let Some(mine) = lease::balance(self.ctx, &members).await? else { return Ok(None) };
            self.keep(&mine);
        }
        Ok(Some(self.next_look(&view).saturating_sub(looked.elapsed())))
    }

    /// After so long without a beat seen a scheduler's shards are taken: a beat may be that much older than the look that first saw it, and
    /// within the TTL from its death its shards are to be ticked again.
    fn silence_max(&self) -> Duration {
        self.config.lease_ttl.saturating_sub(self.config.beat).max(self.config.beat * 2)
    }

    /// About a beat from now, or just when somebody's silence will have lasted too long.
    fn next_look(&self, view: &FleetView) -> Duration {
        let jitter = (self.ctx.env.random_u64() % 1_000) as f64 / 1_000.0 * 2.0 - 1.0;
        let beat = self.config.beat.mul_f64(1.0 + jitter * LOOK_JITTER);
        let deadlines = view.nodes.iter().filter(|node| !node.is(self.session)).flat_map(|node| {
            [self.silence_max(), node.ttl(self.config.session_ttl)].map(|limit| limit.saturating_sub(node.still_for))
        });
        deadlines.filter(|left| !left.is_zero()).fold(beat, Duration::min).max(Duration::from_millis(1))
    }

    async fn reap(&self, view: &FleetView) -> Result<(), StoreError> {
        for dead in view.nodes.iter().filter(|node| !node.is(self.session) && node.is_dead(self.config.session_ttl)) {
            if reap::end_session(self.ctx, dead).await? {
                self.ctx.metrics.sessions_ended.inc();
                tracing::warn!(node = %dead.node, still_for = ?dead.still_for, "the node is dead: its session was ended");
            }
        }
        let given_back = reap::give_back_orphans(self.ctx).await?;
        if given_back > 0 {
            tracing::info!(given_back, "executions of dead sessions were given back to their lanes");
        }
        Ok(())
    }

    fn judge_own_clock(&self, view: &FleetView, clocks: &Clocks) -> Standing {
        let aside = self.config.clock_limits.aside;
        let others = || view.nodes.iter().filter(|node| !node.is(self.session) && !node.is_silent());
        let right = |node: &str| clocks.of.get(node).is_none_or(|offset| offset.certain() <= aside);
        // One whose zone data is older does not tick all that this one does.
        let zones = self.ctx.env.zones().version();
        let schedules = |session: &Session| {
            let as_new = session.versions.zones.as_str() >= zones.as_str();
            session.has_role("scheduler") && session.standing == Standing::Active && as_new
        };
        if !others().any(|node| node.session.as_ref().is_some_and(schedules) && right(&node.node)) {
            return Standing::Active;
        }
        if !clocks.majority {
            // With clocks enough, what is missing is a measurement, which comes in a beat or two.
            return if others().count() >= 2 { self.standing } else { Standing::Active };
        }
        // It comes back well within the limit, so that it does not come and go.
        let limit = if self.standing == Standing::Aside { aside / 2 } else { aside };
        if clocks.own.certain() > limit { Standing::Aside } else { Standing::Active }
    }

    fn keep(&mut self, mine: &BTreeSet<ShardId>) {
        let lost = self.tickers.keep(mine);
        if lost > 0 {
            tracing::info!(shards = lost, held = mine.len(), "shards have another ticker now");
        }
        self.ctx.metrics.shards_held.set(mine.len() as i64);
    }

    /// Warns about clocks that are off, and stands aside from scheduling while this node's own is: another scheduler goes on. The last one that
    /// there is goes on whatever its clock says: late or early is better than never.
    async fn judge_clocks(&mut self, view: &FleetView) -> Result<(), StoreError> {
        let limits = self.config.clock_limits;
        let clocks = Clocks::judge(view, self.session, limits);
        self.ctx.metrics.clocks(&clocks);
        self.ctx.fleet.set_clocks(clocks.clone());
        let off: BTreeSet<String> = clocks.beyond(limits.warn).map(|(node, _)| node.clone()).collect();
        for node in off.difference(&self.warned) {
            let offset = clocks.of[node];
            let (by, error) = (offset.millis(), offset.error_millis());
            match clocks.majority {
                true => tracing::warn!(%node, "the node's clock is {by:+.0} ms (± {error:.0}) off the majority's"),
                false => tracing::warn!(%node,
                    "the node's clock is {by:+.0} ms (± {error:.0}) from this node's; with fewer than three that agree nobody can tell whose is wrong"),
            }
        }
        self.warned = off;
        let standing = self.judge_own_clock(view, &clocks);
        if self.config.roles.scheduler && standing != self.standing {
            let by = clocks.own.millis();
            match standing {
                Standing::Aside => tracing::error!(
                    "this node's clock is {by:+.0} ms off the majority's: it ticks nothing until that is put right"
                ),
                _ => tracing::info!("this node's clock is right again, or no other scheduler is left: it ticks again"),
            }
            lease::stand(self.ctx, &self.config.name, self.session, standing).await?;
            self.standing = standing;
        }
        Ok(())
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
    /// Lets exactly these shards be ticked. Returns how many were ticked that are not any more.
    fn keep(&mut self, mine: &BTreeSet<ShardId>) -> usize {
        let before = self.running.len();
        self.running.retain(|shard, _| mine.contains(shard));
        let lost = before - self.running.len();
        // One that ended by itself lost its lease, or broke; if the shard is ours again, it begins anew.
        self.running.retain(|_, task| !task.is_finished());
        for shard in mine {
            let begin = || {
                let ticker = ticker::run(self.ctx.clone(), self.session, *shard, self.stop.clone());
                let retention = self.ctx.env.gated(retention::run(self.ctx.clone(), *shard));
                let zones = self.ctx.env.gated(zones::run(self.ctx.clone(), *shard));
                let both = async move {
                    // They end with the ticker.
                    let _beside =
                        [retention.boxed(), zones.boxed()].map(|task| AbortOnDropHandle::new(tokio::spawn(task)));
                    ticker.await;
                };
                AbortOnDropHandle::new(tokio::spawn(self.ctx.env.gated(both)))
            };
            self.running.entry(*shard).or_insert_with(begin);
        }
        lost
    }
}
