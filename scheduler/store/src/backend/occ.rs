//! Optimistic conflict detection: what the last few seconds of commits wrote, and whether a transaction read any of it.
//!
//! Every commit has a version. A transaction that read at version `r` may commit when no commit after `r` wrote a key that it read
//! serializably. Written keys are kept twice: hashed, for reads of single keys, and sorted per commit, for reads of ranges. Two keys with one
//! hash can only make a transaction run again, never let a conflict pass.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::span::KeySpan;
use crate::StoreError;

/// How far back commits are remembered. Older transactions are refused, as on FoundationDB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowOptions {
    /// How long a commit is remembered.
    pub span: Duration,
    /// How many written keys are remembered at the most, so that memory is bounded under load too.
    pub keys_max: usize,
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self { span: Duration::from_secs(5), keys_max: 1_000_000 }
    }
}

/// What a transaction's commit depends on.
#[derive(Debug, Default, Clone)]
pub(crate) struct ReadSet {
    pub points: Vec<Bytes>,
    pub spans: Vec<KeySpan>,
}

impl ReadSet {
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.spans.is_empty()
    }

    /// Adds a span, as a point if it holds one key.
    pub fn add(&mut self, span: KeySpan) {
        if span.is_point() {
            self.points.push(span.begin);
        } else if !span.is_empty() {
            self.spans.push(span);
        }
    }
}

struct Commit {
    version: u64,
    at: Instant,
    /// Sorted, without doubles.
    keys: Vec<Bytes>,
}

/// The commits of the last few seconds.
pub(crate) struct ConflictWindow {
    options: WindowOptions,
    /// Commits up to this version are forgotten.
    horizon: u64,
    commits: VecDeque<Commit>,
    keys: usize,
    /// Written spans (few), with their versions.
    spans: VecDeque<(u64, KeySpan)>,
    /// The hash of a key, and the last version that wrote it.
    last_writes: HashMap<u64, u64, BuildHasherDefault<AlreadyHashed>>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

impl ConflictWindow {
    /// A window that knows nothing of what was written up to `version`.
    pub fn new(options: WindowOptions, version: u64) -> Self {
        Self {
            options,
            horizon: version,
            commits: VecDeque::new(),
            keys: 0,
            spans: VecDeque::new(),
            last_writes: HashMap::default(),
            hasher: BuildHasherDefault::default(),
        }
    }

    /// The oldest read version that can still be checked.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Whether a transaction that read this at `read_version` may commit now.
    pub fn check(&self, read_version: u64, reads: &ReadSet) -> Result<(), StoreError> {
        if reads.is_empty() {
            return Ok(());
        }
        if read_version < self.horizon {
            return Err(StoreError::TooOld);
        }
        let conflict = reads.points.iter().any(|key| self.is_written_since(key, read_version))
            || reads.spans.iter().any(|span| self.is_span_written_since(span, read_version));
        if conflict { Err(StoreError::Conflict) } else { Ok(()) }
    }

    /// Whether a commit after `version` wrote the key, or may have, when so old a version is forgotten.
    pub fn is_written_since(&self, key: &[u8], version: u64) -> bool {
        version < self.horizon
            || self.last_writes.get(&self.hasher.hash_one(key)).is_some_and(|written| *written > version)
            || self.spans_since(version).any(|span| span.contains(key))
    }

    fn is_span_written_since(&self, read: &KeySpan, version: u64) -> bool {
        let key_in_span = |commit: &Commit| {
            let first = commit.keys.partition_point(|key| *key < read.begin);
            commit.keys.get(first).is_some_and(|key| *key < read.end)
        };
        self.commits.iter().rev().take_while(|commit| commit.version > version).any(key_in_span)
            || self.spans_since(version).any(|span| span.overlaps(read))
    }

    fn spans_since(&self, version: u64) -> impl Iterator<Item = &KeySpan> {
        self.spans.iter().rev().take_while(move |(written, _)| *written > version).map(|(_, span)| span)
    }

