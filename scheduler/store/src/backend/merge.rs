//! One scan over a snapshot and a transaction's own writes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::KeyValue;
use super::buffer::{Local, Overlay, sum};
use super::span::{KeySpan, after};
use crate::StoreError;

/// Merges the pairs of a snapshot, offered in the direction of the scan, with the transaction's own writes.
pub(crate) struct Merge {
    reverse: bool,
    limit: usize,
    clears: Vec<KeySpan>,
    own: VecDeque<(Bytes, Local)>,
    /// The nearest key that can't be read, because it is the transaction's own stamped write.
    barrier: Option<Bytes>,
    found: Vec<KeyValue>,
    failure: Option<StoreError>,
}

impl Merge {
    pub fn new(overlay: Overlay, reverse: bool, limit: usize) -> Self {
        let mut own = VecDeque::from(overlay.keys);
        let unreadable = overlay.unreadable.into_iter();
        let barrier = if reverse {
            own.make_contiguous().reverse();
            unreadable.map(|span| span.end).max()
        } else {
            unreadable.map(|span| span.begin).min()
        };
        Self { reverse, limit, clears: overlay.clears, own, barrier, found: Vec::new(), failure: None }
    }

    /// Takes the next pair of the snapshot. Breaks when the scan is over.
    pub fn offer(&mut self, key: Bytes, value: Bytes) -> ControlFlow<()> {
        while let Some((own_key, _)) = self.own.front() {
            match self.order(own_key, &key) {
                Ordering::Less => self.take_own(None)?,
                Ordering::Equal => return self.take_own(Some(&value)),
                Ordering::Greater => break,
            }
        }
        if self.clears.iter().any(|span| span.contains(&key)) {
            return ControlFlow::Continue(());
        }
        self.emit(key, value)
    }

    /// The result, once the snapshot has no more pairs or the scan broke off.
    pub fn finish(mut self) -> Result<Found, StoreError> {
        while !self.is_over() && !self.own.is_empty() {
            if self.take_own(None).is_break() {
                break;
            }
        }
        if self.failure.is_none()
            && !self.is_full()
            && let Some(barrier) = &self.barrier
        {
            self.failure = Some(StoreError::stamped_unread(barrier));
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(Found { stopped_at_limit: self.found.len() >= self.limit, pairs: self.found }),
        }
    }

    fn take_own(&mut self, base: Option<&[u8]>) -> ControlFlow<()> {
        let Some((key, local)) = self.own.pop_front() else { return ControlFlow::Continue(()) };
        let value = match local {
            Local::Untouched | Local::Known(None) => return ControlFlow::Continue(()),
            Local::Known(Some(value)) => value,
            Local::AddOver(delta) => sum(base, delta),
        };
        self.emit(key, value)
    }

    fn emit(&mut self, key: Bytes, value: Bytes) -> ControlFlow<()> {
        if let Some(barrier) = &self.barrier {
            // A reverse scan's barrier is the exclusive end of what can't be read.
            let hidden = if self.reverse { key < *barrier } else { key >= *barrier };
            if hidden {
                self.failure = Some(StoreError::stamped_unread(barrier));
                return ControlFlow::Break(());
            }
        }
        self.found.push(KeyValue { key, value });
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }

    fn is_over(&self) -> bool {
        self.is_full() || self.failure.is_some()
    }

    fn order(&self, left: &Bytes, right: &Bytes) -> Ordering {
        if self.reverse { right.cmp(left) } else { left.cmp(right) }
    }
}

/// What a scan returned.
pub(crate) struct Found {
    pub pairs: Vec<KeyValue>,
    /// It may have gone on if it had been allowed to.
    pub stopped_at_limit: bool,
}

impl Found {
    /// How much of the span the scan depends on: all of it, or up to the last pair if it stopped there.
    pub fn looked_at(&self, span: KeySpan, reverse: bool) -> KeySpan {
        match self.pairs.last().filter(|_| self.stopped_at_limit) {
            Some(last) if reverse => KeySpan { begin: last.key.clone(), end: span.end },
            Some(last) => KeySpan { begin: span.begin, end: after(&last.key) },
            None => span,
        }
    }
}
