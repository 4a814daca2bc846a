//! Real FoundationDB clusters for the suite: one of each kind per process, and a prefix of its own for every test.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use compline_store::backend::foundationdb::{FoundationDbBackend, FoundationDbOptions};

use crate::fixture::Fixture;

type Shared = OnceLock<Result<TestCluster, String>>;

pub async fn memory() -> Option<Fixture> {
    static CLUSTER: Shared = OnceLock::new();
    open(&CLUSTER, ClusterOptions::single(StorageEngine::Memory)).await
}

pub async fn three_ssd() -> Option<Fixture> {
    static CLUSTER: Shared = OnceLock::new();
    open(&CLUSTER, ClusterOptions::three(StorageEngine::Ssd)).await
}

async fn open(shared: &'static Shared, options: ClusterOptions) -> Option<Fixture> {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    let cluster = shared.get_or_init(|| {
        let cluster = TestCluster::for_test(options);
        report("conformance suite, FoundationDB backend", cluster.as_ref().map_err(String::as_str));
        cluster
    });
    let cluster_file = cluster.as_ref().ok()?.cluster_file().to_owned();
    let prefix = format!("compline-test/{}-{}/", std::process::id(), TESTS.fetch_add(1, Ordering::Relaxed));
    let options = FoundationDbOptions { cluster_file, prefix: prefix.into() };
    let backend = FoundationDbBackend::open(options).await.expect("the cluster serves");
    let fixture = Fixture { backend, directory: None };
    // A cluster that was named is not new.
    fixture.clear().await;
    Some(fixture)
}
