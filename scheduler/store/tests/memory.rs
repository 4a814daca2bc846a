//! The store in memory: its faults really happen, one seed is one outcome, and the retry loop stands up to all of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_store::backend::memory::{FaultCounts, Faults, Landed, MemoryBackend, MemoryOptions};
use compline_store::backend::{Backend, RangeQuery, Read, Transaction};
use compline_store::{Stamp, Store, StoreError};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, advance};

fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

fn with(faults: Faults) -> Arc<MemoryBackend> {
    MemoryBackend::new(MemoryOptions { seed: 1, faults, record: true })
}

async fn get(tx: &dyn Transaction, name: &str) -> Result<Option<Bytes>, StoreError> {
    Ok(tx.get_many(&[key(name)], Read::Serializable).await?.remove(0))
}

async fn commit(backend: &MemoryBackend, name: &str) -> Result<(), StoreError> {
    let tx = backend.begin();
    tx.set(key(name), key("1"));
    tx.commit().await.map(|_| ())
}

async fn dump(backend: &MemoryBackend) -> BTreeMap<Bytes, Bytes> {
    let query = RangeQuery { begin: key(""), end: key("~"), limit: usize::MAX, reverse: false, read: Read::Snapshot };
    let pairs = backend.begin().range(&query).await.expect("no faults are left");
    pairs.into_iter().map(|pair| (pair.key, pair.value)).collect()
}

/// Creates a row once, whatever becomes of the commits. Counts creations in the same transaction.
async fn create(store: &Store, id: u32) -> bool {
    let created = store.transact(|tx| async move {
        let row = key(&format!("row {id:04}"));
        if tx.get(row.clone(), Read::Serializable).await?.is_some() {
            return Ok(tx.maybe_committed());
        }
        tx.set(row, key("1"));
        tx.add(key("count"), 1);
        tx.set_stamped_key(
            [b"log ".as_slice(), &Stamp::unset(tx.next_stamp_index()).0].concat(),
            4,
            key(&id.to_string()),
        );
        Ok(true)
    });
    created.await.expect("it commits in the end").value
}

const ALL: Faults = Faults {
    conflict: 0.05,
    unknown_landed: 0.1,
    unknown_not_landed: 0.1,
    late_landing: 0.1,
    slow_commit: 0.2,
    slow_read: 0.1,
    lost_watch: 0.5,
    transient: 0.05,
    slow_for: Duration::from_millis(5)..Duration::from_millis(500),
    late_by: Duration::from_millis(5)..Duration::from_secs(4),
};

