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
//!  Cancel leads from every state above the line (PENDING, QUEUED, RUNNING, RETRYING) to CANCELLED.
//! ```
//!
//! [`Execution::apply`] is the only way from one state to another. Live work and recovery go through it alike.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::{ClaimId, ExecutionId, Fence, JobId, SessionId};

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
}

/// Why an execution exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Its slot is planned by the job's schedule.
    Schedule,
    /// Somebody asked for it.
    Trigger,
}

/// Where an execution stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// Planned, not yet due.
    Pending {
        /// When it is due.
        due: Timestamp,
    },
    /// Due, waiting for a worker.
    Queued(Queued),
    /// Claimed by a session.
    Running(Running),
    /// Failed, to be tried again.
    Retrying {
        /// When it is due again.
        due: Timestamp,
    },
    /// Did its work.
    Completed {
        /// When.
        at: Timestamp,
    },
    /// Will not be tried again.
    Failed {
        /// When.
        at: Timestamp,
        /// Why, in a sentence.
        reason: String,
    },
    /// Stopped by its owner.
    Cancelled {
        /// When.
        at: Timestamp,
        /// Why, in a sentence.
        reason: String,
    },
    /// Never started.
    Skipped {
        /// When that was decided.
        at: Timestamp,
        /// Why, in a sentence.
        reason: String,
    },
}

/// An execution that waits in its lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queued {
    /// The promised start of the attempt to come.
    pub due: Timestamp,
    /// Since when it waits.
    pub at: Timestamp,
    /// The part of the lane that it waits in. With the commit's stamp this is its place.
    pub partition: u8,
}

/// An execution that a session holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The promised start of this attempt.
    pub due: Timestamp,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Who holds it.
    pub session: SessionId,
    /// That session's node, for people.
    pub node: String,
    /// The claim that took it.
    pub claim: ClaimId,
    /// The right to report on it. The store puts it in at the commit.
    #[serde(skip, default = "unset_fence")]
    pub fence: Fence,
}

fn unset_fence() -> Fence {
    Fence::UNSET
}

/// An attempt that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// The node that ran it.
    pub node: String,
    /// The fence that it ran under.
    pub fence: Fence,
    /// Its promised start.
    pub due: Timestamp,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When it started; unknown if its worker was lost.
    pub started_at: Option<Timestamp>,
    /// When it ended, or was given up.
    pub finished_at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// What it used.
    pub cost: Cost,
}

/// How an attempt ended. Each is treated differently by somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The task did its work.
    Ok,
    /// The task said that it failed.
    Error {
        /// Whether it thinks another attempt can help.
        retryable: bool,
        /// Its own words.
        message: String,
    },
    /// The task broke: a panic, an out-of-bounds access, a stack overflow.
    Trap {
        /// What kind of break.
        message: String,
        /// Where, innermost first.
        backtrace: Vec<String>,
    },
    /// It used up its fuel.
    OutOfFuel,
    /// It did not end in time.
    TimedOut,
    /// It needs more memory than its limit to start.
    MemoryLimit,
    /// Its output is larger than the limit.
    OutputLimit,
    /// A command ended with another code than 0.
    Exit {
        /// The code.
        code: i32,
    },
    /// Its owner stopped it.
    Cancelled,
    /// Its node died or was cut off.
    WorkerLost,
    /// Our fault, not the task's.
    HostError {
        /// What happened.
        message: String,
    },
}

