//! The writes of a transaction before its commit: collapsed to one write per key, and readable by the transaction itself.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use bytes::Bytes;

use super::span::{KeySpan, after};
use crate::{StoreError, Versionstamp};

/// The last word of a transaction on one key, or what is left to be done at the commit point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    Set(Bytes),
    Clear,
    /// Over a value that the transaction does not know.
    Add(i64),
    StampedValue {
        value: Vec<u8>,
        stamp_at: usize,
    },
}

/// A row whose key is known only at the commit point.
#[derive(Debug, Clone)]
pub(crate) struct StampedKey {
    pub key: Vec<u8>,
    pub stamp_at: usize,
    pub value: Bytes,
    /// How many of the transaction's cleared spans came before it. Later ones remove it too.
    pub clears_before: usize,
}

/// Everything that a transaction wrote. A commit applies `clears`, then `writes`, then `stamped_keys`.
#[derive(Debug, Default, Clone)]
pub(crate) struct WriteBuffer {
    pub clears: Vec<KeySpan>,
    pub writes: BTreeMap<Bytes, Write>,
    pub stamped_keys: Vec<StampedKey>,
    /// What others that read it must conflict with, though it stays as it is.
    pub disturbed: Vec<KeySpan>,
    /// The first write that no backend can carry out. It ends the transaction at its commit.
    pub refusal: Option<StoreError>,
}

/// What a transaction's own writes say of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Local {
    /// Nothing: the snapshot decides.
    Untouched,
    Known(Option<Bytes>),
    /// To be added to what the snapshot says.
    AddOver(i64),
}

/// The writes of a [`Transaction`](super::Transaction) whose `state` holds a [`WriteBuffer`].
macro_rules! buffered_writes {
    () => {
        fn set(&self, key: Bytes, value: Bytes) {
            self.state.lock().buffer.set(key, value);
        }

        fn clear(&self, key: Bytes) {
            self.state.lock().buffer.clear(key);
        }

        fn clear_range(&self, begin: Bytes, end: Bytes) {
            self.state.lock().buffer.clear_span(KeySpan { begin, end });
        }

        fn add(&self, key: Bytes, delta: i64) {
            self.state.lock().buffer.add(key, delta);
        }

        fn set_stamped_key(&self, key: Vec<u8>, stamp_at: usize, value: Bytes) {
            self.state.lock().buffer.set_stamped_key(key, stamp_at, value);
        }

        fn set_stamped_value(&self, key: Bytes, value: Vec<u8>, stamp_at: usize) {
            self.state.lock().buffer.set_stamped_value(key, value, stamp_at);
        }

        fn add_write_conflict(&self, begin: Bytes, end: Bytes) {
            let span = KeySpan { begin, end };
            if !span.is_empty() {
                self.state.lock().buffer.disturbed.push(span);
            }
        }
    };
}
pub(crate) use buffered_writes;

impl WriteBuffer {
    pub fn is_empty(&self) -> bool {
        self.clears.is_empty() && self.writes.is_empty() && self.stamped_keys.is_empty() && self.disturbed.is_empty()
    }

    pub fn set(&mut self, key: Bytes, value: Bytes) {
        assert_legal(&key);
        self.writes.insert(key, Write::Set(value));
    }

    pub fn clear(&mut self, key: Bytes) {
        assert_legal(&key);
        self.writes.insert(key, Write::Clear);
    }

    pub fn clear_span(&mut self, span: KeySpan) {
        if span.is_empty() {
            return;
        }
        let inside: Vec<Bytes> = self.writes_in(&span).map(|(key, _)| key.clone()).collect();
        for key in &inside {
            self.writes.remove(key);
        }
        self.clears.push(span);
    }

    pub fn add(&mut self, key: Bytes, delta: i64) {
        assert_legal(&key);
        let cleared = self.is_cleared(&key);
        match self.writes.entry(key) {
            Entry::Vacant(entry) if cleared => {
                entry.insert(Write::Set(sum(None, delta)));
            }
            Entry::Vacant(entry) => {
                entry.insert(Write::Add(delta));
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Write::Set(value) => *value = sum(Some(value), delta),
                Write::Add(earlier) => *earlier = earlier.wrapping_add(delta),
                write @ Write::Clear => *write = Write::Set(sum(None, delta)),
                Write::StampedValue { .. } => {
                    let refusal = StoreError::stamped_unread(entry.key());
                    self.refusal.get_or_insert(refusal);
                }
            },
        }
    }

    pub fn set_stamped_key(&mut self, key: Vec<u8>, stamp_at: usize, value: Bytes) {
        assert_legal(&key);
        assert_stamp_fits(key.len(), stamp_at);
        self.stamped_keys.push(StampedKey { key, stamp_at, value, clears_before: self.clears.len() });
    }

    pub fn set_stamped_value(&mut self, key: Bytes, value: Vec<u8>, stamp_at: usize) {
        assert_legal(&key);
        assert_stamp_fits(value.len(), stamp_at);
        self.writes.insert(key, Write::StampedValue { value, stamp_at });
    }

    /// Whether the transaction wrote this key, as far as it can know.
    pub fn touches(&self, key: &[u8]) -> bool {
        self.writes.contains_key(key) || self.is_cleared(key)
    }

