//! A program that is linked with FoundationDB's client library.

use crate::cli::CliError;
use crate::config::StoreLocation;

/// There is nothing to become.
pub fn become_linked(_: &StoreLocation) -> Result<(), CliError> {
    Ok(())
}

/// What `compline version` says of it.
pub fn support() -> String {
    "foundationdb (client API 7.3)".to_owned()
}
