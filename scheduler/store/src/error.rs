//! What can go wrong with a transaction, told apart by what the caller should do.

use std::fmt;

/// Why a read, a write or a commit did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another transaction wrote what this one read. Nothing was committed; running it again is right.
    #[error("the transaction conflicts with one that committed after it began")]
    Conflict,
    /// The transaction outlived the store's window (5 s). Nothing was committed; running it again is right.
    #[error("the transaction is older than the store keeps read versions for")]
    TooOld,
    /// A passing fault before the commit was tried. Nothing was committed; running it again is right.
    #[error("a passing fault of the store: {0}")]
    Transient(String),
    /// The commit was sent and its answer is missing. It may have happened, may not have, and may even happen later.
    #[error("the commit's result is unknown: {0}")]
    CommitUnknown(String),
    /// A limit of the store was passed. Running it again cannot help.
    #[error("{what} is {bytes} bytes, over the store's limit of {limit} bytes")]
    TooLarge {
        /// What is too large: "key", "value" or "transaction".
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit that it passed.
        limit: usize,
    },
    /// A row that this version of Compline cannot read. It stops itself, not its neighbours.
    #[error("unreadable row in table {table} at key {key}: {reason}")]
    Unreadable {
        /// The table's name.
        table: &'static str,
        /// The key, in printable form.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A read of what this same transaction wrote with a versionstamp, or may have. Its bytes are not known before the commit.
    #[error(
        "key {key} holds this transaction's own versionstamp, which is known only after the commit: read it before writing, or in a later transaction"
    )]
    StampedUnread {
        /// The key, in printable form.
        key: String,
    },
    /// The store refuses to go on (a failed fsync, a damaged file, a lock held by another process).
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
}

impl StoreError {
    /// Whether the same transaction, run again, may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict | Self::TooOld | Self::Transient(_) | Self::CommitUnknown(_) => true,
            Self::TooLarge { .. } | Self::Unreadable { .. } | Self::StampedUnread { .. } | Self::Unavailable(_) => {
                false
            }
        }
    }

    /// Whether the transaction may have been committed in spite of the error.
    pub fn maybe_committed(&self) -> bool {
        matches!(self, Self::CommitUnknown(_))
    }

    /// An unreadable row, with its key made printable.
    pub fn unreadable(table: &'static str, key: &[u8], reason: impl fmt::Display) -> Self {
        Self::Unreadable { table, key: key.escape_ascii().to_string(), reason: reason.to_string() }
    }

    /// A read of the transaction's own versionstamp, with its key made printable.
    pub fn stamped_unread(key: &[u8]) -> Self {
        Self::StampedUnread { key: key.escape_ascii().to_string() }
    }
}
