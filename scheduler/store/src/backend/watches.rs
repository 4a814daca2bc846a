//! Watched keys. A watch is a hint: losing one costs latency, never results.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::occ::ConflictWindow;
use super::span::KeySpan;

/// A watch to be armed.
pub(crate) struct Arm {
    pub key: Bytes,
    /// The version that the watcher has seen: any later write of the key ends the wait.
    pub seen: u64,
    pub sender: oneshot::Sender<()>,
}

/// The armed watches of a store.
#[derive(Default)]
pub(crate) struct Watches {
    by_key: HashMap<Bytes, Vec<oneshot::Sender<()>>>,
    armed: usize,
    /// At how many armed watches the abandoned ones are looked for next.
    sweep_at: usize,
}

impl Watches {
    /// Arms a watch, or ends it at once if the key was written since it was seen.
    pub fn arm(&mut self, watch: Arm, window: &ConflictWindow) {
        if window.is_written_since(&watch.key, watch.seen) {
            let _ = watch.sender.send(());
            return;
        }
        self.by_key.entry(watch.key).or_default().push(watch.sender);
        self.armed += 1;
        if self.armed > self.sweep_at {
            self.sweep();
        }
    }

    /// Those of the keys that are watched.
    pub fn among<'a>(&self, keys: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
        if self.by_key.is_empty() {
            return Vec::new();
        }
        keys.filter(|key| self.by_key.contains_key(*key)).cloned().collect()
    }

    /// Ends the waits for the keys and spans that a commit wrote.
    pub fn fire<'a>(&mut self, keys: impl Iterator<Item = &'a Bytes>, spans: &[KeySpan]) {
        if self.by_key.is_empty() {
            return;
        }
        for key in keys {
            if let Some(senders) = self.by_key.remove(key) {
                self.end(senders);
            }
        }
        for span in spans {
            let mut inside: Vec<Bytes> = self.by_key.keys().filter(|key| span.contains(key)).cloned().collect();
            inside.sort();
            for key in inside {
                let senders = self.by_key.remove(&key).unwrap_or_default();
                self.end(senders);
            }
        }
    }

    fn end(&mut self, senders: Vec<oneshot::Sender<()>>) {
        self.armed -= senders.len();
        for sender in senders {
            let _ = sender.send(());
        }
    }

    /// Forgets the watches that nobody waits for any more.
    fn sweep(&mut self) {
        self.by_key.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        self.armed = self.by_key.values().map(Vec::len).sum();
        self.sweep_at = (2 * self.armed).max(1_024);
    }
}
