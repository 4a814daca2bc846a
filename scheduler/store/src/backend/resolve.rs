//! The commit point: what a transaction left open is decided, now that its version and everything before it are known.

use bytes::Bytes;

use super::buffer::{Write, WriteBuffer, resolve_value, sum};
use super::span::KeySpan;
use crate::{StoreError, Versionstamp};

/// A commit without anything open.
pub(crate) struct Resolved {
    /// Cleared before `changes` are made.
    pub clears: Vec<KeySpan>,
    /// Each changed key with its new value, sorted by key, without doubles.
    pub changes: Vec<(Bytes, Option<Bytes>)>,
    /// Keys that are not changed, but whose readers conflict with this commit.
    disturbed: Vec<KeySpan>,
}

/// Decides stamps and additions. `base` tells what a key holds before this commit.
pub(crate) fn resolve(
    buffer: WriteBuffer,
    stamp: Versionstamp,
    mut base: impl FnMut(&Bytes) -> Result<Option<Bytes>, StoreError>,
) -> Result<Resolved, StoreError> {
    let WriteBuffer { clears, writes, stamped_keys, disturbed, .. } = buffer;
    let mut changes = Vec::with_capacity(writes.len() + stamped_keys.len());
    for (key, write) in writes {
        let value = match write {
            Write::Set(value) => Some(value),
            Write::Clear => None,
            Write::Add(delta) => Some(sum(base(&key)?.as_deref(), delta)),
            Write::StampedValue { value, stamp_at } => Some(resolve_value(value, stamp_at, stamp)),
        };
        changes.push((key, value));
    }
    if !stamped_keys.is_empty() {
        let rows = stamped_keys.into_iter().filter_map(|stamped| stamped.resolve(stamp, &clears));
        changes.extend(rows.map(|(key, value)| (key, Some(value))));
        // The sort is stable, so of two writes of one key the later one is last, and the one to keep.
        changes.sort_by(|(left, _), (right, _)| left.cmp(right));
        changes.dedup_by(|later, kept| {
            let double = later.0 == kept.0;
            if double {
                std::mem::swap(later, kept);
            }
            double
        });
    }
    Ok(Resolved { clears, changes, disturbed })
}

impl Resolved {
    /// What readers of this commit's keys conflict with: its keys, sorted and without doubles, and its spans.
    pub fn conflicts(&self) -> (Vec<Bytes>, Vec<KeySpan>) {
        let mut keys: Vec<Bytes> = self.changes.iter().map(|(key, _)| key.clone()).collect();
        let mut spans = self.clears.clone();
        for span in &self.disturbed {
            if span.is_point() {
                keys.push(span.begin.clone());
            } else {
                spans.push(span.clone());
            }
        }
        if !self.disturbed.is_empty() {
            keys.sort();
            keys.dedup();
        }
        (keys, spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Bytes {
        Bytes::copy_from_slice(name.as_bytes())
    }

    #[test]
    fn of_two_rows_with_one_key_the_later_is_kept() {
        let stamp = Versionstamp::new(7, 0);
        let template = [b"q".to_vec(), vec![0xff; Versionstamp::BYTES]].concat();
        let mut buffer = WriteBuffer::default();
        buffer.set_stamped_key(template.clone(), 1, key("first"));
        buffer.set_stamped_key(template, 1, key("second"));
        buffer.set(key("a"), key("value"));
        let resolved = resolve(buffer, stamp, |_| Ok(None)).expect("nothing can fail");
        let values: Vec<_> = resolved.changes.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Some(key("value")), Some(key("second"))]);
    }

    #[test]
    fn a_span_cleared_after_a_stamped_row_takes_it_along() {
        let template = [b"q".to_vec(), vec![0xff; Versionstamp::BYTES]].concat();
        let mut buffer = WriteBuffer::default();
        buffer.set_stamped_key(template.clone(), 1, key("gone"));
        buffer.clear_span(KeySpan { begin: key("q"), end: key("r") });
        buffer.set_stamped_key(template, 1, key("stays"));
        let resolved = resolve(buffer, Versionstamp::new(7, 0), |_| Ok(None)).expect("nothing can fail");
        assert_eq!(resolved.changes.len(), 1);
        assert_eq!(resolved.changes[0].1, Some(key("stays")));
    }

    #[test]
    fn disturbed_keys_conflict_but_do_not_change() {
        let mut buffer = WriteBuffer::default();
        buffer.set(key("b"), key("1"));
        buffer.disturbed.push(KeySpan { begin: key("a"), end: key("a\0") });
        buffer.disturbed.push(KeySpan { begin: key("x"), end: key("z") });
        let resolved = resolve(buffer, Versionstamp::new(7, 0), |_| Ok(None)).expect("nothing can fail");
        assert_eq!(resolved.changes.len(), 1);
        let (keys, spans) = resolved.conflicts();
        assert_eq!(keys, [key("a"), key("b")]);
        assert_eq!(spans, [KeySpan { begin: key("x"), end: key("z") }]);
    }
}
