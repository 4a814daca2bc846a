//! The thread that makes computing guests yield.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use wasmtime::EngineWeak;

/// After so many ticks without a run the thread goes to sleep, so that an idle process does nothing.
const IDLE_TICKS_MAX: u32 = 200;

/// Raises the engine's epoch at every tick while there are runs. Ends when it is dropped.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    wake: SyncSender<()>,
}

struct Shared {
    runs: AtomicUsize,
    asleep: AtomicBool,
}

/// Keeps the ticker awake as long as it lives.
pub(crate) struct Running<'a>(&'a Shared);

impl Ticker {
    pub(crate) fn start(engine: EngineWeak, tick: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { runs: AtomicUsize::new(0), asleep: AtomicBool::new(false) });
        let (wake, woken) = sync_channel(1);
        let seen = Arc::clone(&shared);
        std::thread::Builder::new().name("compline-epoch".into()).spawn(move || work(&engine, tick, &seen, &woken))?;
        Ok(Self { shared, wake })
    }

    /// Called once per run. Both sides write their own flag before they read the other's, so one of them always sees the other.
    pub(crate) fn run_starts(&self) -> Running<'_> {
        self.shared.runs.fetch_add(1, Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::SeqCst) {
            // A full channel means that somebody else has woken it already.
            let _ = self.wake.try_send(());
        }
        Running(&self.shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::SeqCst);
    }
}

fn work(engine: &EngineWeak, tick: Duration, shared: &Shared, woken: &Receiver<()>) {
    let mut idle = 0;
    loop {
        if idle < IDLE_TICKS_MAX {
            if woken.recv_timeout(tick) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let Some(engine) = engine.upgrade() else { return };
            engine.increment_epoch();
            idle = if shared.runs.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
        } else {
            shared.asleep.store(true, Ordering::SeqCst);
            if shared.runs.load(Ordering::SeqCst) == 0 && woken.recv().is_err() {
                return;
            }
            shared.asleep.store(false, Ordering::SeqCst);
            idle = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_until(shared: &Shared, asleep: bool) {
        while shared.asleep.load(Ordering::SeqCst) != asleep {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_idle_ticker_sleeps_and_a_run_wakes_it() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(engine.weak(), Duration::from_micros(50)).unwrap();
        for _ in 0..3 {
            wait_until(&ticker.shared, true);
            let running = ticker.run_starts();
            wait_until(&ticker.shared, false);
            drop(running);
        }
        assert_eq!(ticker.shared.runs.load(Ordering::SeqCst), 0);
    }
}
