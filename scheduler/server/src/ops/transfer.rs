//! The proof that no node uses a store, for whoever moves it or brings it back.

use std::time::Duration;

use compline_store::Store;
use compline_store::transfer::{Quiet, Seen, TransferError};
use tokio::time::Instant;

/// How often the nodes' counters are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How it is known that a node is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The store lets one process in, and this is it.
    Exclusive,
    /// Its counter has stood still for so long.
    StoodStill(Duration),
}

/// Makes sure that no node uses the store, and ends the sessions of dead ones. A node that lives is an error, which is told as soon as its
/// counter moves. `on_wait` hears the names of the nodes that are waited for, if any are.
pub async fn quiet(store: &Store, proof: Proof, on_wait: impl FnOnce(&[&str])) -> Result<Quiet, TransferError> {
    let seen = Seen::look(store).await?;
    if let Proof::StoodStill(ttl) = proof
        && !seen.is_empty()
    {
        on_wait(&seen.nodes().collect::<Vec<_>>());
        let began = Instant::now();
        while began.elapsed() < ttl {
            tokio::time::sleep(LOOK_EVERY.min(ttl)).await;
            seen.still_stands(store).await?;
        }
    }
    Quiet::establish(store, &seen).await
}

#[cfg(test)]
mod tests {
    use compline_core::Timestamp;
    use compline_core::ids::SessionId;
    use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
    use compline_store::tables::session::{self, Beat, Session};

    use super::*;

    async fn beat(store: &Store, counter: u64) {
        let session = &Session::new(SessionId::new(Timestamp::EPOCH, 1), Timestamp::EPOCH);
        let beat = &Beat { counter, wall: Timestamp::EPOCH, before_took_micros: None, running: Vec::new() };
        let beaten = store.transact(|tx| async move {
            session::put(&tx, "n", session)?;
            session::put_beat(&tx, "n", beat)
        });
        beaten.await.expect("a store");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_waited_for_until_it_is_known_to_be_dead_or_alive() {
        let store = Store::new(MemoryBackend::new(MemoryOptions::default()));
        let ttl = Duration::from_secs(15);
        let began = Instant::now();
        let wait = |nodes: &[&str]| assert_eq!(nodes, ["n"]);
        quiet(&store, Proof::StoodStill(ttl), wait).await.expect("nobody is there");
        assert!(began.elapsed() < ttl, "nobody is waited for");

        beat(&store, 1).await;
        let began = Instant::now();
        quiet(&store, Proof::StoodStill(ttl), wait).await.expect("it is dead");
        assert!(began.elapsed() >= ttl);

        beat(&store, 1).await;
        let (answer, ()) = tokio::join!(quiet(&store, Proof::StoodStill(ttl), wait), async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            beat(&store, 2).await;
        });
        assert!(matches!(&answer, Err(TransferError::NodeAlive { node }) if node == "n"), "{answer:?}");
        assert!(quiet(&store, Proof::Exclusive, |_| {}).await.is_ok(), "one process proves more than a counter");
    }
}
