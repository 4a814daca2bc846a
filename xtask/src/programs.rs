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

/// Where a program lies once it is built.
pub fn path(name: &str) -> PathBuf {
    workspace::target().join("debug").join(name)
}
