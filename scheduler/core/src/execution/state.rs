//! Where an execution stands, and the attempts behind it.

use serde::{Deserialize, Serialize};

use super::{Cost, Outcome};
use crate::Timestamp;
use crate::ids::{ClaimId, Fence, SessionId};
use crate::ledger::SkipReason;

/// Where an execution stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum State {
    /// Planned, not yet due.
    Pending {
        /// When it is due.
        due: Timestamp,
    },
    /// Due so long that what is due now goes before it: it waits until it is let into its lane.
    Owed(Owed),
    /// Due, waiting for an earlier execution of its job to end: its job's overlap rule holds it.
    Waiting {
        /// When it was due.
        due: Timestamp,
        /// Since when it waits.
        since: Timestamp,
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
        /// Why.
        reason: SkipReason,
        /// The same in a sentence, with its numbers.
        detail: String,
    },
}

/// An execution that nobody queued when it was due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// When it was due.
    pub due: Timestamp,
    /// When it was found to be late.
    pub since: Timestamp,
    /// Whether it has failed before, and is to be tried again.
    pub again: bool,
    /// Whether its job's schedule has gone on without it: it is not the slot that comes next any more.
    pub passed: bool,
    /// The lane that it will go to, as its job had it then. With the due time this is its place. Whoever writes the row puts it in.
    pub lane: String,
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
    /// The lane, as its job had it then: an edit does not move what waits. Whoever writes the row puts it in.
    pub lane: String,
    /// Whether it was owed: then it waits behind all of the lane that is not.
    pub owed: bool,
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
    /// Whether it was owed. If it is given back it is so again.
    pub owed: bool,
    /// The right to report on it. The store puts it in at the commit.
    #[serde(skip, default = "unset_fence")]
    pub fence: Fence,
    /// That it is to stop, once somebody asked for it.
    pub stop: Option<Stop>,
}

/// A wish that a running execution end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Since when.
    pub at: Timestamp,
    /// Why, in a sentence.
    pub reason: String,
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

impl State {
    /// The name that answers use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Owed(owed) if owed.again => "RETRYING",
            Self::Pending { .. } | Self::Waiting { .. } | Self::Owed(_) => "PENDING",
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
            Self::Pending { .. }
            | Self::Owed(_)
            | Self::Waiting { .. }
            | Self::Queued(_)
            | Self::Running(_)
            | Self::Retrying { .. } => false,
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } | Self::Skipped { .. } => true,
        }
    }
}
