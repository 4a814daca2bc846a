//! The state machine under random events: what must hold whatever happens.

use std::collections::BTreeSet;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{
    Cause, Cost, Event, Execution, Finish, IllegalTransition, Outcome, State, WORKERS_LOST_MAX,
};
use compline_core::ids::{ClaimId, ExecutionId, Fence, JobId, SessionId, ShardCount};
use compline_core::ledger::SkipReason;
use proptest::prelude::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_800_000_000 + seconds)
}

fn new_execution() -> Execution {
    let job = JobId::new(at(0), 7);
    let id = ExecutionId::of_slot(job, at(0), job.shard(ShardCount::new(16)));
    Execution::planned(id, job, at(0), at(0), Cause::Schedule)
}

/// What a test asks for; fences are chosen when the event is made, from those granted so far.
#[derive(Debug, Clone)]
enum Ask {
    Queue,
    Hold,
    Claim,
    Finish { outcome: Outcome, retry: bool, stale: bool },
    Lost,
    HandBack { stale: bool },
    Cancel,
    Terminate,
    Skip,
    Redrive,
}

fn ask() -> impl Strategy<Value = Ask> {
    let outcome = prop_oneof![
        Just(Outcome::Ok),
        any::<bool>().prop_map(|retryable| Outcome::Error { retryable, message: "no".to_owned() }),
        Just(Outcome::OutOfFuel),
        Just(Outcome::Exit { code: 7 }),
    ];
    prop_oneof![
        4 => Just(Ask::Queue),
        2 => Just(Ask::Hold),
        4 => Just(Ask::Claim),
        4 => (outcome, any::<bool>(), any::<bool>()).prop_map(|(outcome, retry, stale)| Ask::Finish { outcome, retry, stale }),
        2 => Just(Ask::Lost),
        2 => any::<bool>().prop_map(|stale| Ask::HandBack { stale }),
        1 => Just(Ask::Cancel),
        1 => Just(Ask::Terminate),
        1 => Just(Ask::Skip),
        1 => Just(Ask::Redrive),
    ]
}

/// Plays the store: it mints a fence for every claim, greater than all before.
struct World {
    execution: Execution,
    granted: Vec<Fence>,
}

impl World {
    fn current(&self) -> Fence {
        self.granted.last().copied().unwrap_or(Fence::new(1, [0; 12]))
    }

    fn stale(&self) -> Fence {
        self.granted.len().checked_sub(2).map_or(Fence::new(1, [0; 12]), |before| self.granted[before])
    }

    fn event(&self, ask: &Ask, now: Timestamp) -> Event {
        let fence = |stale: bool| if stale { self.stale() } else { self.current() };
        match ask {
            Ask::Queue => Event::Queue { at: now, partition: 0 },
            Ask::Hold => Event::Hold { at: now },
            Ask::Claim => {
                Event::Claim { at: now, session: SessionId::NONE, node: "n".to_owned(), claim: ClaimId::new(1) }
            }
            Ask::Finish { outcome, retry, stale } => Event::Finish(Box::new(Finish {
                fence: fence(*stale),
                started_at: now,
                at: now,
                outcome: outcome.clone(),
                cost: Cost::default(),
                output: None,
                retry_at: (*retry && outcome.may_retry()).then(|| now + Duration::from_secs(10)),
            })),
            Ask::Lost => Event::Lost { at: now, partition: 0 },
            Ask::HandBack { stale } => Event::HandBack { fence: fence(*stale), at: now, partition: 0 },
            Ask::Cancel => Event::Cancel { at: now, reason: "asked".to_owned() },
            Ask::Skip => Event::Skip { at: now, reason: SkipReason::Misfire, detail: "asked".to_owned() },
            Ask::Terminate => Event::Terminate { at: now, reason: "asked".to_owned() },
            Ask::Redrive => Event::Redrive { at: now },
        }
    }

