//! The ordered transactional store.
//!
//! Three layers, each knowing only the one below it:
//!
//! - [`backend`]: a small trait modelled on what FoundationDB gives (ordered keys, strictly serializable transactions,
//!   versionstamps, explicit conflict keys, watches) and its implementations. One conformance suite admits a backend.
//! - above it: [`Store::transact`], the one retry loop, and [`Tx`], the one place where limits are enforced and costs are counted.
//! - [`keys`] and [`tables`]: every key prefix and every row of Compline. Nothing outside this crate sees bytes.
//! - beside them [`transfer`]: a whole store into a file, and from there into another store.

pub mod backend;
pub mod check;
mod error;
pub mod keys;
mod stamp;
mod store;
pub mod tables;
pub mod transfer;

pub use error::StoreError;
pub use stamp::{Stamp, Versionstamp};
pub use store::{Committed, CostSnapshot, Store, TransactOptions, Tx, limits};
