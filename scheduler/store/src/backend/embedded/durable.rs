//! The highest version that was ever made durable, kept beside the database.
//!
//! The database's journal is cut silently at an entry that can't be read, which is right for a tail that was never acknowledged and wrong for
//! anything before it. This file tells the two apart: it is written after the journal's fsync, so it never runs ahead of it, and a store that
//! recovers less than it says has lost commits.
//!
//! It has two slots, written in turn, so that a torn write leaves the other one. Each write goes to the operating system at once, so the file is
//! exact after any death of the process. It is forced to the disk once a second under load and at the close, so after a power cut it may be a
//! second behind: what was committed in that second is still in the journal, only its loss would not be noticed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

const MAGIC: [u8; 8] = *b"CMPLDUR1";
/// Slots lie in different blocks of the disk.
const SLOT_DISTANCE: u64 = 4_096;
const SLOT_BYTES: usize = 24;
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// There is no file: a new store, or one whose owner removed it to accept a loss.
    Missing,
    /// Both slots are damaged.
    Damaged,
    At(u64),
}

/// The open file.
pub(super) struct DurableMark {
    file: File,
    next_slot: u64,
    synced: Instant,
    is_dirty: bool,
}

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("durable")
}

pub(super) fn read(directory: &Path) -> io::Result<Mark> {
    let file = match File::open(path(directory)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Mark::Missing),
        Err(error) => return Err(error),
    };
    let mut newest = None;
    for slot in 0..2 {
        let mut bytes = [0; SLOT_BYTES];
        match file.read_exact_at(&mut bytes, slot * SLOT_DISTANCE) {
            Ok(()) => newest = newest.max(decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
    }
    Ok(newest.map_or(Mark::Damaged, Mark::At))
}

impl DurableMark {
    /// Makes the file anew with this version in it. It appears whole or not at all.
    pub fn create(directory: &Path, version: u64) -> io::Result<Self> {
        let unfinished = directory.join("durable.new");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&unfinished)?;
        let mut mark = Self { file, next_slot: 0, synced: Instant::now(), is_dirty: false };
        mark.write(version)?;
        mark.write(version)?;
        mark.file.sync_all()?;
        std::fs::rename(unfinished, path(directory))?;
        File::open(directory)?.sync_all()?;
        Ok(mark)
    }

    /// Notes a version that is durable by now.
    pub fn advance(&mut self, version: u64) -> io::Result<()> {
        self.write(version)?;
        if self.synced.elapsed() >= SYNC_EVERY { self.sync() } else { Ok(()) }
    }

    /// Forces the file to the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync_data()?;
        }
        self.is_dirty = false;
        self.synced = Instant::now();
        Ok(())
    }

    fn write(&mut self, version: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(version), self.next_slot * SLOT_DISTANCE)?;
        self.next_slot = 1 - self.next_slot;
        self.is_dirty = true;
        Ok(())
    }
}

fn encode(version: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&version.to_be_bytes());
    let checksum = Sha256::digest(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum[..8]);
    bytes
}

fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<u64> {
    let version = u64::from_be_bytes(bytes[8..16].try_into().ok()?);
    (encode(version) == *bytes).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_slot_counts() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        assert_eq!(read(directory.path())?, Mark::Missing);
        let mut mark = DurableMark::create(directory.path(), 3)?;
        for version in 4..=9 {
            mark.advance(version)?;
            assert_eq!(read(directory.path())?, Mark::At(version));
        }
        let file = OpenOptions::new().write(true).open(path(directory.path()))?;
        let torn = 1 - mark.next_slot;
        file.write_all_at(&[0], torn * SLOT_DISTANCE + 15)?;
        assert_eq!(read(directory.path())?, Mark::At(8), "the torn slot is passed over");
        file.write_all_at(&[0], (1 - torn) * SLOT_DISTANCE + 20)?;
        assert_eq!(read(directory.path())?, Mark::Damaged);
        Ok(())
    }
}
