//! The workspace's own programs: `compline`, and the simulator.

use std::path::PathBuf;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::workspace;

/// Builds all of them. Always with the same selection of packages, the tests' too: another would unify features anew and compile the
/// dependencies again.
pub fn build() -> Result<()> {
    run(cargo().args(["build", "--workspace", "--bins", "--locked"]).current_dir(workspace::root()))
}

/// The selection of [`build`], with FoundationDB: what is compiled with it is compiled once.
const WITH_FOUNDATIONDB: [&str; 4] = ["--workspace", "--locked", "--features", "compline/foundationdb"];

/// Whether programs with FoundationDB can be linked, and clusters be started; `Err` says what is missing.
pub fn foundationdb() -> Result<(), String> {
    compline_fdb_cluster::installed()?;
    compline_fdb_cluster::library()
}

/// Builds `compline-fdb` beside `compline`. That one is built without the feature, and stays so.
pub fn build_foundationdb() -> Result<()> {
    run(cargo().arg("build").args(WITH_FOUNDATIONDB).args(["--bin", "compline-fdb"]).current_dir(workspace::root()))
}

/// Runs the store's conformance suite, and moves a store there and back, on clusters of their own.
pub fn test_foundationdb() -> Result<()> {
    let suite = ["--test", "conformance", "--test", "transfer", "foundationdb"];
    run(cargo().arg("test").args(WITH_FOUNDATIONDB).args(suite).current_dir(workspace::root()))
}

/// Where a program lies once it is built.
pub fn path(name: &str) -> PathBuf {
    workspace::target().join("debug").join(name)
}
