//! A commit of the log, read.

use std::collections::BTreeMap;

use bytes::Bytes;
use compline_core::ids::{ExecutionId, JobId, SessionId, ShardId};
use compline_core::job::JobRun;
use compline_core::schedule::zone::ZoneVersion;
use compline_store::keys::Table;
use compline_store::tables::cancel::CancelRow;
use compline_store::tables::dead::{self, DeadLetter};
use compline_store::tables::execution::ExecutionRow;
use compline_store::tables::job::JobRow;
use compline_store::tables::lease::Lease;
use compline_store::tables::ledger::{Entry, Mark, Stretch};
use compline_store::tables::queue::{Due, Part, Ready};
use compline_store::tables::running::RunningRow;
use compline_store::tables::session::Session;
use compline_store::tables::{cancel, execution, job, lease, ledger, live, queue, running, session, zones};
use compline_store::{Stamp, StoreError};

use crate::sim::backend::{Author, SIGNATURE};

/// What one commit did to the tables that the oracle looks at.
#[derive(Debug, Default)]
pub struct Commit {
    /// Who made it.
    pub author: Option<Author>,
    /// Executions as they are from now on.
    pub executions: BTreeMap<ExecutionId, ExecutionRow>,
    /// Executions whose rows were removed.
    pub removed: Vec<ExecutionId>,
    /// Rows of executions that wait or run: added.
    pub placed: Vec<Place>,
    /// The same, removed.
    pub taken: Vec<Place>,
    /// Attempts that sessions were told to stop; `None`: that they need not be told any more.
    pub stops: Vec<(SessionId, ExecutionId, Option<CancelRow>)>,
    /// Sessions that began; `None`: one that ended.
    pub sessions: Vec<(String, Option<Session>)>,
    /// Nodes' counters, as they are from now on.
    pub beats: Vec<(String, Bytes)>,
    /// Leases granted; `None`: given up.
    pub leases: Vec<(ShardId, Option<Lease>)>,
    /// Jobs.
    pub jobs: Vec<(JobId, Option<JobRow>)>,
    /// What their policies read.
    pub runs: Vec<(JobId, Option<JobRun>)>,
    /// Stretches of slots that have no execution.
    pub stretches: Vec<(JobId, Stretch)>,
    /// What owners did to their jobs.
    pub marks: Vec<(JobId, Mark)>,
    /// The newest zone data from now on.
    pub newest_zones: Option<ZoneVersion>,
    /// Open rows by bucket.
    pub open: Vec<(ShardId, u32, i64)>,
    /// Rows that count live and waiting executions: there from now on, or not.
    pub live: Vec<(live::Row, bool)>,
    /// Executions that were listed under their job.
    pub listed: Vec<ExecutionId>,
    /// Executions that were taken out of their job's listing.
    pub unlisted: Vec<ExecutionId>,
    /// Executions that were listed as failed.
    pub failed: Vec<ExecutionId>,
    /// Executions that were taken out of the listing of failures.
    pub unfailed: Vec<ExecutionId>,
    /// Dead letters, by execution and place; `None`: gone.
    pub letters: Vec<(ExecutionId, dead::Place, Option<DeadLetter>)>,
    /// Where letters are said to be; `None`: nowhere.
    pub letter_places: Vec<(ExecutionId, Option<dead::Place>)>,
}

/// A row that says where an execution waits, or who runs it.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// It waits for its time.
    Due(Due),
    /// It waits for room in its lane.
    Owed {
        /// The lane.
        lane: String,
        /// What the row says.
        row: Due,
    },
    /// It waits for a worker.
    Ready {
        /// The lane.
        lane: String,
        /// Whether it was owed.
        owed: bool,
        /// The part of it.
        partition: u8,
        /// The place in it.
        stamp: Stamp,
        /// What the row says.
        ready: Ready,
    },
    /// A session holds it.
    Running {
        /// Which.
        session: SessionId,
        /// What the row says.
        row: RunningRow,
    },
}

impl Place {
    /// Whose place it is.
    pub fn execution(&self) -> ExecutionId {
        match self {
            Self::Due(row) | Self::Owed { row, .. } => row.execution,
            Self::Ready { ready, .. } => ready.execution,
            Self::Running { row, .. } => row.execution,
        }
    }
}

/// Reads commits. It remembers the places that there are, since a removal says only the key.
#[derive(Debug, Default)]
pub struct Reader {
    places: BTreeMap<Bytes, Place>,
    live: BTreeMap<Bytes, live::Row>,
    letters: BTreeMap<Bytes, (ExecutionId, dead::Place)>,
}

impl Reader {
    /// Reads the changes of a commit.
    pub fn read(&mut self, changes: &[(Bytes, Option<Bytes>)]) -> Result<Commit, StoreError> {
        let mut commit = Commit::default();
        for (key, value) in changes {
            self.read_one(&mut commit, key, value.as_ref())?;
        }
        Ok(commit)
    }

