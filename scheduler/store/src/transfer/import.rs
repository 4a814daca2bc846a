//! A file into a store.

use std::path::Path;

use bytes::Bytes;
use compline_core::execution::State;

use super::file::{Frame, Reader};
use super::scan::{RANK_BYTES, Scan, refuse_unknown};
use super::{Header, OnProgress, Phase, Progress, Quiet, Record, Tally, TransferError, Travels};
use crate::backend::{RangeQuery, Read};
use crate::keys::Table;
use crate::tables::execution;
use crate::tables::meta::{self, ImportRow, LAYOUT, Meta};
use crate::tables::queue::Ready;
use crate::{Stamp, Store, StoreError, Tx};

/// What one transaction writes: so many rows and about so many bytes. A place in a queue writes its execution anew, whose size is not known
/// before, so a batch that turns out too large is halved.
const BATCH_ROWS_MAX: usize = 500;
const BATCH_BYTES: usize = 400_000;

/// A finished import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// What the file says of itself.
    pub header: Header,
    /// What the target holds now, read from it.
    pub tally: Tally,
    /// The target's incarnation.
    pub incarnation: u32,
    /// How many rows an earlier, interrupted run had written.
    pub resumed_at: u64,
}

/// A file that was read from end to end.
struct Checked {
    header: Header,
    tally: Tally,
    seal: [u8; 16],
    first: meta::FramePlace,
}

/// Writes all that a file holds into an empty store, and reads it again from there.
///
/// The whole file is checked before anything is written. After an interruption (also a kill) the same call goes on where the last batch ended;
/// until it is finished no node can start on the target. Another store than an empty one, or than one with a part of this very file, is refused
/// and stays as it is. A repeat of a finished import verifies the target again, until a node has started on it; then it is refused.
pub async fn import(
    store: &Store,
    path: &Path,
    quiet: Quiet,
    on_progress: OnProgress<'_>,
) -> Result<Imported, TransferError> {
    let (mut reader, checked) = check(path, on_progress)?;
    let begun = begin(store, &checked, quiet).await?;
    let resumed_at = begun.records;
    let incarnation = begun.incarnation;
    if begun.finished_at_starts.is_none() {
        write_rows(store, &mut reader, &checked, begun, on_progress).await?;
    }
    let tally = verify(store, &checked, on_progress).await?;
    finish(store, &checked, incarnation, quiet).await?;
    Ok(Imported { header: checked.header, tally, incarnation, resumed_at })
}

fn check(path: &Path, on_progress: OnProgress<'_>) -> Result<(Reader, Checked), TransferError> {
    let (mut reader, header) = Reader::open(path)?;
    if header.meta.layout != LAYOUT {
        return Err(TransferError::Layout { found: header.meta.layout, known: LAYOUT });
    }
    let first = reader.place();
    let mut counted = Tally::default();
    let (tally, seal) = loop {
        match reader.next()? {
            Frame::Rows(records) => records.iter().for_each(|record| counted.add(record)),
            Frame::Tally { tally, seal } => break (tally, seal),
        }
        on_progress(Progress { phase: Phase::Check, records: counted.rows(), total: None });
    };
    if let Some(prefix) = counted.foreign_table().or(tally.foreign_table()) {
        return Err(TransferError::UnknownTable { prefix });
    }
    match tally.difference(&counted) {
        None => Ok((reader, Checked { header, tally, seal, first })),
        Some(table) => Err(reader.damaged(format!("the rows of table `{table}` are not those that it counts"))),
    }
}

/// Takes an empty store, or goes on with one that has a part of this file.
async fn begin(store: &Store, checked: &Checked, quiet: Quiet) -> Result<ImportRow, TransferError> {
    let mut known_until = Bytes::from_static(&[0]);
    for table in Table::ALL {
        let (begin, end) = table.range();
        refuse_unknown(store, std::mem::replace(&mut known_until, end), begin).await?;
    }
    refuse_unknown(store, known_until, Bytes::from_static(&[0xff])).await?;
    store.transact(|tx| async move { begin_in(&tx, checked, quiet).await }).await?.value
}

async fn begin_in(tx: &Tx, checked: &Checked, quiet: Quiet) -> Result<Result<ImportRow, TransferError>, StoreError> {
    if !quiet.holds(tx).await? {
        return Ok(Err(TransferError::NodeStarted));
    }
    match meta::import(tx).await? {
        Some(row)
            if row.seal == checked.seal && row.finished_at_starts.is_none_or(|starts| starts == quiet.starts()) =>
        {
            return Ok(Ok(row));
        }
        Some(row) if row.finished_at_starts.is_none() => {
            return Ok(Err(TransferError::OtherImport { begun: row.begun, records: row.records }));
        }
        Some(_) | None => {}
    }
    for table in Table::ALL.iter().copied() {
        let (begin, end) = table.range();
        if !table.is_carried() {
            tx.clear_range(begin, end);
            continue;
        }
        let query = RangeQuery { begin, end, limit: 10, reverse: false, read: Read::Serializable };
        if tx.range(&query).await?.iter().any(|row| !meta::is_of_this_store_alone(&row.key)) {
            return Ok(Err(TransferError::TargetNotEmpty { table }));
        }
    }
    let own = meta::get(tx).await?.map_or(0, |meta| meta.incarnation);
    let row = ImportRow {
        seal: checked.seal,
        begun: checked.header.begun,
        incarnation: own.max(checked.header.meta.incarnation).saturating_add(1),
        frame: checked.first,
        done_in_frame: 0,
        records: 0,
        finished_at_starts: None,
    };
    meta::put_import(tx, &row)?;
    Ok(Ok(row))
}

