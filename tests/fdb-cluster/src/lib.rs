//! Throw-away FoundationDB clusters on loopback, for tests, benchmarks and the demo.
//!
//! `fdbserver` and `fdbcli` are looked for on PATH. A test that cannot have a cluster is skipped, and says so in one line.
//!
//! A cluster's processes, and its directory, go when the [`Cluster`] is dropped and also when this process dies in whatever way: each server
//! runs under a small shell that waits for the end of its standard input.

mod cluster;
mod library;
mod server;

use std::io::Write;
use std::path::{Path, PathBuf};

pub use cluster::{Cluster, ClusterOptions, StorageEngine};
pub use library::library;

/// Names the cluster file of a running cluster for tests to use, instead of clusters of their own.
pub const CLUSTER_VARIABLE: &str = "COMPLINE_TEST_FDB_CLUSTER";

/// Whether clusters can be started here; `Err` says what is missing and how to get it.
pub fn installed() -> Result<(), String> {
    server::programs().map(|_| ())
}

/// The cluster that a test runs on.
pub enum TestCluster {
    /// Its own.
    Own(Cluster),
    /// One that was running, at this cluster file. It is shared, and no process of it may be killed.
    Named(PathBuf),
}

impl TestCluster {
    /// The cluster that [`CLUSTER_VARIABLE`] names, or a new one.
    ///
    /// `Err` says why there is none. It is a reason to skip if the programs are missing; everything else is a fault, and panics.
    pub fn for_test(options: ClusterOptions) -> Result<Self, String> {
        match std::env::var_os(CLUSTER_VARIABLE) {
            Some(path) => Ok(Self::Named(path.into())),
            None => {
                installed()?;
                let started = Cluster::start(options);
                Ok(Self::Own(
                    started.unwrap_or_else(|error| panic!("no FoundationDB cluster could be started: {error:#}")),
                ))
            }
        }
    }

    /// Its cluster file.
    pub fn cluster_file(&self) -> &Path {
        match self {
            Self::Own(cluster) => cluster.cluster_file(),
            Self::Named(path) => path,
        }
    }

    /// What it is, in a few words: `FoundationDB 7.3.79, 1 process, memory engine`.
    pub fn description(&self) -> String {
        match self {
            Self::Own(cluster) => cluster.description(),
            Self::Named(path) => format!("the cluster of {}", path.display()),
        }
    }
}

/// Says in one line what `tests` ran on, or that they were skipped and why. The test runner shows the line whether they pass or fail.
pub fn report(tests: &str, cluster: Result<&TestCluster, &str>) {
    let line = match cluster {
        Ok(cluster) => format!("{tests}: run on {}", cluster.description()),
        Err(reason) => format!("{tests}: SKIPPED: {reason}"),
    };
    // Not `eprintln!`, which the test runner holds back.
    let _ = writeln!(std::io::stderr(), "\n{line}");
}
