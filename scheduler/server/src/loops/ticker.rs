//! One shard's ticker: reads a few seconds ahead, holds what it read, and commits at the instant.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, SessionId, ShardId};
use compline_store::StoreError;
use compline_store::tables::bell::Bell;
use compline_store::tables::queue::{self, Due};
use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AFTER_ERROR, LOOK_AHEAD, POLL};
use crate::ctx::Ctx;
use crate::passes::tick::tick;

/// How many rows a ticker holds at the most.
const AHEAD_MAX: usize = 8_192;

/// How many of them it hands to one pass.
const PASS_MAX: usize = 1_024;

/// What was read further ahead than this was read before the clock was put back. Jobs that are created meanwhile ring no bell that far ahead.
const READ_AHEAD_MAX: Duration = Duration::from_secs(2 * LOOK_AHEAD.as_secs() - 1);

/// Ticks a shard until the lease is lost or `stop` is cancelled.
pub(super) async fn run(ctx: Arc<Ctx>, session: SessionId, shard: ShardId, stop: CancellationToken) {
    let mut ticker = Ticker {
        ctx: &ctx,
        session,
        shard,
        ahead: BTreeSet::new(),
        read_until: None,
        bell: None,
        rings: 0,
        looked: Instant::now(),
    };
    loop {
        let step = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            step = ticker.step() => step,
        };
        match step {
            Ok(Step::Lost) => {
                // Told once for all shards by whoever keeps the tickers.
                tracing::debug!(shard = shard.0, "the shard has another ticker now");
                return;
            }
            Ok(Step::Again) => {}
            Ok(Step::Idle(wait)) => {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = ticker.rung() => ticker.read_until = None,
                    () = tokio::time::sleep(wait) => {}
                }
            }
            Err(error) => {
                tracing::error!(shard = shard.0, %error, "the tick failed and will be tried again");
                ticker.read_until = None;
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

enum Step {
    Again,
    Idle(Duration),
    Lost,
}

struct Ticker<'a> {
    ctx: &'a Ctx,
    session: SessionId,
    shard: ShardId,
    /// What was read ahead, by due time. A hint: every commit reads it again.
    ahead: BTreeSet<(Timestamp, ExecutionId, JobId)>,
    /// All rows due before this are in `ahead`; `None`: nothing was read, or what was read is no longer to be trusted.
    read_until: Option<Timestamp>,
    bell: Option<BoxFuture<'static, ()>>,
    /// How often the bell had rung by the last look, and when that was: a watch that was lost costs no more than [`POLL`].
    rings: i64,
    looked: Instant,
}

impl Ticker<'_> {
    async fn step(&mut self) -> Result<Step, StoreError> {
        self.look_at_bell().await?;
        let now = self.ctx.env.now();
        if self.read_until.is_none_or(|until| until <= now + LOOK_AHEAD / 2 || until > now + READ_AHEAD_MAX) {
            self.read_ahead(now).await?;
        }
        let due: Vec<Due> = self
            .ahead
            .iter()
            .take_while(|(at, ..)| *at <= now)
            .take(PASS_MAX)
            .map(|(at, execution, job)| Due { at: *at, execution: *execution, job: *job })
            .collect();
        if due.is_empty() {
            return Ok(Step::Idle(self.wait(now)));
        }
        let ticked = tick(self.ctx, self.session, self.shard, &due, now).await?;
        if ticked.lost {
            return Ok(Step::Lost);
        }
        self.ctx.metrics.queued_in(self.shard, ticked.queued);
        for row in &due {
            self.ahead.remove(&(row.at, row.execution, row.job));
        }
        let read_until = self.read_until;
        let near = ticked.planned.iter().filter(|next| read_until.is_some_and(|until| next.at < until));
        self.ahead.extend(near.map(|next| (next.at, next.execution, next.job)));
        Ok(Step::Again)
    }

    async fn read_ahead(&mut self, now: Timestamp) -> Result<(), StoreError> {
        // The bell is watched from before the read, so that no ring falls between the two.
        if self.bell.is_none() {
            self.bell = Some(self.ctx.store.watch(Bell::Shard(self.shard).key()).await?);
        }
        let until = now + LOOK_AHEAD;
        let shard = self.shard;
        let read = self.ctx.store.transact(|tx| async move {
            Ok((Bell::Shard(shard).rings(&tx).await?, queue::due_until(&tx, shard, until, AHEAD_MAX).await?))
        });
        let (rings, (rows, unreadable)) = read.await?.value;
        self.rings = rings;
        for error in unreadable {
            let _: Option<()> = self.ctx.readable(Err(error));
        }
        self.read_until = Some(match rows.last() {
            Some(last) if rows.len() >= AHEAD_MAX => last.at,
            _ => until,
        });
        self.ahead = rows.into_iter().map(|row| (row.at, row.execution, row.job)).collect();
        Ok(())
    }

    /// Looks whether the bell rang unheard.
    async fn look_at_bell(&mut self) -> Result<(), StoreError> {
        if self.looked.elapsed() < POLL {
            return Ok(());
        }
        let shard = self.shard;
        let rings = self.ctx.store.transact(|tx| async move { Bell::Shard(shard).rings(&tx).await }).await?.value;
        self.looked = Instant::now();
        if rings != self.rings {
            self.bell = None;
            self.read_until = None;
        }
        Ok(())
    }

    /// How long there is nothing to do, if no bell rings.
    fn wait(&self, now: Timestamp) -> Duration {
        let next = self.ahead.first().map_or(POLL, |(at, ..)| at.saturating_since(now));
        let read = self.read_until.map_or(Duration::ZERO, |until| until.saturating_since(now + LOOK_AHEAD / 2));
        next.min(read).clamp(Duration::from_millis(1), POLL)
    }

    /// Ends when the shard's bell rings. The next read watches it anew.
    async fn rung(&mut self) {
        match &mut self.bell {
            Some(bell) => bell.await,
            None => std::future::pending().await,
        }
        self.bell = None;
    }
}
