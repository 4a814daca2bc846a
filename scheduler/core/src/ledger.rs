//! The words of the ledger: why a slot did not run, and what its owner did to its job meanwhile.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::schedule::ScheduleSpec;
use crate::schedule::zone::ZoneVersion;

/// Why a slot did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SkipReason {
    /// It was later than its job's misfire rule allows.
    Misfire,
    /// An earlier execution of its job was still under way.
    Overlap,
    /// Its job was paused.
    Paused,
    /// It lies outside its job's life: before its start, after its end, beyond its last run, or after its deletion.
    Ended,
    /// Its job was edited, and it was a slot of the schedule before.
    Edited,
    /// A quota was used up.
    Quota,
    /// Something of ours failed.
    Error,
    /// By newer zone data its time was over already when that data came.
    ZoneData,
}

impl SkipReason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Misfire,
        Self::Overlap,
        Self::Paused,
        Self::Ended,
        Self::Edited,
        Self::Quota,
        Self::Error,
        Self::ZoneData,
    ];

    /// The word that answers, metrics and filters use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Misfire => "misfire",
            Self::Overlap => "overlap",
            Self::Paused => "paused",
            Self::Ended => "ended",
            Self::Edited => "edited",
            Self::Quota => "quota",
            Self::Error => "error",
            Self::ZoneData => "zone_data",
        }
    }

    /// The same as a sentence that needs no context.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Misfire => "too late for the job's misfire rule",
            Self::Overlap => "an earlier execution of the job was still under way",
            Self::Paused => "the job was paused",
            Self::Ended => "outside the job's life",
            Self::Edited => "the job was edited meanwhile",
            Self::Quota => "a quota was used up",
            Self::Error => "the scheduler failed",
            Self::ZoneData => "newer zone data moved it to before the moment at which that data came",
        }
    }
}

/// What happened to a job: what its owner did, or what newer zone data did to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Stopped its schedule.
    Paused,
    /// Let its schedule go on.
    Resumed,
    /// Changed its definition. What the schedule was until then comes along, so that earlier slots can still be counted.
    Edited {
        /// The schedule up to this moment.
        schedule_before: ScheduleSpec,
    },
    /// Ended it.
    Deleted,
    /// Nothing: newer zone data came, and moved its next slot.
    Rezoned {
        /// The version of that data.
        zones: ZoneVersion,
        /// The slot that was planned until then.
        slot_before: Timestamp,
    },
}

impl Change {
    /// The participle that answers use.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Edited { .. } => "edited",
            Self::Deleted => "deleted",
            Self::Rezoned { .. } => "rezoned",
        }
    }
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Slots that have no execution.
    Stretch(Stretch),
    /// A change of the job.
    Mark(Mark),
}

/// A stretch of a job's slots that have no execution, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Its begin: no slot before it is meant.
    pub from: Timestamp,
    /// Its end: no slot at or after it is meant.
    pub until: Timestamp,
    /// Why they did not run.
    pub reason: SkipReason,
    /// What else there is to say of it.
    pub detail: Option<String>,
}

/// Something that the job's owner did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Timestamp,
    /// The job's revision from then on: of two changes in one microsecond neither hides the other.
    pub revision: u64,
    /// What.
    pub change: Change,
}

impl Entry {
    /// The instant that it is filed under.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Stretch(stretch) => stretch.from,
            Self::Mark(mark) => mark.at,
        }
    }
}
