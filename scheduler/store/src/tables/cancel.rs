//! What sessions are to stop running. The execution's own row says so too and decides; this one is how the session's node finds out.

use bytes::Bytes;
use compline_core::execution::Running;
use compline_core::ids::{ClaimId, ExecutionId, Fence, SessionId};
use serde::{Deserialize, Serialize};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table};
use crate::{StoreError, Tx};

const NAME: &str = "cancel";
const SCHEMA: u8 = 1;

/// An attempt that is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelRow {
    /// The execution.
    pub execution: ExecutionId,
    /// The fence of the attempt: a later attempt is not meant.
    pub fence: Fence,
    /// The claim that took it.
    pub claim: ClaimId,
}

#[derive(Serialize, Deserialize)]
struct Fields {
    fence: Fence,
    claim: ClaimId,
}

fn key(session: SessionId, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Cancel).session(session).execution(execution).build()
}

/// Tells the session that runs an execution to stop it.
pub fn put(tx: &Tx, execution: ExecutionId, running: &Running) -> Result<(), StoreError> {
    let fields = Fields { fence: running.fence, claim: running.claim };
    tx.set(key(running.session, execution), super::encode(NAME, SCHEMA, &fields)?.into());
    Ok(())
}

/// Notes that a session need not be told any more.
pub fn clear(tx: &Tx, session: SessionId, execution: ExecutionId) {
    tx.clear(key(session, execution));
}

/// Clears a row, if it still is what was read.
pub async fn clear_seen(tx: &Tx, session: SessionId, seen: &CancelRow) -> Result<(), StoreError> {
    let key = key(session, seen.execution);
    let Some(value) = tx.get(key.clone(), Read::Serializable).await? else { return Ok(()) };
    if decode(&key, &value)? == *seen {
        tx.clear(key);
    }
    Ok(())
}

/// Clears all rows of a session that is over.
pub fn clear_session(tx: &Tx, session: SessionId) {
    let (begin, end) = KeyBuilder::new(Table::Cancel).session(session).prefix();
    tx.clear_range(begin, end);
}

/// What a session is to stop: the first `limit` rows; one that cannot be read is an error of its own. Not part of conflict detection.
pub async fn of_session(
    tx: &Tx,
    session: SessionId,
    limit: usize,
) -> Result<Vec<Result<CancelRow, StoreError>>, StoreError> {
    let (begin, end) = KeyBuilder::new(Table::Cancel).session(session).prefix();
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read: Read::Snapshot }).await?;
    Ok(pairs.iter().map(|pair| decode(&pair.key, &pair.value)).collect())
}

/// The row with this key and value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<CancelRow, StoreError> {
    let Fields { fence, claim } = super::decode(NAME, SCHEMA, key, value)?;
    let execution = ExecutionId::from_bytes(super::key_field(NAME, key, 1 + SessionId::BYTES)?);
    Ok(CancelRow { execution, fence, claim })
}

/// The sessions that are to stop anything.
pub async fn sessions(tx: &Tx) -> Result<Vec<SessionId>, StoreError> {
    super::sessions_of(tx, Table::Cancel).await
}
