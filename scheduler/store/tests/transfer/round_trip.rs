//! Everything arrives, whatever it is and between whichever stores.

use compline_core::execution::State;
use compline_store::keys::Table;
use compline_store::tables::meta::Meta;
use compline_store::transfer::raise_incarnation;
use proptest::prelude::*;

use crate::contents::{META, dump, embedded, export_to, fill, import_from, memory, meta_of, plain_rows, quiet, work};

/// From memory into a directory and back into memory.
async fn round_trip(seed: u64, size: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let source = memory();
    let meant = fill(&source, seed, size).await;
    let (exported, findings) = export_to(&source, &first).await.expect("an export");
    assert_eq!((findings.handed_back, findings.unplaced, findings.stale_places), (meant.running as u64, 0, 0));

    let middle = embedded(&directory.path().join("store"));
    let imported = import_from(&middle, &first).await.expect("an import");
    assert_eq!((&imported.tally, imported.resumed_at), (&exported, 0));
    assert_eq!(meta_of(&middle).await, Some(Meta { incarnation: META.incarnation + 1, ..META }));
    let (before, after) = (dump(&source).await, dump(&middle).await);
    assert_eq!(plain_rows(&before), plain_rows(&after), "rows that travel byte by byte");
    assert!(!after.iter().any(|row| !Table::of(&row.key).expect("a known table").is_carried()), "nothing that stays");
    let ((was, _), (is, lanes)) = (work(&before), work(&after));
    assert_eq!(lanes, meant.lanes, "what waits, in its order");
    assert_eq!(was.len(), is.len());
    for (key, execution) in &is {
        match (&was[key].state, &execution.state) {
            (State::Running(ran), State::Queued(waits)) => assert_eq!(ran.due, waits.due),
            _ => assert_eq!(was[key], *execution),
        }
        assert_eq!(was[key].attempts, execution.attempts, "a hand-back is no attempt");
    }

    let (again, findings) = export_to(&middle, &second).await.expect("an export");
    assert_eq!((&again, findings.handed_back), (&exported, 0), "the same digests from another store");
    let last = memory();
    assert_eq!(import_from(&last, &second).await.expect("an import").tally, exported);
    assert_eq!(meta_of(&last).await.map(|meta| meta.incarnation), Some(META.incarnation + 2));
    assert_eq!(work(&dump(&last).await), (is, lanes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_store_holds_arrives(seed: u64, size in 0_usize..120) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(round_trip(seed, size));
    }
}

#[tokio::test]
async fn a_backlog_larger_than_many_batches_keeps_its_order() {
    round_trip(11, 2_500).await;
}

#[tokio::test]
async fn the_incarnation_rises_above_the_targets_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    let source = memory();
    fill(&source, 1, 3).await;
    export_to(&source, &file).await.expect("an export");
    let target = memory();
    let own = &Meta { incarnation: 40, shards: 2, ..META };
    let started = target.transact(|tx| async move { compline_store::tables::meta::get_or_init(&tx, own).await });
    started.await.expect("a store");
    assert_eq!(import_from(&target, &file).await.expect("an import").incarnation, 41);
    assert_eq!(meta_of(&target).await, Some(Meta { incarnation: 41, ..META }), "shards travel with the rows");
}

#[tokio::test]
async fn a_restored_store_gets_a_new_incarnation_and_new_places_in_the_old_order() {
    let store = memory();
    fill(&store, 5, 900).await;
    let (was, lanes) = work(&dump(&store).await);
    let waiting: usize = lanes.values().map(Vec::len).sum();
    let quiet = quiet(&store).await;
    let restored = raise_incarnation(&store, quiet).await.expect("a store");
    assert_eq!((restored.incarnation, restored.requeued), (META.incarnation + 1, waiting as u64));
    assert_eq!(meta_of(&store).await.map(|meta| meta.incarnation), Some(META.incarnation + 1));
    assert_eq!(work(&dump(&store).await), (was, lanes));
    let again = raise_incarnation(&store, quiet).await.expect("a store");
    assert_eq!((again.incarnation, again.requeued), (META.incarnation + 2, waiting as u64));
}
