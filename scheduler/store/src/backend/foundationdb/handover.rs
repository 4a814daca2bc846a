//! What a transaction did, handed over to FoundationDB when it commits.

use ::foundationdb::options::{ConflictRangeType, MutationType};
use ::foundationdb::{FdbResult, Transaction};

use super::error::Sizes;
use crate::backend::buffer::{Write, WriteBuffer};
use crate::backend::occ::ReadSet;
use crate::backend::span::{KeySpan, after};

/// Makes the commit depend on what was read, and others on what was disturbed.
pub(super) fn conflicts(handle: &Transaction, prefix: &[u8], reads: &ReadSet, disturbed: &[KeySpan]) -> FdbResult<()> {
    let add = |begin: &[u8], end: &[u8], kind| {
        handle.add_conflict_range(&[prefix, begin].concat(), &[prefix, end].concat(), kind)
    };
    reads.points.iter().try_for_each(|key| add(key, &after(key), ConflictRangeType::Read))?;
    reads.spans.iter().try_for_each(|span| add(&span.begin, &span.end, ConflictRangeType::Read))?;
    disturbed.iter().try_for_each(|span| add(&span.begin, &span.end, ConflictRangeType::Write))
}

/// Makes the writes in the order in which they must be applied: a cleared span removes the stamped rows from before it, never later ones.
pub(super) fn writes(handle: &Transaction, prefix: &[u8], buffer: &WriteBuffer) -> Sizes {
    let mut sizes = Sizes::default();
    let mut stamped = buffer.stamped_keys.iter().peekable();
    for done in 0..=buffer.clears.len() {
        while let Some(row) = stamped.next_if(|row| row.clears_before <= done) {
            let key = with_offset([prefix, &row.key].concat(), prefix.len() + row.stamp_at);
            sizes.add(key.len(), row.value.len());
            handle.atomic_op(&key, &row.value, MutationType::SetVersionstampedKey);
        }
        if let Some(span) = buffer.clears.get(done) {
            let (begin, end) = ([prefix, &span.begin].concat(), [prefix, &span.end].concat());
            sizes.add(begin.len() + end.len(), 0);
            handle.clear_range(&begin, &end);
        }
    }
    for (key, write) in &buffer.writes {
        sizes.add(prefix.len() + key.len(), self::write(handle, &[prefix, key].concat(), write));
    }
    sizes
}

/// Makes one write and returns the length of its value.
fn write(handle: &Transaction, key: &[u8], write: &Write) -> usize {
    match write {
        Write::Set(value) => {
            handle.set(key, value);
            value.len()
        }
        Write::Clear => {
            handle.clear(key);
            0
        }
        Write::Add(delta) => {
            handle.atomic_op(key, &delta.to_le_bytes(), MutationType::Add);
            size_of::<i64>()
        }
        Write::StampedValue { value, stamp_at } => {
            handle.atomic_op(key, &with_offset(value.clone(), *stamp_at), MutationType::SetVersionstampedValue);
            value.len()
        }
    }
}

/// The bytes with the place of their versionstamp behind them, as FoundationDB wants it: four bytes, little-endian.
fn with_offset(mut bytes: Vec<u8>, stamp_at: usize) -> Vec<u8> {
    bytes.extend_from_slice(&u32::try_from(stamp_at).unwrap_or(u32::MAX).to_le_bytes());
    bytes
}
