//! From a directory onto a real cluster and back: the same rows, the same digests, the same order.

use std::path::Path;

use bytes::Bytes;
use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use compline_store::Store;
use compline_store::backend::foundationdb::{FoundationDbBackend, FoundationDbOptions};
use compline_store::tables::meta::Meta;
use compline_store::transfer::{Phase, Progress, TransferError, import, raise_incarnation};
use tokio::sync::Notify;

use crate::contents::{META, dump, embedded, export_to, fill, import_from, meta_of, plain_rows, quiet, work};

async fn on_cluster(cluster_file: &Path, prefix: &str) -> Store {
    let prefix = format!("compline-test/{}/{prefix}/", std::process::id());
    let options = FoundationDbOptions { cluster_file: cluster_file.to_owned(), prefix: prefix.into() };
    let store = Store::new(FoundationDbBackend::open(options).await.expect("the cluster serves"));
    // A cluster that was named is not new.
    let cleared = store.transact(|tx| async move {
        tx.clear_range(Bytes::from_static(&[0]), Bytes::from_static(&[0xff]));
        Ok(())
    });
    cleared.await.expect("a store");
    store
}

/// Begins an import and drops it where it first waits for the cluster after its first batch: in the transaction of the next one.
async fn drop_within_the_second_batch(target: &Store, path: &Path) {
    let quiet = quiet(target).await;
    let first_batch = Notify::new();
    let mut on_progress = |progress: Progress| {
        if progress.phase == Phase::Import {
            first_batch.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = first_batch.notified() => {}
        imported = import(target, path, quiet, &mut on_progress) => panic!("it was not dropped: {imported:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_onto_a_cluster_and_comes_back_with_the_same_digests() {
    let cluster = TestCluster::for_test(ClusterOptions::single(StorageEngine::Memory));
    report("export and import, FoundationDB", cluster.as_ref().map_err(String::as_str));
    let Ok(cluster) = cluster else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let (there, back) = (directory.path().join("there"), directory.path().join("back"));
    let source = embedded(&directory.path().join("source"));
    let meant = fill(&source, 77, 1_500).await;
    let (exported, _) = export_to(&source, &there).await.expect("an export");

    let target = on_cluster(cluster.cluster_file(), "target").await;
    drop_within_the_second_batch(&target, &there).await;
    let imported = import_from(&target, &there).await.expect("an import");
    let (resumed_at, rows) = (imported.resumed_at, exported.rows());
    assert!(0 < resumed_at && resumed_at < rows, "it went on at row {resumed_at} of {rows}");
    assert_eq!(imported.tally, exported);
    assert_eq!(meta_of(&target).await, Some(Meta { incarnation: META.incarnation + 1, ..META }));
    let (before, after) = (dump(&source).await, dump(&target).await);
    assert_eq!(plain_rows(&before), plain_rows(&after), "rows that travel byte by byte");
    assert_eq!(work(&after).1, meant.lanes, "what waits, in its order");
    let at_rest = quiet(&target).await;
    raise_incarnation(&target, at_rest).await.expect("a store");
    assert_eq!(work(&dump(&target).await).1, meant.lanes, "and again after a restore");

    let (again, _) = export_to(&target, &back).await.expect("an export");
    assert_eq!(again, exported);
    let last = embedded(&directory.path().join("last"));
    assert_eq!(import_from(&last, &back).await.expect("an import").tally, exported);
    assert_eq!(meta_of(&last).await.map(|meta| meta.incarnation), Some(META.incarnation + 3));
    assert_eq!(work(&dump(&last).await).1, meant.lanes);
    let refused = import_from(&last, &there).await.expect_err("it is not empty");
    assert!(matches!(refused, TransferError::TargetNotEmpty { .. }), "{refused}");
}
