//! Why an export or an import did not happen.

use std::path::PathBuf;

use compline_core::Timestamp;

use crate::StoreError;
use crate::keys::Table;

/// Why an export or an import did not happen, told apart by what the caller should do.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The file can't be read or written.
    #[error("{} can't be {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The participle of what was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// An export would overwrite a file.
    #[error("{} exists already: name another file, or remove it first", path.display())]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not an export of Compline: it does not begin with `COMPLINE EXPORT`", path.display())]
    NotAnExport {
        /// The file.
        path: PathBuf,
    },
    /// The file was written in a format that this build can't read.
    #[error(
        "{} has format {found}, and this build reads {known}: use the build that wrote it, or a newer one", path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// What this build reads.
        known: u32,
    },
    /// The file is cut short, or not as it was written.
    #[error("{} is damaged at byte {offset}: {what}. Nothing was imported from it; copy it again, or export again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part begins that is wrong.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The keys of the file's store are laid out in another way.
    #[error("the export has key layout {found}, and this build knows {known}: use the build that wrote it")]
    Layout {
        /// The file's layout.
        found: u32,
        /// What this build knows.
        known: u32,
    },
    /// There is nothing to export.
    #[error("the store was never started: it has nothing to export. Is it the right one?")]
    NeverStarted,
    /// Rows that this build does not know.
    #[error(
        "there are rows in table {prefix:#04x}, which this build does not know: use the build that wrote them, or a newer one"
    )]
    UnknownTable {
        /// The table's prefix.
        prefix: u8,
    },
    /// A node uses the store.
    #[error("node {node} uses the store: stop all nodes (SIGTERM, then wait for them to end) and try again")]
    NodeAlive {
        /// One of those that do.
        node: String,
    },
    /// A node began while rows were being read.
    #[error(
        "a node was started while the store was read, so what was read may be of two minds: stop all nodes and export again"
    )]
    NodeStarted,
    /// The target holds something.
    #[error(
        "the target is not empty: it has rows in table `{table}`. Import into a new directory, or into an empty cluster"
    )]
    TargetNotEmpty {
        /// The first table that has rows.
        table: Table,
    },
    /// The target holds a part of another file.
    #[error(
        "the target holds a part of another export (of {begun}, {records} rows of it): finish that import, or begin with a new directory or an empty cluster"
    )]
    OtherImport {
        /// When that export was made.
        begun: Timestamp,
        /// How far its import came.
        records: u64,
    },
    /// An import into the source was never finished.
    #[error("an import into this store was interrupted, so it holds only a part: finish that import first")]
    SourceUnfinished,
    /// What was imported is not what the file says.
    #[error(
        "after the import table `{table}` has {found} rows with digest {found_digest}, and the file says {expected} with {expected_digest}: \
         don't use the target. Begin with a new directory or an empty cluster, and check the disk"
    )]
    Mismatch {
        /// The first table that differs.
        table: Table,
        /// The rows found.
        found: u64,
        /// Their digest.
        found_digest: String,
        /// The rows that the file has.
        expected: u64,
        /// Their digest.
        expected_digest: String,
    },
}
