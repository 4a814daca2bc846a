//! From a directory onto a real cluster and back: the same rows, the same digests, the same order.

use std::path::Path;

use bytes::Bytes;
use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use compline_store::Store;
use compline_store::backend::foundationdb::{FoundationDbBackend, FoundationDbOptions};
use compline_store::tables::meta::Meta;
use compline_store::transfer::{TransferError, raise_incarnation};

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
    // An import that is dropped somewhere in the middle, and goes on.
    let cut_off = tokio::time::timeout(std::time::Duration::from_millis(150), import_from(&target, &there)).await;
    let imported = import_from(&target, &there).await.expect("an import");
    assert!(cut_off.is_ok() || imported.resumed_at < exported.rows());
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