    fn read_one(&mut self, commit: &mut Commit, key: &Bytes, value: Option<&Bytes>) -> Result<(), StoreError> {
        let is = |table: Table| key[0] == table as u8;
        if key == SIGNATURE {
            let number = value.and_then(|value| value[..].try_into().ok()).map(u32::from_be_bytes);
            commit.author = number.map(Author);
        } else if is(Table::Due) || is(Table::Owed) || is(Table::Ready) || is(Table::Running) {
            commit.taken.extend(self.places.remove(key));
            if let Some(value) = value {
                let place = read_place(key, value)?;
                self.places.insert(key.clone(), place.clone());
                commit.placed.push(place);
            }
        } else if is(Table::Live) {
            commit.live.extend(self.live.remove(key).map(|row| (row, false)));
            if let Some(value) = value {
                let row = live::decode(key, value)?;
                self.live.insert(key.clone(), row);
                commit.live.push((row, true));
            }
        } else if is(Table::Execution) {
            match value {
                Some(value) => {
                    let row = execution::decode(key, value)?;
                    commit.executions.insert(row.execution.id, row);
                }
                None => commit.removed.extend(trailing_execution(key)),
            }
        } else if is(Table::Cancel) {
            let row = value.map(|value| cancel::decode(key, value)).transpose()?;
            let session = running::holder(key)?;
            commit.stops.extend(trailing_execution(key).map(|execution| (session, execution, row)));
        } else if is(Table::Session) {
            let session = value.map(|value| session::decode(key, value)).transpose()?;
            commit.sessions.push((session::node_of(key)?.to_owned(), session));
        } else if is(Table::Beat)
            && let Some(value) = value
        {
            commit.beats.push((session::node_of(key)?.to_owned(), value.clone()));
        } else if is(Table::Lease) {
            let lease = value.map(|value| lease::decode(key, value)).transpose()?;
            commit.leases.push((lease::shard_of(key)?, lease));
        } else if is(Table::Job) {
            commit.jobs.push((job::id_of(key)?, value.map(|value| job::decode_row(key, value)).transpose()?));
        } else if is(Table::JobRun) {
            commit.runs.push((job::id_of(key)?, value.map(|value| job::decode_run(key, value)).transpose()?));
        } else if is(Table::Ledger)
            && let Some(value) = value
        {
            let (job, entry) = ledger::decode(key, value)?;
            match entry {
                Entry::Stretch(stretch) => commit.stretches.push((job, stretch)),
                Entry::Mark(mark) => commit.marks.push((job, mark)),
            }
        } else if is(Table::Zones)
            && key.len() == 1
            && let Some(value) = value
        {
            commit.newest_zones = Some(zones::decode(key, value)?);
        } else if is(Table::Bucket)
            && let Some(value) = value
        {
            commit.open.push(read_bucket(key, value)?);
        } else if is(Table::History) {
            let changed = if value.is_some() { &mut commit.listed } else { &mut commit.unlisted };
            changed.extend(trailing_execution(key));
        } else if is(Table::JobFailed) {
            let changed = if value.is_some() { &mut commit.failed } else { &mut commit.unfailed };
            changed.extend(trailing_execution(key));
        } else if is(Table::Dead) {
            commit.letters.extend(self.letters.remove(key).map(|(id, place)| (id, place, None)));
            if let Some(value) = value {
                let dead::Entry { lane, at, execution, letter, .. } = dead::decode(key.clone(), value)?;
                let place = dead::Place { lane, at };
                self.letters.insert(key.clone(), (execution, place.clone()));
                commit.letters.push((execution, place, Some(letter?)));
            }
        } else if is(Table::DeadPlace) {
            let place = value.map(|value| dead::decode_place(key, value)).transpose()?;
            commit.letter_places.extend(trailing_execution(key).map(|id| (id, place)));
        }
        Ok(())
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.places.len()
    }
}

fn read_place(key: &Bytes, value: &Bytes) -> Result<Place, StoreError> {
    Ok(if key[0] == Table::Due as u8 {
        Place::Due(queue::decode_due(key, value)?)
    } else if key[0] == Table::Owed as u8 {
        let (lane, row) = queue::decode_owed(key, value)?;
        Place::Owed { lane: lane.to_owned(), row }
    } else if key[0] == Table::Running as u8 {
        Place::Running { session: running::holder(key)?, row: running::decode(key, value)? }
    } else {
        let (Part { lane, owed, partition, .. }, stamp, ready) = Part::decode(key, value)?;
        Place::Ready { lane: lane.to_owned(), owed, partition, stamp, ready }
    })
}

fn read_bucket(key: &Bytes, value: &Bytes) -> Result<(ShardId, u32, i64), StoreError> {
    let wrong = || StoreError::unreadable("bucket", key, "not a counter of a shard and an hour");
    let (shard, hour) = key.get(1..7).map(|place| place.split_at(2)).ok_or_else(wrong)?;
    let shard = ShardId(u16::from_be_bytes(shard.try_into().map_err(|_| wrong())?));
    let hour = u32::from_be_bytes(hour.try_into().map_err(|_| wrong())?);
    Ok((shard, hour, i64::from_le_bytes(value[..].try_into().map_err(|_| wrong())?)))
}

fn trailing_execution(key: &[u8]) -> Option<ExecutionId> {
    let at = key.len().checked_sub(ExecutionId::BYTES)?;
    key[at..].try_into().ok().map(ExecutionId::from_bytes)
}
