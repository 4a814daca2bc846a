//! The file: a versioned head, then frames, each with a checksum that covers all before it.
//!
//! ```text
//! "COMPLINE EXPORT\n"  format (u32)                          all numbers big-endian
//! frame*               kind (u8)  length (u32)  payload  checksum (16 bytes)
//!
//! kind 1, first: the header        kind 2: rows, each  key length (u32)  value length (u32)  key  value        kind 3, last: the tally
//! ```
//!
//! A frame's checksum is the front half of the SHA-256 of the checksum before it, its kind, its length and its payload. So a frame that is
//! missing, doubled, in another place or of another file is as wrong as a flipped bit, and the last checksum stands for the whole file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::{Header, Record, Tally, TransferError};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tables::meta::FramePlace;

const MAGIC: [u8; 16] = *b"COMPLINE EXPORT\n";
/// Raised with every change of the format.
const FORMAT: u32 = 1;
const CHECKSUM_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 5;
const RECORD_HEAD_BYTES: usize = 8;
/// A frame of rows is closed when it has so much.
const FRAME_BYTES: usize = 256 * 1024;
const FRAME_BYTES_MAX: usize = FRAME_BYTES + RECORD_HEAD_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;

const HEADER: u8 = 1;
const ROWS: u8 = 2;
const TALLY: u8 = 3;

type Checksum = [u8; CHECKSUM_BYTES];

fn chain(before: &Checksum, head: &[u8], payload: &[u8]) -> Checksum {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(head);
    hasher.update(payload);
    let mut checksum = [0; CHECKSUM_BYTES];
    checksum.copy_from_slice(&hasher.finalize()[..CHECKSUM_BYTES]);
    checksum
}

fn first_checksum() -> Checksum {
    chain(&[0; CHECKSUM_BYTES], &MAGIC, &FORMAT.to_be_bytes())
}

/// Writes a file beside its place, and puts it there when it is whole.
pub(super) struct Writer {
    path: PathBuf,
    unfinished: PathBuf,
    file: BufWriter<File>,
    chain: Checksum,
    rows: Vec<u8>,
}

impl Writer {
    /// Begins a file. What an interrupted export left beside its place is overwritten.
    pub fn create(path: &Path, header: &Header) -> Result<Self, TransferError> {
        if path.try_exists().map_err(|source| failed(path, "looked for", source))? {
            return Err(TransferError::FileExists { path: path.to_owned() });
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let unfinished = PathBuf::from(name);
        let opened = OpenOptions::new().create(true).truncate(true).write(true).open(&unfinished);
        let file = BufWriter::new(opened.map_err(|source| failed(&unfinished, "created", source))?);
        let mut writer = Self {
            path: path.to_owned(),
            unfinished,
            file,
            chain: first_checksum(),
            rows: Vec::with_capacity(FRAME_BYTES),
        };
        writer.write_all(&MAGIC)?;
        writer.write_all(&FORMAT.to_be_bytes())?;
        writer.frame(HEADER, &encode(header)?)?;
        Ok(writer)
    }

    pub fn record(&mut self, record: &Record) -> Result<(), TransferError> {
        self.rows.extend_from_slice(&(record.key.len() as u32).to_be_bytes());
        self.rows.extend_from_slice(&(record.value.len() as u32).to_be_bytes());
        self.rows.extend_from_slice(&record.key);
        self.rows.extend_from_slice(&record.value);
        if self.rows.len() >= FRAME_BYTES { self.close_rows() } else { Ok(()) }
    }

    /// Ends the file, forces it to the disk, and gives it its name.
    pub fn finish(mut self, tally: &Tally) -> Result<(), TransferError> {
        self.close_rows()?;
        self.frame(TALLY, &encode(tally)?)?;
        let failed = |source| failed(&self.path, "written", source);
        self.file.flush().map_err(failed)?;
        self.file.get_ref().sync_all().map_err(failed)?;
        std::fs::rename(&self.unfinished, &self.path).map_err(failed)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
    }

    fn close_rows(&mut self) -> Result<(), TransferError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        self.frame(ROWS, &rows)?;
        self.rows = rows;
        self.rows.clear();
        Ok(())
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> Result<(), TransferError> {
        let head = frame_head(kind, payload.len() as u32);
        self.chain = chain(&self.chain, &head, payload);
        let checksum = self.chain;
        [&head[..], payload, &checksum].into_iter().try_for_each(|part| self.write_all(part))
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.file.write_all(bytes).map_err(|source| failed(&self.unfinished, "written", source))
    }
}

fn frame_head(kind: u8, length: u32) -> [u8; FRAME_HEAD_BYTES] {
    let mut head = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&length.to_be_bytes());
    head
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TransferError> {
    let unreadable = |error| crate::StoreError::unreadable("export", b"(being written)", error);
    Ok(postcard::to_allocvec(value).map_err(unreadable)?)
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> TransferError {
    TransferError::File { path: path.to_owned(), what, source }
}

/// A frame after the header.
pub(super) enum Frame {
    Rows(Vec<Record>),
    /// The last one. Its checksum stands for the file.
    Tally {
        tally: Tally,
        seal: Checksum,
    },
}

/// Reads a file from its front, and believes nothing that it has not checked.
pub(super) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    place: FramePlace,
}

impl Reader {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<(Self, Header), TransferError> {
        let file = File::open(path).map_err(|source| failed(path, "opened", source))?;
        let place = FramePlace { offset: 0, chain: first_checksum() };
        let mut reader = Self { path: path.to_owned(), file: BufReader::new(file), place };
        let mut magic = [0; MAGIC.len()];
        match reader.file.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(failed(path, "read", error)),
            _ => return Err(TransferError::NotAnExport { path: path.to_owned() }),
        }
        let format = u32::from_be_bytes(reader.exactly("the format's number")?);
        if format != FORMAT {
            return Err(TransferError::Format { path: path.to_owned(), found: format, known: FORMAT });
        }
        reader.place.offset = (MAGIC.len() + size_of::<u32>()) as u64;
        let (kind, payload) = reader.frame()?;
        let header = if kind == HEADER { reader.decode(&payload)? } else { return Err(reader.damaged("no header")) };
        Ok((reader, header))
    }

