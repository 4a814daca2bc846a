//! Every row of a store, in batches, in the form that travels.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use compline_core::Timestamp;
use compline_core::execution::{Event, Execution, State};
use compline_core::ids::ExecutionId;
use compline_core::tick::partition_of;

use super::{Findings, Record, TransferError, Travels};
use crate::backend::{KeyValue, RangeQuery, Read};
use crate::keys::{Table, after};
use crate::tables::queue::{Part, Ready, ZONE_DEFAULT};
use crate::tables::{execution, job, meta};
use crate::{Stamp, Store, StoreError, Tx};

/// The key of a place that travels ends with its rank among those of its part, where the store's ends with a stamp.
pub(super) const RANK_BYTES: usize = 8;

/// What one transaction reads: about so much, and so many rows at the most.
const BATCH_BYTES: usize = 512 * 1024;
const BATCH_ROWS_MAX: usize = 1_000;
const BATCH_ROWS_FIRST: usize = 8;

/// A walk over all tables that are carried. Places in queues come in the order of their ranks within each part.
pub(super) struct Scan<'s> {
    store: &'s Store,
    partitions: u8,
    /// When what runs is handed back.
    now: Timestamp,
    tables: std::slice::Iter<'static, Table>,
    /// The table that is being read, and where to go on in it.
    current: Option<(Table, Bytes)>,
    /// Behind the last table that was begun.
    known_until: Bytes,
    batch_rows: usize,
    ranks: BTreeMap<Bytes, u64>,
    /// Of each bucket how many of its executions this walk ended: they were to stop, and nobody runs them.
    ended: BTreeMap<Bytes, i64>,
    queued: u64,
    placed: u64,
    findings: Findings,
}

/// A batch of rows as they are stored, and what must be known beside them.
struct Raw {
    rows: Vec<KeyValue>,
    /// Of ready rows: the executions' values. Of running executions: none.
    executions: Vec<Option<Bytes>>,
    /// Of running executions: the lane and what a place in it says.
    lanes: BTreeMap<ExecutionId, (String, Ready)>,
}

impl<'s> Scan<'s> {
    pub fn new(store: &'s Store, partitions: u8, now: Timestamp) -> Self {
        Self {
            store,
            partitions,
            now,
            tables: Table::ALL.iter(),
            current: None,
            known_until: Bytes::from_static(&[0]),
            batch_rows: BATCH_ROWS_FIRST,
            ranks: BTreeMap::new(),
            ended: BTreeMap::new(),
            queued: 0,
            placed: 0,
            findings: Findings::default(),
        }
    }

    /// The next rows; `None` behind the last. A batch may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Record>>, TransferError> {
        let Some((table, begin)) = self.current.take() else { return self.begin_table().await };
        let end = table.range().1;
        let query = RangeQuery { begin, end, limit: self.batch_rows, reverse: false, read: Read::Snapshot };
        let query = &query;
        let raw = self.store.transact(|tx| async move { read(&tx, table, query).await }).await?.value;
        if raw.rows.len() == query.limit
            && let Some(last) = raw.rows.last()
        {
            self.current = Some((table, after(&last.key)));
        }
        let bytes: usize = raw.rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let fitting = BATCH_BYTES * raw.rows.len() / bytes.max(1);
        self.batch_rows = fitting.clamp(1, BATCH_ROWS_MAX).min(self.batch_rows * 4);
        let mut records = Vec::with_capacity(raw.rows.len());
        match table.travels() {
            Travels::AsTheyAre if table == Table::Bucket => {
                records.extend(raw.rows.into_iter().map(|row| self.bucket(row)));
            }
            Travels::AsTheyAre => records.extend(raw.rows.into_iter().map(as_it_is)),
            Travels::Meta => {
                let rows = raw.rows.into_iter().filter(|row| !meta::is_of_this_store_alone(&row.key));
                records.extend(rows.map(as_it_is));
            }
            Travels::Executions => self.executions(raw, &mut records)?,
            Travels::Queue => self.places(raw, &mut records),
            Travels::StayBehind(_) => {}
        }
        Ok(Some(records))
    }

    /// What was found amiss. Complete behind the last row.
    pub fn findings(&self) -> Findings {
        Findings { unplaced: self.queued.saturating_sub(self.placed), ..self.findings }
    }

    /// Goes to the next table that is carried. Rows between the tables belong to a newer build, and must not be passed over in silence.
    async fn begin_table(&mut self) -> Result<Option<Vec<Record>>, TransferError> {
        for table in self.tables.by_ref() {
            let (begin, end) = table.range();
            refuse_unknown(self.store, self.known_until.clone(), begin.clone()).await?;
            self.known_until = end;
            if table.is_carried() {
                self.current = Some((*table, begin));
                self.batch_rows = BATCH_ROWS_FIRST;
                return Ok(Some(Vec::new()));
            }
        }
        refuse_unknown(self.store, self.known_until.clone(), Bytes::from_static(&[0xff])).await?;
        Ok(None)
    }

    fn executions(&mut self, raw: Raw, records: &mut Vec<Record>) -> Result<(), StoreError> {
        for row in raw.rows {
            let Ok(current) = execution::decode(&row.key, &row.value).map(|row| row.execution) else {
                self.findings.unreadable += 1;
                records.push(as_it_is(row));
                continue;
            };
            match &current.state {
                State::Queued(_) => {
                    self.queued += 1;
                    records.push(Record { key: row.key, value: execution::without_stamp(&row.value) });
                }
                State::Running(_) => match raw.lanes.get(&current.id).and_then(|lane| self.handed_back(&current, lane))
                {
                    Some((given_back, place)) => {
                        self.findings.handed_back += 1;
                        records.push(Record { key: row.key, value: execution::encode_without_stamp(&given_back)? });
                        records.extend(place);
                    }
                    None => {
                        self.findings.stuck += 1;
                        records.push(as_it_is(row));
                    }
                },
                State::Pending { .. }
                | State::Owed(_)
                | State::Waiting { .. }
                | State::Retrying { .. }
                | State::Completed { .. }
                | State::Failed { .. }
                | State::Cancelled { .. }
                | State::Skipped { .. } => records.push(as_it_is(row)),
            }
        }
        Ok(())
    }

    /// A running execution as if it had not been claimed, and its place. It was taken before all that wait, so its rank is before theirs. One that
    /// is to stop is over, and has none.
    fn handed_back(&mut self, current: &Execution, lane: &(String, Ready)) -> Option<(Execution, Option<Record>)> {
        let State::Running(running) = &current.state else { return None };
        let partition = partition_of(&current.id, self.partitions);
        let event = Event::HandBack { fence: running.fence, at: self.now, partition };
        let mut given_back = current.apply(&event).ok()?;
        let (lane, ready) = lane;
        let State::Queued(queued) = &mut given_back.state else {
            let bucket = execution::bucket_key(current.id.shard(), current.id.bucket_hour());
            *self.ended.entry(bucket).or_default() += 1;
            return Some((given_back, None));
        };
        lane.clone_into(&mut queued.lane);
        let part = Part { lane, owed: queued.owed, zone: ZONE_DEFAULT, partition };
        let value = ready.encode().ok()?;
        self.queued += 1;
        Some((given_back, Some(self.place(part.prefix_bytes(), value))))
    }

    /// A bucket's counter, without what this walk ended.
    fn bucket(&self, row: KeyValue) -> Record {
        let open = <[u8; size_of::<i64>()]>::try_from(&row.value[..]).map(i64::from_le_bytes);
        match (open, self.ended.get(&row.key)) {
            (Ok(open), Some(ended)) => {
                Record { key: row.key, value: Bytes::copy_from_slice(&(open - ended).to_le_bytes()) }
            }
            _ => as_it_is(row),
        }
    }

    fn places(&mut self, raw: Raw, records: &mut Vec<Record>) {
        for (row, value) in raw.rows.into_iter().zip(raw.executions) {
            if waits_at(&row, value.as_deref()) {
                let prefix = row.key.slice(..row.key.len().saturating_sub(Stamp::BYTES));
                records.push(self.place(prefix, row.value));
            } else {
                self.findings.stale_places += 1;
            }
        }
    }

    fn place(&mut self, part: Bytes, value: Bytes) -> Record {
        let rank = self.ranks.entry(part.clone()).or_default();
        let mut key = BytesMut::from(&part[..]);
        key.put_u64(*rank);
        *rank += 1;
        self.placed += 1;
        Record { key: key.freeze(), value }
    }
}

