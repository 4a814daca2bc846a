//! A gate that all tasks of a node pass through at every step, so that a simulator can do to one node of many what a signal does to a process.
//!
//! Closed, no task of the node takes a step: timers that fire and answers that arrive meanwhile are seen together once it opens again. Ended,
//! every task is dropped where it stands, without a word to anybody.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The gate of a node.
#[derive(Debug, Default)]
pub struct Gate {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    next: u64,
    /// What wakes each task, in the order in which the tasks began.
    wakers: BTreeMap<u64, Waker>,
    /// How many steps tasks have begun and ended.
    steps: (u64, u64),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Closed,
    Ended,
}

impl Gate {
    /// Lets no task take a step until [`Gate::open`].
    pub fn close(&self) {
        self.set(State::Closed);
    }

    /// Lets the tasks go on.
    pub fn open(&self) {
        self.set(State::Open);
    }

    /// Drops every task. There is no way back.
    pub fn end(&self) {
        self.set(State::Ended);
    }

    /// How many steps its tasks have begun and how many they have ended: by this whoever watches a simulation tells who spins in it.
    pub fn steps(&self) -> (u64, u64) {
        self.inner.lock().steps
    }

    fn set(&self, state: State) {
        let wakers = {
            let mut inner = self.inner.lock();
            if inner.state != State::Ended {
                inner.state = state;
            }
            inner.wakers.clone()
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Runs a task behind the gate. A task that was dropped by [`Gate::end`] never returns.
    pub(super) async fn pass<F: Future>(self: Arc<Self>, task: F) -> F::Output {
        let place = Place { number: self.enter(), gate: self };
        let mut task = Some(Box::pin(task));
        poll_fn(move |context| place.poll(&mut task, context)).await
    }

    fn enter(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.next += 1;
        inner.next
    }
}

/// One task's place at the gate.
struct Place {
    gate: Arc<Gate>,
    number: u64,
}

impl Place {
    fn poll<F: Future>(&self, task: &mut Option<Pin<Box<F>>>, context: &mut Context<'_>) -> Poll<F::Output> {
        let state = {
            let mut inner = self.gate.inner.lock();
            let waker = inner.wakers.entry(self.number).or_insert_with(|| context.waker().clone());
            if !waker.will_wake(context.waker()) {
                waker.clone_from(context.waker());
            }
            inner.state
        };
        match (state, task.as_mut()) {
            (State::Open, Some(task)) => {
                self.gate.inner.lock().steps.0 += 1;
                let polled = task.as_mut().poll(context);
                self.gate.inner.lock().steps.1 += 1;
                polled
            }
            (State::Closed, _) | (State::Open, None) => Poll::Pending,
            (State::Ended, _) => {
                *task = None;
                Poll::Pending
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.inner.lock().wakers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use compline_core::Timestamp;
    use tokio::sync::oneshot;

    use super::*;
    use crate::env::{Clock, Env};

    struct Never;

    impl Clock for Never {
        fn now(&self) -> Timestamp {
            Timestamp::EPOCH
        }
    }

    fn env() -> (Env, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        (Env::injected(Arc::new(Never), 1).behind(gate.clone()), gate)
    }

    #[tokio::test(start_paused = true)]
    async fn behind_a_closed_gate_nothing_moves_and_then_it_goes_on() {
        let (env, gate) = env();
        let second = Duration::from_secs(1);
        let task = tokio::spawn(env.gated(async move { tokio::time::sleep(second).await }));
        tokio::time::sleep(second / 2).await;
        gate.close();
        let (begun, ended) = gate.steps();
        tokio::time::sleep(second * 9).await;
        assert!(!task.is_finished());
        assert_eq!(
            (gate.steps(), begun),
            ((begun, ended), ended),
            "every step that was begun has ended, and none was taken"
        );
        gate.open();
        task.await.expect("the task is not cancelled");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_gate_drops_what_was_behind_it() {
        let (env, gate) = env();
        let (held, dropped) = oneshot::channel::<()>();
        let task = tokio::spawn(env.gated(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        tokio::task::yield_now().await;
        gate.end();
        dropped.await.expect_err("the sender is dropped");
        gate.open();
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
    }
}