    fn is_cleared(&self, key: &[u8]) -> bool {
        self.clears.iter().any(|span| span.contains(key))
    }

    /// What the transaction's own writes say of a key, for a transaction that reads at `read_version`.
    pub fn local(&self, key: &[u8], read_version: u64) -> Result<Local, StoreError> {
        match self.writes.get(key) {
            Some(Write::Set(value)) => return Ok(Local::Known(Some(value.clone()))),
            Some(Write::Clear) => return Ok(Local::Known(None)),
            Some(Write::Add(delta)) => return Ok(Local::AddOver(*delta)),
            Some(Write::StampedValue { .. }) => return Err(StoreError::stamped_unread(key)),
            None => {}
        }
        if self.stamped_keys.iter().any(|stamped| stamped.possible(read_version).contains(key)) {
            return Err(StoreError::stamped_unread(key));
        }
        Ok(if self.is_cleared(key) { Local::Known(None) } else { Local::Untouched })
    }

    fn writes_in(&self, span: &KeySpan) -> impl DoubleEndedIterator<Item = (&Bytes, &Write)> {
        self.writes.range::<[u8], _>((Bound::Included(&span.begin[..]), Bound::Excluded(&span.end[..])))
    }

    /// What a scan over `span` must know of the transaction's own writes.
    pub fn overlay(&self, span: &KeySpan, read_version: u64) -> Overlay {
        if span.is_empty() {
            return Overlay::default();
        }
        let mut overlay = Overlay {
            clears: self.clears.iter().filter(|clear| clear.overlaps(span)).cloned().collect(),
            ..Overlay::default()
        };
        for (key, write) in self.writes_in(span) {
            let local = match write {
                Write::Set(value) => Local::Known(Some(value.clone())),
                Write::Clear => Local::Known(None),
                Write::Add(delta) => Local::AddOver(*delta),
                Write::StampedValue { .. } => {
                    overlay.unreadable.push(KeySpan { begin: key.clone(), end: after(key) });
                    continue;
                }
            };
            overlay.keys.push((key.clone(), local));
        }
        let possible = self.stamped_keys.iter().map(|stamped| stamped.possible(read_version));
        overlay.unreadable.extend(possible.filter(|stamped| stamped.overlaps(span)));
        overlay
    }
}

impl StampedKey {
    /// The keys that this one can become: its stamp is later than any that the transaction can read.
    fn possible(&self, read_version: u64) -> KeySpan {
        let stamp_end = self.stamp_at + Versionstamp::BYTES;
        let mut begin = self.key[..self.stamp_at].to_vec();
        begin.extend_from_slice(&Versionstamp::new(read_version.saturating_add(1), 0).0);
        let mut end = self.key.clone();
        end[self.stamp_at..stamp_end].fill(0xff);
        KeySpan { begin: begin.into(), end: after(&end) }
    }

    /// The key and value of this row in the commit with this stamp; `None` if the transaction cleared it again.
    pub fn resolve(mut self, stamp: Versionstamp, clears: &[KeySpan]) -> Option<(Bytes, Bytes)> {
        self.key[self.stamp_at..self.stamp_at + Versionstamp::BYTES].copy_from_slice(&stamp.0);
        let cleared = clears.iter().skip(self.clears_before).any(|span| span.contains(&self.key));
        (!cleared).then(|| (self.key.into(), self.value))
    }
}

/// As on FoundationDB, keys from 0xff on are the store's own. Table prefixes are constants, so such a key is a bug of the caller.
fn assert_legal(key: &[u8]) {
    assert!(!key.is_empty() && key[0] != 0xff, "the key {} is not one that a user may write", key.escape_ascii());
}

/// The place of a stamp is fixed by the row's layout, so a wrong one is a bug of the caller.
fn assert_stamp_fits(bytes: usize, stamp_at: usize) {
    let fits = stamp_at.checked_add(Versionstamp::BYTES).is_some_and(|end| end <= bytes);
    assert!(fits, "a versionstamp at byte {stamp_at} does not fit into {bytes} bytes");
}

/// A stamped value in the commit with this stamp.
pub(crate) fn resolve_value(mut value: Vec<u8>, stamp_at: usize, stamp: Versionstamp) -> Bytes {
    value[stamp_at..stamp_at + Versionstamp::BYTES].copy_from_slice(&stamp.0);
    value.into()
}

/// A little-endian counter plus `delta`. As on FoundationDB a missing value is 0, a short one is continued with zeros, a long one is cut.
pub(crate) fn sum(base: Option<&[u8]>, delta: i64) -> Bytes {
    let mut bytes = [0; size_of::<i64>()];
    if let Some(base) = base {
        let known = base.len().min(bytes.len());
        bytes[..known].copy_from_slice(&base[..known]);
    }
    Bytes::copy_from_slice(&i64::from_le_bytes(bytes).wrapping_add(delta).to_le_bytes())
}

/// A transaction's own writes inside a span, for one scan.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub clears: Vec<KeySpan>,
    /// In key order.
    pub keys: Vec<(Bytes, Local)>,
    pub unreadable: Vec<KeySpan>,
}
