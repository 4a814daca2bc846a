//! Tasks that run for a while, so that a fault meets them in the middle: `spin` for about a second, `blink` for about a sixth of one.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::nodes::Fleet;
use crate::work::{PATIENCE, bounded, create, executions, is_over, push_component};

/// A command that counts. How long it takes is up to the machine.
const COMPONENT: &str = r#"(component
  (core module $main (func (export "run") (result i32) (local $i i64)
    (loop $more
      (local.set $i (i64.add (local.get $i) (i64.const 1)))
      (br_if $more (i64.lt_u (local.get $i) (i64.const COUNT))))
    (i32.const 0)))
  (core instance $main (instantiate $main))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $cli-run (export "run" (func $run)))
  (export "wasi:cli/run@0.2.3" (instance $cli-run)))"#;

/// How many are started until one runs where it is wanted.
const TRIES: usize = 30;

pub async fn push(url: &str) {
    for (name, count) in [("spin", "600000000"), ("blink", "100000000")] {
        let component = wat::parse_str(COMPONENT.replace("COUNT", count)).expect("a component");
        push_component(url, name, component).await;
    }
}

/// Starts such tasks until one runs on this node. Returns its job, and the jobs that run elsewhere.
pub async fn on(fleet: &Fleet, task: &str, victim: &str) -> (String, Vec<String>) {
    let url = fleet.urls_but(victim)[0];
    let mut elsewhere = Vec::new();
    for _ in 0..TRIES {
        let limits = json!({"fuel": 100_000_000_000_u64, "timeout": "60s"});
        let body = json!({"task": task, "schedule": {"type": "NOW"}, "limits": limits});
        let job = create(url, &body).await;
        let node = bounded("a task to run", async {
            loop {
                let execution = executions(url, &job).await.remove(0);
                if let Some(attempt) = execution["attempts"].as_array().and_then(|attempts| attempts.last()) {
                    return attempt["node"].as_str().expect("a node").to_owned();
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        if node == victim {
            return (job, elsewhere);
        }
        elsewhere.push(job);
    }
    panic!("{TRIES} tasks, and none runs on {victim}");
}

/// The one execution of such a job, once it is done.
pub async fn done(url: &str, job: &str) -> Value {
    let mut seen = Value::Null;
    let wait = async {
        while seen["status"] != "COMPLETED" {
            seen = executions(url, job).await.remove(0);
            assert!(!is_over(&seen), "{seen}");
        }
    };
    let in_time = timeout(PATIENCE, wait).await.is_ok();
    assert!(in_time, "after {PATIENCE:?} this is not done: {seen}");
    seen
}
