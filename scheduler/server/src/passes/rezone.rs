//! Zone data: whose slots may be planned and ticked by which, and what becomes of planned slots when the data gets newer.
//!
//! The store keeps the newest version that a node brought which plans slots. A scheduler whose data is older leaves the slots of zoned schedules
//! alone, in the commit itself, and gives its shards to schedulers whose data is newer ([`super::lease`]). Whoever ticks a shard goes once through
//! what is planned in it ([`shard`]): a slot that is still to come and that the newer data puts elsewhere is taken back and planned anew, as if
//! its owner had edited the job at that moment. A slot whose time has come by then is decided as it was planned and promised.
//!
//! A node with older data may still plan a slot, as an API: it notes so in the same commit, and the shard is gone through again.

use compline_core::ids::ShardId;
use compline_core::job::{JobRun, JobState};
use compline_core::ledger::{Change, SkipReason};
use compline_core::schedule::Schedule;
use compline_core::schedule::zone::ZoneVersion;
use compline_core::tick::planned_slot;
use compline_core::timetable::Timetable;
use compline_store::backend::Read;
use compline_store::tables::ledger::{self, Mark};
use compline_store::tables::queue::{ByTime, Due};
use compline_store::tables::{job, zones};
use compline_store::{StoreError, Tx};
use parking_lot::Mutex;

use super::in_batches;
use crate::ctx::Ctx;
use crate::ops::plan::{Moment, plan_from, withdraw};

/// How many due rows are read at once.
const PAGE: usize = 2_048;

/// What stands for newest zone data that this build cannot read. Versions begin with a year, so that this one comes behind them all.
const UNREADABLE: &str = "unreadable";

/// The newest zone data that the store has seen. What this build cannot read was brought by a newer one, whose data is taken for newer.
pub(crate) async fn newest(ctx: &Ctx, tx: &Tx, read: Read) -> Result<ZoneVersion, StoreError> {
    Ok(ctx.if_readable(zones::newest(tx, read).await)?.unwrap_or_else(|| ZoneVersion::new(UNREADABLE)))
}

/// Brings this node's zone data to the store, if the store has seen none as new.
pub(crate) async fn bring(ctx: &Ctx, tx: &Tx) -> Result<(), StoreError> {
    let own = ctx.env.zones().version();
    if newest(ctx, tx, Read::Serializable).await? < *own { zones::raise(tx, own).await } else { Ok(()) }
}

/// The zone data that a slot of this schedule is planned by here; none if it follows no zone. If the store has seen newer data, the shard is to be
/// gone through again.
pub(crate) async fn planned_by(
    ctx: &Ctx,
    tx: &Tx,
    schedule: &Schedule,
    shard: ShardId,
) -> Result<ZoneVersion, StoreError> {
    if !schedule.follows_zone_data() {
        return Ok(ZoneVersion::default());
    }
    let own = ctx.env.zones().version();
    // No slot is planned by newer data than the store knows of.
    bring(ctx, tx).await?;
    if is_outdated(ctx, tx).await? {
        let mut followed = zones::followed(tx, shard, Read::Serializable).await?;
        followed.outdated += 1;
        zones::put_followed(tx, shard, &followed)?;
    }
    Ok(own.clone())
}

/// Whether what is planned of a job is planned by the zone data that this node has, or by none.
pub(crate) fn is_planned_by_own(ctx: &Ctx, schedule: &Schedule, run: &JobRun) -> bool {
    !schedule.follows_zone_data() || run.zones == *ctx.env.zones().version()
}

/// What a node knows of zone data that is newer than its own.
#[derive(Debug, Default)]
pub struct Newer(Mutex<Option<ZoneVersion>>);

impl Newer {
    /// The newest that the store had seen at the last look, if this node's is older.
    pub fn known(&self) -> Option<ZoneVersion> {
        self.0.lock().clone()
    }

    /// Looks again. Says so once for each version, in words for the log.
    pub async fn look(&self, ctx: &Ctx) -> Result<(), StoreError> {
        let newer = newer(ctx).await?;
        ctx.metrics.zone_data_outdated.set(i64::from(newer.is_some()));
        let before = std::mem::replace(&mut *self.0.lock(), newer.clone());
        if let Some(newer) = newer.filter(|newer| before.as_ref() != Some(newer)) {
            tracing::error!(own = %ctx.env.zones().version(), %newer,
                "this node's time-zone data is older than the store's: it does not tick jobs that follow a zone other than UTC, and gives its \
                 shards to schedulers with newer data; run the newer build here too");
        }
        Ok(())
    }
}

/// The newest zone data that the store has seen, if this node's is older.
async fn newer(ctx: &Ctx) -> Result<Option<ZoneVersion>, StoreError> {
    let newest = ctx.store.transact(|tx| async move { newest(ctx, &tx, Read::Snapshot).await }).await?.value;
    Ok((*ctx.env.zones().version() < newest).then_some(newest))
}

/// Whether the store has seen newer zone data than this node's. Whoever brings it makes this commit conflict.
pub(crate) async fn is_outdated(ctx: &Ctx, tx: &Tx) -> Result<bool, StoreError> {
    Ok(*ctx.env.zones().version() < newest(ctx, tx, Read::Serializable).await?)
}

/// The rows of those whose slot a scheduler with older data may tick: all but the next slots of schedules that follow a zone. A hint.
pub(crate) async fn without_zoned(ctx: &Ctx, tx: &Tx, rows: Vec<Due>) -> Result<Vec<Due>, StoreError> {
    let ids: Vec<_> = rows.iter().map(|row| row.job).collect();
    let runs = job::get_runs(tx, &ids, Read::Snapshot).await?;
    let is_zoned = |row: &Due, run: Result<Option<JobRun>, StoreError>| {
        let run = ctx.readable(run).flatten();
        run.is_some_and(|run| !run.zones.is_none() && run.next.is_some_and(|next| next.execution == row.execution))
    };
    Ok(rows.into_iter().zip(runs).filter_map(|(row, run)| (!is_zoned(&row, run)).then_some(row)).collect())
}

