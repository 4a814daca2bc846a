//! The check of a whole store: that every row can be read, and that what the tables say of each other agrees.
//!
//! It reads every table page by page, each page in a transaction of its own that also reads the rows which the page's rows name. So every
//! single verdict is about one instant, and a store that serves meanwhile is judged as fairly as one at rest. The counters of buckets are the
//! exception, since a bucket can be larger than a transaction: one that seems wrong is counted anew, and only counts during which the counter
//! stood still are believed.
//!
//! Nothing is written.

mod buckets;
mod executions;
mod jobs;
mod places;

use std::collections::BTreeMap;

use bytes::Bytes;
use compline_core::ids::{ExecutionId, JobId};

use crate::backend::{KeyValue, RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::tables::{bucket, cancel, dead, history, job, lease, live, meta, request, session, task, trim, zones};
use crate::{Store, StoreError, Tx};

use buckets::Buckets;

/// How many rows one transaction reads of a table; of components, whose chunks are large, fewer.
const PAGE_ROWS: usize = 256;
const PAGE_CHUNKS: usize = 8;
/// How many findings are kept; the rest is only counted.
pub const FINDINGS_MAX: usize = 1_000;

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It cannot be read by this build.
    Unreadable,
    /// It names a row that is not there.
    Orphan,
    /// It and another row contradict each other.
    Mismatch,
}

impl Kind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Orphan => "orphan",
            Self::Mismatch => "mismatch",
        }
    }
}

/// One row that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// Its table.
    pub table: &'static str,
    /// Its key, in printable form.
    pub key: String,
    /// What is wrong, in a sentence.
    pub problem: String,
}

/// What a check came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many rows each table has, in the order of the tables' prefixes.
    pub rows: Vec<(&'static str, u64)>,
    /// What is wrong: the first [`FINDINGS_MAX`] of it.
    pub findings: Vec<Finding>,
    /// How much is wrong.
    pub findings_total: u64,
    /// How many buckets were too busy for their counters to be verified.
    pub busy_buckets: u64,
}

impl Report {
    fn add(&mut self, findings: Vec<Finding>) {
        self.findings_total += findings.len() as u64;
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(findings.into_iter().take(room));
    }
}

/// Checks a store. `progress` is told each table's name and how many of its rows were read so far.
pub async fn check(store: &Store, mut progress: impl FnMut(&'static str, u64) + Send) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let mut buckets = Buckets::default();
    for table in Table::ALL {
        let mut rows = 0;
        let (begin, end) = KeyBuilder::new(*table).prefix();
        let mut begin = Some(begin);
        while let Some(from) = begin {
            let (from, end) = (&from, &end);
            let page = store.transact(|tx| async move { read_page(&tx, *table, from.clone(), end.clone()).await });
            let page = page.await?.value;
            rows += page.rows;
            report.add(page.findings);
            buckets.count(&page.open, &page.closed);
            begin = page.next;
            progress(table.name(), rows);
        }
        report.rows.push((table.name(), rows));
    }
    report.add(unknown_tables(store).await?);
    let counted = buckets.check(store).await?;
    report.add(counted.findings);
    report.busy_buckets = counted.busy;
    Ok(report)
}

/// One page of a table.
#[derive(Default)]
struct Page {
    rows: u64,
    findings: Vec<Finding>,
    /// Where the next page begins.
    next: Option<Bytes>,
    /// The executions on it that are open, and those that are not.
    open: Vec<ExecutionId>,
    closed: Vec<ExecutionId>,
}

async fn read_page(tx: &Tx, table: Table, begin: Bytes, end: Bytes) -> Result<Page, StoreError> {
    let limit = if matches!(table, Table::Blob) { PAGE_CHUNKS } else { PAGE_ROWS };
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    let mut page = Page { rows: pairs.len() as u64, ..Page::default() };
    let mut notes = Notes { table: table.name(), findings: Vec::new() };
    match table {
        Table::Execution => executions::check(tx, &pairs, &mut notes, &mut page).await?,
        Table::Due => places::check_due(tx, &pairs, &mut notes).await?,
        Table::Owed => places::check_owed(tx, &pairs, &mut notes).await?,
        Table::Ready => places::check_ready(tx, &pairs, &mut notes).await?,
        Table::Running => places::check_running(tx, &pairs, &mut notes).await?,
        Table::History | Table::AllRuns | Table::Failed | Table::JobFailed => {
            places::check_listing(tx, table, &pairs, &mut notes).await?;
        }
        Table::Log => places::check_log(tx, &pairs, &mut notes).await?,
        Table::Job => jobs::check_jobs(tx, &pairs, &mut notes).await?,
        Table::JobRun => jobs::check_runs(tx, &pairs, &mut notes).await?,
        Table::TenantJob => jobs::check_tenant_jobs(tx, &pairs, &mut notes).await?,
        Table::Finished => jobs::check_finished(&pairs, &mut notes),
        Table::Ledger => jobs::check_ledger(tx, &pairs, &mut notes).await?,
        Table::Bucket => pairs.iter().for_each(|pair| notes.readable(pair, buckets::decode(&pair.key, &pair.value))),
        Table::Meta
        | Table::Zones
        | Table::Task
        | Table::Version
        | Table::Blob
        | Table::Manifest
        | Table::Session
        | Table::Beat
        | Table::Lease
        | Table::Live
        | Table::Bell
        | Table::Cancel
        | Table::Dropping
        | Table::Trim
        | Table::Request
        | Table::RequestTime
        | Table::Dead
        | Table::DeadPlace => pairs.iter().for_each(|pair| notes.readable(pair, decode(table, pair))),
    }
    page.findings = notes.findings;
    page.next = (pairs.len() == limit).then(|| pairs.last().map(|pair| after(&pair.key))).flatten();
    Ok(page)
}

/// Rows that name no others: they only have to be readable.
fn decode(table: Table, KeyValue { key, value }: &KeyValue) -> Result<(), StoreError> {
    match table {
        Table::Meta => meta::check(key, value),
        Table::Zones => zones::check(key, value),
        Table::Task => task::decode(key, value).map(drop),
        Table::Version => task::decode_version(key, value).map(drop),
        Table::Manifest => task::decode_manifest(key, value).map(drop),
        Table::Session => session::decode(key, value).map(drop),
        Table::Beat => session::decode_beat(key, value).map(drop),
        Table::Lease => lease::decode(key, value).map(drop),
        Table::Live => live::decode(key, value).map(drop),
        Table::Cancel => cancel::decode(key, value).map(drop),
        Table::Request => request::decode(key, value).map(drop),
        Table::Dead => dead::decode(key.clone(), value).and_then(|entry| entry.letter).map(drop),
        Table::DeadPlace => dead::decode_place(key, value).map(drop),
        Table::Dropping => bucket::decode_dropping(key).map(drop),
        Table::Trim => trim::decode(key).map(drop),
        _ => Ok(()),
    }
}

/// Keys between and behind the tables that this build knows.
async fn unknown_tables(store: &Store) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    for prefix in 0..0xff_u8 {
        if Table::ALL.iter().any(|table| *table as u8 == prefix) {
            continue;
        }
        let query = RangeQuery {
            begin: Bytes::copy_from_slice(&[prefix]),
            end: Bytes::copy_from_slice(&[prefix + 1]),
            limit: 1,
            reverse: false,
            read: Read::Snapshot,
        };
        let query = &query;
        let found = store.transact(|tx| async move { tx.range(query).await }).await?.value;
        findings.extend(found.iter().map(|pair| Finding {
            kind: Kind::Unreadable,
            table: "unknown",
            key: pair.key.escape_ascii().to_string(),
            problem: format!("this build knows no table 0x{prefix:02x}: run the build that wrote it, or a newer one"),
        }));
    }
    Ok(findings)
}

