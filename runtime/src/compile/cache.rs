//! Compiled code on disk: one file per engine version and digest.
//!
//! A file is `MAGIC`, the component's digest, the SHA-256 of the code, the code. It is written under another name and renamed, so that a
//! reader sees all of it or nothing. A file that is not whole is as good as none, so nothing is synced.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::CompilerError;
use crate::digest::Digest;
use crate::engine::engine_version;

const MAGIC: &[u8; 16] = b"compline-code-1\n";
const TEMPORARY: &str = "tmp";

pub(super) struct Cache {
    dir: PathBuf,
    writes: AtomicU64,
}

impl Cache {
    pub(super) fn open(root: PathBuf) -> Result<Self, CompilerError> {
        let dir = root.join(engine_version());
        let set_up = || {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            remove_left_over(&dir)
        };
        match set_up() {
            Ok(()) => Ok(Self { dir, writes: AtomicU64::new(0) }),
            Err(source) => Err(CompilerError::Cache { path: dir, source }),
        }
    }

    /// The code, if it is there and whole.
    pub(super) fn get(&self, digest: Digest) -> Option<Vec<u8>> {
        let path = self.path(digest);
        let mut file = match std::fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a cached component can't be read; compiling it again");
                return None;
            }
        };
        if file.get(..HEADER_BYTES).is_some_and(|found| found == header(digest, &file[HEADER_BYTES..])) {
            return Some(file.split_off(HEADER_BYTES));
        }
        tracing::warn!(path = %path.display(), "a cached component is damaged; compiling it again");
        None
    }

    /// Keeps the code. Failing costs only a compilation later, so it is logged and no more.
    pub(super) fn put(&self, digest: Digest, code: &[u8]) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let temporary = self.dir.join(format!("{}.{}.{number}.{TEMPORARY}", digest.hex(), std::process::id()));
        let written = write(&temporary, &header(digest, code), code)
            .and_then(|()| std::fs::rename(&temporary, self.path(digest)));
        if let Err(error) = written {
            tracing::warn!(dir = %self.dir.display(), %error, "a compiled component could not be cached");
            let _ = std::fs::remove_file(&temporary);
        }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(format!("{}.code", digest.hex()))
    }
}

const HEADER_BYTES: usize = MAGIC.len() + 32 + 32;

fn header(digest: Digest, code: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..16].copy_from_slice(MAGIC);
    header[16..48].copy_from_slice(digest.as_bytes());
    header[48..].copy_from_slice(Digest::of(code).as_bytes());
    header
}

fn write(path: &Path, header: &[u8], code: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(header)?;
    file.write_all(code)
}

/// Removes what a killed process has left. (If it is not dead after all, its rename fails and it goes without the cache.)
fn remove_left_over(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == TEMPORARY) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
