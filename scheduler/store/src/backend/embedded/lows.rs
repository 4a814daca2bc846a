//! Where the live rows of a FIFO begin.
//!
//! A FIFO is written at its end and removed from its front, and in an LSM tree what is removed stays, as tombstones, until a compaction comes by. A
//! scan from the front would step over all of them. So each FIFO prefix has a low-water mark: for a reader at the mark's version or later, no row
//! below it is live, except for *stragglers*, the few keys that were written below it since. A scan looks those up one by one and goes on at the mark.
//!
//! Scans find marks out and propose them. The committer notes what is written below, before it can be seen. A mark says nothing to older readers, so
//! earlier marks are kept for as long as a transaction may live.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backend::transaction::TRANSACTION_SPAN;

/// How many prefixes are remembered. Past it all are forgotten, and found out anew by the next scans.
const PREFIXES_MAX: usize = 16_384;
/// How many commits' writes are remembered per prefix, for scans that are under way.
const RECENT_MAX: usize = 64;
/// Past this many the mark moves down to the lowest of them.
const STRAGGLERS_MAX: usize = 256;
/// So many of the newest marks are kept, since most readers are recent. Of the older ones, those that are so far apart.
const NEWEST_MARKS: usize = 8;
const MARKS_APART: Duration = Duration::from_millis(500);
/// After this nobody can be reading at a version any more.
const READERS_SPAN: Duration = TRANSACTION_SPAN.saturating_add(Duration::from_secs(1));

#[derive(Default)]
struct Low {
    /// By version, oldest first.
    marks: VecDeque<Mark>,
    /// Keys written below the highest mark; those removed again with the moment of it.
    stragglers: BTreeMap<Bytes, Option<Instant>>,
    /// The lowest key that each of the last commits wrote under the prefix, oldest commit first.
    recent: VecDeque<(u64, Bytes)>,
    /// What commits up to this version wrote is not in `recent`.
    horizon: u64,
}

struct Mark {
    key: Bytes,
    /// The mark holds for readers at this version or later.
    since: u64,
    proposed: Instant,
    /// Nothing was found up to the end of the prefix, so the next row written is the first.
    is_end: bool,
}

/// Where a scan from the front of a FIFO begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Front {
    pub mark: Bytes,
    /// Keys below the mark that may be live, in order.
    pub stragglers: Vec<Bytes>,
}

/// What a scan found: no live row of its prefix lies below `key`, stragglers aside.
pub(super) struct Proposal<'a> {
    pub version: u64,
    pub key: &'a [u8],
    /// It looked to the end of the prefix and found nothing.
    pub is_end: bool,
}

/// A changed key of a FIFO.
pub(super) struct Written<'a> {
    pub prefix: &'a [u8],
    pub key: &'a Bytes,
    pub is_removed: bool,
}

/// The low-water marks of all FIFO prefixes.
pub(super) struct Lows {
    inner: Mutex<Inner>,
}

struct Inner {
    lows: HashMap<Bytes, Low>,
    /// The last version whose writes were noted.
    noted: u64,
}

impl Lows {
    pub fn new(version: u64) -> Self {
        Self { inner: Mutex::new(Inner { lows: HashMap::new(), noted: version }) }
    }

    /// Where a reader at `version` finds the front of a prefix, if that is known. From now on commits under the prefix are noted.
    pub fn front(&self, prefix: &[u8], version: u64) -> Option<Front> {
        let inner = &mut *self.inner.lock();
        if let Some(low) = inner.lows.get(prefix) {
            let mark = low.marks.iter().rev().find(|mark| mark.since <= version)?.key.clone();
            let stragglers = low.stragglers.range(..mark.clone()).map(|(key, _)| key.clone()).collect();
            return Some(Front { mark, stragglers });
        }
        if inner.lows.len() >= PREFIXES_MAX {
            inner.lows.clear();
        }
        let low = Low { horizon: inner.noted, ..Low::default() };
        inner.lows.insert(Bytes::copy_from_slice(prefix), low);
        None
    }

    /// Takes what a scan found out.
    pub fn propose(&self, prefix: &[u8], proposal: &Proposal<'_>, now: Instant) {
        if let Some(low) = self.inner.lock().lows.get_mut(prefix) {
            low.propose(proposal, now);
        }
    }

