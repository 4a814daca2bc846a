//! `compline version`.

use compline_core::schedule::zone::tzdb_version;
use serde::Serialize;

use super::CliError;
use super::args::OutputFormat;
use super::fdb;
use super::out::Out;

#[derive(Serialize)]
struct Versions {
    compline: &'static str,
    wasmtime: &'static str,
    store: String,
    tzdb: &'static str,
}

/// Prints the versions of this program and of what it stands on.
pub fn version(out: &Out) -> Result<(), CliError> {
    let versions = Versions {
        compline: env!("CARGO_PKG_VERSION"),
        wasmtime: compline_runtime::engine_version(),
        store: format!("embedded, {}, key layout {}", fdb::support(), compline_store::tables::meta::LAYOUT),
        tzdb: tzdb_version(),
    };
    if out.format() != OutputFormat::Table {
        return out.json(&versions);
    }
    out.fields(&[
        ("compline", versions.compline.to_owned()),
        ("wasmtime", versions.wasmtime.to_owned()),
        ("store", versions.store),
        ("tzdb", versions.tzdb.to_owned()),
    ])
}
