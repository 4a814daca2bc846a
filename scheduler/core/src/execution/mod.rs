//! The one durable row of a slot, and the one function by which it changes.
//!
//! ```text
//!            Queue                Claim              Finish(ok)
//!  PENDING ─────────▶ QUEUED ─────────────▶ RUNNING ───────────▶ COMPLETED
//!     │                ▲ ▲ ▲                 │ │ │
//!     │ Skip     Queue │ │ └──Lost, HandBack─┘ │ └─Finish(failed for good), Lost(too often)─▶ FAILED
//!     ▼                │ │                     │                                              │
//!  SKIPPED        RETRYING ◀──Finish(again at)─┘                       Redrive ◀──────────────┘
//!
//!  What is late by more than [`crate::job::LATE_GRACE`] is owed: Owe leads there from PENDING and RETRYING, which it is still shown as, and the
//!  same ways lead on.
//!
//!  Where its job's overlap rule holds it, Hold leads from PENDING (or RETRYING, after a redrive) to waiting, which answers show as PENDING
//!  too; Queue leads on from there once an earlier execution has ended, and Skip where a newer slot takes its place.
//!
//!  Cancel leads from every state that waits (PENDING, waiting, QUEUED, RETRYING) to CANCELLED. RUNNING stays so and remembers that it is to stop: its
//!  attempt may still do its work; if it does not, or its worker is lost, or it is handed back, CANCELLED follows instead of another try.
//!  Terminate leads to CANCELLED from RUNNING too, at once.
//! ```
//!
//! [`Execution::apply`] is the only way from one state to another. Live work and recovery go through it alike.

mod event;
mod outcome;
mod state;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use event::{Event, Finish, IllegalTransition};
pub use outcome::{Cost, Outcome};
pub use state::{Attempt, Owed, Queued, Running, State, Stop};

use crate::Timestamp;
use crate::ids::{ExecutionId, Fence, JobId};
use crate::job::{Job, TaskRef};

/// How often a worker may be lost under one execution before it is taken for the cause.
pub const WORKERS_LOST_MAX: u32 = 3;

/// One slot (or one manual trigger) of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// Its identifier.
    pub id: ExecutionId,
    /// The job that it belongs to.
    pub job: JobId,
    /// The planned instant.
    pub slot: Timestamp,
    /// Why there is such a row.
    pub cause: Cause,
    /// Where it stands.
    pub state: State,
    /// The attempts that ended, oldest first.
    pub attempts: Vec<Attempt>,
    /// What the last attempt answered, if it did its work.
    pub output: Option<Bytes>,
    /// Whether it is among its job's live or waiting executions, which only jobs with an overlap rule count. Whoever ends it takes it off.
    pub counted: bool,
    /// How many attempts no longer count towards any limit: those before the last redrive.
    pub forgiven: u32,
    /// What it runs and is handed in place of what its job says.
    pub instead: Option<Box<Instead>>,
}

/// What an execution runs and is handed in place of its job's task and parameters. It is fixed when the execution is made, so that an edit of
/// the job does not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instead {
    /// The task.
    pub task: TaskRef,
    /// What is handed to it.
    pub input: Bytes,
}

/// Why an execution exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Its slot is planned by the job's schedule.
    Schedule,
    /// Somebody asked for it.
    Trigger,
    /// Another execution of the job failed for good, and the job names a task to be told.
    Failure {
        /// That execution.
        of: ExecutionId,
    },
}

impl Execution {
    /// A slot that is planned.
    pub fn planned(id: ExecutionId, job: JobId, slot: Timestamp, due: Timestamp, cause: Cause) -> Self {
        let state = State::Pending { due };
        Self {
            id,
            job,
            slot,
            cause,
            state,
            attempts: Vec::new(),
            output: None,
            counted: false,
            forgiven: 0,
            instead: None,
        }
    }

    /// Whether nothing but its job's schedule wants it to run, so that an overlap rule may drop it. What somebody asked for, or asked for once
    /// more after it had failed, is not dropped: it waits.
    pub fn is_of_schedule(&self) -> bool {
        self.cause == Cause::Schedule && self.forgiven == 0
    }

    /// The task that it runs: its job's, unless it says otherwise.
    pub fn task<'a>(&'a self, job: &'a Job) -> &'a TaskRef {
        self.instead.as_ref().map_or(&job.task, |instead| &instead.task)
    }

    /// What it is handed: its job's parameters, unless it says otherwise.
    pub fn input<'a>(&'a self, job: &'a Job) -> &'a Bytes {
        self.instead.as_ref().map_or(&job.parameters, |instead| &instead.input)
    }

