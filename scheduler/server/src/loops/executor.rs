//! A node's executor: claims what it can run, runs it, reports how it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use compline_core::Timestamp;
use compline_core::execution::{Cost, Execution, Outcome, State};
use compline_core::ids::{ClaimId, Fence, SessionId, TaskDigest};
use compline_store::StoreError;
use compline_store::tables::bell::Bell;
use compline_store::tables::execution::LogLine;
use futures::future::{BoxFuture, select_all};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::reach::{Next, Reach};
use super::{AFTER_ERROR, POLL, reports};
use crate::ctx::{Ctx, ParsedJob};
use crate::passes::BATCH_MAX;
use crate::passes::beat::Held;
use crate::passes::claim::{ClaimOutcome, ClaimRequest, Claimed, claim};
use crate::passes::complete::Report;

/// How many executions a node holds at the most, running, waiting for a worker, or waiting for their report's commit.
const HELD_MAX: usize = 4_096;

/// How many executions a node claims ahead of its workers at the most.
const AHEAD_MAX: usize = 512;

/// Over this long it is measured how fast executions end; so much it claims ahead.
const AHEAD_WINDOW: Duration = Duration::from_millis(100);

/// One worker of so many is kept free of what was owed, so that long runs of it do not keep out what is on time. A node with fewer workers keeps
/// none free.
const ON_TIME_SHARE: usize = 4;

/// How long a claim for few waits for more room, so that a commit is worth its while.
const ROOM_LINGER: Duration = Duration::from_millis(2);

/// Runs one attempt. The real one is a sandbox; the simulator has its own.
#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Whether this component can be run at once.
    fn can_run(&self, digest: &TaskDigest) -> bool;

    /// Makes a component ready, in the background. Repeating it is harmless.
    fn prepare(&self, digest: TaskDigest);

    /// Is notified whenever a component became ready.
    fn prepared(&self) -> &Notify;

    /// Runs an attempt to its end, or until `cancel`.
    async fn run(&self, run: &Run, cancel: &CancellationToken) -> Ran;
}

/// An attempt to run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The execution, as claimed.
    pub execution: Execution,
    /// Its job.
    pub job: Arc<ParsedJob>,
    /// From the promised start to the actual one.
    pub lag: Duration,
}

/// How an attempt went.
#[derive(Debug, Clone)]
pub struct Ran {
    /// How it ended.
    pub outcome: Outcome,
    /// What it used.
    pub cost: Cost,
    /// What it answered.
    pub output: Option<bytes::Bytes>,
    /// What it said.
    pub logs: Vec<LogLine>,
}

/// What a node holds: so that a beat can tell what the store thinks it holds and it does not.
#[derive(Debug)]
pub(super) struct Holding {
    held: Mutex<Held>,
    /// What stops each attempt that is held.
    stops: Mutex<BTreeMap<Fence, CancellationToken>>,
    /// What stops all of them.
    over: CancellationToken,
}

impl Holding {
    /// Nothing is held. Cancelling `over` stops all that will be.
    pub(super) fn new(over: CancellationToken) -> Self {
        Self { held: Mutex::default(), stops: Mutex::default(), over }
    }

    pub(super) fn snapshot(&self) -> Held {
        self.held.lock().clone()
    }

    pub(super) fn release(&self, fence: &Fence) {
        self.held.lock().fences.remove(fence);
        self.stops.lock().remove(fence);
    }

    /// Stops an attempt, if it is held.
    pub(super) fn stop(&self, fence: &Fence) {
        if let Some(stop) = self.stops.lock().get(fence) {
            stop.cancel();
        }
    }

    /// What the attempt with this fence is stopped by.
    fn stop_of(&self, fence: Fence) -> CancellationToken {
        self.stops.lock().entry(fence).or_insert_with(|| self.over.child_token()).clone()
    }

    pub(super) fn len(&self) -> usize {
        self.held.lock().fences.len()
    }

    fn begin_claim(&self, claim: ClaimId) {
        self.held.lock().claims.insert(claim);
    }

    fn end_claim(&self, claim: ClaimId, claimed: &[Claimed]) {
        claimed.iter().for_each(|claimed| drop(self.stop_of(claimed.fence)));
        let mut held = self.held.lock();
        held.fences.extend(claimed.iter().map(|claimed| claimed.fence));
        held.claims.remove(&claim);
    }
}

/// What an executor is made of.
pub(super) struct Executor {
    pub(super) ctx: Arc<Ctx>,
    pub(super) node: Arc<str>,
    pub(super) session: SessionId,
    pub(super) lanes: Vec<String>,
    pub(super) workers: usize,
    /// Whether nobody else can be there to share the lanes with.
    pub(super) exclusive: bool,
    pub(super) runner: Arc<dyn Runner>,
    pub(super) holding: Arc<Holding>,
}