async fn write_rows(
    store: &Store,
    reader: &mut Reader,
    checked: &Checked,
    begun: ImportRow,
    on_progress: OnProgress<'_>,
) -> Result<(), TransferError> {
    let total = Some(checked.tally.rows());
    let mut at = begun;
    let mut rows_max = BATCH_ROWS_MAX;
    loop {
        reader.go_to(at.frame)?;
        let records = match reader.next()? {
            Frame::Rows(records) => records,
            Frame::Tally { seal, .. } if seal == checked.seal => return Ok(()),
            Frame::Tally { .. } => return Err(reader.damaged("it was changed while it was read")),
        };
        let rest = records.get(at.done_in_frame as usize..).unwrap_or_default();
        let batch = &rest[..fitting(rest, rows_max)];
        let next = if batch.len() == rest.len() {
            ImportRow { frame: reader.place(), done_in_frame: 0, ..at.clone() }
        } else {
            ImportRow { done_in_frame: at.done_in_frame + batch.len() as u32, ..at.clone() }
        };
        let next = ImportRow { records: at.records + batch.len() as u64, ..next };
        match write_batch(store, &at, &next, batch).await {
            Ok(now) => at = now,
            Err(StoreError::TooLarge { what: "transaction", .. }) if batch.len() > 1 => rows_max = batch.len() / 2,
            Err(error) => return Err(error.into()),
        }
        on_progress(Progress { phase: Phase::Import, records: at.records, total });
    }
}

/// How many of these records one transaction takes.
fn fitting(records: &[Record], rows_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |record: &&Record| {
        bytes += record.key.len() + record.value.len();
        bytes <= BATCH_BYTES
    };
    records.iter().take(rows_max).take_while(fits).count().max(1).min(records.len())
}

/// Writes a batch and the place behind it. Returns the place that the store is at now: where a batch of an interrupted run has landed after
/// all, that is another than `next`.
async fn write_batch(
    store: &Store,
    before: &ImportRow,
    next: &ImportRow,
    records: &[Record],
) -> Result<ImportRow, StoreError> {
    let committed = store.transact(|tx| async move {
        let Some(at) = meta::import(&tx).await? else {
            return Err(StoreError::Unavailable(
                "the import's mark has gone: does another import use the store?".into(),
            ));
        };
        if at != *before {
            return Ok(at);
        }
        let queue = |record: &&Record| Table::of(&record.key).is_some_and(|table| table.travels() == Travels::Queue);
        for record in records.iter().filter(|record| !queue(record)) {
            tx.set(record.key.clone(), record.value.clone());
        }
        let places: Vec<&Record> = records.iter().filter(queue).collect();
        put_places(&tx, &places, next.incarnation).await?;
        meta::put_import(&tx, next)?;
        Ok(next.clone())
    });
    Ok(committed.await?.value)
}

/// Puts executions at the end of their parts, in this order: each place and its execution get one stamp of this commit.
async fn put_places(tx: &Tx, places: &[&Record], incarnation: u32) -> Result<(), StoreError> {
    let mut keys = Vec::with_capacity(places.len());
    for place in places {
        keys.push(execution::key(Ready::decode(&place.key, &place.value)?.execution));
    }
    let values = tx.get_many(&keys, Read::Snapshot).await?;
    for ((place, key), value) in places.iter().zip(keys).zip(values) {
        let index = tx.next_stamp_index();
        let part = &place.key[..place.key.len().saturating_sub(RANK_BYTES)];
        let stamped = [part, &Stamp::unset(index).0].concat();
        tx.set_stamped_key(stamped, part.len(), place.value.clone());
        let Some(value) = value else { continue };
        if execution::decode(&key, &value).is_ok_and(|row| matches!(row.execution.state, State::Queued(_))) {
            execution::restamp(tx, key, &value, incarnation, index);
        }
    }
    Ok(())
}

/// Reads the target and compares it with what the file says.
async fn verify(store: &Store, checked: &Checked, on_progress: OnProgress<'_>) -> Result<Tally, TransferError> {
    let mut scan = Scan::new(store, checked.header.meta.partitions, checked.header.begun);
    let mut found = Tally::default();
    while let Some(records) = scan.next().await? {
        records.iter().for_each(|record| found.add(record));
        on_progress(Progress { phase: Phase::Verify, records: found.rows(), total: Some(checked.tally.rows()) });
    }
    let Some(table) = checked.tally.difference(&found) else { return Ok(found) };
    let (expected, found) = (checked.tally.of(table), found.of(table));
    Err(TransferError::Mismatch {
        table,
        found: found.rows,
        found_digest: found.digest_text(),
        expected: expected.rows,
        expected_digest: expected.digest_text(),
    })
}

/// Lets nodes start: the store says of itself what the source said, under the new incarnation.
async fn finish(store: &Store, checked: &Checked, incarnation: u32, quiet: Quiet) -> Result<(), TransferError> {
    let meta = &Meta { incarnation, ..checked.header.meta.clone() };
    let committed = store.transact(|tx| async move {
        match meta::import(&tx).await?.filter(|row| row.seal == checked.seal) {
            Some(row) if quiet.holds(&tx).await? => {
                meta::put(&tx, meta)?;
                let finished_at_starts = Some(quiet.starts());
                meta::put_import(&tx, &ImportRow { finished_at_starts, ..row })?;
                Ok(Ok(()))
            }
            Some(_) | None => Ok(Err(TransferError::NodeStarted)),
        }
    });
    committed.await?.value
}
