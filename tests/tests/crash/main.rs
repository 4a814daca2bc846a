//! Kills the real server with SIGKILL while jobs are created and run, and freezes it with SIGSTOP, and looks from outside at what is left: nothing
//! acknowledged is lost, every slot has one execution, and no execution did its work twice on record.

#![expect(clippy::print_stderr, reason = "a test that takes its time says what it does, and how to repeat it")]

mod clock;
mod fleet;
mod refused;
mod server;
mod work;

use std::time::Duration;

use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use server::{Server, ServerOptions};
use tokio::sync::Mutex;
use work::{Load, bounded};

/// One test at a time: they judge how fast the machine answers.
static MACHINE: Mutex<()> = Mutex::const_new(());

const CLIENTS: usize = 4;
const CRON_JOBS: usize = 5;
/// Before one kill in so many the server is frozen for a while.
const FREEZE_EVERY: usize = 5;
/// Longer than a session or a lease lasts here without a sign of life.
const FROZEN_FOR: Duration = Duration::from_millis(2_500);
const SHORT_LIVES: [&str; 2] = ["--session-ttl", "2s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkills_and_freezes_lose_nothing_and_repeat_nothing() {
    let _machine = MACHINE.lock().await;
    let directory = tempfile::tempdir().expect("a directory");
    kill_again_and_again(&format!("embedded:{}", directory.path().display()), work::kills(10), |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_log_nobody_reads_runs_on_and_ends_well() {
    let _machine = MACHINE.lock().await;
    let directory = tempfile::tempdir().expect("a directory");
    // Every request is logged, so that much is written in vain.
    let options = ServerOptions {
        environment: vec![("RUST_LOG", "debug".into())],
        ..ServerOptions::on(&format!("embedded:{}", directory.path().display()))
    };
    let mut server = Server::start(&options).await;
    server.stop_reading().await;
    work::push(&server.url, "invoice").await;
    let cron_jobs = work::create_cron_jobs(&server.url, 1).await;
    bounded("two slots", async { while work::executions(&server.url, &cron_jobs[0]).await.len() < 3 {} }).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkills_of_server_and_store_lose_nothing_on_foundationdb() {
    let _machine = MACHINE.lock().await;
    let cluster = work::linked().and_then(|()| TestCluster::for_test(ClusterOptions::three(StorageEngine::Ssd)));
    report("crash test on FoundationDB", cluster.as_ref().map_err(String::as_str));
    let Ok(mut cluster) = cluster else { return };
    let store = format!("fdb:{}?prefix=compline-test/crash-{}/", cluster.cluster_file().display(), std::process::id());
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
    let mut random = work::random("crash test");
    let options = ServerOptions::on(store).with(SHORT_LIVES);
    let mut server = Server::start(&options).await;
    work::push(&server.url, "invoice").await;
    let cron_jobs = work::create_cron_jobs(&server.url, CRON_JOBS).await;
    let mut load = Load::start(CLIENTS, &server.url);
    for kill in 1..=kills {
        // At a random moment: after so many more acknowledgements, not after so much time.
        let acknowledged = load.acknowledged(random.usize(20..200)).await;
        // And not before the recurring jobs have had a slot in this life.
        bounded("a slot of a recurring job", async {
            while work::executions(&server.url, &cron_jobs[0]).await.len() <= kill {}
        })
        .await;
        if kill.is_multiple_of(FREEZE_EVERY) {
            server.freeze();
            // Nothing happens that could be waited for: this is how long the fault lasts.
            tokio::time::sleep(FROZEN_FOR).await;
            server.thaw();
            load.acknowledged(1).await;
        }
        server.kill().await;
        load.use_servers(&[]);
        also(kill);
        server = Server::start(&options).await;
        load.use_servers(&[&server.url]);
        eprintln!("crash test: kill {kill} after {acknowledged} acknowledged jobs");
    }
    let created = load.finish().await;
    let lost = work::check_one_off_jobs(&server.url, &created).await;
    for job in &cron_jobs {
        work::check_cron_job(&server.url, job, kills - 1).await;
    }
    eprintln!(
        "crash test: {} one-off jobs, {lost} of them begun again after their worker, and {CRON_JOBS} recurring ones survived {kills} kills",
        created.len()
    );
}