    fn take(&mut self, next: Execution) {
        self.execution = next;
        if let State::Running(running) = &mut self.execution.state
            && running.fence == Fence::UNSET
        {
            let mut stamp = [0; 12];
            stamp[4..].copy_from_slice(&(self.granted.len() as u64 + 1).to_be_bytes());
            running.fence = Fence::new(1, stamp);
            self.granted.push(running.fence);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is asked in whatever order: history only grows, an end is an end, and nobody acts with a stale fence.
    #[test]
    fn history_only_grows_and_ends_are_ends(asks in prop::collection::vec(ask(), 1..60)) {
        let mut world = World { execution: new_execution(), granted: Vec::new() };
        for (step, ask) in asks.iter().enumerate() {
            let before = world.execution.clone();
            // Each event comes from another node, whose clock may be behind.
            let event = world.event(ask, at(step as i64 ^ 3));
            match before.apply(&event) {
                Err(IllegalTransition::StaleFence { offered }) => {
                    let running_under = matches!(&before.state, State::Running(running) if running.fence == offered);
                    prop_assert!(!running_under, "the current fence was called stale");
                }
                Err(_) => {}
                Ok(next) => {
                    prop_assert!(next.attempts.starts_with(&before.attempts), "history was rewritten");
                    prop_assert!(next.attempts.len() <= before.attempts.len() + 1);
                    prop_assert_eq!((next.id, next.job, next.slot), (before.id, before.job, before.slot));
                    if before.state.is_terminal() {
                        let redriven = matches!((&before.state, &event), (State::Failed { .. }, Event::Redrive { .. }));
                        prop_assert!(redriven, "an end was left by {:?}", event);
                    }
                    if matches!(&before.state, State::Running(running) if running.stop.is_some()) {
                        let tried_again = matches!(next.state, State::Queued(_) | State::Retrying { .. });
                        prop_assert!(!tried_again, "told to stop, and tried again after {:?}", event);
                    }
                    if let (State::Waiting { since, .. }, State::Queued(queued)) = (&before.state, &next.state) {
                        prop_assert!(queued.at >= *since, "queued before it began to wait: {:?}", event);
                    }
                    if let Event::Finish(finish) = &event {
                        prop_assert!(matches!(&before.state, State::Running(running) if running.fence == finish.fence));
                    }
                    world.take(next);
                }
            }
            check(&world.execution)?;
        }
        let fences: BTreeSet<_> = world.execution.attempts.iter().map(|attempt| attempt.fence).collect();
        prop_assert_eq!(fences.len(), world.execution.attempts.len(), "two attempts under one fence");
    }

    /// The same report twice is recognised, whatever the first one led to.
    #[test]
    fn a_report_is_recognised_when_it_comes_again(outcome in prop_oneof![Just(Outcome::Ok), Just(Outcome::TimedOut)], retry in any::<bool>()) {
        let mut world = World { execution: new_execution(), granted: Vec::new() };
        for ask in [Ask::Queue, Ask::Claim] {
            let event = world.event(&ask, at(1));
            let next = world.execution.apply(&event).expect("a legal step");
            world.take(next);
        }
        let report = world.event(&Ask::Finish { outcome, retry, stale: false }, at(2));
        let next = world.execution.apply(&report).expect("the first report");
        world.take(next);
        prop_assert_eq!(world.execution.apply(&report), Err(IllegalTransition::AlreadyReported));
    }
}

/// What holds of every execution at every moment.
fn check(execution: &Execution) -> Result<(), TestCaseError> {
    for (index, attempt) in execution.attempts.iter().enumerate() {
        prop_assert_eq!(attempt.number as usize, index + 1);
    }
    let worked = execution.attempts.iter().filter(|attempt| attempt.outcome == Outcome::Ok).count();
    prop_assert_eq!(
        worked,
        usize::from(matches!(execution.state, State::Completed { .. })),
        "done once, or not at all"
    );
    let lost = execution.attempts.iter().filter(|attempt| attempt.outcome == Outcome::WorkerLost).count() as u32;
    if lost >= WORKERS_LOST_MAX {
        let pending = matches!(execution.state, State::Pending { .. });
        prop_assert!(!pending);
    }
    Ok(())
}

#[test]
fn a_worker_lost_too_often_is_poison() {
    let mut world = World { execution: new_execution(), granted: Vec::new() };
    for ask in [Ask::Queue, Ask::Claim, Ask::Lost, Ask::Claim, Ask::Lost, Ask::Claim] {
        let event = world.event(&ask, at(1));
        let next = world.execution.apply(&event).expect("a legal step");
        world.take(next);
    }
    let event = world.event(&Ask::Lost, at(2));
    let failed = world.execution.apply(&event).expect("a legal step");
    assert!(matches!(&failed.state, State::Failed { reason, .. } if reason.contains("poison")), "{failed:?}");
    assert_eq!(failed.attempts_counted(), 0, "a lost worker is not the task's doing");
}

#[test]
fn a_cancel_is_remembered_by_what_runs_and_a_terminate_ends_it() {
    let mut world = World { execution: new_execution(), granted: Vec::new() };
    for ask in [Ask::Queue, Ask::Claim] {
        let event = world.event(&ask, at(1));
        let next = world.execution.apply(&event).expect("a legal step");
        world.take(next);
    }
    let cancel = |seconds| Event::Cancel { at: at(seconds), reason: "asked".to_owned() };
    let told = world.execution.apply(&cancel(2)).expect("a legal step");
    assert_eq!(told.apply(&cancel(3)), Ok(told.clone()), "the first wish stays");
    let ended = told.apply(&world.event(&Ask::Terminate, at(4))).expect("a legal step");
    assert!(matches!(&ended.state, State::Cancelled { .. }), "{ended:?}");
    let late = world.event(&Ask::Finish { outcome: Outcome::Ok, retry: false, stale: false }, at(5));
    assert_eq!(ended.apply(&late), Err(IllegalTransition::AlreadyReported));
}
