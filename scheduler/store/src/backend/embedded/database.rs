//! The fjall database: how it is set up, and how it is read.

use std::fs::{File, OpenOptions, TryLockError};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::durable::{self, DurableMark, Mark};
use super::survey::{lost, survey};
use crate::StoreError;
use crate::backend::span::KeySpan;
use crate::backend::transaction::{View, Visit};

/// The last version, in every batch that has one. Users' keys lie below 0xff, so no scan of theirs meets it. It shares their keyspace because
/// a keyspace that is hardly written is hardly flushed, and keeps journals alive that all others are done with.
pub(super) const VERSION_KEY: &[u8] = b"\xff/version";
pub(super) const VERSION_FORMAT: u8 = 1;

const MIB: u64 = 1024 * 1024;
/// With the up to four memtables that wait to be flushed this bounds what a start has to replay.
const MEMTABLE_BYTES: u64 = 32 * MIB;
const JOURNAL_BYTES_MAX: u64 = 128 * MIB;

/// What can be read: everything up to a version, all of it durable.
pub(super) struct DurableView {
    pub version: u64,
    pub snapshot: Snapshot,
}

impl View for std::sync::Arc<DurableView> {
    fn version(&self) -> u64 {
        self.version
    }
}

/// The open database.
pub(super) struct Data {
    database: Database,
    rows: Keyspace,
    /// Released last.
    _lock: File,
}

impl Data {
    /// Opens the database under `directory`, and refuses one that has lost commits.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<(Self, DurableView, DurableMark), StoreError> {
        let unusable = |error: std::io::Error| {
            StoreError::Unavailable(format!("the directory {} can't be used: {error}", directory.display()))
        };
        std::fs::create_dir_all(directory).map_err(unusable)?;
        let lock = lock(directory)?;
        remove_unfinished(directory).map_err(unusable)?;
        let mark = durable::read(directory).map_err(unusable)?;
        refuse_damaged(directory, mark)?;
        survey(directory, mark)?;
        let builder = Database::builder(directory.join("db"))
            .cache_size(cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .worker_threads(2);
        // fjall asserts some of what it reads from a journal, so a flipped bit there is a panic.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| builder.open()));
        let opened = opened.unwrap_or(Err(fjall::Error::Unrecoverable));
        let database = opened.map_err(|error| explain_open(directory, &error))?;
        let options =
            || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES).manual_journal_persist(true);
        let rows = database.keyspace("rows", options).map_err(|error| explain_open(directory, &error))?;
        let data = Self { database, rows, _lock: lock };
        let snapshot = data.database.snapshot();
        let version = data.read_version(&snapshot)?;
        check_durable(directory, mark, version)?;
        let mark = DurableMark::create(directory, version).map_err(unusable)?;
        Ok((data, DurableView { version, snapshot }, mark))
    }

    fn read_version(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        let Some(row) = self.get(snapshot, VERSION_KEY)? else { return Ok(0) };
        match (row.first(), row.get(1..).and_then(|bytes| bytes.try_into().ok())) {
            (Some(&VERSION_FORMAT), Some(version)) => Ok(u64::from_be_bytes(version)),
            _ => Err(StoreError::unreadable("version", VERSION_KEY, "a newer format, or damaged")),
        }
    }

    pub fn get(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let value = snapshot.get(&self.rows, key).map_err(|error| unreadable(&error))?;
        Ok(value.map(Bytes::from))
    }

    /// Offers the pairs of a span in order until the visitor breaks.
    pub fn scan(
        &self,
        snapshot: &Snapshot,
        span: &KeySpan,
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let end = span.end.as_ref().min(&[0xff]);
        if *span.begin >= *end {
            return Ok(());
        }
        let mut inside = snapshot.range(&self.rows, &span.begin[..]..end);
        while let Some(guard) = if reverse { inside.next_back() } else { inside.next() } {
            let (key, value) = guard.into_inner().map_err(|error| unreadable(&error))?;
            if visit(key.into(), value.into()) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    /// Writes changes (each key once), with the version that they lead to, and returns when they are on the disk.
    pub fn write(&self, changes: Vec<(Bytes, Option<Bytes>)>, version: u64) -> Result<DurableView, fjall::Error> {
        let batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), changes.len() + 1);
        let mut batch = batch.durability(Some(PersistMode::SyncAll));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.rows, key, value),
                None => batch.remove(&self.rows, key),
            }
        }
        let row = [&[VERSION_FORMAT][..], &version.to_be_bytes()].concat();
        batch.insert(&self.rows, VERSION_KEY, row);
        batch.commit()?;
        Ok(DurableView { version, snapshot: self.database.snapshot() })
    }

    /// Forces the journal to the disk.
    pub fn sync(&self) -> Result<(), fjall::Error> {
        self.database.persist(PersistMode::SyncAll)
    }
}

/// Takes the directory for this process. The lock goes with the process, however it ends.
fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let locked = file.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file));
    let directory = directory.display();
    locked.map_err(|error| {
        StoreError::Unavailable(match error {
            TryLockError::WouldBlock => format!(
                "the directory {directory} is in use by another process: stop that process, or give this one a directory of its own"
            ),
            TryLockError::Error(error) => format!("the directory {directory} can't be locked: {error}"),
        })
    })
}

/// A first start that was killed half-way leaves a database that never held anything and does not open. The mark of what is durable is made
/// after it, so where there is none and fjall's own marker is missing too, nothing was ever acknowledged.
fn remove_unfinished(directory: &Path) -> std::io::Result<()> {
    let database = directory.join("db");
    let was_begun = database.try_exists()?;
    if was_begun && !database.join("version").try_exists()? && !durable::path(directory).try_exists()? {
        std::fs::remove_dir_all(database)?;
    }
    Ok(())
}

fn explain_open(directory: &Path, error: &fjall::Error) -> StoreError {
    let directory = directory.display();
    StoreError::Unavailable(match error {
        fjall::Error::JournalRecovery(reason) => format!(
            "the journal in {directory}/db is damaged ({reason:?}): restore the directory from a backup, and check the disk"
        ),
        fjall::Error::Io(reason) => format!("the database in {directory}/db can't be opened: {reason}"),
        other => {
            format!("the database in {directory}/db can't be opened ({other:?}): restore the directory from a backup")
        }
    })
}

fn refuse_damaged(directory: &Path, mark: Mark) -> Result<(), StoreError> {
    if mark != Mark::Damaged {
        return Ok(());
    }
    let mark_path = durable::path(directory);
    Err(StoreError::Unavailable(format!(
        "{} is damaged, so lost commits could not be noticed. Check the disk; if the store is otherwise sound, remove the file and start again",
        mark_path.display()
    )))
}

/// What the journal could not tell: that tables are older than what was acknowledged.
fn check_durable(directory: &Path, mark: Mark, recovered: u64) -> Result<(), StoreError> {
    match mark {
        Mark::Missing if recovered > 0 => {
            let mark_path = durable::path(directory);
            tracing::warn!("{} was missing: lost commits, if there are any, can't be noticed", mark_path.display());
            Ok(())
        }
        Mark::At(durable) if durable > recovered => Err(lost(directory, None, recovered, durable)),
        Mark::Missing | Mark::Damaged | Mark::At(_) => Ok(()),
    }
}

fn unreadable(error: &fjall::Error) -> StoreError {
    StoreError::Unavailable(format!("a read failed ({error:?}): check the disk"))
}
