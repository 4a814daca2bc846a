//! FoundationDB's errors, told apart by what the caller should do.

use ::foundationdb::FdbError;

use crate::StoreError;

const TRANSACTION_TOO_OLD: i32 = 1007;
const NOT_COMMITTED: i32 = 1020;
const TRANSACTION_CANCELLED: i32 = 1025;
const TRANSACTION_TIMED_OUT: i32 = 1031;
const OPERATION_CANCELLED: i32 = 1101;
const TRANSACTION_TOO_LARGE: i32 = 2101;
const KEY_TOO_LARGE: i32 = 2102;
const VALUE_TOO_LARGE: i32 = 2103;

/// FoundationDB's own limits, which a [`crate::Tx`] stays far below.
const TRANSACTION_BYTES_MAX: usize = 10_000_000;
const KEY_BYTES_MAX: usize = 10_000;
const VALUE_BYTES_MAX: usize = 100_000;

/// The sizes of what a transaction wrote, for the message that one of them is too large.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sizes {
    pub transaction: usize,
    pub longest_key: usize,
    pub longest_value: usize,
}

impl Sizes {
    pub fn add(&mut self, key: usize, value: usize) {
        self.transaction += key + value;
        self.longest_key = self.longest_key.max(key);
        self.longest_value = self.longest_value.max(value);
    }
}

/// An error before the commit was sent: nothing was committed.
pub(super) fn before_commit(error: FdbError) -> StoreError {
    match error.code() {
        NOT_COMMITTED => StoreError::Conflict,
        TRANSACTION_TOO_OLD => StoreError::TooOld,
        TRANSACTION_CANCELLED | TRANSACTION_TIMED_OUT | OPERATION_CANCELLED => StoreError::Transient(told(error)),
        _ if error.is_retryable() => StoreError::Transient(told(error)),
        _ => StoreError::Unavailable(told(error)),
    }
}

/// An error of the commit.
pub(super) fn of_commit(error: FdbError, sizes: Sizes) -> StoreError {
    let too_large = |what, bytes, limit| StoreError::TooLarge { what, bytes, limit };
    match error.code() {
        // A commit that was given up can still be carried out later.
        TRANSACTION_CANCELLED | TRANSACTION_TIMED_OUT | OPERATION_CANCELLED => StoreError::CommitUnknown(told(error)),
        _ if error.is_maybe_committed() => StoreError::CommitUnknown(told(error)),
        TRANSACTION_TOO_LARGE => too_large("transaction", sizes.transaction, TRANSACTION_BYTES_MAX),
        KEY_TOO_LARGE => too_large("key", sizes.longest_key, KEY_BYTES_MAX),
        VALUE_TOO_LARGE => too_large("value", sizes.longest_value, VALUE_BYTES_MAX),
        _ => before_commit(error),
    }
}

fn told(error: FdbError) -> String {
    format!("FoundationDB: {error} ({})", error.code())
}
