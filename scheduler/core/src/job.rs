//! What a user wants: the definition of a job. It never changes because a run happened.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::{ExecutionId, JobId, TaskDigest, TenantId};
use crate::schedule::ScheduleSpec;
use crate::schedule::retry::RetryRule;

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
    /// What happens after an attempt that failed.
    pub retry: RetryRule,
    /// What one attempt may use.
    pub limits: RunLimits,
    /// Words by which its owner finds it again.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
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

/// What happens to slots that could not run on time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfire {
    /// Which of them run.
    pub policy: MisfirePolicy,
    /// Slots later than this do not run.
    pub deadline: Duration,
    /// Of the late slots no more than the newest so many run.
    pub cap: u32,
}

impl Default for Misfire {
    fn default() -> Self {
        Self { policy: MisfirePolicy::RunAll, deadline: Duration::from_secs(3_600), cap: 1_000 }
    }
}

/// Which late slots run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MisfirePolicy {
    /// All of them, oldest first, within the deadline and the cap.
    RunAll,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    /// The slot that comes next, if one does.
    pub next: Option<NextSlot>,
    /// How many slots were queued so far.
    pub starts: u64,
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
