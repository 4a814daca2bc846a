//! Stores on FoundationDB, as the command line sees them.
//!
//! A program that is linked with FoundationDB's client library does not start where the library is missing: the loader ends it before it can
//! say anything. So `compline` is not linked with it. For a store on FoundationDB it looks whether `compline-fdb` beside it can start, and
//! becomes that program (docs/adr/0007).

#[cfg(feature = "foundationdb")]
mod linked;
#[cfg(not(feature = "foundationdb"))]
mod unlinked;

#[cfg(feature = "foundationdb")]
pub use linked::{become_linked, support};
#[cfg(not(feature = "foundationdb"))]
pub use unlinked::{become_linked, support};

use super::CliError;
use crate::refusal::Refusal;
use crate::stores::OpenError;

/// Why a store was not opened, with the exit code that says whose turn it is.
pub fn not_opened(error: OpenError) -> CliError {
    match error {
        OpenError::Refused(why) => Refusal::new("store", why).into(),
        OpenError::Unreachable(why) => CliError::unreachable(why),
        OpenError::Store(_) => CliError::failed(format!("{:#}", anyhow::Error::from(error))),
    }
}
