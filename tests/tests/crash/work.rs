//! The work that tests give a server, and what must be left of it: a stream of one-off jobs under idempotency keys, and recurring jobs with a slot
//! every second. Seen from outside, through the API.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::ready;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long a client waits for an answer before it asks again.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The shortest time between two requests of one client: the load is steady, and leaves room for what is tested.
const PACE: Duration = Duration::from_millis(20);

/// How many jobs are checked at once.
const CHECKS_AT_ONCE: usize = 16;

/// The variable that says how often a test kills, instead of the few times that every run has time for.
const KILLS_VARIABLE: &str = "COMPLINE_TEST_KILLS";

/// How often a test is to kill: so often as it was asked for, or `default`.
pub fn kills(default: usize) -> usize {
    std::env::var(KILLS_VARIABLE).map_or(default, |kills| kills.parse().expect("a number of kills"))
}

/// The choices that a test makes.
pub fn random(title: &str) -> fastrand::Rng {
    let seed = std::env::var("COMPLINE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed);
    eprintln!("{title}: seed {seed} (COMPLINE_TEST_SEED repeats its choices)");
    fastrand::Rng::with_seed(seed)
}

/// The workspace's build directory, from where this test runs in it.
pub fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    test.ancestors().nth(3).map(Path::to_path_buf).expect("target/debug/deps")
}

/// Whether a server can be started on a FoundationDB cluster; `Err` says what is missing.
pub fn linked() -> Result<(), String> {
    let linked = target().join("debug").join("compline-fdb");
    let missing =
        || format!("{} is not built: `cargo xtask test` does it where FoundationDB is installed", linked.display());
    if linked.exists() { Ok(()) } else { Err(missing()) }
}