    /// Notes what a group of commits changed. Called before any of it can be seen.
    pub fn note<'a>(&self, version: u64, changes: impl Iterator<Item = Written<'a>>, now: Instant) {
        let inner = &mut *self.inner.lock();
        inner.noted = version;
        for change in changes {
            let Some(low) = inner.lows.get_mut(change.prefix) else { continue };
            if change.is_removed {
                if let Some(removed) = low.stragglers.get_mut(change.key) {
                    *removed = Some(now);
                }
            } else {
                low.note_row(version, change.key, now);
            }
        }
    }

    /// The newest mark of a prefix.
    pub fn newest(&self, prefix: &[u8]) -> Option<Bytes> {
        self.inner.lock().lows.get(prefix).and_then(|low| low.marks.back()).map(|mark| mark.key.clone())
    }
}

impl Low {
    fn propose(&mut self, proposal: &Proposal<'_>, now: Instant) {
        // Commits after the reader's version may have written below what it found; so old a reader can't know.
        if proposal.version < self.horizon {
            return;
        }
        let later = self.recent.iter().rev().take_while(|(written, _)| *written > proposal.version);
        let lowest = later.map(|(_, key)| &key[..]).min().filter(|lowest| *lowest < proposal.key);
        let key = lowest.unwrap_or(proposal.key);
        if self.marks.back().is_some_and(|newest| newest.since > proposal.version || newest.key == key) {
            return;
        }
        self.marks.push_back(Mark {
            key: Bytes::copy_from_slice(key),
            since: proposal.version,
            proposed: now,
            is_end: proposal.is_end && lowest.is_none(),
        });
        while self.marks.get(1).is_some_and(|second| now.duration_since(second.proposed) > READERS_SPAN) {
            self.marks.pop_front();
        }
        if let Some(aging) = self.marks.len().checked_sub(NEWEST_MARKS + 1)
            && aging > 0
            && self.marks[aging].proposed.duration_since(self.marks[aging - 1].proposed) < MARKS_APART
        {
            self.marks.remove(aging);
        }
        self.stragglers.retain(|_, removed| removed.is_none_or(|removed| now.duration_since(removed) <= READERS_SPAN));
    }

    fn note_row(&mut self, version: u64, key: &Bytes, now: Instant) {
        match self.recent.back_mut() {
            Some((noted, lowest)) if *noted == version => {
                if *key < *lowest {
                    *lowest = key.clone();
                }
            }
            _ => self.recent.push_back((version, key.clone())),
        }
        if self.recent.len() > RECENT_MAX
            && let Some((forgotten, _)) = self.recent.pop_front()
        {
            self.horizon = forgotten;
        }
        for mark in self.marks.iter_mut().filter(|mark| mark.is_end && *key < mark.key) {
            mark.key = key.clone();
            mark.is_end = false;
        }
        if self.marks.iter().any(|mark| *key < mark.key) {
            self.stragglers.insert(key.clone(), None);
            self.bound_stragglers(now);
        }
    }

