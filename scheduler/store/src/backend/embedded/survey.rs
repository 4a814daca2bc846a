//! Looks at the journal before the database opens it, and tells a tail that was never acknowledged from damage.
//!
//! The committer writes one batch and fsyncs it before it writes the next. So after a crash at most the last batch of the newest journal can be
//! torn, and only if it was never acknowledged. Everything else that can't be read was on the disk once, and is refused, with all files as they
//! are: anything in a journal that is not the newest; anything before a whole batch; anything below the highest version that was acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::durable::{self, Mark};
use super::journal::{self, Next};
use crate::StoreError;

/// A batch's number is greater than the one before it, and by little: the log-structured tree takes some for itself.
const SEQNO_STEP_MAX: u64 = 1 << 32;
/// Of a torn tail so much is kept.
const KEPT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where a journal can't be read any further.
pub(super) struct Break {
    path: PathBuf,
    offset: u64,
    what: &'static str,
}

/// Checks all journals of a database that is not open. A torn tail is kept beside it, in `torn-tail`, and cut off.
///
/// Without a mark nothing is known of what was acknowledged: its owner removed it to go on without what is lost.
pub(super) fn survey(directory: &Path, mark: Mark) -> Result<(), StoreError> {
    let failed = |error: io::Error| {
        StoreError::Unavailable(format!("the journal in {}/db can't be read: {error}", directory.display()))
    };
    let journals = journals(&directory.join("db")).map_err(failed)?;
    let mut seen = Seen::default();
    let mut broken = None;
    for (index, path) in journals.iter().enumerate() {
        let Some(found) = seen.read(path).map_err(failed)? else { continue };
        if index + 1 < journals.len() {
            return Err(damaged(&found, "a newer one was begun after it was whole"));
        }
        if mark != Mark::Missing && seen.has_batch_behind(&found).map_err(failed)? {
            return Err(damaged(&found, "commits behind it are whole, so it was whole too"));
        }
        broken = Some(found);
    }
    if let (Mark::At(durable), Some(version)) = (mark, seen.version)
        && version < durable
    {
        return Err(lost(directory, broken.as_ref(), version, durable));
    }
    broken.map_or(Ok(()), |broken| cut(directory, &broken).map_err(failed))
}

/// The journals, oldest first. None: a new store.
fn journals(database: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(database) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut journals = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
        // Under another name it is no journal of the database, which says so itself.
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        if let Some(number) = number.filter(|_| is_journal) {
            journals.push((number, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

/// The last batch that was read.
#[derive(Default)]
struct Seen {
    seqno: Option<u64>,
    version: Option<u64>,
}

impl Seen {
    /// Reads a journal to its end, or to where that is not possible.
    fn read(&mut self, path: &Path) -> io::Result<Option<Break>> {
        let mut reader = BufReader::with_capacity(256 * 1024, File::open(path)?);
        let mut offset = 0;
        let what = loop {
            match journal::next(&mut reader)? {
                Next::Batch(batch) if self.follows(batch.seqno) => {
                    self.seqno = Some(batch.seqno);
                    self.version = batch.version.or(self.version);
                    offset += batch.bytes;
                }
                Next::Batch(_) => break "a batch's number does not follow the one before it",
                Next::Nothing if only_zeros(&mut reader)? => return Ok(None),
                Next::Nothing => break "there is more behind its end",
                Next::Broken(what) => break what,
            }
        };
        Ok(Some(Break { path: path.to_owned(), offset, what }))
    }

    fn follows(&self, seqno: u64) -> bool {
        self.seqno.is_none_or(|last| seqno > last && seqno - last < SEQNO_STEP_MAX)
    }

    /// Whether a whole batch of the committer lies anywhere behind the place where a journal breaks, whatever its number.
    fn has_batch_behind(&self, broken: &Break) -> io::Result<bool> {
        let tail = tail(broken)?;
        for (at, _) in tail.iter().enumerate().filter(|(_, byte)| **byte == journal::START) {
            if let Next::Batch(batch) = journal::next(&mut &tail[at..])?
                && batch.version > self.version
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn only_zeros(reader: &mut impl Read) -> io::Result<bool> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut bytes)? {
            0 => return Ok(true),
            read if bytes[..read].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// What lies behind a break, without the zeros at its end.
fn tail(broken: &Break) -> io::Result<Vec<u8>> {
    let mut file = File::open(&broken.path)?;
    file.seek(SeekFrom::Start(broken.offset))?;
    let mut tail = Vec::new();
    file.take(KEPT_BYTES_MAX).read_to_end(&mut tail)?;
    tail.truncate(tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    Ok(tail)
}

/// Cuts off what was never acknowledged, and keeps it beside the database until the next time.
fn cut(directory: &Path, broken: &Break) -> io::Result<()> {
    let tail = tail(broken)?;
    let kept = directory.join("torn-tail");
    let mut file = File::create(&kept)?;
    io::Write::write_all(&mut file, &tail)?;
    file.sync_all()?;
    let (path, offset, what) = (broken.path.display(), broken.offset, broken.what);
    tracing::warn!(
        "{path} ends with {} bytes of a commit that was never acknowledged ({what} at byte {offset}): it is undone, and its bytes are in {}",
        tail.len(),
        kept.display()
    );
    let journal = OpenOptions::new().write(true).open(&broken.path)?;
    journal.set_len(offset)?;
    journal.sync_all()
}

fn damaged(broken: &Break, why: &str) -> StoreError {
    let (path, offset, what) = (broken.path.display(), broken.offset, broken.what);
    StoreError::Unavailable(format!(
        "the journal {path} is damaged at byte {offset}: {what}, and {why}. Nothing was changed: restore the directory from a backup, and \
         check the disk"
    ))
}

/// Refuses a store that ends before what was acknowledged.
pub(super) fn lost(directory: &Path, broken: Option<&Break>, version: u64, durable: u64) -> StoreError {
    let place = broken.map_or(String::new(), |broken| {
        format!(
            " (its journal {} can't be read from byte {} on: {})",
            broken.path.display(),
            broken.offset,
            broken.what
        )
    });
    StoreError::Unavailable(format!(
        "the store in {directory} has lost commits: it ends at version {version}, but commits up to {durable} were acknowledged{place}. Restore \
         the directory from a backup and check the disk; or, to go on without the lost commits, remove {mark} and start \
         again",
        directory = directory.display(),
        mark = durable::path(directory).display()
    ))
}
