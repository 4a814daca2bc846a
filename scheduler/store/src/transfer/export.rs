//! A store into a file.

use std::path::Path;

use compline_core::Timestamp;

use super::file::Writer;
use super::scan::Scan;
use super::{Findings, Header, OnProgress, Phase, Progress, Quiet, Tally, TransferError};
use crate::Store;
use crate::tables::meta;

/// What an export is told.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The time. What runs is handed back at it.
    pub now: Timestamp,
    /// The version of the program.
    pub build: String,
}

/// Writes all that a store holds into a new file, and returns what it wrote. The store itself is not changed.
///
/// The file appears at its place whole or not at all; what an interrupted export left beside it is overwritten by the next. No node may use the
/// store from before the export to its end: `quiet` says so, and that it stayed so is checked before the file gets its name.
pub async fn export(
    store: &Store,
    path: &Path,
    options: &ExportOptions,
    quiet: Quiet,
    on_progress: OnProgress<'_>,
) -> Result<(Tally, Findings), TransferError> {
    let said = store
        .transact(|tx| async move { Ok((meta::unfinished_import(&tx).await?, meta::get(&tx).await?)) })
        .await?
        .value;
    let meta = match said {
        (Some(_), _) => return Err(TransferError::SourceUnfinished),
        (None, None) => return Err(TransferError::NeverStarted),
        (None, Some(meta)) => meta,
    };
    let mut scan = Scan::new(store, meta.partitions, options.now);
    let backend = store.backend_name().to_owned();
    let header = Header { begun: options.now, build: options.build.clone(), backend, meta };
    let mut file = Writer::create(path, &header)?;
    let mut tally = Tally::default();
    while let Some(records) = scan.next().await? {
        for record in &records {
            tally.add(record);
            file.record(record)?;
        }
        on_progress(Progress { phase: Phase::Export, records: tally.rows(), total: None });
    }
    if !store.transact(|tx| async move { quiet.holds(&tx).await }).await?.value {
        return Err(TransferError::NodeStarted);
    }
    file.finish(&tally)?;
    Ok((tally, scan.findings()))
}
