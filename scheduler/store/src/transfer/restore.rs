//! What a store needs that was brought back from a backup of its engine.
//!
//! Such a store is at an earlier point of its own history, and its stamps may begin anew below those that its rows hold. So its incarnation is
//! raised, that nothing granted after the backup counts any more, and what waits is stamped anew, that it does not wait behind all that comes.

use bytes::Bytes;
use compline_core::execution::State;

use super::{Quiet, TransferError};
use crate::backend::{KeyValue, RangeQuery, Read};
use crate::keys::{Table, after};
use crate::tables::queue::Ready;
use crate::tables::{execution, meta};
use crate::{Stamp, Store, StoreError, Tx};

const BATCH_ROWS_MAX: usize = 128;

/// What was done to a restored store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Its incarnation now.
    pub incarnation: u32,
    /// How many waiting executions were stamped anew.
    pub requeued: u64,
}

/// Raises a store's incarnation and stamps anew what waits. Run again after an interruption, it goes on, under one incarnation more.
///
/// What ran when the backup was made is given back by the first node that starts, as of a lost worker.
pub async fn raise_incarnation(store: &Store, quiet: Quiet) -> Result<Restored, TransferError> {
    let said = store
        .transact(|tx| async move { Ok((meta::unfinished_import(&tx).await?, meta::get(&tx).await?)) })
        .await?
        .value;
    let before = match said {
        (Some(_), _) => return Err(TransferError::SourceUnfinished),
        (None, None) => return Err(TransferError::NeverStarted),
        (None, Some(meta)) => meta,
    };
    let raised = &meta::Meta { incarnation: before.incarnation.saturating_add(1), ..before };
    let committed = store.transact(|tx| async move {
        if !quiet.holds(&tx).await? {
            return Ok(false);
        }
        meta::put(&tx, raised)?;
        Ok(true)
    });
    if !committed.await?.value {
        return Err(TransferError::NodeStarted);
    }
    let requeued = requeue(store, raised.incarnation, quiet).await?;
    Ok(Restored { incarnation: raised.incarnation, requeued })
}

async fn requeue(store: &Store, incarnation: u32, quiet: Quiet) -> Result<u64, TransferError> {
    let (mut begin, end) = Table::Ready.range();
    let mut requeued = 0;
    let mut rows_max = BATCH_ROWS_MAX;
    loop {
        let query = RangeQuery {
            begin: begin.clone(),
            end: end.clone(),
            limit: rows_max,
            reverse: false,
            read: Read::Snapshot,
        };
        let query = &query;
        let committed = store
            .transact(|tx| async move {
                if !quiet.holds(&tx).await? {
                    return Ok(Err(TransferError::NodeStarted));
                }
                let rows = tx.range(query).await?;
                let moved = stamp_anew(&tx, &rows, incarnation).await?;
                Ok(Ok((rows.last().map(|row| row.key.clone()), moved)))
            })
            .await;
        let (last, moved) = match committed {
            Ok(committed) => committed.value?,
            Err(StoreError::TooLarge { what: "transaction", .. }) if rows_max > 1 => {
                rows_max /= 2;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        requeued += moved;
        let Some(last) = last else { return Ok(requeued) };
        begin = after(&last);
    }
}

/// Moves places to the end of their parts. One that has a stamp of this incarnation has been moved already: it is met again where new stamps
/// sort behind the old ones.
async fn stamp_anew(tx: &Tx, rows: &[KeyValue], incarnation: u32) -> Result<u64, StoreError> {
    let places: Vec<_> =
        rows.iter().filter_map(|row| Some((row, Ready::decode(&row.key, &row.value).ok()?.execution))).collect();
    let keys: Vec<Bytes> = places.iter().map(|(_, id)| execution::key(*id)).collect();
    let values = tx.get_many(&keys, Read::Serializable).await?;
    let mut moved = 0;
    for (((row, _), key), value) in places.into_iter().zip(keys).zip(values) {
        let Some(value) = value else { continue };
        let Ok(waiting) = execution::decode(&key, &value) else { continue };
        let stamp = &row.key[row.key.len().saturating_sub(Stamp::BYTES)..];
        let is_here = matches!(waiting.execution.state, State::Queued(_)) && waiting.stamp.0 == *stamp;
        if !is_here || execution::incarnation(&key, &value)? == incarnation {
            continue;
        }
        let index = tx.next_stamp_index();
        let part = &row.key[..row.key.len() - Stamp::BYTES];
        tx.clear(row.key.clone());
        tx.set_stamped_key([part, &Stamp::unset(index).0].concat(), part.len(), row.value.clone());
        execution::restamp(tx, key, &value, incarnation, index);
        moved += 1;
    }
    Ok(moved)
}