    /// The number of the attempt that runs, or that comes next.
    pub fn attempt_number(&self) -> u32 {
        self.attempts.len() as u32 + 1
    }

    /// How many attempts count towards the retry rule: a lost worker is not the task's doing, and a redrive begins anew.
    pub fn attempts_counted(&self) -> u32 {
        self.unforgiven().filter(|attempt| attempt.outcome != Outcome::WorkerLost).count() as u32
    }

    /// How often a worker was lost under it since the last redrive.
    pub fn workers_lost(&self) -> u32 {
        self.unforgiven().filter(|attempt| attempt.outcome == Outcome::WorkerLost).count() as u32
    }

    fn unforgiven(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().skip(self.forgiven as usize)
    }

    /// The execution after an event, or why the event does not apply.
    pub fn apply(&self, event: &Event) -> Result<Self, IllegalTransition> {
        let mut next = self.clone();
        match (&self.state, event) {
            (State::Pending { due } | State::Retrying { due }, Event::Queue { at, partition }) => {
                next.state = queued(*due, *at, *partition, false);
            }
            (State::Owed(owed), Event::Queue { at, partition }) => {
                next.state = queued(owed.due, (*at).max(owed.since), *partition, true);
            }
            // What was promised is a start once the others have ended. Whoever sees that may have a clock that is behind.
            (State::Waiting { since, .. }, Event::Queue { at, partition }) => {
                let at = (*at).max(*since);
                next.state = queued(at, at, *partition, false);
            }
            (State::Pending { due }, Event::Owe { at, passed }) => next.state = owed(*due, *at, false, *passed),
            (State::Retrying { due }, Event::Owe { at, passed }) => next.state = owed(*due, *at, true, *passed),
            (State::Pending { due } | State::Retrying { due } | State::Owed(Owed { due, .. }), Event::Hold { at }) => {
                next.state = State::Waiting { due: *due, since: *at };
            }
            (State::Queued(queued), Event::Claim { at, session, node, claim }) => {
                next.state = State::Running(Running {
                    due: queued.due,
                    queued_at: queued.at,
                    // Whoever claims may have a clock that was set back. That it was due was decided when it was queued.
                    claimed_at: (*at).max(queued.at).max(queued.due),
                    session: *session,
                    node: node.clone(),
                    claim: *claim,
                    owed: queued.owed,
                    fence: Fence::UNSET,
                    stop: None,
                });
            }
            (State::Running(running), Event::Finish(finish)) => next.finish(running, finish)?,
            (State::Running(running), Event::Lost { at, partition }) => next.lose(running, *at, *partition),
            (State::Running(running), Event::HandBack { fence, at, partition }) => {
                check_fence(running, *fence)?;
                next.state = waits_again(running, *at, *partition);
            }
            (State::Running(running), Event::Cancel { at, reason }) => {
                // The first wish stays: repeating it changes nothing.
                let stop = running.stop.clone().unwrap_or_else(|| Stop { at: *at, reason: reason.clone() });
                next.state = State::Running(Running { stop: Some(stop), ..running.clone() });
            }
            (State::Running(running), Event::Terminate { at, reason }) => {
                next.attempts.push(self.ended(running, None, *at, Outcome::Cancelled, Cost::default()));
                next.state = State::Cancelled { at: *at, reason: reason.clone() };
            }
            (
                State::Pending { .. }
                | State::Owed(_)
                | State::Waiting { .. }
                | State::Queued(_)
                | State::Retrying { .. },
                Event::Cancel { at, reason } | Event::Terminate { at, reason },
            ) => next.state = State::Cancelled { at: *at, reason: reason.clone() },
            (State::Pending { .. } | State::Owed(_) | State::Waiting { .. }, Event::Skip { at, reason, detail }) => {
                next.state = State::Skipped { at: *at, reason: *reason, detail: detail.clone() };
            }
            (State::Failed { .. }, Event::Redrive { at }) => {
                next.forgiven = next.attempts.len() as u32;
                next.state = State::Retrying { due: *at };
                next.counted = false;
            }
            (
                State::Queued(_)
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Finish(finish),
            ) => return Err(self.refuse_report(finish.fence)),
            (
                State::Queued(_)
                | State::Running(_)
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Queue { .. },
            ) => return Err(self.not_now("queued")),
            (
                State::Owed(_)
                | State::Waiting { .. }
                | State::Queued(_)
                | State::Running(_)
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Owe { .. },
            ) => return Err(self.not_now("owed")),
            (
                State::Waiting { .. }
                | State::Queued(_)
                | State::Running(_)
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Hold { .. },
            ) => return Err(self.not_now("held")),
            (
                State::Pending { .. }
                | State::Owed(_)
                | State::Waiting { .. }
                | State::Running(_)
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Claim { .. },
            ) => return Err(self.not_now("claimed")),
            (State::Pending { .. } | State::Owed(_) | State::Waiting { .. }, Event::Finish(_)) => {
                return Err(self.not_now("finished"));
            }
            (
                State::Pending { .. }
                | State::Owed(_)
                | State::Waiting { .. }
                | State::Queued(_)
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Lost { .. } | Event::HandBack { .. },
            ) => return Err(self.not_now("given back")),
            (
                State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } | State::Skipped { .. },
                Event::Cancel { .. } | Event::Terminate { .. },
            ) => return Err(self.not_now("cancelled")),
            (
                State::Queued(_)
                | State::Running(_)
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Skip { .. },
            ) => return Err(self.not_now("skipped")),
            (
                State::Pending { .. }
                | State::Owed(_)
                | State::Waiting { .. }
                | State::Queued(_)
                | State::Running(_)
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Redrive { .. },
            ) => return Err(self.not_now("redriven")),
        }
        Ok(next)
    }

    fn finish(&mut self, running: &Running, finish: &Finish) -> Result<(), IllegalTransition> {
        check_fence(running, finish.fence)?;
        self.attempts.push(self.ended(
            running,
            Some(finish.started_at),
            finish.at,
            finish.outcome.clone(),
            finish.cost,
        ));
        self.state = match (&finish.outcome, finish.retry_at, &running.stop) {
            (Outcome::Ok, _, _) => {
                self.output = finish.output.clone();
                State::Completed { at: finish.at }
            }
            // Who is to stop does not try again.
            (Outcome::Cancelled, _, Some(stop)) | (_, Some(_), Some(stop)) => cancelled(stop, finish.at),
            (Outcome::Cancelled, _, None) => State::Cancelled { at: finish.at, reason: finish.outcome.reason() },
            (_, Some(due), None) => State::Retrying { due },
            (_, None, _) => State::Failed { at: finish.at, reason: finish.outcome.reason() },
        };
        Ok(())
    }

    fn lose(&mut self, running: &Running, at: Timestamp, partition: u8) {
        self.attempts.push(self.ended(running, None, at, Outcome::WorkerLost, Cost::default()));
        let lost = self.workers_lost();
        self.state = if lost >= WORKERS_LOST_MAX && running.stop.is_none() {
            State::Failed { at, reason: format!("poison: its worker was lost {lost} times") }
        } else {
            waits_again(running, at, partition)
        };
    }

    fn ended(
        &self,
        running: &Running,
        started_at: Option<Timestamp>,
        finished_at: Timestamp,
        outcome: Outcome,
        cost: Cost,
    ) -> Attempt {
        Attempt {
            number: self.attempt_number(),
            node: running.node.clone(),
            fence: running.fence,
            due: running.due,
            queued_at: running.queued_at,
            started_at,
            finished_at,
            outcome,
            cost,
        }
    }

    fn refuse_report(&self, fence: Fence) -> IllegalTransition {
        match self.attempts.last() {
            Some(last) if last.fence == fence && last.outcome != Outcome::WorkerLost => {
                IllegalTransition::AlreadyReported
            }
            _ => IllegalTransition::StaleFence { offered: fence },
        }
    }

    fn not_now(&self, event: &'static str) -> IllegalTransition {
        IllegalTransition::NotNow { state: self.state.name(), event }
    }
}

/// Where an execution goes that was taken from its worker.
fn waits_again(running: &Running, at: Timestamp, partition: u8) -> State {
    match &running.stop {
        Some(stop) => cancelled(stop, at),
        None => queued(running.due, at, partition, running.owed),
    }
}

/// Waiting in a lane. Whoever writes the row knows which.
fn queued(due: Timestamp, at: Timestamp, partition: u8, owed: bool) -> State {
    State::Queued(Queued { due, at, partition, lane: String::new(), owed })
}

fn owed(due: Timestamp, since: Timestamp, again: bool, passed: bool) -> State {
    State::Owed(Owed { due, since, again, passed, lane: String::new() })
}

fn cancelled(stop: &Stop, at: Timestamp) -> State {
    State::Cancelled { at, reason: stop.reason.clone() }
}

fn check_fence(running: &Running, offered: Fence) -> Result<(), IllegalTransition> {
    if running.fence == offered && offered != Fence::UNSET {
        Ok(())
    } else {
        Err(IllegalTransition::StaleFence { offered })
    }
}
