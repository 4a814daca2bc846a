//! Idempotency keys: a request that comes again does nothing again. The key is written in the transaction that does what the request asks for.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::TenantId;
use compline_store::tables::request::{self, Made, RequestRow};
use compline_store::{StoreError, Tx};

/// For how long an idempotency key is remembered.
pub const IDEMPOTENCY_TTL: Duration = Duration::from_secs(24 * 3_600);

/// By what a repeated request is recognised.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// The SHA-256 of route and body.
    pub body_hash: [u8; 32],
}

/// What came before under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// The same request; it did this.
    Same(Made),
    /// Another request.
    Other,
}

/// What came before under a request's key, if it has one and anything did.
pub async fn earlier(
    tx: &Tx,
    tenant: &TenantId,
    idempotency: Option<&Idempotency>,
    now: Timestamp,
) -> Result<Option<Earlier>, StoreError> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let known = request::get(tx, tenant, &idempotency.key).await?;
    let fresh = known.filter(|known| now.saturating_since(known.at) < IDEMPOTENCY_TTL);
    Ok(fresh.map(|known| match known.body_hash == idempotency.body_hash {
        true => Earlier::Same(known.made),
        false => Earlier::Other,
    }))
}

/// Remembers what a request did, if it has a key.
pub fn remember(
    tx: &Tx,
    tenant: &TenantId,
    idempotency: Option<&Idempotency>,
    made: Made,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(idempotency) = idempotency else { return Ok(()) };
    request::put(tx, tenant, &idempotency.key, &RequestRow { body_hash: idempotency.body_hash, made, at: now })
}
