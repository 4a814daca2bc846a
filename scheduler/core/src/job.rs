//! What a user wants: the definition of a job. It never changes because a run happened.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::{ExecutionId, JobId, TaskDigest, TenantId};
use crate::ledger::SkipReason;
use crate::schedule::ScheduleSpec;
use crate::schedule::retry::RetryRule;
use crate::schedule::zone::ZoneVersion;

/// A job as it is stored. A new revision of it is a new value of the same row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its identifier.
    pub id: JobId,
    /// Its owner.
    pub tenant: TenantId,
    /// What its owner calls it. Not unique.
    pub name: Option<String>,
    /// What it runs.
    pub task: TaskRef,
    /// When it runs.
    pub schedule: ScheduleSpec,
    /// What it hands to the task: JSON, or nothing.
    pub parameters: Bytes,
    /// The queue that its executions wait in.
    pub lane: String,
    /// What happens to slots that could not run on time.
    pub misfire: Misfire,
    /// What happens to a slot while earlier executions are live.
    pub overlap: Overlap,
    /// The window over which its starts are spread; zero for none. See [`crate::timetable::Timetable::due`].
    pub splay: Duration,
    /// From when, until when and how often it runs.
    pub bounds: Bounds,
    /// What happens after an attempt that failed.
    pub retry: RetryRule,
    /// What one attempt may use.
    pub limits: RunLimits,
    /// What runs when one of its executions has failed for good.
    pub on_failure: Option<OnFailure>,
    /// Words by which its owner finds it again.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The lane of a job that names none.
pub const LANE_DEFAULT: &str = "default";

impl Job {
    /// What a request makes that says no more than what runs and when.
    pub fn with_defaults(id: JobId, task: TaskRef, schedule: ScheduleSpec, created_at: Timestamp) -> Self {
        Self {
            id,
            tenant: TenantId::default_tenant(),
            name: None,
            task,
            schedule,
            parameters: Bytes::new(),
            lane: LANE_DEFAULT.to_owned(),
            misfire: Misfire::default(),
            overlap: Overlap::default(),
            splay: Duration::ZERO,
            bounds: Bounds::default(),
            retry: RetryRule::default(),
            limits: RunLimits::default(),
            on_failure: None,
            labels: BTreeMap::new(),
            created_at,
        }
    }
}

/// A task version, and the words by which the job's owner named it. The version is fixed when the job is created: moving a tag does not
/// change what a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRef {
    /// The task's name; empty if the owner named a digest alone.
    pub name: String,
    /// What the owner wrote: `name`, `name@tag` or `sha256:…`.
    pub reference: String,
    /// The version that it meant then.
    pub digest: TaskDigest,
}

impl TaskRef {
    /// A version that was named by its task's name alone.
    pub fn named(name: &str, digest: TaskDigest) -> Self {
        Self { name: name.to_owned(), reference: name.to_owned(), digest }
    }
}

/// What runs when an execution has failed for good, so that somebody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnFailure {
    /// The task that is told.
    pub task: TaskRef,
    /// What it is handed beside the failure: JSON, or nothing.
    pub parameters: Bytes,
}

/// What one attempt may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Units of work, as the engine counts them.
    pub fuel: u64,
    /// All memories of the run together.
    pub memory_bytes: u64,
    /// From its start to its end, host calls included.
    pub timeout: Duration,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { fuel: 1_000_000_000, memory_bytes: 64 << 20, timeout: Duration::from_secs(30) }
    }
}

/// A slot that is not queued within this of its due time is late.
///
/// A scheduler that dies is replaced within its lease's 5 s and a poll or two, and such a change of guard must not cost a job its slot; an outage
/// must. Ten seconds is also what the peers take: Kubernetes looks at its CronJobs every 10 s and warns of a `startingDeadlineSeconds` below
/// that, and Temporal's catch-up window is no shorter.
pub const LATE_GRACE: Duration = Duration::from_secs(10);

/// What happens to slots that could not run on time, because no scheduler ran. Lateness counts from the due time: the slot, or later by its
/// splay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfire {
    /// Which of them run.
    pub policy: MisfirePolicy,
    /// Slots later than this do not run. [`MisfirePolicy::Skip`] has [`LATE_GRACE`] in its place.
    pub deadline: Duration,
    /// Of the late slots no more than the newest so many run, under [`MisfirePolicy::RunAll`].
    pub cap: u32,
}

impl Default for Misfire {
    fn default() -> Self {
        Self { policy: MisfirePolicy::RunAll, deadline: Duration::from_secs(3_600), cap: 1_000 }
    }
}

impl Misfire {
    /// How late a slot may be and still run.
    pub fn lateness_max(&self) -> Duration {
        match self.policy {
            MisfirePolicy::RunAll | MisfirePolicy::RunLatest => self.deadline,
            MisfirePolicy::Skip => LATE_GRACE,
        }
    }
}

