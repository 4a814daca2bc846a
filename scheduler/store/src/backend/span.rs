//! Half-open spans of keys.

use bytes::Bytes;

/// The keys `begin <= key < end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeySpan {
    pub begin: Bytes,
    pub end: Bytes,
}

impl KeySpan {
    pub fn contains(&self, key: &[u8]) -> bool {
        self.begin <= *key && *key < *self.end
    }

    pub fn overlaps(&self, other: &KeySpan) -> bool {
        self.begin < other.end && other.begin < self.end
    }

    pub fn is_empty(&self) -> bool {
        self.begin >= self.end
    }

    /// Whether the span holds nothing but its first key.
    pub fn is_point(&self) -> bool {
        self.end.len() == self.begin.len() + 1 && self.end.last() == Some(&0) && self.end.starts_with(&self.begin)
    }
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin: &'static [u8], end: &'static [u8]) -> KeySpan {
        KeySpan { begin: Bytes::from_static(begin), end: Bytes::from_static(end) }
    }

    #[test]
    fn only_a_key_and_its_successor_make_a_point() {
        assert!(span(b"a", b"a\0").is_point());
        assert!(!span(b"a", b"a\x01").is_point());
        assert!(!span(b"a", b"b\0").is_point());
        assert!(!span(b"a", b"b").is_point());
    }

    #[test]
    fn spans_that_touch_do_not_overlap() {
        assert!(!span(b"a", b"b").overlaps(&span(b"b", b"c")));
        assert!(span(b"a", b"b\0").overlaps(&span(b"b", b"c")));
    }
}
