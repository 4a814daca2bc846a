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
    keys: SortedKeys,
    spans: Vec<KeySpan>,
}

/// A stretch of commits, remembered and forgotten together.
struct Generation {
    began: Instant,
    ended: Instant,
    /// The version of its last commit.
    newest: u64,
    commits: Vec<Commit>,
    keys: usize,
    has_spans: bool,
    /// The hash of a key, and the last version of this generation that wrote it.
    last_writes: HashMap<u64, u64, BuildHasherDefault<AlreadyHashed>>,
}

/// The commits of the last few seconds.
pub(crate) struct ConflictWindow {
    options: WindowOptions,
    /// Commits up to this version are forgotten.
    horizon: u64,
    /// Oldest first. Small ones, so that the one that is written to stays in the processor's cache.
    generations: VecDeque<Generation>,
    keys: usize,
    hasher: BuildHasherDefault<DefaultHasher>,
}

/// Into how many generations the window is cut.
const GENERATIONS: u32 = 8;

impl ConflictWindow {
    /// A window that knows nothing of what was written up to `version`.
    pub fn new(options: WindowOptions, version: u64) -> Self {
        let hasher = BuildHasherDefault::default();
        Self { options, horizon: version, generations: VecDeque::new(), keys: 0, hasher }
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
        if version < self.horizon {
            return true;
        }
        let hash = self.hasher.hash_one(key);
        self.since(version).any(|generation| {
            generation.last_writes.get(&hash).is_some_and(|written| *written > version)
                || generation.has_spans
                    && generation.since(version).any(|commit| commit.spans.iter().any(|span| span.contains(key)))
        })
    }

    fn is_span_written_since(&self, read: &KeySpan, version: u64) -> bool {
        self.since(version)
            .flat_map(|generation| generation.since(version))
            .any(|commit| commit.keys.has_one_in(read) || commit.spans.iter().any(|span| span.overlaps(read)))
    }

    fn since(&self, version: u64) -> impl Iterator<Item = &Generation> {
        self.generations.iter().rev().take_while(move |generation| generation.newest > version)
    }

    /// Remembers a commit. `keys` are sorted and without doubles; versions grow.
    pub fn record(&mut self, version: u64, at: Instant, keys: &[Bytes], spans: Vec<KeySpan>) {
        let is_full = |generation: &Generation| {
            generation.keys >= self.options.keys_max / GENERATIONS as usize
                || at.duration_since(generation.began) > self.options.span / GENERATIONS
        };
        if self.generations.back().is_none_or(is_full) {
            self.generations.push_back(Generation::new(at));
        }
        let Some(generation) = self.generations.back_mut() else { return };
        for key in keys {
            generation.last_writes.insert(self.hasher.hash_one(&key[..]), version);
        }
        generation.ended = at;
        generation.newest = version;
        generation.keys += keys.len();
        generation.has_spans |= !spans.is_empty();
        generation.commits.push(Commit { version, keys: SortedKeys::new(keys), spans });
        self.keys += keys.len();
    }

    /// Forgets what is too old or too much.
    pub fn prune(&mut self, now: Instant) {
        let (span, keys_max) = (self.options.span, self.options.keys_max);
        while let Some(forgotten) =
            self.generations.pop_front_if(|oldest| now.duration_since(oldest.ended) > span || self.keys > keys_max)
        {
            self.keys -= forgotten.keys;
            self.horizon = forgotten.newest;
        }
    }
}

impl Generation {
    fn new(began: Instant) -> Self {
        let last_writes = HashMap::default();
        Self { began, ended: began, newest: 0, commits: Vec::new(), keys: 0, has_spans: false, last_writes }
    }

    fn since(&self, version: u64) -> impl Iterator<Item = &Commit> {
        self.commits.iter().rev().take_while(move |commit| commit.version > version)
    }
}

/// Sorted keys in one piece of memory.
struct SortedKeys {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
}

impl SortedKeys {
    fn new(keys: &[Bytes]) -> Self {
        debug_assert!(keys.is_sorted());
        let mut bytes = Vec::with_capacity(keys.iter().map(Bytes::len).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for key in keys {
            bytes.extend_from_slice(key);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn key(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[index]]
    }

    fn has_one_in(&self, span: &KeySpan) -> bool {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            if *self.key(middle) < *span.begin {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low < self.ends.len() && *self.key(low) < *span.end
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
        window.record(11, now, &[key("b"), key("d")], Vec::new());
        window.record(12, now + Duration::from_secs(1), &[key("f")], vec![span("m", "p")]);
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
        assert_eq!(window.generations.len(), 1);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let (mut window, now) = window();
        window.record(13, now + Duration::from_secs(1), &[key("b"), key("x")], Vec::new());
        window.prune(now + Duration::from_secs(1));
        assert_eq!((window.horizon(), window.keys), (11, 3));
        assert!(
            matches!(window.check(12, &points(&["b"])), Err(StoreError::Conflict)),
            "the later write of b stays known"
        );
    }

    /// One letter, or a span of letters.
    fn random_span(random: &mut fastrand::Rng) -> KeySpan {
        let begin = random.char('a'..='t').to_string();
        if random.bool() {
            return span(&begin, &format!("{begin}\0"));
        }
        let last = random.char('a'..='t').to_string();
        // Never empty: what is between the letters is longer than them.
        if begin < last { span(&begin, &last) } else { span(&last, &format!("{begin}~")) }
    }

    #[test]
    fn random_checks_agree_with_a_list_of_all_commits() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut now = Instant::now();
        let mut window = ConflictWindow::new(WindowOptions { span: Duration::from_secs(5), keys_max: 40 }, 0);
        let mut all: Vec<(u64, Vec<KeySpan>)> = Vec::new();
        let (mut passed, mut conflicts, mut too_old) = (0, 0, 0);
        for version in 1..3_000 {
            now += Duration::from_millis(random.u64(..700));
            window.prune(now);
            let mut reads = ReadSet::default();
            let read: Vec<_> = (0..random.usize(1..3)).map(|_| random_span(&mut random)).collect();
            read.iter().cloned().for_each(|span| reads.add(span));
            let furthest = if random.bool() { 3 } else { 30 };
            let read_version = version - 1 - random.u64(..version.min(furthest));
            let later = all.iter().rev().take_while(|(written, _)| *written > read_version);
            let clashes = later.flat_map(|(_, spans)| spans).any(|span| read.iter().any(|read| read.overlaps(span)));
            match window.check(read_version, &reads) {
                Ok(()) => {
                    assert!(!clashes, "{read:?} at {read_version}");
                    passed += 1;
                }
                Err(StoreError::Conflict) => {
                    assert!(clashes, "{read:?} at {read_version}");
                    conflicts += 1;
                }
                Err(_) => {
                    assert!(read_version < window.horizon());
                    too_old += 1;
                }
            }
            let written: Vec<_> = (0..random.usize(1..5)).map(|_| random_span(&mut random)).collect();
            let (points, spans): (Vec<_>, Vec<_>) = written.iter().cloned().partition(KeySpan::is_point);
            let mut keys: Vec<_> = points.into_iter().map(|span| span.begin).collect();
            keys.sort();
            keys.dedup();
            window.record(version, now, &keys, spans);
            all.push((version, written));
        }
        assert!(passed > 100 && conflicts > 100 && too_old > 100, "{passed}, {conflicts}, {too_old}");
    }
}
