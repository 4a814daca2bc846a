//! What the API asks for, each in its own transactions.

pub mod create;
pub mod dead;
pub mod ledger;
pub mod query;
pub mod schema;
pub mod tasks;
