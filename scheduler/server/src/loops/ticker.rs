//! One shard's ticker: reads a few seconds ahead, holds what it read, and commits at the instant.
//!
//! What is due now goes first. What was due over [`LATE_GRACE`] ago is set aside as owed, so that the schedules behind it go on; what is owed
//! goes to its lane when there is nothing else to do and the lane has room, the oldest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, SessionId, ShardId};
use compline_core::job::LATE_GRACE;
use compline_store::StoreError;
use compline_store::tables::bell::Bell;
use compline_store::tables::queue::{self, ByTime, Due};
use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AFTER_ERROR, LOOK_AHEAD, POLL};
use crate::ctx::Ctx;
use crate::passes::owed::LOOK_EVERY;
use crate::passes::rezone;
use crate::passes::tick::{Ticked, tick};

/// How many rows a ticker holds at the most.
const AHEAD_MAX: usize = 8_192;

/// How many of them it hands to one pass.
const PASS_MAX: usize = 1_024;

/// How many late or owed rows it hands to one pass: it looks at what is due in between.
const OWED_PASS_MAX: usize = 256;

/// For how long it waits for its turn with what is late or owed.
const TURN: Duration = Duration::from_millis(5);

/// How many owed rows that cannot be read it steps over in one pass.
const STEPPED_OVER_MAX: usize = 64;

