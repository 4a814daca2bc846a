//! Several transactions that are made durable by one fsync.

use std::ops::ControlFlow;

use bytes::Bytes;
use tokio::time::Instant;

use super::database::{Data, DurableView};
use crate::backend::occ::ConflictWindow;
use crate::backend::resolve::{Resolved, resolve};
use crate::backend::span::KeySpan;
use crate::backend::transaction::CommitRequest;
use crate::{StoreError, Versionstamp};

/// How many bytes of keys one transaction may remove by cleared spans: they are looked up at the commit point and held in memory, about 100
/// bytes for each beside the key.
const CLEARED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Transactions that are checked and resolved, in order of their versions, but not yet written.
pub(super) struct Group<'a> {
    data: &'a Data,
    base: &'a DurableView,
    /// One list of changes per transaction, each sorted by key.
    changes: Vec<Vec<(Bytes, Option<Bytes>)>>,
    /// The spans that the transactions changed or disturbed, for watches.
    pub spans: Vec<KeySpan>,
    version: u64,
}

impl<'a> Group<'a> {
    pub fn new(data: &'a Data, base: &'a DurableView) -> Self {
        Self { data, base, changes: Vec::new(), spans: Vec::new(), version: base.version }
    }

    /// The version of the last transaction.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Checks a transaction against everything before it, and takes it in.
    pub fn admit(
        &mut self,
        request: CommitRequest,
        window: &mut ConflictWindow,
        now: Instant,
    ) -> Result<Versionstamp, StoreError> {
        window.check(request.read_version, &request.reads)?;
        let version = self.version + 1;
        let stamp = Versionstamp::new(version, 0);
        let resolved = resolve(request.buffer, stamp, |key| self.current(key, window))?;
        let (keys, spans) = resolved.conflicts();
        let changes = self.clear_spans(resolved)?;
        self.version = version;
        self.changes.push(changes);
        self.spans.extend_from_slice(&spans);
        window.record(version, now, &keys, spans);
        Ok(stamp)
    }

    /// What a key holds after the transactions admitted so far.
    fn current(&self, key: &Bytes, window: &ConflictWindow) -> Result<Option<Bytes>, StoreError> {
        // Most keys were not written by this group, and the window tells so at once.
        if window.is_written_since(key, self.base.version) {
            for changes in self.changes.iter().rev() {
                if let Ok(found) = changes.binary_search_by(|(changed, _)| changed.cmp(key)) {
                    return Ok(changes[found].1.clone());
                }
            }
        }
        self.data.get(&self.base.snapshot, key)
    }

    /// Takes the cleared spans apart into the keys that they remove, at this point of the order.
    fn clear_spans(&self, resolved: Resolved) -> Result<Vec<(Bytes, Option<Bytes>)>, StoreError> {
        let Resolved { clears, mut changes, .. } = resolved;
        if clears.is_empty() {
            return Ok(changes);
        }
        let mut removed = Vec::new();
        let mut bytes = 0;
        for span in &clears {
            let mut take = |key: Bytes| {
                bytes += key.len();
                removed.push((key, None));
                if bytes > CLEARED_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            for changes in &self.changes {
                let mut live = inside(changes, span).filter(|(_, value)| value.is_some());
                if live.try_for_each(|(key, _)| take(key.clone())).is_break() {
                    break;
                }
            }
            self.data.scan(&self.base.snapshot, span, false, &mut |key, _| take(key))?;
            if bytes > CLEARED_BYTES_MAX {
                return Err(StoreError::TooLarge { what: "cleared range", bytes, limit: CLEARED_BYTES_MAX });
            }
        }
        // The transaction's own changes come after its clears, and the stable sort keeps them there.
        removed.append(&mut changes);
        Ok(last_of_each_key(removed))
    }

    /// The changes of all transactions: one per key, sorted.
    pub fn into_changes(mut self) -> Vec<(Bytes, Option<Bytes>)> {
        if self.changes.len() == 1 {
            return self.changes.remove(0);
        }
        last_of_each_key(self.changes.into_iter().flatten().collect())
    }
}

fn inside<'c>(
    changes: &'c [(Bytes, Option<Bytes>)],
    span: &KeySpan,
) -> impl Iterator<Item = &'c (Bytes, Option<Bytes>)> {
    let first = changes.partition_point(|(key, _)| *key < span.begin);
    let end = changes.partition_point(|(key, _)| *key < span.end).max(first);
    changes[first..end].iter()
}

/// Sorts by key, and keeps the last of the changes of one key.
fn last_of_each_key(mut changes: Vec<(Bytes, Option<Bytes>)>) -> Vec<(Bytes, Option<Bytes>)> {
    changes.sort_by(|(left, _), (right, _)| left.cmp(right));
    changes.dedup_by(|later, kept| {
        let double = later.0 == kept.0;
        if double {
            std::mem::swap(later, kept);
        }
        double
    });
    changes
}
