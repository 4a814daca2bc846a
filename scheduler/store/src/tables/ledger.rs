//! The ledger: what became of slots that have no execution, and what a job's owner did. With the executions it answers "why did it (not)
//! run?" for every slot.
//!
//! Stretches keep an outage, or a pause of a year, to one row. Changes leave a mark, so that a reader knows by which schedule to count the
//! slots of an earlier time.

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::ledger::SkipReason;
pub use compline_core::ledger::{Entry, Mark, Stretch};
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, from_sortable};
use crate::{StoreError, Tx};

const NAME: &str = "ledger";
const SCHEMA: u8 = 2;

/// In a key: table, job, micros, then the kind.
const MICROS_AT: usize = 1 + JobId::BYTES;
const KIND_AT: usize = MICROS_AT + 8;
const STRETCH: u8 = 0;
const MARK: u8 = 1;

#[derive(Serialize, Deserialize)]
struct StretchRow {
    until: Timestamp,
    reason: SkipReason,
    detail: Option<String>,
}

/// Writes down that the job's slots in `from..until` have no execution, because of `reason`. Writing the same stretch again changes nothing;
/// one that is empty is not written.
pub fn add_range(tx: &Tx, job: JobId, from: Timestamp, until: Timestamp, reason: SkipReason) -> Result<(), StoreError> {
    add_stretch(tx, job, &Stretch { from, until, reason, detail: None })
}

/// The same, with what else there is to say.
pub fn add_stretch(tx: &Tx, job: JobId, stretch: &Stretch) -> Result<(), StoreError> {
    let Stretch { from, until, reason, detail } = stretch;
    if from >= until {
        return Ok(());
    }
    let row = StretchRow { until: *until, reason: *reason, detail: detail.clone() };
    let key = KeyBuilder::new(Table::Ledger).job(job).micros(*from).u8(STRETCH).build();
    tx.set(key, super::encode(NAME, SCHEMA, &row)?.into());
    Ok(())
}

/// Writes down what the job's owner did. Writing the same mark again changes nothing.
pub fn add_mark(tx: &Tx, job: JobId, mark: &Mark) -> Result<(), StoreError> {
    let key = KeyBuilder::new(Table::Ledger).job(job).micros(mark.at).u8(MARK).bytes(&mark.revision.to_be_bytes());
    tx.set(key.build(), super::encode(NAME, SCHEMA, &mark.change)?.into());
    Ok(())
}

/// Rows of a job's ledger, newest first: those filed under an instant before `before`, `limit` at the most. A row that cannot be read is an
/// error of its own. Not part of conflict detection: it may be a moment stale.
pub async fn newest(
    tx: &Tx,
    job: JobId,
    before: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<Result<Entry, StoreError>>, StoreError> {
    let (begin, mut end) = KeyBuilder::new(Table::Ledger).job(job).prefix();
    if let Some(before) = before {
        end = KeyBuilder::new(Table::Ledger).job(job).micros(before).build();
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: true, read: Read::Snapshot }).await?;
    Ok(pairs.into_iter().map(|pair| decode(&pair.key, &pair.value).map(|(_, entry)| entry)).collect())
}

/// Rows of a job's ledger, oldest first: those filed under an instant from `from` on, `limit` at the most.
pub async fn from(
    tx: &Tx,
    job: JobId,
    from: Timestamp,
    limit: usize,
) -> Result<Vec<Result<Entry, StoreError>>, StoreError> {
    let (_, end) = KeyBuilder::new(Table::Ledger).job(job).prefix();
    let begin = KeyBuilder::new(Table::Ledger).job(job).micros(from).build();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    Ok(pairs.into_iter().map(|pair| decode(&pair.key, &pair.value).map(|(_, entry)| entry)).collect())
}

/// Forgets what a job's ledger says of the time before an instant: stretches that end by then, and marks but the newest, by which the slots of
/// a later time are counted. So many rows are looked at in one go; a later call goes on. Returns how many were forgotten.
pub async fn forget_before(tx: &Tx, job: JobId, until: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let (begin, _) = KeyBuilder::new(Table::Ledger).job(job).prefix();
    let end = KeyBuilder::new(Table::Ledger).job(job).micros(until).build();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Serializable }).await?;
    let newest_mark = pairs.iter().rposition(|pair| pair.key.get(KIND_AT) == Some(&MARK));
    let mut forgotten = 0;
    for (index, pair) in pairs.into_iter().enumerate() {
        let old = match decode(&pair.key, &pair.value) {
            Ok((_, Entry::Stretch(stretch))) => stretch.until <= until,
            Ok((_, Entry::Mark(_))) => newest_mark != Some(index),
            // One that cannot be read stays, and is found by `admin check`.
            Err(_) => false,
        };
        if old {
            tx.clear(pair.key);
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// The job and the row with this key and value.
pub fn decode(key: &Bytes, value: &Bytes) -> Result<(JobId, Entry), StoreError> {
    let job = JobId::from_bytes(super::key_field(NAME, key, 1)?);
    let at = Timestamp::from_unix_micros(from_sortable(super::key_field(NAME, key, MICROS_AT)?))
        .ok_or_else(|| StoreError::unreadable(NAME, key, "instant out of range"))?;
    let entry = match key.get(KIND_AT) {
        Some(&STRETCH) => {
            let StretchRow { until, reason, detail } = super::decode(NAME, SCHEMA, key, value)?;
            Entry::Stretch(Stretch { from: at, until, reason, detail })
        }
        Some(&MARK) => {
            let revision = u64::from_be_bytes(super::key_field(NAME, key, KIND_AT + 1)?);
            Entry::Mark(Mark { at, revision, change: super::decode(NAME, SCHEMA, key, value)? })
        }
        _ => return Err(StoreError::unreadable(NAME, key, "neither a stretch nor a mark")),
    };
    Ok((job, entry))
}
