//! Listings: keys only, written once, when the execution's row is.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::Execution;
use compline_core::ids::{ExecutionId, JobId, TenantId};

use super::nothing;
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::{StoreError, Tx};

const NAME: &str = "history";

/// Which listing.
#[derive(Debug, Clone, Copy)]
pub enum Listing<'a> {
    /// All executions of a job, by slot.
    OfJob(JobId),
    /// All executions of a tenant, by bucket time.
    OfTenant(&'a TenantId),
    /// A job's executions that failed for good.
    FailedOfJob(JobId),
    /// A tenant's executions that failed for good.
    FailedOfTenant(&'a TenantId),
}

/// A page to read, newest first.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Continue behind this key, which an earlier page ended with. The row itself may be gone.
    pub before: Option<Bytes>,
    /// Only slots (of a tenant's listing: bucket times) from this one on.
    pub from: Option<Timestamp>,
    /// Only slots (of a tenant's listing: bucket times) before this one.
    pub until: Option<Timestamp>,
    /// How many at the most.
    pub limit: usize,
}

/// An entry of a listing, and its key, from which a later page continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The position.
    pub key: Bytes,
    /// The execution.
    pub execution: ExecutionId,
}

impl Listing<'_> {
    fn prefix(self) -> KeyBuilder {
        match self {
            Self::OfJob(job) => KeyBuilder::new(Table::History).job(job),
            Self::OfTenant(tenant) => KeyBuilder::new(Table::AllRuns).tenant(tenant),
            Self::FailedOfJob(job) => KeyBuilder::new(Table::JobFailed).job(job),
            Self::FailedOfTenant(tenant) => KeyBuilder::new(Table::Failed).tenant(tenant),
        }
    }

    /// The first key at or after an instant.
    fn at(self, instant: Timestamp) -> Bytes {
        match self {
            Self::OfJob(_) => self.prefix().micros(instant).build(),
            Self::OfTenant(_) | Self::FailedOfJob(_) | Self::FailedOfTenant(_) => {
                let whole = instant.timestamp() + i64::from(instant.timestamp_subsec_nanos() > 0);
                self.prefix().bytes(&whole.max(0).to_be_bytes()[3..]).build()
            }
        }
    }

    /// One page of the listing, newest first. Not part of conflict detection: a listing may be a moment stale.
    pub async fn page(self, tx: &Tx, page: &Page) -> Result<Vec<Entry>, StoreError> {
        self.read_page(tx, page, Read::Snapshot).await
    }

    async fn read_page(self, tx: &Tx, page: &Page, read: Read) -> Result<Vec<Entry>, StoreError> {
        let (mut begin, mut end) = self.prefix().prefix();
        if let Some(from) = page.from {
            begin = begin.max(self.at(from));
        }
        if let Some(until) = page.until {
            end = end.min(self.at(until));
        }
        if let Some(before) = &page.before {
            end = end.min(before.clone());
        }
        if begin >= end {
            return Ok(Vec::new());
        }
        let query = RangeQuery { begin, end, limit: page.limit, reverse: true, read };
        let pairs = tx.range(&query).await?;
        pairs.into_iter().map(|pair| entry(NAME, pair.key)).collect()
    }

    /// One page, read so that a change within it makes this commit conflict.
    pub async fn page_to_depend_on(self, tx: &Tx, page: &Page) -> Result<Vec<Entry>, StoreError> {
        self.read_page(tx, page, Read::Serializable).await
    }

    /// Whether a cursor's key belongs to this listing.
    pub fn contains(self, key: &[u8]) -> bool {
        let (begin, end) = self.prefix().prefix();
        begin.as_ref() <= key && key < end.as_ref()
    }
}

/// The entry with this key, of the table with this name.
pub(crate) fn entry(table: &'static str, key: Bytes) -> Result<Entry, StoreError> {
    let at = key.len().saturating_sub(ExecutionId::BYTES);
    let execution = ExecutionId::from_bytes(super::key_field(table, &key, at)?);
    Ok(Entry { key, execution })
}

pub(crate) fn job_key(job: JobId, slot: Timestamp, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::History).job(job).micros(slot).execution(execution).build()
}

pub(crate) fn tenant_key(tenant: &TenantId, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::AllRuns).tenant(tenant).execution(execution).build()
}

pub(crate) fn failed_key(tenant: &TenantId, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Failed).tenant(tenant).execution(execution).build()
}

pub(crate) fn job_failed_key(job: JobId, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::JobFailed).job(job).execution(execution).build()
}

/// Lists a new execution.
pub fn add(tx: &Tx, tenant: &TenantId, execution: &Execution) {
    tx.set(job_key(execution.job, execution.slot, execution.id), nothing());
    tx.set(tenant_key(tenant, execution.id), nothing());
    super::trim::ask_now_and_then(tx, execution.job, execution.id);
}

/// A job's entries with slots from `from` on and before `until`, oldest first, read so that a change makes this commit conflict.
pub async fn of_job_between(
    tx: &Tx,
    job: JobId,
    from: Timestamp,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let at = |instant| KeyBuilder::new(Table::History).job(job).micros(instant).build();
    let query = RangeQuery { begin: at(from), end: at(until), limit, reverse: false, read: Read::Serializable };
    tx.range(&query).await?.into_iter().map(|pair| entry(NAME, pair.key)).collect()
}

/// Takes entries that lie side by side out of a listing: from one key to another, both included.
pub fn clear_entries(tx: &Tx, first: &Bytes, last: &Bytes) {
    if first == last {
        tx.clear(first.clone());
    } else {
        tx.clear_range(first.clone(), after(last));
    }
}

/// Takes an execution out of its job's listing.
pub fn remove_of_job(tx: &Tx, execution: &Execution) {
    tx.clear(job_key(execution.job, execution.slot, execution.id));
}

/// Takes a tenant's executions from `first` to `last`, which are of one shard and second, out of its listing.
pub fn remove_of_tenant(tx: &Tx, tenant: &TenantId, first: ExecutionId, last: ExecutionId) {
    clear_entries(tx, &tenant_key(tenant, first), &tenant_key(tenant, last));
}

/// Takes an execution that failed off the lists of failures: it is tried again, or removed.
pub fn remove_failed(tx: &Tx, tenant: &TenantId, execution: &Execution) {
    tx.clear(failed_key(tenant, execution.id));
    tx.clear(job_failed_key(execution.job, execution.id));
}

/// Takes an execution off the listings whose time never came.
pub fn remove(tx: &Tx, tenant: &TenantId, execution: &Execution) {
    let of_job = KeyBuilder::new(Table::History).job(execution.job).micros(execution.slot).execution(execution.id);
    tx.clear(of_job.build());
    tx.clear(KeyBuilder::new(Table::AllRuns).tenant(tenant).execution(execution.id).build());
}

/// Lists an execution that failed for good.
pub fn add_failed(tx: &Tx, tenant: &TenantId, execution: &Execution) {
    tx.set(failed_key(tenant, execution.id), nothing());
    tx.set(job_failed_key(execution.job, execution.id), nothing());
}

/// A job's executions by slot, oldest first: those of slots in `from..until`, `limit` at the most. Not part of conflict detection.
pub async fn of_slots(
    tx: &Tx,
    job: JobId,
    from: Timestamp,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<ExecutionId>, StoreError> {
    let (begin, end) = (Listing::OfJob(job).at(from), Listing::OfJob(job).at(until));
    if begin >= end {
        return Ok(Vec::new());
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    pairs.into_iter().map(|pair| entry(NAME, pair.key).map(|entry| entry.execution)).collect()
}
