//! What the API asks for, each in its own transactions.

pub mod cancel;
pub mod change;
pub mod create;
pub mod dead;
pub mod fleet;
pub mod idempotency;
pub mod ledger;
pub mod plan;
pub mod query;
pub mod schema;
pub mod tasks;
pub mod transfer;
pub mod trigger;