/// Waits, but not forever.
pub async fn bounded<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// Pushes an example task.
pub async fn push(url: &str, name: &str) {
    let path = target().join("guests").join(format!("{name}.wasm"));
    let component = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask guests` first", path.display()));
    push_component(url, name, component).await;
}

/// Pushes a task, and waits until it is compiled: on a busy machine that can take longer than the request.
pub async fn push_component(url: &str, name: &str, component: Vec<u8>) {
    let answer = reqwest::Client::new()
        .post(format!("{url}/v1/tasks?name={name}"))
        .header("content-type", "application/wasm")
        .body(component)
        .send()
        .await
        .expect("an answer");
    let status = answer.status();
    let task: Value = answer.json().await.expect("JSON");
    assert!(status.is_success(), "{task}");
    let path = format!("/v1/tasks/{}", task["digest"].as_str().expect("a digest"));
    bounded("a task to be compiled", async { while get(url, &path).await["status"] != "ready" {} }).await;
}

/// Creates a job.
pub async fn create(url: &str, body: &Value) -> String {
    let answer = reqwest::Client::new().post(format!("{url}/v1/jobs")).json(body).send().await.expect("an answer");
    let status = answer.status();
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(status, 201, "{answer}");
    answer["job_id"].as_str().expect("a job id").to_owned()
}

/// A job of the invoice example.
pub fn definition(schedule: Value, name: &str) -> Value {
    let items = json!([{"description": "hosting", "quantity": 3, "unit_price_cents": 1999, "tax_basis_points": 1900}]);
    json!({
        "name": name, "task": "invoice", "schedule": schedule,
        "parameters": {"customer": "Ada", "currency": "EUR", "items": items},
    })
}

/// Creates jobs that run every second.
pub async fn create_cron_jobs(url: &str, count: usize) -> Vec<String> {
    let mut jobs = Vec::new();
    for number in 0..count {
        let schedule = json!({"type": "CRON", "value": "* * * * * *"});
        jobs.push(create(url, &definition(schedule, &format!("every-second-{number}"))).await);
    }
    jobs
}

/// Clients that create one-off jobs, one after another, each through the server that it is told to use.
pub struct Load {
    clients: Vec<JoinHandle<BTreeMap<String, String>>>,
    addresses: Vec<watch::Sender<String>>,
    acknowledged: watch::Receiver<usize>,
    enough: watch::Sender<bool>,
}

impl Load {
    /// So many clients, all at this server.
    pub fn start(clients: usize, url: &str) -> Self {
        let (acknowledge, acknowledged) = watch::channel(0);
        let acknowledge = Arc::new(acknowledge);
        let (enough, done) = watch::channel(false);
        let addresses: Vec<_> = (0..clients).map(|_| watch::channel(url.to_owned()).0).collect();
        let clients = addresses.iter().enumerate().map(|(client, address)| {
            tokio::spawn(create_jobs(client, address.subscribe(), acknowledge.clone(), done.clone()))
        });
        Self { clients: clients.collect(), addresses, acknowledged, enough }
    }

    /// From now on these servers are used, by one client after another; none: nobody can be reached.
    pub fn use_servers(&self, urls: &[&str]) {
        let mut urls = urls.iter().cycle();
        for address in &self.addresses {
            address.send_replace(urls.next().copied().unwrap_or_default().to_owned());
        }
    }

    /// Waits for so many acknowledgements more. Returns how many there are.
    pub async fn acknowledged(&mut self, more: usize) -> usize {
        let until = *self.acknowledged.borrow() + more;
        let count = bounded("acknowledged jobs", self.acknowledged.wait_for(|count| *count >= until)).await;
        *count.expect("clients at work")
    }

    /// Ends the clients. Returns the jobs that were acknowledged, by their keys.
    pub async fn finish(self) -> BTreeMap<String, String> {
        self.enough.send_replace(true);
        let mut created = BTreeMap::new();
        for client in self.clients {
            created.extend(client.await.expect("a client"));
        }
        let jobs: BTreeSet<&String> = created.values().collect();
        assert_eq!(jobs.len(), created.len(), "two keys got one job");
        created
    }
}

/// Creates one job after another until told that it is enough. What is not acknowledged is asked for again with the same key.
async fn create_jobs(
    client: usize,
    mut reachable: watch::Receiver<String>,
    acknowledge: Arc<watch::Sender<usize>>,
    done: watch::Receiver<bool>,
) -> BTreeMap<String, String> {
    let http = reqwest::Client::builder().timeout(ANSWER_WITHIN).build().expect("a client");
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut created = BTreeMap::new();
    for number in 0.. {
        if *done.borrow() {
            break;
        }
        let key = format!("crash-{client}-{number}");
        let body = definition(json!({"type": "NOW"}), &key);
        let job = loop {
            pace.tick().await;
            let url = bounded("a reachable server", reachable.wait_for(|url| !url.is_empty()))
                .await
                .expect("the test")
                .clone();
            let request = http.post(format!("{url}/v1/jobs")).header("Idempotency-Key", &key).json(&body);
            let Ok(answer) = request.send().await else { continue };
            // A server that stops, or whose store is away, may say so; it acknowledges nothing.
            if answer.status() == 503 {
                continue;
            }
            assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap_or_default());
            // A kill between the head and the body of the answer: the client does not know, and asks again.
            let Ok(answer) = answer.json::<Value>().await else { continue };
            break answer["job_id"].as_str().expect("a job id").to_owned();
        };
        created.insert(key, job);
        acknowledge.send_modify(|count| *count += 1);
    }
    created
}

/// Every acknowledged job has one execution, which did its work once. Returns how many of them lost a worker first.
pub async fn check_one_off_jobs(url: &str, created: &BTreeMap<String, String>) -> usize {
    let checks = created.iter().map(|(key, job)| async move {
        let executions = bounded("a one-off job to run", async {
            loop {
                let executions = executions(url, job).await;
                if executions.iter().all(|execution| execution["status"] == "COMPLETED") {
                    return executions;
                }
                assert!(executions.iter().all(|execution| !is_over(execution)), "{executions:?}");
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(executions.len(), 1, "job {job} of key {key} has one slot: {executions:?}");
        assert_worked_once(&executions[0]);
        executions[0]["attempts"].as_array().is_some_and(|attempts| attempts.len() > 1)
    });
    let lost = stream::iter(checks).buffer_unordered(CHECKS_AT_ONCE).filter(|lost| ready(*lost));
    lost.count().await
}

/// Whether an execution ended without having done its work.
pub fn is_over(execution: &Value) -> bool {
    ["FAILED", "CANCELLED", "SKIPPED"].iter().any(|status| execution["status"] == *status)
}

/// Every second from the first slot to the newest one that has run has exactly one execution, and it did its work once. Returns those, the oldest
/// first.
pub async fn check_cron_job(url: &str, job: &str, runs_min: usize) -> Vec<Value> {
    let mut executions = executions(url, job).await;
    executions.reverse();
    let slots: Vec<i64> = executions.iter().map(slot_second).collect();
    let expected: Vec<i64> = (0..slots.len() as i64).map(|step| slots[0] + step).collect();
    assert_eq!(slots, expected, "job {job}: one execution per second, none left out and none doubled");
    // The newest few may be planned, queued or running at this moment; give those that are due their time.
    let due = executions.len().saturating_sub(2);
    assert!(due >= runs_min, "job {job} has run only {due} times, and should have {runs_min} times");
    executions.truncate(due);
    for execution in &mut executions {
        let id = execution["execution_id"].as_str().expect("an id").to_owned();
        bounded("a due slot to run", async {
            while execution["status"] != "COMPLETED" {
                assert!(!is_over(execution), "{execution}");
                *execution = get(url, &format!("/v1/executions/{id}")).await;
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_worked_once(execution);
    }
    executions
}

fn slot_second(execution: &Value) -> i64 {
    let slot = execution["slot"].as_str().expect("a slot");
    chrono::DateTime::parse_from_rfc3339(slot).expect("an instant").timestamp()
}

fn assert_worked_once(execution: &Value) {
    let attempts = execution["attempts"].as_array().expect("attempts");
    let worked = attempts.iter().filter(|attempt| attempt["outcome"]["kind"] == "ok").count();
    assert_eq!(worked, 1, "it is recorded as done {worked} times: {execution}");
    // What is not `ok` is the claim that a kill took away.
    for attempt in attempts.iter().filter(|attempt| attempt["outcome"]["kind"] != "ok") {
        assert_eq!(attempt["outcome"]["kind"], "worker-lost", "{execution}");
    }
}

/// All executions of a job, the newest first.
pub async fn executions(url: &str, job: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = get(url, &format!("/v1/jobs/{job}/executions?limit=100{cursor}")).await;
        all.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// An answer, once the store serves.
pub async fn get(url: &str, path: &str) -> Value {
    bounded("an answer", async {
        loop {
            let answer = reqwest::get(format!("{url}{path}")).await.expect("an answer");
            if answer.status() != 503 {
                assert_eq!(answer.status(), 200, "GET {path}");
                return answer.json().await.expect("JSON");
            }
        }
    })
    .await
}
