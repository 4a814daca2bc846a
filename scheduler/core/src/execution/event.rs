//! What can happen to an execution, and why it may not.

use bytes::Bytes;

use super::{Cost, Outcome};
use crate::Timestamp;
use crate::ids::{ClaimId, Fence, SessionId};
use crate::ledger::SkipReason;

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
    /// Its time came long ago: what is due now goes before it.
    Owe {
        /// When that was noticed.
        at: Timestamp,
        /// Whether its job's schedule goes on without it.
        passed: bool,
    },
    /// Its time has come, and an earlier execution of its job must end first.
    Hold {
        /// When that was decided.
        at: Timestamp,
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
    /// It is to stop: what waits ends at once, and who runs it is asked to end its attempt.
    Cancel {
        /// When.
        at: Timestamp,
        /// Why.
        reason: String,
    },
    /// It ends here and now, whoever runs it: that attempt's report comes too late.
    Terminate {
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
        reason: SkipReason,
        /// The same in a sentence, with its numbers.
        detail: String,
    },
    /// Its owner wants another try after the last. It begins anew: the attempts before it count no more.
    Redrive {
        /// When it is to run.
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