    /// Remembers a commit. `keys` are sorted and without doubles; versions grow.
    pub fn record(&mut self, version: u64, at: Instant, keys: Vec<Bytes>, spans: Vec<KeySpan>) {
        debug_assert!(keys.is_sorted());
        self.keys += keys.len();
        for key in &keys {
            self.last_writes.insert(self.hasher.hash_one(&key[..]), version);
        }
        self.commits.push_back(Commit { version, at, keys });
        self.spans.extend(spans.into_iter().map(|span| (version, span)));
    }

    /// Forgets what is too old or too much.
    pub fn prune(&mut self, now: Instant) {
        while let Some(oldest) = self.commits.front() {
            if now.duration_since(oldest.at) <= self.options.span && self.keys <= self.options.keys_max {
                break;
            }
            let Some(forgotten) = self.commits.pop_front() else { break };
            self.keys -= forgotten.keys.len();
            for key in &forgotten.keys {
                let hash = self.hasher.hash_one(&key[..]);
                if self.last_writes.get(&hash) == Some(&forgotten.version) {
                    self.last_writes.remove(&hash);
                }
            }
            self.horizon = forgotten.version;
        }
        while self.spans.front().is_some_and(|(version, _)| *version <= self.horizon) {
            self.spans.pop_front();
        }
    }
}

/// Hands a hash through as it is.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Bytes {
        Bytes::copy_from_slice(name.as_bytes())
    }

    fn span(begin: &str, end: &str) -> KeySpan {
        KeySpan { begin: key(begin), end: key(end) }
    }

    fn points(names: &[&str]) -> ReadSet {
        ReadSet { points: names.iter().map(|name| key(name)).collect(), spans: Vec::new() }
    }

    fn spans(begin: &str, end: &str) -> ReadSet {
        ReadSet { points: Vec::new(), spans: vec![span(begin, end)] }
    }

    fn window() -> (ConflictWindow, Instant) {
        let now = Instant::now();
        let mut window = ConflictWindow::new(WindowOptions { span: Duration::from_secs(5), keys_max: 4 }, 10);
        window.record(11, now, vec![key("b"), key("d")], Vec::new());
        window.record(12, now + Duration::from_secs(1), vec![key("f")], vec![span("m", "p")]);
        (window, now)
    }

    #[test]
    fn a_read_conflicts_with_later_writes_only() {
        let (window, _) = window();
        assert!(matches!(window.check(10, &points(&["a", "b"])), Err(StoreError::Conflict)));
        assert!(window.check(11, &points(&["b"])).is_ok());
        assert!(matches!(window.check(11, &points(&["n"])), Err(StoreError::Conflict)));
        assert!(window.check(11, &points(&["p"])).is_ok());
        assert!(window.check(10, &spans("b\0", "d")).is_ok());
        assert!(matches!(window.check(10, &spans("b\0", "d\0")), Err(StoreError::Conflict)));
        assert!(window.check(11, &spans("a", "f")).is_ok());
        assert!(matches!(window.check(11, &spans("o", "z")), Err(StoreError::Conflict)));
    }

    #[test]
    fn what_is_forgotten_makes_its_readers_too_old() {
        let (mut window, now) = window();
        assert!(matches!(window.check(9, &points(&["z"])), Err(StoreError::TooOld)));
        assert!(window.check(9, &ReadSet::default()).is_ok());
        window.prune(now + Duration::from_millis(5_001));
        assert_eq!(window.horizon(), 11);
        assert!(matches!(window.check(10, &points(&["z"])), Err(StoreError::TooOld)));
        assert!(matches!(window.check(11, &points(&["f"])), Err(StoreError::Conflict)));
        assert_eq!(window.last_writes.len(), 1);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let (mut window, now) = window();
        window.record(13, now, vec![key("b"), key("x")], Vec::new());
        window.prune(now);
        assert_eq!((window.horizon(), window.keys), (11, 3));
        assert!(
            matches!(window.check(12, &points(&["b"])), Err(StoreError::Conflict)),
            "the later write of b stays known"
        );
    }
}
