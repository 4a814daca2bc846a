//! Moving a store: everything that it holds into one file, and from the file into another store, on whatever backend.
//!
//! No node may run meanwhile: [`Quiet`] is the proof, judged by the nodes' counters. What a table's rows need on their way is said once, in
//! [`Table::travels`](crate::keys::Table::travels), for every table. Both directions read the store through one scan, which gives
//! rows in a form that does not depend on the store that they lie in: places in queues are ranks instead of stamps, and nothing runs. So the
//! rows of the source, of the file and of the target can be counted and digested alike, and an import is verified by reading the target.
//!
//! - **Bounded**: rows are read and written in batches, each a transaction far below the store's limits.
//! - **Resumable**: an export writes beside its target and renames; every batch of an import commits its position with its rows. A store with
//!   an unfinished import can't be started.
//! - **Fenced**: the import raises the store's incarnation above that of both stores, so whatever the old store granted is stale in the new.
//!
//! Files are read and written with blocking calls: the one program that does this does nothing else meanwhile.

mod error;
mod export;
mod file;
mod import;
mod quiet;
mod restore;
mod scan;
mod tally;
mod travels;

use bytes::Bytes;
use compline_core::Timestamp;
use serde::{Deserialize, Serialize};

pub use error::TransferError;
pub use export::{ExportOptions, export};
pub use import::{Imported, import};
pub use quiet::{Quiet, Seen};
pub use restore::{Restored, raise_incarnation};
pub use tally::{TableTally, Tally};
pub use travels::Travels;

use crate::tables::meta::Meta;

/// A row in the form that travels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    key: Bytes,
    value: Bytes,
}

/// What an export says of itself and of the store that it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// When it was begun.
    pub begun: Timestamp,
    /// The version of the program that wrote it.
    pub build: String,
    /// The backend of its store.
    pub backend: String,
    /// What held for the whole store.
    pub meta: Meta,
}

/// How far a transfer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it does now.
    pub phase: Phase,
    /// Rows done in this phase.
    pub records: u64,
    /// Rows that the phase has in all, if that is known.
    pub total: Option<u64>,
}

/// What a transfer does, in the order in which it does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// An export reads the store and writes the file.
    Export,
    /// An import reads the file from end to end before it writes anything.
    Check,
    /// It writes the rows.
    Import,
    /// It reads the target again.
    Verify,
}

/// Told about progress now and then.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// What was found amiss in a store, and went along or was left behind as it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Findings {
    /// Executions that ran: handed back to their lanes.
    pub handed_back: u64,
    /// Executions that wait without a place in a lane. They went along as they are.
    pub unplaced: u64,
    /// Places in lanes where no execution waits, or that can't be read. They stay behind.
    pub stale_places: u64,
    /// Execution rows that can't be read. They went along as they are.
    pub unreadable: u64,
    /// Executions that ran and whose job can't be read, so that their lane is not known. They went along as they are.
    pub stuck: u64,
}