impl Outcome {
    /// The name that answers and metrics use.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error { .. } => "error",
            Self::Trap { .. } => "trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::TimedOut => "timed-out",
            Self::MemoryLimit => "memory-limit",
            Self::OutputLimit => "output-limit",
            Self::Exit { .. } => "exit",
            Self::Cancelled => "cancelled",
            Self::WorkerLost => "worker-lost",
            Self::HostError { .. } => "host-error",
        }
    }

    /// Whether the retry rule applies. A task that calls its failure permanent is believed.
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Ok | Self::Error { retryable: false, .. } | Self::Cancelled => false,
            Self::Error { retryable: true, .. }
            | Self::Trap { .. }
            | Self::OutOfFuel
            | Self::TimedOut
            | Self::MemoryLimit
            | Self::OutputLimit
            | Self::Exit { .. }
            | Self::WorkerLost
            | Self::HostError { .. } => true,
        }
    }

    /// One sentence about a failure, for the execution's reason.
    pub fn reason(&self) -> String {
        match self {
            Self::Ok => "it did its work".to_owned(),
            Self::Error { message, .. } => format!("the task failed: {message}"),
            Self::Trap { message, .. } => format!("the task trapped: {message}"),
            Self::OutOfFuel => "the task ran out of fuel (`limits.fuel`)".to_owned(),
            Self::TimedOut => "the task did not end in time (`limits.timeout`)".to_owned(),
            Self::MemoryLimit => "the task needs more memory than its limit (`limits.memory_bytes`)".to_owned(),
            Self::OutputLimit => "the task's output is larger than the limit".to_owned(),
            Self::Exit { code } => format!("the command exited with code {code}"),
            Self::Cancelled => "it was cancelled".to_owned(),
            Self::WorkerLost => "its worker was lost".to_owned(),
            Self::HostError { message } => format!("the host failed: {message}"),
        }
    }
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Units of work.
    pub fuel: u64,
    /// Wall time, in microseconds.
    pub wall_micros: u64,
    /// The most memory at any moment.
    pub memory_peak_bytes: u64,
    /// Calls into the host.
    pub host_calls: u64,
}

/// What happens to an execution.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Its time has come.
    Queue {
        /// When that was noticed.
        at: Timestamp,
        /// The part of the lane that it goes to.
        partition: u8,
    },
    /// A session takes it.
    Claim {
        /// When.
        at: Timestamp,
        /// Who.
        session: SessionId,
        /// That session's node.
        node: String,
        /// By which claim.
        claim: ClaimId,
    },
    /// Its attempt ended.
    Finish(Box<Finish>),
    /// Its session is dead.
    Lost {
        /// When that was noticed.
        at: Timestamp,
        /// The part of the lane that it goes back to.
        partition: u8,
    },
    /// Its session gives it back without having run it. Not an attempt.
    HandBack {
        /// The right to do so.
        fence: Fence,
        /// When.
        at: Timestamp,
        /// The part of the lane that it goes back to.
        partition: u8,
    },
    /// Its owner stops it.
    Cancel {
        /// When.
        at: Timestamp,
        /// Why.
        reason: String,
    },
    /// It will not start.
    Skip {
        /// When that was decided.
        at: Timestamp,
        /// Why.
        reason: String,
    },
    /// Its owner wants another try after the last.
    Redrive {
        /// When.
        at: Timestamp,
    },
}

/// The end of an attempt, as its executor reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// The right to report.
    pub fence: Fence,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// When it ended.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// What it used.
    pub cost: Cost,
    /// What it answered.
    pub output: Option<Bytes>,
    /// When to try again, if at all: decided by the retry rule before the event is made.
    pub retry_at: Option<Timestamp>,
}

/// Why an event does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalTransition {
    /// The reporter lost its claim.
    #[error("the fence {offered} is stale: the attempt is no longer that claim's")]
    StaleFence {
        /// The fence that was shown.
        offered: Fence,
    },
    /// The same report again; it has been recorded.
    #[error("this attempt has been reported already")]
    AlreadyReported,
    /// Such an event has no meaning in this state.
    #[error("an execution that is {state} cannot be {event}")]
    NotNow {
        /// The state's name.
        state: &'static str,
        /// The event's participle.
        event: &'static str,
    },
}

impl State {
    /// The name that answers use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "PENDING",
            Self::Queued(_) => "QUEUED",
            Self::Running(_) => "RUNNING",
            Self::Retrying { .. } => "RETRYING",
            Self::Completed { .. } => "COMPLETED",
            Self::Failed { .. } => "FAILED",
            Self::Cancelled { .. } => "CANCELLED",
            Self::Skipped { .. } => "SKIPPED",
        }
    }

    /// Whether nothing will happen any more by itself.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Pending { .. } | Self::Queued(_) | Self::Running(_) | Self::Retrying { .. } => false,
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } | Self::Skipped { .. } => true,
        }
    }
}