/// How many executions are claimed and not ended, and how fast they end.
struct Pace {
    outstanding: AtomicUsize,
    ended: AtomicUsize,
    room: Notify,
}

impl Executor {
    /// Claims and runs until `drain` is cancelled, then finishes what it holds. Cancelling `abort` stops the runs too.
    pub(super) async fn run(self, drain: CancellationToken, abort: CancellationToken) -> Result<(), StoreError> {
        let (report, reports) = mpsc::unbounded_channel();
        let recorder = reports::run(self.ctx.clone(), self.node.clone(), self.session, self.holding.clone(), reports);
        let recorder = tokio::spawn(self.ctx.env.gated(recorder));
        let runs = TaskTracker::new();
        let claimed = self.claim_loop(&report, &runs, &drain, &abort).await;
        if !drain.is_cancelled() {
            // The session is over or the store is gone: nothing that still runs can be reported.
            abort.cancel();
        }
        drop(report);
        runs.close();
        runs.wait().await;
        // Ends when every report is recorded; a session that is over has nothing more to record.
        tokio::select! {
            biased;
            _ = recorder => {}
            () = abort.cancelled() => {}
        }
        claimed
    }

    async fn claim_loop(
        &self,
        report: &mpsc::UnboundedSender<Report>,
        runs: &TaskTracker,
        drain: &CancellationToken,
        abort: &CancellationToken,
    ) -> Result<(), StoreError> {
        let workers = Arc::new(Semaphore::new(self.workers));
        let pace = Arc::new(Pace { outstanding: AtomicUsize::new(0), ended: AtomicUsize::new(0), room: Notify::new() });
        let mut window = Window { began: Instant::now(), ended: 0, ahead: 0 };
        let mut bells = None;
        let mut reach = Reach::Own;
        loop {
            let limit = self.wait_for_room(&pace, &mut window, drain).await;
            if drain.is_cancelled() || abort.is_cancelled() {
                return Ok(());
            }
            if bells.is_none() {
                bells = Some(self.watch_bells().await?);
            }
            match self.claim_some(limit, reach).await {
                Ok((outcome, _)) if outcome.session_over => return Ok(()),
                Ok((outcome, next)) => {
                    let owed_left = outcome.owed_left;
                    outcome.missing.into_iter().for_each(|digest| self.runner.prepare(digest));
                    for claimed in outcome.claimed {
                        self.start(claimed, report.clone(), runs, &workers, &pace, abort);
                    }
                    let room = async {
                        match owed_left {
                            // There is more, of which it may take no more now.
                            true => pace.room.notified().await,
                            false => std::future::pending().await,
                        }
                    };
                    reach = self.follow(next, &mut bells, room, drain).await;
                }
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "the claim failed and will be tried again");
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// Does what follows a claim; returns how far the next one reaches.
    async fn follow(
        &self,
        next: Next,
        bells: &mut Option<BoxFuture<'static, ()>>,
        room: impl Future<Output = ()>,
        drain: &CancellationToken,
    ) -> Reach {
        match next {
            Next::Claim(reach) => reach,
            Next::AfterOwners(wait) => {
                tokio::select! {
                    biased;
                    () = drain.cancelled() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                Reach::All
            }
            Next::Wait => {
                self.wait_for_work(bells, room, drain).await;
                Reach::Own
            }
        }
    }

    async fn claim_some(&self, limit: usize, reach: Reach) -> Result<(ClaimOutcome, Next), StoreError> {
        let id = ClaimId::new(self.ctx.env.random_u128());
        let runner = self.runner.clone();
        let partitions = self.ctx.partitions;
        let view = if self.exclusive { Arc::default() } else { self.ctx.fleet.latest() };
        let lanes = reach.lanes(&view, &self.lanes, self.session, partitions);
        let request = ClaimRequest {
            node: &self.node,
            session: self.session,
            lanes: &lanes,
            limit,
            owed_max: limit.saturating_sub(self.workers / ON_TIME_SHARE),
            claim: id,
            can_run: &move |digest: &TaskDigest| runner.can_run(digest),
        };
        self.holding.begin_claim(id);
        let outcome = claim(&self.ctx, &request).await;
        let claimed = outcome.as_ref().map_or(&[][..], |outcome| &outcome.claimed);
        self.holding.end_claim(id, claimed);
        let outcome = outcome?;
        let next = reach.next(!outcome.claimed.is_empty(), &lanes, partitions, self.ctx.env.random_u64());
        Ok((outcome, next))
    }

    /// Waits until there is room, and a little longer if there is not much; returns how many executions it is for.
    async fn wait_for_room(&self, pace: &Pace, window: &mut Window, drain: &CancellationToken) -> usize {
        let mut lingered = false;
        loop {
            window.turn(pace);
            let target = self.workers + window.ahead;
            let outstanding = pace.outstanding.load(Ordering::Acquire);
            let room =
                target.saturating_sub(outstanding).min(HELD_MAX.saturating_sub(self.holding.len())).min(BATCH_MAX);
            if room > 0 && (lingered || outstanding == 0 || room * 4 >= target.min(BATCH_MAX)) {
                return room;
            }
            lingered = room > 0;
            let wait = if lingered { ROOM_LINGER } else { POLL };
            tokio::select! {
                biased;
                () = drain.cancelled() => return 0,
                () = pace.room.notified(), if !lingered => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn watch_bells(&self) -> Result<BoxFuture<'static, ()>, StoreError> {
        let mut bells = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            bells.push(self.ctx.store.watch(Bell::Lane(lane).key()).await?);
        }
        Ok(Box::pin(async move {
            select_all(bells).await;
        }))
    }

    async fn wait_for_work(
        &self,
        bells: &mut Option<BoxFuture<'static, ()>>,
        room: impl Future<Output = ()>,
        drain: &CancellationToken,
    ) {
        let bell = async {
            match bells.as_mut() {
                Some(bell) => bell.await,
                None => std::future::pending().await,
            }
        };
        let rung = tokio::select! {
            biased;
            () = drain.cancelled() => false,
            () = bell => true,
            () = self.runner.prepared().notified() => false,
            () = room => false,
            () = tokio::time::sleep(POLL) => false,
        };
        if rung {
            *bells = None;
        }
    }

    fn start(
        &self,
        claimed: Claimed,
        report: mpsc::UnboundedSender<Report>,
        runs: &TaskTracker,
        workers: &Arc<Semaphore>,
        pace: &Arc<Pace>,
        abort: &CancellationToken,
    ) {
        pace.outstanding.fetch_add(1, Ordering::AcqRel);
        let (ctx, runner) = (self.ctx.clone(), self.runner.clone());
        let (workers, pace, abort) = (workers.clone(), pace.clone(), abort.clone());
        let stop = self.holding.stop_of(claimed.fence);
        let gate = self.ctx.env.clone();
        runs.spawn(gate.gated(async move {
            // Who is to stop needs no worker for it. The semaphore is never closed.
            let worker = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                worker = workers.acquire_owned() => worker.ok(),
            };
            if !abort.is_cancelled() {
                let ended = attempt(&ctx, &*runner, claimed, &stop).await;
                // After an abort the claim is lost: what the run came to is nobody's business any more.
                if !abort.is_cancelled() {
                    let _ = report.send(ended);
                }
            }
            drop(worker);
            pace.ended.fetch_add(1, Ordering::AcqRel);
            pace.outstanding.fetch_sub(1, Ordering::AcqRel);
            pace.room.notify_one();
        }));
    }
}

async fn attempt(ctx: &Ctx, runner: &dyn Runner, claimed: Claimed, stop: &CancellationToken) -> Report {
    let Claimed { execution, fence, job } = claimed;
    let started_at = ctx.env.now();
    let lag = started_at.saturating_since(promised_start(&execution));
    let owed = matches!(&execution.state, State::Running(running) if running.owed);
    ctx.metrics.started(lag, owed, execution.attempts.is_empty());
    let id = execution.id;
    let run = Run { execution, job, lag };
    ctx.metrics.run_began(&run.job.job.lane);
    let ran = runner.run(&run, stop).await;
    ctx.metrics.run_ended(&run.job.job.lane);
    Report {
        execution: id,
        fence,
        job: run.job,
        started_at,
        finished_at: ctx.env.now().max(started_at),
        outcome: ran.outcome,
        cost: ran.cost,
        output: ran.output,
        logs: ran.logs,
        random: ctx.env.random_u64(),
    }
}

fn promised_start(execution: &Execution) -> Timestamp {
    match &execution.state {
        State::Running(running) => running.due,
        _ => execution.slot,
    }
}

/// How many executions ended in the best of the last windows: about so many are claimed ahead, so that workers need not wait for a commit.
struct Window {
    began: Instant,
    ended: usize,
    ahead: usize,
}

impl Window {
    fn turn(&mut self, pace: &Pace) {
        let now = Instant::now();
        if now - self.began < AHEAD_WINDOW {
            return;
        }
        let ended = pace.ended.load(Ordering::Acquire);
        // It shrinks slowly, so that the next burst does not find it forgotten: schedules come to the second, not evenly.
        self.ahead = (ended - self.ended).max(self.ahead * 7 / 8).min(AHEAD_MAX);
        self.ended = ended;
        self.began = now;
    }
}