/// Whether an execution waits at this place. Of an execution that can't be read it is believed.
fn waits_at(place: &KeyValue, execution: Option<&[u8]>) -> bool {
    let Some(value) = execution else { return false };
    let Ok((_, stamp, _)) = Part::decode(&place.key, &place.value) else { return false };
    match execution::decode(&place.key, value) {
        Ok(row) => matches!(row.execution.state, State::Queued(_)) && row.stamp == stamp,
        Err(_) => true,
    }
}

fn as_it_is(row: KeyValue) -> Record {
    Record { key: row.key, value: row.value }
}

/// Reads a batch and, in the same transaction, what its rows point at.
async fn read(tx: &Tx, table: Table, query: &RangeQuery) -> Result<Raw, StoreError> {
    let rows = tx.range(query).await?;
    let mut raw = Raw { rows, executions: Vec::new(), lanes: BTreeMap::new() };
    match table.travels() {
        Travels::Queue => {
            let keys: Vec<Bytes> = raw.rows.iter().map(place_of).collect();
            raw.executions = tx.get_many(&keys, Read::Snapshot).await?;
        }
        Travels::Executions => {
            let running = raw.rows.iter().filter_map(|row| execution::decode(&row.key, &row.value).ok());
            let running: Vec<Execution> = running
                .map(|row| row.execution)
                .filter(|execution| matches!(execution.state, State::Running(_)))
                .collect();
            let jobs: Vec<_> = running.iter().map(|execution| execution.job).collect();
            for (execution, job) in running.iter().zip(job::get_many(tx, &jobs, Read::Snapshot).await?) {
                let Ok(Some(Ok(job))) = job.map(|row| row.map(|row| row.definition())) else { continue };
                let ready = Ready { execution: execution.id, job: job.id, digest: execution.task(&job).digest };
                raw.lanes.insert(execution.id, (job.lane, ready));
            }
        }
        Travels::AsTheyAre | Travels::Meta | Travels::StayBehind(_) => {}
    }
    Ok(raw)
}

/// The key of the execution that waits at a place. Of a place that can't be read: a key that no row has.
fn place_of(row: &KeyValue) -> Bytes {
    Part::decode(&row.key, &row.value).map_or(row.key.slice(..1), |(_, _, ready)| execution::key(ready.execution))
}

/// Refuses a store that has rows where this build knows no table.
pub(super) async fn refuse_unknown(store: &Store, begin: Bytes, end: Bytes) -> Result<(), TransferError> {
    if begin >= end {
        return Ok(());
    }
    let query = RangeQuery { begin, end, limit: 1, reverse: false, read: Read::Snapshot };
    let query = &query;
    let found = store.transact(|tx| async move { tx.range(query).await }).await?.value;
    match found.first().and_then(|row| row.key.first()) {
        Some(prefix) => Err(TransferError::UnknownTable { prefix: *prefix }),
        None => Ok(()),
    }
}