/// What is found on a page of a table.
struct Notes {
    table: &'static str,
    findings: Vec<Finding>,
}

impl Notes {
    fn add(&mut self, kind: Kind, key: &[u8], problem: impl Into<String>) {
        let (table, key) = (self.table, key.escape_ascii().to_string());
        self.findings.push(Finding { kind, table, key, problem: problem.into() });
    }

    /// Notes a row that cannot be read.
    fn readable<T>(&mut self, pair: &KeyValue, row: Result<T, StoreError>) {
        let _: Option<T> = self.read(&pair.key, row);
    }

    /// The row, or a note that it cannot be read.
    fn read<T>(&mut self, key: &[u8], row: Result<T, StoreError>) -> Option<T> {
        match row {
            Ok(row) => Some(row),
            Err(StoreError::Unreadable { reason, .. }) => {
                self.add(Kind::Unreadable, key, reason);
                None
            }
            Err(other) => {
                self.add(Kind::Unreadable, key, other.to_string());
                None
            }
        }
    }

    /// Notes each row whose counterpart is not there.
    fn expect_all(&mut self, expected: Vec<Expected>, there: &BTreeMap<Bytes, bool>) {
        for Expected { key, counterpart, kind, problem } in expected {
            if !there.get(&counterpart).copied().unwrap_or(false) {
                self.add(kind, &key, problem);
            }
        }
    }
}

/// A row that must be there because of another.
struct Expected {
    key: Bytes,
    counterpart: Bytes,
    kind: Kind,
    problem: String,
}

/// Reads which of the expected rows are there, and notes those that are not.
async fn expect(tx: &Tx, expected: Vec<Expected>, notes: &mut Notes) -> Result<(), StoreError> {
    let keys: Vec<Bytes> = expected.iter().map(|row| row.counterpart.clone()).collect();
    let values = tx.get_many(&keys, Read::Snapshot).await?;
    let there = keys.into_iter().zip(values).map(|(key, value)| (key, value.is_some())).collect();
    notes.expect_all(expected, &there);
    Ok(())
}

/// The jobs of these ids that can be read: with their definitions.
async fn jobs_of(
    tx: &Tx,
    ids: impl Iterator<Item = JobId>,
) -> Result<BTreeMap<JobId, Option<compline_core::job::Job>>, StoreError> {
    let ids: Vec<JobId> = ids.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let rows = job::get_many(tx, &ids, Read::Snapshot).await?;
    // One that is there and cannot be read is found with the jobs; here it only counts as there.
    let read = |(id, row): (JobId, Result<Option<job::JobRow>, StoreError>)| match row {
        Ok(None) => None,
        Ok(Some(row)) => Some((id, row.definition().ok())),
        Err(_) => Some((id, None)),
    };
    Ok(ids.iter().copied().zip(rows).filter_map(read).collect())
}

/// The id at the end of a listing's key.
fn trailing_execution(table: Table, key: &[u8]) -> Result<ExecutionId, StoreError> {
    history::entry(table.name(), Bytes::copy_from_slice(key)).map(|entry| entry.execution)
}
