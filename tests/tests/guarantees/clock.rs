//! Promise 11: a wall clock that is set two hours ahead and back again under a running node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use compline_core::Timestamp;
use compline_core::execution::{Cost, Outcome};
use compline_core::ids::{JobId, ShardId, TaskDigest};
use compline_core::schedule::ScheduleSpec;
use compline_server::env::{Clock, DISBELIEF, STEP_MAX};
use compline_server::loops::{Node, NodeConfig, Ran, Run, Runner};
use compline_store::tables::lease;
use compline_tests::sim::clock::{NodeClock, SimClock};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const AHEAD: TimeDelta = TimeDelta::hours(2);

/// A run that began: its job, its slot, and when it was by a clock that is right.
#[derive(Debug, Clone, Copy)]
struct Began {
    job: JobId,
    slot: Timestamp,
    at: Timestamp,
}

/// Runs that take no time, written down.
struct Recorder {
    right: SimClock,
    began: Mutex<Vec<Began>>,
    prepared: Notify,
}

#[async_trait]
impl Runner for Recorder {
    fn can_run(&self, _: &TaskDigest) -> bool {
        true
    }

    fn prepare(&self, _: TaskDigest) {}

    fn prepared(&self) -> &Notify {
        &self.prepared
    }

    async fn run(&self, run: &Run, _: &CancellationToken) -> Ran {
        let began = Began { job: run.job.job.id, slot: run.execution.slot, at: self.right.now() };
        self.began.lock().push(began);
        Ran { outcome: Outcome::Ok, cost: Cost::default(), output: None, logs: Vec::new() }
    }
}

impl Recorder {
    /// What began since the last call.
    fn take(&self) -> Vec<Began> {
        std::mem::take(&mut *self.began.lock())
    }
}

fn newest(runs: &[Began]) -> BTreeMap<JobId, Timestamp> {
    runs.iter().map(|run| (run.job, run.slot)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_two_hours_ahead_and_back_fires_nothing_twice_and_every_job_again() {
    let right = SimClock::starting_at(Timestamp::from_unix_seconds(1_800_000_000));
    let clock = Arc::new(NodeClock::new(right));
    let world = World::by_clock(clock.clone()).await;
    for cron in ["* * * * * *", "* * * * *", "*/10 * * * *"] {
        world.create(ScheduleSpec::cron(cron)).await;
    }
    let recorder = Arc::new(Recorder { right, began: Mutex::default(), prepared: Notify::new() });
    let config = NodeConfig { exclusive: true, ..NodeConfig::new("node") };
    let node = Node::new(world.ctx.clone(), config, recorder.clone());
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (node, stop) = (node.clone(), stop.clone());
        async move { node.run(stop).await }
    });
    let owner = async || {
        let read = world.ctx.store.transact(|tx| async move { lease::get(&tx, ShardId(0)).await });
        read.await.expect("a store").value
    };

    // On time.
    sleep(MINUTE * 21).await;
    let (session, lease) = (node.session(), owner().await);
    let on_time = recorder.take();
    assert_eq!(newest(&on_time).len(), 3, "each of the jobs ran");

    // Two hours ahead: not believed for a minute, in which all goes on as if nothing had been.
    clock.set_off(AHEAD);
    sleep(DISBELIEF - SECOND).await;
    let disbelieved = recorder.take();
    for run in on_time.iter().chain(&disbelieved) {
        assert!(
            run.slot <= run.at && run.at <= run.slot + SECOND,
            "early or late though the step is not believed: {run:?}"
        );
    }
    assert!(disbelieved.len() >= 59, "the job of every second goes on: {}", disbelieved.len());

    // Then believed: what is due by now runs, as after an outage, and nothing beyond.
    sleep(MINUTE * 5).await;
    let ahead = recorder.take();
    let accepted = ahead.iter().filter(|run| run.slot > run.at + STEP_MAX).collect::<Vec<_>>();
    assert!(
        accepted.iter().all(|run| run.slot.to_utc() <= run.at.to_utc() + AHEAD),
        "early by the clock that is believed"
    );
    assert!(accepted.len() > 300, "the step was never believed: {}", accepted.len());

    // And back: after another minute no job runs until the wall has passed the slot that it has next.
    clock.set_off(TimeDelta::zero());
    sleep(DISBELIEF + SECOND).await;
    let back = recorder.take();
    let last = newest(&[ahead.clone(), back.clone()].concat());
    sleep(MINUTE).await;
    assert!(recorder.take().is_empty(), "runs though the wall is two hours before their slots");
    // A new job is not kept waiting by it.
    let once = right.now() + SECOND * 20;
    let created = world.create(ScheduleSpec::once(once.to_string())).await;
    sleep(SECOND * 22).await;
    let new = recorder.take();
    assert!(new.len() == 1 && new[0].slot == once && new[0].at <= once + SECOND, "{created}: {new:?}");

    let slots = last.values();
    let longest = slots.map(|slot| slot.saturating_since(right.now())).max().expect("three jobs");
    sleep(longest + MINUTE * 11).await;
    let again = recorder.take();
    for (job, slot) in &last {
        let first = again.iter().find(|run| run.job == *job).unwrap_or_else(|| panic!("{job} never fired again"));
        assert!(first.slot > *slot && first.at <= first.slot + SECOND, "after {slot}: {first:?}");
    }
    for run in &again {
        assert!(run.slot <= run.at && run.at <= run.slot + SECOND, "early or late once the clock is right: {run:?}");
    }
    let all = [on_time, disbelieved, ahead, back, new, again].concat();
    let slots: BTreeSet<_> = all.iter().map(|run| (run.job, run.slot)).collect();
    assert_eq!(slots.len(), all.len(), "a slot ran twice");
    assert_eq!((node.session(), owner().await), (session, lease), "the session or the lease was lost to it");
    stop.cancel();
    task.await.expect("no panic").expect("a store");
}