/// Which late slots run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MisfirePolicy {
    /// All of them, oldest first, within the deadline and the cap.
    RunAll,
    /// If any is late, then of all that are due only the newest, within the deadline.
    RunLatest,
    /// None.
    Skip,
}

impl MisfirePolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RunAll, Self::RunLatest, Self::Skip];

    /// The word that requests and answers use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunAll => "run_all",
            Self::RunLatest => "run_latest",
            Self::Skip => "skip",
        }
    }
}

/// What happens to a slot while earlier executions of its job are live. An execution is live from when it is queued until it has ended for good:
/// one that waits for its next attempt is live too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    /// It runs beside them.
    #[default]
    Allow,
    /// It runs beside them while fewer than so many are live. Otherwise it waits until one ends; the oldest goes first.
    AllowUpTo(NonZeroU32),
    /// It is skipped.
    Skip,
    /// It waits until the live one ends. A newer slot takes its place, and it is skipped then.
    BufferOne,
    /// It waits until the live one ends, behind those that wait already.
    BufferAll,
    /// The live one is asked to stop, and it waits until that has ended. A newer slot takes its place.
    CancelOther,
    /// The live one ends at once, and it runs.
    TerminateOther,
}

impl Overlap {
    /// The words that requests and answers use.
    pub const WORDS: [&'static str; 6] =
        ["allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other"];

    /// The word that requests and answers use. [`Self::Allow`] and [`Self::AllowUpTo`] share one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow | Self::AllowUpTo(_) => "allow",
            Self::Skip => "skip",
            Self::BufferOne => "buffer_one",
            Self::BufferAll => "buffer_all",
            Self::CancelOther => "cancel_other",
            Self::TerminateOther => "terminate_other",
        }
    }

    /// Whether a slot that comes ends what is live.
    pub const fn ends_others(self) -> bool {
        matches!(self, Self::CancelOther | Self::TerminateOther)
    }

    /// How many executions may be live at once; `None` for any number. Only where there is a limit are live executions counted.
    pub const fn live_max(self) -> Option<u32> {
        match self {
            Self::Allow => None,
            Self::AllowUpTo(max) => Some(max.get()),
            Self::Skip | Self::BufferOne | Self::BufferAll | Self::CancelOther | Self::TerminateOther => Some(1),
        }
    }
}

/// From when, until when and how often a job's schedule fires. It is about planned instants: a splay may move the start past the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// No slot before this.
    pub starts_at: Option<Timestamp>,
    /// No slot after this.
    pub ends_at: Option<Timestamp>,
    /// No more slots than so many are admitted. A slot that is skipped does not count.
    pub max_runs: Option<u64>,
}

/// Whether a job's schedule goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// It does.
    Active,
    /// It waits for a resume.
    Paused,
    /// It ended by its owner's wish. Its history stays readable.
    Deleted,
}

/// What changes when a job's slots come and go: apart from the definition, so that a run never writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    /// The slot that comes next, if one does.
    pub next: Option<NextSlot>,
    /// How many slots were admitted so far: queued, let wait for an earlier execution to end, or set aside as owed while the schedule went on. A slot that takes the place of a waiting one
    /// is not counted again.
    pub starts: u64,
    /// Slots up to here were late once, and those that are left of them were chosen to run: the cap is not asked again about them.
    pub owed_until: Option<Timestamp>,
    /// Slots before this may have an execution already, though they come after the planned one: the schedule had come so far, by a clock that was
    /// ahead, when it was planned anew by one that was behind. Such a slot keeps its execution and gets no other.
    pub reached: Option<Timestamp>,
    /// Owed slots that the schedule went on without do not run any more, up to here: the job was paused, or its slots were edited away.
    pub cleared: Option<Cleared>,
    /// Of a paused job: the first slot that the pause leaves out, whenever that is.
    pub paused_from: Option<Timestamp>,
    /// Slots that were cancelled ahead of their time, of which some may still be to come: they have an execution already and get no other.
    pub taken: Vec<Timestamp>,
    /// The next slot is the first one after this; `None`: the first one of all.
    pub planned_after: Option<Timestamp>,
    /// The zone data that the next slot was planned by; none of a schedule that follows no zone.
    pub zones: ZoneVersion,
}

/// Which slots of a job do not run any more, though they are owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleared {
    /// Slots up to here.
    pub until: Timestamp,
    /// Why.
    pub reason: SkipReason,
}

/// A planned slot and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextSlot {
    /// The planned instant.
    pub slot: Timestamp,
    /// When it is due: the slot, or later by its splay.
    pub due: Timestamp,
    /// Its execution.
    pub execution: ExecutionId,
}
