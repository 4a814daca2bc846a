//! The work that tests give a server, and what must be left of it: a stream of one-off jobs under idempotency keys, and recurring jobs with a slot
//! every second. Seen from outside, through the API.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Where a server can be reached at the moment; empty while it is dead.
pub type Address = watch::Receiver<String>;

/// The workspace's build directory, from where this test runs in it.
pub fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this test's path");
    test.ancestors().nth(3).map(Path::to_path_buf).expect("target/debug/deps")
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
    let answer = reqwest::Client::new()
        .post(format!("{url}/v1/tasks?name={name}"))
        .header("content-type", "application/wasm")
        .body(component)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap_or_default());
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
    let client = reqwest::Client::new();
    let mut jobs = Vec::new();
    for number in 0..count {
        let body = definition(json!({"type": "CRON", "value": "* * * * * *"}), &format!("every-second-{number}"));
        let answer = client.post(format!("{url}/v1/jobs")).json(&body).send().await.expect("an answer");
        assert_eq!(answer.status(), 201);
        let answer: Value = answer.json().await.expect("JSON");
        jobs.push(answer["job_id"].as_str().expect("a job id").to_owned());
    }
    jobs
}

/// Creates one job after another until told that it is enough. What is not acknowledged is asked for again with the same key.
pub async fn create_jobs(
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

/// Every acknowledged job has one execution, which did its work once.
pub async fn check_one_off_jobs(url: &str, created: &BTreeMap<String, String>) {
    for (key, job) in created {
        let executions = bounded("a one-off job to run", async {
            loop {
                let executions = executions(url, job).await;
                if executions.iter().all(|execution| execution["status"] == "COMPLETED") {
                    return executions;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(executions.len(), 1, "job {job} of key {key} has one slot: {executions:?}");
        assert_worked_once(url, &executions[0]).await;
    }
}

/// Every second from the first slot to the newest one that has run has exactly one execution, and it did its work once.
pub async fn check_cron_job(url: &str, job: &str, runs_min: usize) {
    let mut executions = executions(url, job).await;
    executions.reverse();
    let slots: Vec<i64> = executions.iter().map(slot_second).collect();
    let expected: Vec<i64> = (0..slots.len() as i64).map(|step| slots[0] + step).collect();
    assert_eq!(slots, expected, "job {job}: one execution per second, none left out and none doubled");
    // The newest few may be planned, queued or running at this moment; give those that are due their time.
    let due = executions.len().saturating_sub(2);
    assert!(due >= runs_min, "job {job} has run only {due} times, and should have {runs_min} times");
    for execution in &executions[..due] {
        let id = execution["execution_id"].as_str().expect("an id");
        let settled = bounded("a due slot to run", async {
            loop {
                let execution = get(url, &format!("/v1/executions/{id}")).await;
                if execution["status"] == "COMPLETED" {
                    return execution;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_worked_once(url, &settled).await;
    }
}

fn slot_second(execution: &Value) -> i64 {
    let slot = execution["slot"].as_str().expect("a slot");
    chrono::DateTime::parse_from_rfc3339(slot).expect("an instant").timestamp()
}

async fn assert_worked_once(url: &str, execution: &Value) {
    let id = execution["execution_id"].as_str().expect("an id");
    let execution = get(url, &format!("/v1/executions/{id}")).await;
    let attempts = execution["attempts"].as_array().expect("attempts");
    let worked = attempts.iter().filter(|attempt| attempt["outcome"]["kind"] == "ok").count();
    assert_eq!(worked, 1, "{id} is recorded as done {worked} times: {execution}");
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

/// An answer.
pub async fn get(url: &str, path: &str) -> Value {
    let answer = reqwest::get(format!("{url}{path}")).await.expect("an answer");
    assert_eq!(answer.status(), 200, "GET {path}");
    answer.json().await.expect("JSON")
}
