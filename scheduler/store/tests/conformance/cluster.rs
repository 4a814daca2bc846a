//! Real FoundationDB clusters for the suite: one of each kind per process, and a prefix of its own for every test.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use compline_store::backend::foundationdb::{FoundationDbBackend, FoundationDbOptions};

use crate::fixture::Fixture;

/// The kinds of clusters, in the order in which the test runner comes to them.
const KINDS: [ClusterOptions; 4] = [
    ClusterOptions::single(StorageEngine::Memory),
    ClusterOptions::single(StorageEngine::Ssd),
    ClusterOptions::three(StorageEngine::Memory),
    ClusterOptions::three(StorageEngine::Ssd),
];

pub async fn one_memory() -> Option<Fixture> {
    open(0).await
}

pub async fn one_ssd() -> Option<Fixture> {
    open(1).await
}

pub async fn three_memory() -> Option<Fixture> {
    open(2).await
}

pub async fn three_ssd() -> Option<Fixture> {
    open(3).await
}

async fn open(kind: usize) -> Option<Fixture> {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    let cluster_file = clusters()[kind].as_ref().ok()?.cluster_file().to_owned();
    let prefix = format!("compline-test/{}-{}/", std::process::id(), TESTS.fetch_add(1, Ordering::Relaxed));
    let options = FoundationDbOptions { cluster_file, prefix: prefix.into() };
    let backend = FoundationDbBackend::open(options).await.expect("the cluster serves");
    let fixture = Fixture { backend, directory: None };
    // A cluster that was named is not new.
    fixture.clear().await;
    Some(fixture)
}

/// One cluster of each kind. They start side by side, since nearly all of a start is waiting; and no test begins before all serve, since
/// servers that start would take the processors from those that are tested.
fn clusters() -> &'static [Result<TestCluster, String>] {
    static CLUSTERS: OnceLock<Vec<Result<TestCluster, String>>> = OnceLock::new();
    CLUSTERS.get_or_init(|| {
        let starts = KINDS.map(|kind| std::thread::spawn(move || TestCluster::for_test(kind)));
        let clusters: Vec<_> = starts.into_iter().map(|start| start.join().expect("a cluster")).collect();
        for cluster in &clusters {
            report("conformance suite, FoundationDB backend", cluster.as_ref().map_err(String::as_str));
        }
        clusters
    })
}