    /// Where the next frame begins.
    pub fn place(&self) -> FramePlace {
        self.place
    }

    /// Goes to a frame whose place was noted before.
    pub fn go_to(&mut self, place: FramePlace) -> Result<(), TransferError> {
        if self.place != place {
            self.file.seek(SeekFrom::Start(place.offset)).map_err(|source| failed(&self.path, "read", source))?;
            self.place = place;
        }
        Ok(())
    }

    /// The next frame. After the tally nothing may follow.
    pub fn next(&mut self) -> Result<Frame, TransferError> {
        let began = self.place;
        let (kind, payload) = self.frame()?;
        let ended = std::mem::replace(&mut self.place, began);
        let frame = match kind {
            ROWS => Frame::Rows(self.records(&payload.into())?),
            TALLY => Frame::Tally { tally: self.decode(&payload)?, seal: ended.chain },
            other => return Err(self.damaged(format!("a part of an unknown kind ({other})"))),
        };
        self.place = ended;
        if matches!(frame, Frame::Tally { .. }) {
            let mut more = [0];
            let read = self.file.read(&mut more).map_err(|source| failed(&self.path, "read", source))?;
            if read > 0 {
                return Err(self.damaged("there is more behind its end"));
            }
        }
        Ok(frame)
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>), TransferError> {
        let head: [u8; FRAME_HEAD_BYTES] = self.exactly("the next part: the file was cut short")?;
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(self.damaged(format!("a part of {length} bytes, and no part is longer than {FRAME_BYTES_MAX}")));
        }
        let mut payload = vec![0; length];
        self.fill(&mut payload, "the rest of a part: the file was cut short")?;
        let checksum: Checksum = self.exactly("a part's checksum: the file was cut short")?;
        let expected = chain(&self.place.chain, &head, &payload);
        if checksum != expected {
            return Err(self.damaged("the checksum of this part is wrong"));
        }
        self.place = FramePlace {
            offset: self.place.offset + (FRAME_HEAD_BYTES + length + CHECKSUM_BYTES) as u64,
            chain: checksum,
        };
        Ok((kind, payload))
    }

    fn records(&self, payload: &Bytes) -> Result<Vec<Record>, TransferError> {
        let mut records = Vec::new();
        let mut rest = payload.clone();
        while !rest.is_empty() {
            let record = take_record(&mut rest).ok_or_else(|| self.damaged("a row that ends behind its part"))?;
            records.push(record);
        }
        Ok(records)
    }

    fn decode<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, TransferError> {
        postcard::from_bytes(payload).map_err(|error| self.damaged(format!("a part that can't be read ({error})")))
    }

    fn exactly<const N: usize>(&mut self, what: &str) -> Result<[u8; N], TransferError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), TransferError> {
        self.file.read_exact(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(format!("it ends before {what}")),
            _ => failed(&self.path, "read", source),
        })
    }

    pub fn damaged(&self, what: impl Into<String>) -> TransferError {
        TransferError::Damaged { path: self.path.clone(), offset: self.place.offset, what: what.into() }
    }
}

fn take_record(rest: &mut Bytes) -> Option<Record> {
    if rest.len() < RECORD_HEAD_BYTES {
        return None;
    }
    let head = rest.split_to(RECORD_HEAD_BYTES);
    let length = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?) as usize);
    let (key, value) = (length(0)?, length(4)?);
    if rest.len() < key.checked_add(value)? || key == 0 {
        return None;
    }
    Some(Record { key: rest.split_to(key), value: rest.split_to(value) })
}
