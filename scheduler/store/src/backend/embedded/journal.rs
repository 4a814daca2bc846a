//! The journal's own form, read without changing anything: fjall cuts a journal at whatever it can't read, and by then the evidence is gone.
//!
//! ```text
//! batch    1  count (u32)  seqno (u64)   item*   3  xxh3 of all items (u64)  "FJL" 3        numbers are little-endian
//! item     2  type (u8)  compression (u8)  keyspace (u64)  key length (u16)  length (u32)  stored length (u32)  key  value
//!          4  keyspace (u64)
//! ```
//!
//! Behind the last batch the file holds zeros, which it was made with, or ends. The form is that of fjall 3; a test reads real journals.

use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

use super::database::{VERSION_FORMAT, VERSION_KEY};

pub(super) const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";
const ITEM_HEAD_BYTES: usize = 21;
/// Values are far smaller by the limits of the store: a larger one is a damaged length, and no memory is taken for it.
const VALUE_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// A whole batch, by its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub seqno: u64,
    /// The store's version that it leads to, if it is one of the committer's.
    pub version: Option<u64>,
    pub bytes: u64,
}

/// What stands where a batch may begin.
pub(super) enum Next {
    Batch(Batch),
    /// A zero, or the end of the file.
    Nothing,
    /// Something else, and what is wrong with it.
    Broken(&'static str),
}

/// Reads one batch.
pub(super) fn next(reader: &mut impl Read) -> io::Result<Next> {
    match read_batch(reader) {
        Ok(Some(batch)) => Ok(Next::Batch(batch)),
        Ok(None) => Ok(Next::Nothing),
        Err(Stop::Broken(what)) => Ok(Next::Broken(what)),
        Err(Stop::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(Next::Broken("it ends in the middle"))
        }
        Err(Stop::Io(error)) => Err(error),
    }
}

enum Stop {
    Broken(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn read_batch(reader: &mut impl Read) -> Result<Option<Batch>, Stop> {
    let mut first = [0];
    if reader.read(&mut first)? == 0 || first == [0] {
        return Ok(None);
    }
    if first != [START] {
        return Err(Stop::Broken("no batch begins here"));
    }
    let count = u32::from_le_bytes(exactly(reader)?);
    let seqno = u64::from_le_bytes(exactly(reader)?);
    let mut batch = Batch { seqno, version: None, bytes: 1 + 4 + 8 };
    let mut checksum = Xxh3::new();
    let mut item = Vec::new();
    for _ in 0..count {
        read_item(reader, &mut item)?;
        checksum.update(&item);
        batch.bytes += item.len() as u64;
        batch.version = version_in(&item).or(batch.version);
    }
    let [tag] = exactly(reader)?;
    if tag != END {
        return Err(Stop::Broken("a batch has more rows than it counts"));
    }
    let expected = u64::from_le_bytes(exactly(reader)?);
    let trailer: [u8; 4] = exactly(reader)?;
    if trailer != TRAILER || expected != checksum.digest() {
        return Err(Stop::Broken("a batch's checksum is wrong"));
    }
    batch.bytes += 1 + 8 + 4;
    Ok(Some(batch))
}

/// Reads one item as it is.
fn read_item(reader: &mut impl Read, item: &mut Vec<u8>) -> Result<(), Stop> {
    item.clear();
    let [tag] = exactly(reader)?;
    item.push(tag);
    match tag {
        ITEM => {
            let head: [u8; ITEM_HEAD_BYTES - 1] = exactly(reader)?;
            item.extend_from_slice(&head);
            let key = u64::from(u16::from_le_bytes([head[10], head[11]]));
            let value = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
            if value > VALUE_BYTES_MAX {
                return Err(Stop::Broken("a row is longer than any can be"));
            }
            let length = key + u64::from(value);
            if reader.take(length).read_to_end(item)? as u64 != length {
                return Err(Stop::Broken("it ends in the middle"));
            }
        }
        CLEAR => item.extend_from_slice(&exactly::<8>(reader)?),
        _ => return Err(Stop::Broken("a batch has fewer rows than it counts")),
    }
    Ok(())
}

/// The store's version, if the item is the row that says it.
fn version_in(item: &[u8]) -> Option<u64> {
    let value = item.get(ITEM_HEAD_BYTES..)?.strip_prefix(VERSION_KEY)?;
    match value.split_first() {
        Some((&VERSION_FORMAT, version)) => version.try_into().ok().map(u64::from_be_bytes),
        _ => None,
    }
}

fn exactly<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