/// How many lanes it pays its debts to in turn.
const LANES_MAX: usize = 64;

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
        late_left: false,
        owed: None,
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
    /// All rows due before this are in `ahead`, but late ones while [`Self::late_left`]; `None`: nothing was read, or what was read is no longer
    /// to be trusted.
    read_until: Option<Timestamp>,
    /// Whether there are more late rows than were read.
    late_left: bool,
    /// The lanes to which this shard owes something, each with the row behind which it goes on; `None`: that is not known.
    owed: Option<BTreeMap<String, Option<Due>>>,
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
        let on_time = now.saturating_sub(LATE_GRACE);
        let due = self
            .ahead
            .range((on_time, ExecutionId::from_bytes([0; ExecutionId::BYTES]), JobId::from_bytes([0; JobId::BYTES]))..)
            .take_while(|(at, ..)| *at <= now);
        let mut due: Vec<Due> = due.take(PASS_MAX).map(as_row).collect();
        let on_time = !due.is_empty();
        let turn = (!on_time).then(|| self.ctx.owed_room.try_turn()).flatten();
        if !on_time && turn.is_none() && self.is_behind(now) {
            return Ok(Step::Idle(TURN));
        }
        if !on_time {
            // None is left that is due and not late.
            due = self.ahead.iter().take_while(|(at, ..)| *at <= now).take(OWED_PASS_MAX).map(as_row).collect();
        }
        if due.is_empty() && self.late_left {
            self.read_until = None;
            return Ok(Step::Again);
        }
        if due.is_empty() {
            return self.pay(now).await;
        }
        let ticked = tick(self.ctx, self.session, self.shard, ByTime::Due, &due, now).await?;
        if ticked.lost {
            return Ok(Step::Lost);
        }
        for row in &due {
            self.ahead.remove(&(row.at, row.execution, row.job));
        }
        self.take_note(ticked);
        Ok(Step::Again)
    }

    /// Whether there may be something late or owed.
    fn is_behind(&self, now: Timestamp) -> bool {
        let late = self.ahead.first().is_some_and(|(at, ..)| *at <= now);
        late || self.late_left || self.owed.as_ref().is_none_or(|owed| !owed.is_empty())
    }

    fn take_note(&mut self, ticked: Ticked) {
        self.ctx.metrics.queued_in(self.shard, ticked.queued);
        let read_until = self.read_until;
        let near = ticked.planned.iter().filter(|next| read_until.is_some_and(|until| next.at < until));
        self.ahead.extend(near.map(|next| (next.at, next.execution, next.job)));
        if let Some(owed) = &mut self.owed {
            // What came now may have been due before what was there.
            owed.extend(ticked.owed.into_iter().map(|lane| (lane, None)));
        }
    }

    /// Brings what is owed to a lane that has room. A row that stays where it is, since it cannot be read, is stepped over until all lanes are
    /// looked at again.
    async fn pay(&mut self, now: Timestamp) -> Result<Step, StoreError> {
        let shard = self.shard;
        if self.owed.is_none() {
            let read = self.ctx.store.transact(|tx| async move { queue::lanes_owed(&tx, shard, LANES_MAX).await });
            self.owed = Some(read.await?.value.into_iter().map(|lane| (lane, None)).collect());
        }
        let lanes: Vec<_> = self.owed.iter().flatten().map(|(lane, last)| (lane.clone(), *last)).collect();
        for (lane, last) in &lanes {
            let room = self.ctx.owed_room.take(self.ctx, lane, OWED_PASS_MAX).await?;
            if room == 0 {
                continue;
            }
            let from = ByTime::Owed(lane);
            let limit = room.max(STEPPED_OVER_MAX);
            let read = self.ctx.store.transact(|tx| async move { from.behind(&tx, shard, *last, limit).await });
            let (mut rows, unreadable) = read.await?.value;
            let end = rows.is_empty() || rows.len() <= room && rows.len() + unreadable.len() < limit;
            rows.truncate(room);
            for error in unreadable {
                let _: Option<()> = self.ctx.readable(Err(error));
            }
            let ticked = tick(self.ctx, self.session, shard, from, &rows, now).await?;
            if ticked.lost {
                return Ok(Step::Lost);
            }
            if let Some(owed) = &mut self.owed {
                if end {
                    owed.remove(lane);
                } else if let Some(last) = rows.last() {
                    owed.insert(lane.clone(), Some(*last));
                }
            }
            self.take_note(ticked);
            return Ok(Step::Again);
        }
        let wait = self.wait(now);
        Ok(Step::Idle(if lanes.is_empty() { wait } else { wait.min(LOOK_EVERY) }))
    }

    async fn read_ahead(&mut self, now: Timestamp) -> Result<(), StoreError> {
        // The bell is watched from before the read, so that no ring falls between the two.
        if self.bell.is_none() {
            self.bell = Some(self.ctx.store.watch(Bell::Shard(self.shard).key()).await?);
        }
        let (until, on_time) = (now + LOOK_AHEAD, now.saturating_sub(LATE_GRACE));
        let (ctx, shard) = (self.ctx, self.shard);
        let outdated = ctx.newer_zones.known().is_some();
        let read = ctx.store.transact(|tx| async move {
            let rings = Bell::Shard(shard).rings(&tx).await?;
            let (mut rows, mut unreadable) = ByTime::Due.first(&tx, shard, None, until, AHEAD_MAX).await?;
            let mut full = rows.len() + unreadable.len() >= AHEAD_MAX;
            let late_left = full && rows.last().is_none_or(|last| last.at < on_time);
            if late_left {
                // So much is late that what is due now was not come to.
                let (more, unreadable_too) = ByTime::Due.first(&tx, shard, Some(on_time), until, AHEAD_MAX).await?;
                full = more.len() + unreadable_too.len() >= AHEAD_MAX;
                rows.extend(more);
                unreadable.extend(unreadable_too);
            }
            let read_until = if full { rows.last().map_or(until, |last| last.at) } else { until };
            Ok((rings, rows, unreadable, late_left, read_until))
        });
        let (rings, rows, unreadable, late_left, read_until) = read.await?.value;
        self.rings = rings;
        // Of what this node may not tick, nothing is left to come back to.
        self.late_left = late_left && !outdated;
        self.owed = None;
        for error in unreadable {
            let _: Option<()> = self.ctx.readable(Err(error));
        }
        self.read_until = Some(read_until);
        let rows = if outdated {
            let rows = &rows;
            let read = ctx.store.transact(|tx| async move { rezone::without_zoned(ctx, &tx, rows.clone()).await });
            read.await?.value
        } else {
            rows
        };
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

fn as_row(&(at, execution, job): &(Timestamp, ExecutionId, JobId)) -> Due {
    Due { at, execution, job }
}
