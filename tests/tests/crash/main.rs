//! Kills the real server with SIGKILL while jobs are created and run, and looks from outside at what is left: nothing acknowledged is lost,
//! every slot has one execution, and no execution did its work twice on record.

#![expect(clippy::print_stderr, reason = "a test that takes its time says what it does, and how to repeat it")]

mod clock;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use serde_json::{Value, json};
use server::Server;
use tokio::sync::watch;
use tokio::time::timeout;

const CLIENTS: usize = 4;
const CRON_JOBS: usize = 5;

/// How long the test waits for anything before it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the server can be reached at the moment; empty while it is dead.
type Address = watch::Receiver<String>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_sigkills_lose_nothing_and_repeat_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    kill_again_and_again(&format!("embedded:{}", directory.path().display()), 10, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkills_of_server_and_store_lose_nothing_on_foundationdb() {
    let linked = server::target().join("debug").join("compline-fdb");
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
    push(&server, "invoice").await;
    let cron_jobs = create_cron_jobs(&server).await;

    let (acknowledge, mut acknowledged) = watch::channel(0);
    let acknowledge = Arc::new(acknowledge);
    let (enough, done) = watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(create_jobs(client, reachable.clone(), acknowledge.clone(), done.clone())))
        .collect();
    for kill in 1..=kills {
        // At a random moment: after so many more acknowledgements, not after so much time.
        let until = *acknowledged.borrow() + random.usize(20..200);
        bounded("acknowledged jobs", acknowledged.wait_for(|count| *count >= until)).await.expect("clients at work");
        // And not before the recurring jobs have had a slot in this life.
        bounded("a slot of a recurring job", async { while executions(&server, &cron_jobs[0]).await.len() <= kill {} })
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
    check_one_off_jobs(&server, &created).await;
    for job in &cron_jobs {
        check_cron_job(&server, job, kills).await;
    }
    eprintln!("crash test: {} one-off jobs and {CRON_JOBS} recurring ones survived {kills} kills", created.len());
}

async fn bounded<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for {what}"))
}

async fn push(server: &Server, name: &str) {
    let path = server::target().join("guests").join(format!("{name}.wasm"));
    let component = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask guests` first", path.display()));
    let answer = reqwest::Client::new()
        .post(format!("{}/v1/tasks?name={name}", server.url))
        .header("content-type", "application/wasm")
        .body(component)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap_or_default());
}

fn definition(schedule: Value, name: &str) -> Value {
    let items = json!([{"description": "hosting", "quantity": 3, "unit_price_cents": 1999, "tax_basis_points": 1900}]);
    json!({
        "name": name, "task": "invoice", "schedule": schedule,
        "parameters": {"customer": "Ada", "currency": "EUR", "items": items},
    })
}

async fn create_cron_jobs(server: &Server) -> Vec<String> {
    let client = reqwest::Client::new();
    let mut jobs = Vec::new();
    for number in 0..CRON_JOBS {
        let body = definition(json!({"type": "CRON", "value": "* * * * * *"}), &format!("every-second-{number}"));
        let answer = client.post(format!("{}/v1/jobs", server.url)).json(&body).send().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        let answer: Value = answer.json().await.expect("JSON");
        jobs.push(answer["job_id"].as_str().expect("a job id").to_owned());
    }
    jobs
}

/// Creates one job after another until told that it is enough. What is not acknowledged is asked for again with the same key.
async fn create_jobs(
    client: usize,
    mut reachable: Address,
    acknowledge: Arc<watch::Sender<usize>>,
    done: watch::Receiver<bool>,
) -> BTreeMap<String, String> {
    let http = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().expect("a client");
    let mut created = BTreeMap::new();
    for number in 0.. {
        if *done.borrow() {
            break;
        }
        let key = format!("crash-{client}-{number}");
        let body = definition(json!({"type": "NOW"}), &key);
        let job = loop {
            let url = bounded("a reachable server", reachable.wait_for(|url| !url.is_empty()))
                .await
                .expect("the test")
                .clone();
            let request = http.post(format!("{url}/v1/jobs")).header("Idempotency-Key", &key).json(&body);
            let Ok(answer) = request.send().await else {
                tokio::task::yield_now().await;
                continue;
            };
            assert_eq!(answer.status(), 201);
            // A kill between the head and the body of the answer: the client does not know, and asks again.
            let Ok(answer) = answer.json::<Value>().await else { continue };
            break answer["job_id"].as_str().expect("a job id").to_owned();
        };
        created.insert(key, job);
        acknowledge.send_modify(|count| *count += 1);
    }
    created
}

async fn check_one_off_jobs(server: &Server, created: &BTreeMap<String, String>) {
    for (key, job) in created {
        let executions = bounded("a one-off job to run", async {
            loop {
                let executions = executions(server, job).await;
                if executions.iter().all(|execution| execution["status"] == "COMPLETED") {
                    return executions;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(executions.len(), 1, "job {job} of key {key} has one slot: {executions:?}");
        assert_worked_once(server, &executions[0]).await;
    }
}

/// Every second from the first slot to the newest one that has run has exactly one execution, and it did its work once.
async fn check_cron_job(server: &Server, job: &str, kills: usize) {
    let mut executions = executions(server, job).await;
    executions.reverse();
    let slots: Vec<i64> = executions.iter().map(slot_second).collect();
    let expected: Vec<i64> = (0..slots.len() as i64).map(|step| slots[0] + step).collect();
    assert_eq!(slots, expected, "job {job}: one execution per second, none left out and none doubled");
    // The newest few may be planned, queued or running at this moment; give those that are due their time.
    let due = executions.len().saturating_sub(2);
    assert!(due + 1 >= kills, "job {job} has run only {due} times in {kills} lives of the server");
    for execution in &executions[..due] {
        let id = execution["execution_id"].as_str().expect("an id");
        let settled = bounded("a due slot to run", async {
            loop {
                let execution = get(server, &format!("/v1/executions/{id}")).await;
                if execution["status"] == "COMPLETED" {
                    return execution;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_worked_once(server, &settled).await;
    }
}

fn slot_second(execution: &Value) -> i64 {
    let slot = execution["slot"].as_str().expect("a slot");
    chrono::DateTime::parse_from_rfc3339(slot).expect("an instant").timestamp()
}

async fn assert_worked_once(server: &Server, execution: &Value) {
    let id = execution["execution_id"].as_str().expect("an id");
    let execution = get(server, &format!("/v1/executions/{id}")).await;
    let attempts = execution["attempts"].as_array().expect("attempts");
    let worked = attempts.iter().filter(|attempt| attempt["outcome"]["kind"] == "ok").count();
    assert_eq!(worked, 1, "{id} is recorded as done {worked} times: {execution}");
    // What is not `ok` is the claim that a kill took away.
    for attempt in attempts.iter().filter(|attempt| attempt["outcome"]["kind"] != "ok") {
        assert_eq!(attempt["outcome"]["kind"], "worker-lost", "{execution}");
    }
}

async fn executions(server: &Server, job: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = get(server, &format!("/v1/jobs/{job}/executions?limit=100{cursor}")).await;
        all.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

async fn get(server: &Server, path: &str) -> Value {
    let answer = reqwest::get(format!("{}{path}", server.url)).await.expect("an answer");
    assert_eq!(answer.status(), 200, "GET {path}");
    answer.json().await.expect("JSON")
}