#[tokio::test(start_paused = true)]
async fn an_idempotent_transaction_happens_once_under_all_faults() {
    let backend = with(ALL);
    let store = Store::new(backend.clone());
    for wave in 0..10 {
        let created = futures::future::join_all((0..20).map(|index| create(&store, wave * 20 + index))).await;
        assert!(created.into_iter().all(|created| created), "a row that is there already is this call's own");
    }
    backend.set_faults(Faults::default());
    advance(Duration::from_secs(10)).await;
    let state = dump(&backend).await;
    assert_eq!(state[&key("count")], &200_i64.to_le_bytes()[..]);
    assert_eq!(state.keys().filter(|name| name.starts_with(b"row ")).count(), 200);
    assert_eq!(state.keys().filter(|name| name.starts_with(b"log ")).count(), 200);
    let counts = backend.fault_counts();
    let FaultCounts { conflict, unknown_landed, unknown_not_landed, late_landing, late_landed, late_refused, .. } =
        counts;
    for happened in [conflict, unknown_landed, unknown_not_landed, late_landed, late_refused] {
        assert!(happened > 0, "{counts:?}");
    }
    assert!(counts.slow_commit > 0 && counts.slow_read > 0 && counts.transient > 0, "{counts:?}");
    assert_eq!(late_landing, late_landed + late_refused);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_committed_stays_so_over_later_runs() {
    let backend = with(Faults { unknown_not_landed: 1.0, ..Faults::default() });
    let next = Mutex::new(vec![Faults::default(), Faults { conflict: 1.0, ..Faults::default() }]);
    let seen = Mutex::new(Vec::new());
    let store = Store::new(backend.clone());
    let (shared_backend, shared_next, shared_seen) = (&backend, &next, &seen);
    let committed = store.transact(|tx| async move {
        let mut seen = shared_seen.lock();
        seen.push(tx.maybe_committed());
        if seen.len() > 1 {
            shared_backend.set_faults(shared_next.lock().pop().unwrap_or_default());
        }
        tx.set(key("a"), key("1"));
        Ok(())
    });
    committed.await.expect("it commits in the end");
    assert_eq!(*seen.lock(), [false, true, true], "an unknown commit, a conflict, a success");
    assert_eq!(store.cost().unknown, 1);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_landed_unknown_is_found_by_the_next_run() {
    let backend = with(Faults { unknown_landed: 1.0, ..Faults::default() });
    let store = Store::new(backend.clone());
    assert!(create(&store, 7).await);
    assert_eq!(backend.fault_counts().unknown_landed, 1);
    assert_eq!(backend.take_landed().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_commit_lands_after_its_delay_unless_it_conflicts_by_then() {
    let late =
        Faults { late_landing: 1.0, late_by: Duration::from_secs(2)..Duration::from_secs(2), ..Faults::default() };
    for conflicts in [false, true] {
        let backend = with(late.clone());
        let tx = backend.begin();
        get(&*tx, "a").await.expect("it reads");
        tx.set(key("a"), key("late"));
        assert!(matches!(tx.commit().await, Err(StoreError::CommitUnknown(_))));
        backend.set_faults(Faults::default());
        advance(Duration::from_millis(1_900)).await;
        assert!(dump(&backend).await.is_empty());
        if conflicts {
            commit(&backend, "a").await.expect("it commits");
        }
        advance(Duration::from_millis(200)).await;
        let expected = if conflicts { "1" } else { "late" };
        assert_eq!(dump(&backend).await[&key("a")], key(expected));
        let counts = backend.fault_counts();
        assert_eq!((counts.late_landed, counts.late_refused), if conflicts { (0, 1) } else { (1, 0) });
    }
}

type Changes = Vec<(Bytes, Option<Bytes>)>;

/// The commits with their moments since the start, and the faults.
type History = (Vec<(Duration, u64, Changes)>, FaultCounts, Duration);

/// What happens with one seed. Timers count whole milliseconds from the start of their runtime, so each history has a runtime of its own.
fn history(seed: u64) -> History {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime is made");
    runtime.block_on(work_under_faults(seed))
}

/// Several nodes at work under all faults, with their whole history.
async fn work_under_faults(seed: u64) -> History {
    let started = Instant::now();
    let first = MemoryBackend::new(MemoryOptions { seed, faults: ALL, record: true });
    let nodes: Vec<_> = (0..4).map(|_| first.handle()).collect();
    let work = nodes.iter().enumerate().map(|(node, backend)| {
        let (store, backend) = (Store::new(backend.clone()), backend.clone());
        async move {
            for round in 0..15 {
                create(&store, (node * 5 + round) as u32).await;
                if node == 2 && round == 5 {
                    backend.cut();
                    let heal = async {
                        tokio::time::sleep(Duration::from_secs(3)).await;
                        backend.heal();
                    };
                    futures::join!(heal, create(&store, 1_000));
                }
            }
        }
    });
    futures::future::join_all(work).await;
    // Two histories begin at different instants.
    let relative = |landed: Landed| (landed.at - started, landed.version, landed.changes);
    let landed = first.take_landed().into_iter().map(relative).collect();
    (landed, first.fault_counts(), started.elapsed())
}

#[test]
fn one_seed_is_one_history() {
    let histories: Vec<_> = (0..10).map(history).collect();
    for (seed, once) in (0..).zip(&histories) {
        assert_eq!(*once, history(seed));
        assert!(once.1.cut > 0);
    }
    assert_ne!(histories[0].0, histories[1].0);
}

#[tokio::test(start_paused = true)]
async fn the_record_replays_to_the_state() {
    let backend = with(ALL);
    let store = Store::new(backend.clone());
    futures::future::join_all((0..60).map(|id| create(&store, id % 50))).await;
    backend.set_faults(Faults::default());
    advance(Duration::from_secs(10)).await;
    let tx = backend.begin();
    tx.clear_range(key("row 0010"), key("row 0020"));
    tx.commit().await.expect("it commits");
    let state = dump(&backend).await;
    let landed = backend.take_landed();
    assert!(landed.is_sorted_by(|left, right| left.version < right.version && left.stamp < right.stamp));
    assert_eq!(landed.last().expect("there is one").changes.len(), 10, "a cleared range is taken apart");
    let mut replayed = BTreeMap::new();
    for (name, value) in landed.into_iter().flat_map(|landed| landed.changes) {
        match value {
            Some(value) => replayed.insert(name, value),
            None => replayed.remove(&name),
        };
    }
    assert_eq!(replayed, state);
    assert!(backend.take_landed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_node_can_be_cut_off() {
    let here = with(Faults::default());
    let there = here.handle();
    commit(&here, "a").await.expect("it commits");
    here.cut();
    let begun = Instant::now();
    assert!(matches!(get(&*here.begin(), "a").await, Err(StoreError::Transient(_))));
    assert!(matches!(commit(&here, "b").await, Err(StoreError::Transient(_))));
    assert!(begun.elapsed() >= Duration::from_millis(500), "it waits before it gives up");
    commit(&there, "c").await.expect("the others go on");
    here.heal();
    commit(&here, "d").await.expect("it commits again");
    assert_eq!(dump(&there).await.into_keys().collect::<Vec<_>>(), [key("a"), key("c"), key("d")]);
    assert_eq!(here.fault_counts().cut, 2);
    there.close().await.expect("it closes");
    assert!(matches!(commit(&there, "e").await, Err(StoreError::Unavailable(_))));
    commit(&here, "e").await.expect("another node's handle stays open");
}

#[tokio::test(start_paused = true)]
async fn a_commit_in_flight_at_the_cut_is_unknown() {
    let slow =
        Faults { slow_commit: 1.0, slow_for: Duration::from_secs(1)..Duration::from_secs(1), ..Faults::default() };
    let (mut landed, mut unsent) = (0, 0);
    for seed in 0..20 {
        let backend = MemoryBackend::new(MemoryOptions { seed, faults: slow.clone(), record: true });
        let cut = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            backend.cut();
        };
        match futures::join!(commit(&backend, "a"), cut).0 {
            Err(StoreError::CommitUnknown(_)) => {
                landed += 1;
                assert_eq!(backend.take_landed().len(), 1);
            }
            Err(StoreError::Transient(_)) => {
                unsent += 1;
                assert!(backend.take_landed().is_empty());
            }
            other => panic!("the node was cut off, but {other:?}"),
        }
    }
    assert!(landed > 0 && unsent > 0);
}

#[tokio::test(start_paused = true)]
async fn transactions_older_than_five_seconds_are_refused() {
    let backend = with(Faults::default());
    commit(&backend, "a").await.expect("it commits");
    for (wait, is_old) in [(5_000, false), (5_001, true)] {
        let (reading, writing) = (backend.begin(), backend.begin());
        get(&*reading, "a").await.expect("it reads");
        get(&*writing, "b").await.expect("it reads");
        writing.set(key("x"), key("1"));
        advance(Duration::from_millis(wait)).await;
        assert_eq!(matches!(get(&*reading, "a").await, Err(StoreError::TooOld)), is_old);
        assert_eq!(matches!(writing.commit().await, Err(StoreError::TooOld)), is_old);
        // Run again, it begins anew.
        reading.on_error(StoreError::TooOld).await.expect("it may run again");
        get(&*reading, "a").await.expect("it reads");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_never_ends() {
    let backend = with(Faults { lost_watch: 1.0, ..Faults::default() });
    let mut watch = Store::new(backend.clone()).watch(key("a")).await.expect("it arms");
    commit(&backend, "a").await.expect("it commits");
    assert!((&mut watch).now_or_never().is_none());
    assert_eq!(backend.fault_counts().lost_watch, 1);
}

#[tokio::test(start_paused = true)]
async fn slow_reads_and_commits_take_time() {
    let slow_for = Duration::from_millis(300)..Duration::from_millis(400);
    let backend = with(Faults { slow_read: 1.0, slow_commit: 1.0, slow_for, ..Faults::default() });
    let started = Instant::now();
    get(&*backend.begin(), "a").await.expect("it reads");
    assert!((300..=401).contains(&started.elapsed().as_millis()));
    commit(&backend, "a").await.expect("it commits");
    assert!((600..=802).contains(&started.elapsed().as_millis()));
}
