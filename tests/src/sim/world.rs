//! What all actors of a run share: the store, the clock, who is who, and a record of what they did that no commit shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compline_core::Timestamp;
use compline_core::execution::Outcome;
use compline_core::ids::{ExecutionId, Fence, JobId, SessionId, ShardCount, TaskDigest};
use compline_store::backend::memory::{FaultCounts, MemoryBackend};
use compline_store::{Store, StoreError};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::backend::{Author, SignedBackend};
use super::clock::SimClock;
use super::model::JobModel;
use super::pulse::Pulse;
use super::shape::Shape;
use super::zones::Data;

/// What a run shares.
pub struct World {
    /// The seed.
    pub seed: u64,
    /// What the seed decided.
    pub shape: Shape,
    /// Wall time.
    pub clock: SimClock,
    /// The store's own handle, for what nobody in the simulation does.
    pub hub: Arc<MemoryBackend>,
    /// What moves.
    pub pulse: Arc<Pulse>,
    /// What the actors did.
    pub record: Mutex<Record>,
}

/// What no commit shows.
#[derive(Debug, Default)]
pub struct Record {
    /// Who the authors are, by number.
    pub authors: Vec<String>,
    /// Which zone data each has.
    pub data: Vec<Data>,
    /// Every job that a client asked for, whether the request was answered or not.
    pub asked: BTreeMap<JobId, JobModel>,
    /// What clients were answered.
    pub answers: Vec<Answer>,
    /// What clients made of jobs, or would have: any of it may be a job's definition now.
    pub edits: BTreeMap<JobId, Vec<JobModel>>,
    /// What clients asked of jobs.
    pub changes: Vec<Asked>,
    /// Every execution that a client asked to cancel, whether the request was answered or not.
    pub cancels: BTreeSet<ExecutionId>,
    /// What clients were answered when they did.
    pub cancel_answers: Vec<CancelAnswer>,
    /// Every request that executions run again.
    pub redrives: Vec<Redrive>,
    /// Every execution whose dead letter a client asked to drop.
    pub dropped: BTreeSet<ExecutionId>,
    /// What clients were answered about dead letters.
    pub letter_answers: Vec<LetterAnswer>,
    /// Every run of an attempt, by its number.
    pub runs: Vec<RunRecord>,
    /// What is wrong beyond the commit log.
    pub broken: Vec<String>,
    /// What happened to nodes and clients.
    pub events: Events,
}

/// A request that was answered with success.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The job that the answer names.
    pub job: JobId,
    /// The request's key.
    pub key: Option<String>,
    /// When the answer arrived.
    pub at: Instant,
}

/// What an owner asks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// That its schedule rests.
    Pause,
    /// That it goes on.
    Resume,
    /// That it is another.
    Edit,
    /// That it ends.
    Delete {
        /// Whether what runs is stopped.
        stop_running: bool,
    },
    /// One run now.
    Trigger,
    /// Runs of slots that are over.
    Backfill,
}

/// What an owner asked of a job, and the answer.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The job.
    pub job: JobId,
    /// What.
    pub kind: Kind,
    /// The request's key.
    pub key: Option<String>,
    /// When it was answered with success.
    pub answered: Option<Instant>,
    /// Of a trigger: the execution that the answer names.
    pub execution: Option<ExecutionId>,
    /// How many executions the answer tells of.
    pub made: usize,
}

/// The answer to a cancel.
#[derive(Debug, Clone)]
pub struct CancelAnswer {
    /// The execution.
    pub execution: ExecutionId,
    /// Whether it is cancelled; otherwise it is told to stop.
    pub over: bool,
    /// When the answer arrived.
    pub at: Instant,
}

/// A request that executions which failed for good run again.
#[derive(Debug, Clone)]
pub struct Redrive {
    /// Which, in the order of the request.
    pub ids: Vec<ExecutionId>,
    /// How many of them in one second.
    pub per_second: u32,
    /// When it was made.
    pub begun: Timestamp,
}

/// An answer about the dead letter of an execution: it was done.
#[derive(Debug, Clone, Copy)]
pub struct LetterAnswer {
    /// The execution.
    pub execution: ExecutionId,
    /// Whether the letter was dropped; otherwise the execution runs again.
    pub dropped: bool,
    /// When the answer arrived.
    pub at: Instant,
}

/// One run of an attempt.
#[derive(Debug, Clone)]
pub struct RunRecord {
    /// What ran.
    pub execution: ExecutionId,
    /// Under which fence.
    pub fence: Fence,
    /// In which session.
    pub session: SessionId,
    /// Which component.
    pub digest: TaskDigest,
    /// From when.
    pub started: Instant,
    /// Until when; `None`: its node was ended under it, or it still runs.
    pub ended: Option<Instant>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Events {
    /// Nodes ended without a word.
    pub crashes: u64,
    /// Nodes begun again under the same name.
    pub restarts: u64,
    /// Nodes stopped cleanly.
    pub stops: u64,
    /// Nodes frozen.
    pub freezes: u64,
    /// Those of them frozen for longer than a session lasts.
    pub freezes_past_ttl: u64,
    /// Nodes cut off from the store.
    pub cuts: u64,
    /// Those of them cut off for longer than a session lasts.
    pub cuts_past_ttl: u64,
    /// Outages of all schedulers.
    pub outages: u64,
    /// Nodes whose clocks were apart from the world's all the time.
    pub clocks_apart: u64,
    /// Wall clocks set wrong, and right again before they were believed.
    pub clocks_set: u64,
    /// Requests that their clients gave up waiting for.
    pub requests_abandoned: u64,
    /// Requests answered with what an earlier one had done.
    pub requests_replayed: u64,
}

impl World {
    /// A number for a new life of an actor.
    pub fn author(&self, name: String, data: Data) -> Author {
        let mut record = self.record.lock();
        self.pulse.name(&name);
        record.authors.push(name);
        record.data.push(data);
        Author(record.authors.len() as u32 - 1)
    }

    /// A store handle without faults of its own, signed as the simulator's.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        let author = self.author("the simulator".to_owned(), Data::Old);
        let store = Store::new(SignedBackend::new(self.hub.clone(), author, self.pulse.clone(), None));
        let meta = compline_store::tables::meta::Meta {
            layout: compline_store::tables::meta::LAYOUT,
            shards: self.shape.shards,
            partitions: self.shape.partitions,
            incarnation: INCARNATION,
        };
        let meta = &meta;
        store.transact(|tx| async move { compline_store::tables::meta::get_or_init(&tx, meta).await }).await?;
        Ok(())
    }

    /// How many shards there are.
    pub fn shards(&self) -> ShardCount {
        ShardCount::new(self.shape.shards)
    }

    /// How often each fault of the store happened.
    pub fn fault_counts(&self) -> FaultCounts {
        self.hub.fault_counts()
    }
}

/// The incarnation of the store: what every fence begins with.
pub const INCARNATION: u32 = 1;