    fn bound_stragglers(&mut self, now: Instant) {
        if self.stragglers.len() <= STRAGGLERS_MAX {
            return;
        }
        self.stragglers.retain(|_, removed| removed.is_none_or(|removed| now.duration_since(removed) <= READERS_SPAN));
        if self.stragglers.len() <= STRAGGLERS_MAX {
            return;
        }
        if let Some((lowest, _)) = self.stragglers.pop_first() {
            for mark in self.marks.iter_mut().filter(|mark| lowest < mark.key) {
                mark.key = lowest.clone();
            }
        }
        self.stragglers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &[u8] = b"q";

    struct Fixture {
        lows: Lows,
        now: Instant,
    }

    impl Fixture {
        /// A prefix that is followed from version 10.
        fn new() -> Self {
            let lows = Lows::new(10);
            assert_eq!(lows.front(PREFIX, 10), None);
            Self { lows, now: Instant::now() }
        }

        fn write(&self, version: u64, key: &str) {
            self.change(version, key, false);
        }

        fn change(&self, version: u64, key: &str, is_removed: bool) {
            let key = Bytes::copy_from_slice(key.as_bytes());
            let change = Written { prefix: PREFIX, key: &key, is_removed };
            self.lows.note(version, std::iter::once(change), self.now);
        }

        fn propose(&self, version: u64, key: &str) {
            self.lows.propose(PREFIX, &Proposal { version, key: key.as_bytes(), is_end: false }, self.now);
        }

        fn front(&self, version: u64) -> Option<(String, Vec<String>)> {
            let text = |key: &Bytes| key.escape_ascii().to_string();
            let front = self.lows.front(PREFIX, version)?;
            Some((text(&front.mark), front.stragglers.iter().map(text).collect()))
        }
    }

    fn at(mark: &str, stragglers: &[&str]) -> Option<(String, Vec<String>)> {
        Some((mark.into(), stragglers.iter().map(|key| (*key).into()).collect()))
    }

    #[test]
    fn each_reader_gets_the_newest_mark_that_holds_for_it() {
        let fixture = Fixture::new();
        fixture.propose(10, "q5");
        fixture.propose(20, "q9");
        assert_eq!(fixture.front(9), None);
        assert_eq!(fixture.front(19), at("q5", &[]));
        assert_eq!(fixture.front(20), at("q9", &[]));
        fixture.propose(15, "q7");
        assert_eq!(fixture.front(20), at("q9", &[]), "an older reader does not know better");
    }

    #[test]
    fn rows_written_below_the_mark_are_looked_up_one_by_one() {
        let fixture = Fixture::new();
        fixture.propose(10, "q5");
        fixture.write(11, "q3");
        fixture.write(12, "q7");
        assert_eq!(fixture.front(12), at("q5", &["q3"]));
        fixture.propose(12, "q6");
        assert_eq!(fixture.front(12), at("q6", &["q3"]));
        fixture.change(13, "q3", true);
        fixture.propose(13, "q7");
        assert_eq!(fixture.front(13), at("q7", &["q3"]), "a reader at 12 still sees it");
    }

    #[test]
    fn a_removed_straggler_is_forgotten_once_nobody_can_see_it() {
        let mut fixture = Fixture::new();
        fixture.propose(10, "q5");
        fixture.write(11, "q3");
        fixture.write(11, "q4");
        fixture.change(12, "q3", true);
        fixture.now += READERS_SPAN + Duration::from_millis(1);
        fixture.propose(13, "q6");
        assert_eq!(fixture.front(13), at("q6", &["q4"]));
    }

    #[test]
    fn what_a_running_scan_could_not_see_limits_what_it_proposes() {
        let fixture = Fixture::new();
        fixture.write(11, "q3");
        fixture.propose(10, "q6");
        assert_eq!(fixture.front(11), at("q3", &[]));
        for version in 12..=300 {
            fixture.write(version, "q4");
        }
        fixture.propose(11, "q9");
        assert_eq!(fixture.front(300), at("q3", &[]), "too much was written since");
        fixture.propose(299, "q9");
        assert_eq!(fixture.front(300), at("q4", &[]));
    }

    #[test]
    fn a_reader_from_before_the_prefix_was_followed_proposes_nothing() {
        let fixture = Fixture::new();
        fixture.propose(8, "q5");
        assert_eq!(fixture.front(10), None);
    }

    #[test]
    fn an_empty_fifo_begins_where_it_is_written_next() {
        let fixture = Fixture::new();
        fixture.lows.propose(PREFIX, &Proposal { version: 10, key: b"r", is_end: true }, fixture.now);
        fixture.write(11, "q7");
        fixture.write(11, "q8");
        assert_eq!(fixture.front(11), at("q7", &[]));
    }

    #[test]
    fn many_stragglers_move_the_mark_down() {
        let fixture = Fixture::new();
        fixture.propose(10, "q9");
        for index in 0..=STRAGGLERS_MAX {
            fixture.write(11, &format!("q{index:04}"));
        }
        assert_eq!(fixture.front(11), at("q0000", &[]));
    }

    #[test]
    fn marks_are_few_but_cover_the_readers_that_can_be_there() {
        let mut fixture = Fixture::new();
        for version in 10..1_000 {
            fixture.now += Duration::from_millis(100);
            fixture.propose(version, &format!("q{version:04}"));
        }
        let marks: Vec<u64> = fixture.lows.inner.lock().lows[PREFIX].marks.iter().map(|mark| mark.since).collect();
        assert!(marks.len() <= 25, "{marks:?}");
        assert!(marks[0] <= 999 - 50, "a reader from 5 s ago has a mark: {marks:?}");
        assert!(marks[0] >= 999 - 80, "and it is not from long before: {marks:?}");
        assert_eq!(*marks.last().expect("there are marks"), 999);
    }
}
