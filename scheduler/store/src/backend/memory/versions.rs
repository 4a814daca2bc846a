//! A map that remembers what each key held at the versions that can still be read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;

use crate::backend::span::KeySpan;
use crate::backend::transaction::Visit;

/// Keys, each with its values by version, oldest first.
#[derive(Default)]
pub(super) struct Versions {
    map: BTreeMap<Bytes, Vec<(u64, Option<Bytes>)>>,
    /// Keys written, by version: where something can be forgotten once that version is the oldest that is read.
    written: VecDeque<(u64, Bytes)>,
}

impl Versions {
    /// What a key held at a version.
    pub fn get(&self, version: u64, key: &[u8]) -> Option<&Bytes> {
        self.map.get(key).and_then(|values| at(values, version))
    }

    /// Offers the pairs of a span at a version, in order, until the visitor breaks.
    pub fn scan(&self, version: u64, span: &KeySpan, reverse: bool, visit: &mut Visit<'_>) {
        if span.is_empty() {
            return;
        }
        let bounds = (Bound::Included(&span.begin[..]), Bound::Excluded(&span.end[..]));
        let mut inside = self.map.range::<[u8], _>(bounds);
        while let Some((key, values)) = if reverse { inside.next_back() } else { inside.next() } {
            let Some(value) = at(values, version) else { continue };
            if visit(key.clone(), value.clone()) == ControlFlow::Break(()) {
                return;
            }
        }
    }

    /// Sets or removes a key at a version later than all before.
    pub fn write(&mut self, version: u64, key: Bytes, value: Option<Bytes>) {
        self.map.entry(key.clone()).or_default().push((version, value));
        self.written.push_back((version, key));
    }

    /// Forgets what no reader at `oldest` or later can see.
    pub fn prune(&mut self, oldest: u64) {
        while let Some((_, key)) = self.written.pop_front_if(|(version, _)| *version <= oldest) {
            let Some(values) = self.map.get_mut(&key) else { continue };
            let visible = values.partition_point(|(version, _)| *version <= oldest).saturating_sub(1);
            values.drain(..visible);
            if matches!(values[..], [(version, None)] if version <= oldest) {
                self.map.remove(&key);
            }
        }
    }
}

fn at(values: &[(u64, Option<Bytes>)], version: u64) -> Option<&Bytes> {
    let later = values.partition_point(|(written, _)| *written <= version);
    values[..later].last().and_then(|(_, value)| value.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(versions: &Versions, version: u64) -> Vec<(Bytes, Bytes)> {
        let mut pairs = Vec::new();
        let span = KeySpan { begin: Bytes::new(), end: Bytes::from_static(b"~") };
        versions.scan(version, &span, false, &mut |key, value| {
            pairs.push((key, value));
            ControlFlow::Continue(())
        });
        pairs
    }

    #[test]
    fn readers_see_their_version_and_what_nobody_reads_is_forgotten() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let mut versions = Versions::default();
        versions.write(1, text("a"), Some(text("1")));
        versions.write(2, text("b"), Some(text("2")));
        versions.write(3, text("a"), None);
        assert_eq!(pairs(&versions, 1), [(text("a"), text("1"))]);
        assert_eq!(pairs(&versions, 2).len(), 2);
        assert_eq!(pairs(&versions, 3), [(text("b"), text("2"))]);
        versions.prune(2);
        assert_eq!(pairs(&versions, 2).len(), 2);
        versions.prune(3);
        assert_eq!(pairs(&versions, 3), [(text("b"), text("2"))]);
        assert_eq!(versions.map.len(), 1);
        assert!(versions.written.is_empty());
    }
}