/// Plans anew what was planned in a shard by older zone data than this node's, if that is the newest there is; once, unless somebody plans by older
/// data again. Returns how many slots moved. Two at once, or one broken off, do no harm: each job is one step, which says that it is done.
pub async fn shard(ctx: &Ctx, shard: ShardId) -> Result<usize, StoreError> {
    let own = ctx.env.zones().version();
    let read = ctx.store.transact(|tx| async move {
        Ok((newest(ctx, &tx, Read::Snapshot).await?, zones::followed(&tx, shard, Read::Snapshot).await?))
    });
    let (newest_seen, before) = read.await?.value;
    if newest_seen != *own || before.version == *own && before.outdated == before.outdated_then {
        return Ok(0);
    }
    let mut moved = 0;
    let mut last = None;
    loop {
        let read = ctx.store.transact(|tx| async move { ByTime::Due.behind(&tx, shard, last, PAGE).await });
        let (page, unreadable) = read.await?.value;
        for error in unreadable {
            let _: Option<()> = ctx.readable(Err(error));
        }
        let Some(end) = page.last() else { break };
        last = Some(*end);
        moved += rows(ctx, &page).await?;
    }
    let done = zones::Followed { version: own.clone(), outdated_then: before.outdated, ..before.clone() };
    let (before, done) = (&before, &done);
    let close = ctx.store.transact(|tx| async move {
        // Somebody may have planned by older data behind this pass's back, or have brought newer data: then it is to be gone through again.
        let now = zones::followed(&tx, shard, Read::Serializable).await?;
        if now == *before && newest(ctx, &tx, Read::Serializable).await? == done.version {
            zones::put_followed(&tx, shard, done)?;
        }
        Ok(())
    });
    close.await?;
    Ok(moved)
}

async fn rows(ctx: &Ctx, rows: &[Due]) -> Result<usize, StoreError> {
    let moved = in_batches(rows, |options, begin, end| async move {
        let rows = &rows[begin..end];
        let now = ctx.env.now();
        let committed = ctx.store.transact_with(options, |tx| async move {
            let mut moment = Moment::at(now);
            Ok((batch(ctx, &tx, rows, &mut moment).await?, moment.skipped))
        });
        let (moved, skipped) = committed.await?.value;
        ctx.metrics.skipped(&skipped);
        Ok(moved)
    });
    Ok(moved.await?.into_iter().sum())
}

async fn batch(ctx: &Ctx, tx: &Tx, rows: &[Due], moment: &mut Moment) -> Result<usize, StoreError> {
    let ids: Vec<_> = rows.iter().map(|row| row.job).collect();
    let runs = job::get_runs(tx, &ids, Read::Snapshot).await?;
    let mut moved = 0;
    for (row, run) in rows.iter().zip(runs) {
        // One row that cannot be read stops itself, not its neighbours.
        let Some(Some(run)) = ctx.readable(run) else { continue };
        let is_next = |next: compline_core::job::NextSlot| next.execution == row.execution && next.slot > moment.now;
        if run.zones.is_none() || run.zones >= *ctx.env.zones().version() || !run.next.is_some_and(is_next) {
            continue;
        }
        moved += usize::from(one(ctx, tx, row, moment).await?);
    }
    Ok(moved)
}

/// Plans a job's next slot anew, if the newer data puts it elsewhere. Reads the job so that an edit, a pause, a deletion or a tick at the same moment
/// conflicts.
async fn one(ctx: &Ctx, tx: &Tx, row: &Due, moment: &mut Moment) -> Result<bool, StoreError> {
    let job_row = job::get_many(tx, &[row.job], Read::Serializable).await?.pop().and_then(|row| ctx.readable(row)?);
    let run = job::get_runs(tx, &[row.job], Read::Serializable).await?.pop().and_then(|run| ctx.readable(run)?);
    let (Some(job_row), Some(run)) = (job_row, run) else { return Ok(false) };
    let Some(parsed) = ctx.readable(ctx.jobs.parsed(row.job, &job_row)) else { return Ok(false) };
    let Some(next) = run.next.filter(|next| next.execution == row.execution) else { return Ok(false) };
    if job_row.state != JobState::Active {
        return Ok(false);
    }
    let (own, now) = (ctx.env.zones().version(), moment.now);
    let timetable = Timetable { taken: &run.taken, ..parsed.timetable() };
    let first = timetable.after(now);
    // By the newer data slots may have been due since the last one was decided. Their time is over.
    let over = match run.planned_after {
        Some(decided) => timetable.after(decided),
        None => timetable.first(parsed.job.created_at),
    };
    let over = over.filter(|over| *over <= now);
    let same = first.map(|first| planned_slot(&timetable.execution(first, ctx.shards))) == Some(next);
    if same && over.is_none() {
        job::put_run(tx, row.job, &JobRun { zones: own.clone(), ..run.clone() })?;
        return Ok(false);
    }
    let change = Change::Rezoned { zones: own.clone(), slot_before: next.slot };
    ledger::add_mark(tx, row.job, &Mark { at: now, revision: job_row.revision, change })?;
    withdraw(tx, &parsed, &run).await?;
    moment.leave_out(tx, &parsed, over, SkipReason::ZoneData)?;
    plan_from(ctx, tx, &parsed, JobRun { planned_after: Some(now), ..run.clone() }, first).await?;
    Ok(true)
}