impl Execution {
    /// A slot that is planned.
    pub fn planned(id: ExecutionId, job: JobId, slot: Timestamp, due: Timestamp, cause: Cause) -> Self {
        Self { id, job, slot, cause, state: State::Pending { due }, attempts: Vec::new(), output: None }
    }

    /// The number of the attempt that runs, or that comes next.
    pub fn attempt_number(&self) -> u32 {
        self.attempts.len() as u32 + 1
    }

    /// How many attempts count towards the retry rule: a lost worker is not the task's doing.
    pub fn attempts_counted(&self) -> u32 {
        self.attempts.iter().filter(|attempt| attempt.outcome != Outcome::WorkerLost).count() as u32
    }

    /// The execution after an event, or why the event does not apply.
    pub fn apply(&self, event: &Event) -> Result<Self, IllegalTransition> {
        let mut next = self.clone();
        match (&self.state, event) {
            (State::Pending { due } | State::Retrying { due }, Event::Queue { at, partition }) => {
                next.state = State::Queued(Queued { due: *due, at: *at, partition: *partition });
            }
            (State::Queued(queued), Event::Claim { at, session, node, claim }) => {
                next.state = State::Running(Running {
                    due: queued.due,
                    queued_at: queued.at,
                    claimed_at: *at,
                    session: *session,
                    node: node.clone(),
                    claim: *claim,
                    fence: Fence::UNSET,
                });
            }
            (State::Running(running), Event::Finish(finish)) => next.finish(running, finish)?,
            (State::Running(running), Event::Lost { at, partition }) => next.lose(running, *at, *partition),
            (State::Running(running), Event::HandBack { fence, at, partition }) => {
                check_fence(running, *fence)?;
                next.state = State::Queued(Queued { due: running.due, at: *at, partition: *partition });
            }
            (
                State::Pending { .. } | State::Queued(_) | State::Running(_) | State::Retrying { .. },
                Event::Cancel { at, reason },
            ) => {
                if let State::Running(running) = &self.state {
                    next.attempts.push(self.ended(running, None, *at, Outcome::Cancelled, Cost::default()));
                }
                next.state = State::Cancelled { at: *at, reason: reason.clone() };
            }
            (State::Pending { .. }, Event::Skip { at, reason }) => {
                next.state = State::Skipped { at: *at, reason: reason.clone() };
            }
            (State::Failed { .. }, Event::Redrive { at }) => next.state = State::Retrying { due: *at },
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
                State::Pending { .. }
                | State::Running(_)
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. },
                Event::Claim { .. },
            ) => return Err(self.not_now("claimed")),
            (State::Pending { .. }, Event::Finish(_)) => return Err(self.not_now("finished")),
            (
                State::Pending { .. }
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
                Event::Cancel { .. },
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
        self.state = match (&finish.outcome, finish.retry_at) {
            (Outcome::Ok, _) => {
                self.output = finish.output.clone();
                State::Completed { at: finish.at }
            }
            (Outcome::Cancelled, _) => State::Cancelled { at: finish.at, reason: finish.outcome.reason() },
            (_, Some(due)) => State::Retrying { due },
            (_, None) => State::Failed { at: finish.at, reason: finish.outcome.reason() },
        };
        Ok(())
    }

    fn lose(&mut self, running: &Running, at: Timestamp, partition: u8) {
        self.attempts.push(self.ended(running, None, at, Outcome::WorkerLost, Cost::default()));
        let lost = self.attempts.iter().filter(|attempt| attempt.outcome == Outcome::WorkerLost).count() as u32;
        self.state = if lost >= WORKERS_LOST_MAX {
            State::Failed { at, reason: format!("poison: its worker was lost {lost} times") }
        } else {
            State::Queued(Queued { due: running.due, at, partition })
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

fn check_fence(running: &Running, offered: Fence) -> Result<(), IllegalTransition> {
    if running.fence == offered && offered != Fence::UNSET {
        Ok(())
    } else {
        Err(IllegalTransition::StaleFence { offered })
    }
}
