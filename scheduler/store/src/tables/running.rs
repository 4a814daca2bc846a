//! What each session holds, so that it can be given back when the session dies.

use bytes::{BufMut, Bytes, BytesMut};
use compline_core::ids::{ClaimId, ExecutionId, Fence, SessionId};

use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::{Stamp, StoreError, Tx};

const NAME: &str = "running";
const SCHEMA: u8 = 1;
const INCARNATION_AT: usize = 1;
const STAMP_AT: usize = 5;
const CLAIM_AT: usize = STAMP_AT + Stamp::BYTES;

/// One execution that a session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningRow {
    /// The execution.
    pub execution: ExecutionId,
    /// The fence that its claim got.
    pub fence: Fence,
    /// The claim that took it.
    pub claim: ClaimId,
}

pub(crate) fn key(session: SessionId, execution: ExecutionId) -> Bytes {
    KeyBuilder::new(Table::Running).session(session).execution(execution).build()
}

/// Notes that a session holds an execution. `index` is the one of its execution row in this commit.
pub fn put(tx: &Tx, session: SessionId, execution: ExecutionId, claim: ClaimId, incarnation: u32, index: u16) {
    let mut value = BytesMut::with_capacity(CLAIM_AT + ClaimId::BYTES);
    value.put_u8(SCHEMA);
    value.put_u32(incarnation);
    value.put_slice(&Stamp::unset(index).0);
    value.put_slice(claim.as_bytes());
    tx.set_stamped_value(key(session, execution), value.into(), STAMP_AT);
}

/// Notes that a session holds it no longer.
pub fn clear(tx: &Tx, session: SessionId, execution: ExecutionId) {
    tx.clear(key(session, execution));
}

/// What a session holds, in the order of execution ids, from behind `after_execution`: of each its execution, which the key names, and what the
/// row says.
pub async fn of_session(
    tx: &Tx,
    session: SessionId,
    after_execution: Option<ExecutionId>,
    limit: usize,
    read: Read,
) -> Result<Vec<(ExecutionId, Result<RunningRow, StoreError>)>, StoreError> {
    let (mut begin, end) = KeyBuilder::new(Table::Running).session(session).prefix();
    if let Some(last) = after_execution {
        begin = after(&key(session, last));
    }
    let pairs = tx.range(&RangeQuery { begin, end, limit, reverse: false, read }).await?;
    pairs.iter().map(|pair| Ok((execution_of(&pair.key)?, decode(&pair.key, &pair.value)))).collect()
}

fn execution_of(key: &[u8]) -> Result<ExecutionId, StoreError> {
    Ok(ExecutionId::from_bytes(super::key_field(NAME, key, 1 + SessionId::BYTES)?))
}

/// The running row with this key and value.
pub fn decode(key: &[u8], value: &[u8]) -> Result<RunningRow, StoreError> {
    super::expect_schema(NAME, SCHEMA, key, value)?;
    let incarnation = u32::from_be_bytes(super::key_field(NAME, value, INCARNATION_AT)?);
    let stamp: [u8; Stamp::BYTES] = super::key_field(NAME, value, STAMP_AT)?;
    Ok(RunningRow {
        execution: execution_of(key)?,
        fence: Fence::new(incarnation, stamp),
        claim: ClaimId::from_bytes(super::key_field(NAME, value, CLAIM_AT)?),
    })
}

/// The session that the row with this key belongs to.
pub fn holder(key: &[u8]) -> Result<SessionId, StoreError> {
    Ok(SessionId::from_bytes(super::key_field(NAME, key, 1)?))
}

/// The sessions that hold anything.
pub async fn sessions(tx: &Tx) -> Result<Vec<SessionId>, StoreError> {
    super::sessions_of(tx, Table::Running).await
}
