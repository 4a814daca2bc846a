//! A guard against a run that does not move or does not end, which would otherwise hang without a word: who spins at one virtual instant, who
//! keeps a thread, and who still goes on when all should be over is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use compline_server::env::Gate;
use compline_store::StoreError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::backend::Author;

/// So many calls of the store at one virtual instant are no work any more. A burst after an outage makes a few thousand.
const CALLS_MAX: u64 = 100_000;

/// How long a run may take before it is given up.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// In virtual time, from its begin to its end.
    pub lasts: Duration,
    /// In real time, without that virtual time moves.
    pub still: Duration,
    /// In real time, in all.
    pub takes: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { lasts: minute * 120, still: minute, takes: minute * 10 }
    }
}

/// What moves in a run. Whoever watches it from outside sees the same.
#[derive(Debug, Default)]
pub struct Pulse {
    inner: Mutex<Inner>,
    given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    began: Option<Instant>,
    now: Option<Instant>,
    /// Calls of the store at this instant.
    calls: BTreeMap<Author, u64>,
    total: u64,
    stuck: Option<String>,
    names: Vec<String>,
    gates: Vec<(String, Arc<Gate>)>,
    actors: BTreeSet<String>,
}

/// An actor that goes on until this is dropped.
pub struct Acting<'a>(&'a Pulse, String);

impl Pulse {
    /// A name for the author with the next number.
    pub fn name(&self, name: &str) {
        self.inner.lock().names.push(name.to_owned());
    }

    /// A node's life, and what its tasks pass through.
    pub fn gate(&self, name: String, gate: Arc<Gate>) {
        self.inner.lock().gates.push((name, gate));
    }

    /// Notes that an actor goes on, for as long as the answer is held.
    pub fn acts(&self, name: String) -> Acting<'_> {
        self.inner.lock().actors.insert(name.clone());
        Acting(self, name)
    }

    /// Notes how far virtual time is.
    pub fn moved(&self) {
        self.inner.lock().turn();
    }

    /// Notes a call of the store. An error: there is no use in going on.
    pub fn call(&self, author: Author) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        inner.turn();
        *inner.calls.entry(author).or_default() += 1;
        inner.total += 1;
        if inner.total > CALLS_MAX && inner.stuck.is_none() {
            inner.stuck =
                Some(format!("{} calls of the store without that time moves: {}", inner.total, inner.callers()));
        }
        if inner.stuck.is_some() || self.given_up.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("the run was given up".into()));
        }
        Ok(())
    }

    /// Who called the store again and again at one instant, if somebody did.
    pub fn stuck(&self) -> Option<String> {
        self.inner.lock().stuck.clone()
    }

    /// How far virtual time was at the last look.
    pub fn progress(&self) -> Duration {
        let inner = self.inner.lock();
        inner.now.zip(inner.began).map(|(now, began)| now - began).unwrap_or_default()
    }

    /// Lets the run end at its next call of the store.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether somebody gave it up.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// The steps that the tasks of each node have begun.
    pub fn steps(&self) -> BTreeMap<String, u64> {
        self.inner.lock().gates.iter().map(|(name, gate)| (name.clone(), gate.steps().0)).collect()
    }

    /// Who goes on, in words. `before` is what [`Self::steps`] said a while ago.
    pub fn describe(&self, before: &BTreeMap<String, u64>) -> String {
        let inner = self.inner.lock();
        let at = inner.now.zip(inner.began).map(|(now, began)| now - began).unwrap_or_default();
        let mut words = format!("{:.6} s into the run", at.as_secs_f64());
        for (name, gate) in &inner.gates {
            let (begun, ended) = gate.steps();
            let more = begun - before.get(name).copied().unwrap_or(0).min(begun);
            if begun > ended {
                let _ = write!(words, "; a task of {name} does not come back from its step");
            } else if more > 0 {
                let _ = write!(words, "; tasks of {name} took {more} steps since the last look");
            }
        }
        let actors: Vec<&str> = inner.actors.iter().map(String::as_str).collect();
        let _ = write!(
            words,
            "; calls of the store at this instant: {}; not at their end: {}",
            inner.callers(),
            actors.join(", ")
        );
        words
    }
}

impl Inner {
    fn turn(&mut self) {
        let now = Instant::now();
        self.began.get_or_insert(now);
        if self.now != Some(now) {
            self.now = Some(now);
            self.calls.clear();
            self.total = 0;
        }
    }

    fn callers(&self) -> String {
        let mut callers: Vec<(u64, Author)> = self.calls.iter().map(|(author, calls)| (*calls, *author)).collect();
        callers.sort_unstable_by(|one, other| other.cmp(one));
        let name = |author: Author| self.names.get(author.0 as usize).map_or("nobody", String::as_str);
        let words: Vec<String> =
            callers.into_iter().take(3).map(|(calls, author)| format!("{} {calls}", name(author))).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().actors.remove(&self.1);
    }
}
