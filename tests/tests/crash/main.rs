//! Kills the real server with SIGKILL while jobs are created and run, and looks from outside at what is left: nothing acknowledged is lost,
//! every slot has one execution, and no execution did its work twice on record.

#![expect(clippy::print_stderr, reason = "a test that takes its time says what it does, and how to repeat it")]

mod clock;
mod server;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use server::Server;
use tokio::sync::watch;
use work::bounded;

const CLIENTS: usize = 4;
const CRON_JOBS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_sigkills_lose_nothing_and_repeat_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    kill_again_and_again(&format!("embedded:{}", directory.path().display()), 10, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkills_of_server_and_store_lose_nothing_on_foundationdb() {
    let linked = work::target().join("debug").join("compline-fdb");
    let cluster = match linked.exists() {
        true => TestCluster::for_test(ClusterOptions::three(StorageEngine::Ssd)),
        false => Err(format!(
            "{} is not built: `cargo xtask test` does it where FoundationDB is installed",
            linked.display()
        )),
    };
    report("crash test on FoundationDB", cluster.as_ref().map_err(String::as_str));
    let Ok(mut cluster) = cluster else { return };
    let store = format!("fdb:{}?prefix=compline-test/crash-{}/", cluster.cluster_file().display(), std::process::id());
    // A killed server's sessions are given back only after their time to live, so a life is long here.
    kill_again_and_again(&store, 3, |kill| {
        // With the server one process of the store dies. The one of the kill before comes back.
        if let TestCluster::Own(cluster) = &mut cluster {
            cluster.start_all().expect("the dead process starts again");
            cluster.kill(kill % cluster.processes()).expect("a process dies");
            // A server that starts meanwhile would say that the cluster does not serve, and end.
            cluster.until_it_serves().expect("the cluster recovers");
        }
    })
    .await;
}

/// Kills the server so many times while clients create jobs, and checks what is left. `also` is called with each kill.
async fn kill_again_and_again(store: &str, kills: usize, mut also: impl FnMut(usize)) {
    let seed = std::env::var("COMPLINE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed);
    eprintln!("crash test: seed {seed} (COMPLINE_TEST_SEED repeats its choices)");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = Server::start(store).await;
    let (address, reachable) = watch::channel(server.url.clone());
    work::push(&server.url, "invoice").await;
    let cron_jobs = work::create_cron_jobs(&server.url, CRON_JOBS).await;

    let (acknowledge, mut acknowledged) = watch::channel(0);
    let acknowledge = Arc::new(acknowledge);
    let (enough, done) = watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(work::create_jobs(client, reachable.clone(), acknowledge.clone(), done.clone())))
        .collect();
    for kill in 1..=kills {
        // At a random moment: after so many more acknowledgements, not after so much time.
        let until = *acknowledged.borrow() + random.usize(20..200);
        bounded("acknowledged jobs", acknowledged.wait_for(|count| *count >= until)).await.expect("clients at work");
        // And not before the recurring jobs have had a slot in this life.
        bounded("a slot of a recurring job", async {
            while work::executions(&server.url, &cron_jobs[0]).await.len() <= kill {}
        })
        .await;
        server.kill().await;
        address.send_replace(String::new());
        also(kill);
        server = Server::start(store).await;
        address.send_replace(server.url.clone());
        eprintln!("crash test: kill {kill} after {until} acknowledged jobs");
    }
    enough.send_replace(true);
    let mut created = BTreeMap::new();
    for client in clients {
        created.extend(client.await.expect("a client"));
    }

    let jobs: BTreeSet<&String> = created.values().collect();
    assert_eq!(jobs.len(), created.len(), "two keys got one job");
    work::check_one_off_jobs(&server.url, &created).await;
    for job in &cron_jobs {
        work::check_cron_job(&server.url, job, kills - 1).await;
    }
    eprintln!("crash test: {} one-off jobs and {CRON_JOBS} recurring ones survived {kills} kills", created.len());
}
