//! The real program on a store in which another build wrote: what it says, how it ends, and what goes on.

use std::path::Path;
use std::process::Output;

use bytes::Bytes;
use compline_store::Store;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::{KeyValue, RangeQuery, Read};
use compline_store::keys::{self, Table};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::MACHINE;
use crate::server::{Server, ServerOptions};
use crate::work::{bounded, create, definition, executions, push, target};

const UNKNOWN: u8 = 255;

/// Runs the program to its end.
async fn compline(arguments: &[&str]) -> Output {
    let program = target().join("debug").join("compline");
    let output = Command::new(program).args(arguments).kill_on_drop(true).output();
    bounded("the program to end", output).await.expect("a program")
}

/// Changes the version of those rows of a table that are `chosen`, while nothing runs. Returns them as they are from then on.
async fn written_by_another_build(
    directory: &Path,
    table: Table,
    chosen: impl Fn(&[u8]) -> bool + Sync,
) -> Vec<KeyValue> {
    let options = EmbeddedOptions { fifo_prefix: keys::fifo_prefix, ..EmbeddedOptions::default() };
    let store = Store::new(EmbeddedBackend::open(directory, options).expect("a store"));
    let chosen = &chosen;
    let written = store.transact(|tx| async move {
        let (begin, end) = ([table as u8].to_vec().into(), [table as u8 + 1].to_vec().into());
        let query = RangeQuery { begin, end, limit: 1_000, reverse: false, read: Read::Serializable };
        let mut written = tx.range(&query).await?;
        written.retain(|row| chosen(&row.key));
        for row in &mut written {
            row.value = Bytes::from([&[UNKNOWN][..], &row.value[1..]].concat());
            tx.set(row.key.clone(), row.value.clone());
        }
        Ok(written)
    });
    let written = written.await.expect("a store").value;
    store.close().await.expect("it closes");
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_build_is_refused_at_the_start_and_a_row_of_one_when_it_is_met() {
    let _machine = MACHINE.lock().await;
    let directory = tempfile::tempdir().expect("a directory");
    let store = &format!("embedded:{}", directory.path().display());
    let mut server = Server::start(&ServerOptions::on(store)).await;
    push(&server.url, "invoice").await;
    let every_second = json!({"type": "CRON", "value": "* * * * * *"});
    let strange = create(&server.url, &definition(every_second.clone(), "strange")).await;
    let healthy = create(&server.url, &definition(every_second, "healthy")).await;
    bounded("a slot of each", async {
        while executions(&server.url, &strange).await.len() < 3 || executions(&server.url, &healthy).await.len() < 3 {}
    })
    .await;
    server.stop().await;

    // A job's row: everything else goes on.
    let is_strange = |key: &[u8]| {
        let id: [u8; compline_core::ids::JobId::BYTES] = key[1..].try_into().expect("a job's key");
        compline_core::ids::JobId::from_bytes(id).to_string() == strange
    };
    let left = written_by_another_build(directory.path(), Table::Job, is_strange).await;
    assert_eq!(left.len(), 1);
    let mut server = Server::start(&ServerOptions::on(store)).await;
    let before = executions(&server.url, &healthy).await.len();
    bounded("slots of the other job", async { while executions(&server.url, &healthy).await.len() < before + 3 {} })
        .await;
    let metrics = reqwest::get(format!("{}/metrics", server.url)).await.expect("an answer").text().await.expect("text");
    let counted = metrics.lines().find(|line| line.starts_with("compline_unreadable_rows_total{table=\"job\"}"));
    let counted = counted.and_then(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    assert!(counted.is_some_and(|count| count > 0), "{metrics}");
    let answer = reqwest::get(format!("{}/v1/jobs/{strange}", server.url)).await.expect("an answer");
    let (status, problem): (_, Value) = (answer.status(), answer.json().await.expect("JSON"));
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(status == 500 && detail.contains("schema version 255") && detail.contains("a newer one"), "{problem}");
    server.stop().await;

    let checked = compline(&["admin", "check", "--store", store, "-o", "json"]).await;
    assert_eq!(checked.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let key = left[0].key.escape_ascii().to_string();
    let listed =
        |finding: &Value| finding["kind"] == "unreadable" && finding["table"] == "job" && finding["key"] == key;
    assert!(findings.iter().any(listed), "{report}");
    assert_eq!(written_by_another_build(directory.path(), Table::Job, is_strange).await, left, "it was left alone");

    // The store's own row: nothing starts.
    let left = written_by_another_build(directory.path(), Table::Meta, |key| key[1..] == *b"store").await;
    for arguments in
        [&["serve", "--listen", "127.0.0.1:0", "--store", store][..], &["admin", "export", "--store", store, "file"]]
    {
        let refused = compline(arguments).await;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let words = ["table meta", "schema version 255", "this build knows 1", "or a newer one"];
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
    }
    let same = written_by_another_build(directory.path(), Table::Meta, |key| key[1..] == *b"store").await;
    assert_eq!(same, left, "it was left alone");
}
