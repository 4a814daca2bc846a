//! Opening the store that a [`StoreLocation`] names.

use std::path::PathBuf;

use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::{Store, StoreError, keys};

use crate::config::StoreLocation;

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened as it was named; the text says what to change or what to install.
    #[error("{0}")]
    Refused(String),
    /// The cluster does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The store in the directory failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// Opens a store: within seconds, whether it succeeds or not. One on FoundationDB needs the cargo feature `foundationdb`.
pub async fn open(location: &StoreLocation) -> Result<Store, OpenError> {
    match location {
        StoreLocation::Embedded(directory) => open_embedded(directory.clone()).await,
        StoreLocation::FoundationDb { cluster_file, prefix } => {
            open_foundationdb(cluster_file.clone(), prefix.clone()).await
        }
    }
}

/// Opening replays the journal, which can take a second: not on a thread that serves.
async fn open_embedded(directory: PathBuf) -> Result<Store, OpenError> {
    let options = EmbeddedOptions { fifo_prefix: keys::fifo_prefix, ..EmbeddedOptions::default() };
    let opened = tokio::task::spawn_blocking(move || EmbeddedBackend::open(&directory, options)).await;
    let broken = |error| StoreError::Unavailable(format!("opening the store broke: {error}"));
    Ok(Store::new(opened.map_err(broken)??))
}

#[cfg(feature = "foundationdb")]
async fn open_foundationdb(cluster_file: PathBuf, prefix: Option<String>) -> Result<Store, OpenError> {
    use compline_store::backend::foundationdb::{FoundationDbBackend, FoundationDbOpenError, FoundationDbOptions};

    let mut options = FoundationDbOptions::new(cluster_file);
    if let Some(prefix) = prefix {
        options.prefix = prefix.into();
    }
    match FoundationDbBackend::open(options).await {
        Ok(backend) => Ok(Store::new(backend)),
        Err(FoundationDbOpenError::Refused(why)) => Err(OpenError::Refused(why)),
        Err(FoundationDbOpenError::Unreachable(why)) => Err(OpenError::Unreachable(why)),
    }
}

#[cfg(not(feature = "foundationdb"))]
async fn open_foundationdb(_: PathBuf, _: Option<String>) -> Result<Store, OpenError> {
    let why = "this program was built without FoundationDB: build it with the cargo feature `foundationdb`";
    Err(OpenError::Refused(why.to_owned()))
}
