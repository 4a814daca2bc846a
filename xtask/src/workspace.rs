//! Where things are.

use std::path::{Path, PathBuf};

/// The root of the repository, absolute.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

/// The root workspace's build directory. It is always this one, so that the stable paths in it hold.
pub fn target() -> PathBuf {
    root().join("target")
}

/// The workspace of the example tasks.
pub fn examples() -> PathBuf {
    root().join("tasks-examples")
}
