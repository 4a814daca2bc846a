//! Changing jobs and cancelling executions, as requests.

use axum::body::Body;
use axum::http::{Method, Request, header};
use serde_json::{Value, json};

use super::support::{Reply, Server};

const HOURLY: &str =
    r#"{"task":"echo","schedule":{"type":"CRON","value":"45 * * * *"},"misfire":{"cap":7},"labels":{"a":"1"}}"#;

async fn patch(server: &Server, id: &str, revision: Option<&str>, body: &str) -> Reply {
    let mut request = Request::patch(format!("/v1/jobs/{id}")).header(header::CONTENT_TYPE, "application/json");
    if let Some(revision) = revision {
        request = request.header(header::IF_MATCH, revision);
    }
    server.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn c57_an_edit_changes_what_it_names_and_comes_back() {
    let server = Server::with_echo().await;
    let id = server.job(HOURLY).await;
    let edit = r#"{"name":"n","misfire":{"cap":null},"labels":{"b":"2"},"schedule":{"value":"15 * * * *"}}"#;
    let reply = patch(&server, &id, Some("\"1\""), edit).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.headers[header::ETAG]),
        (200, &"\"2\"".parse().unwrap()),
        "{}",
        reply.text
    );
    let job = reply.json();
    let definition = &job["definition"];
    assert_eq!((&definition["name"], &definition["misfire"]["cap"]), (&json!("n"), &json!(1000)));
    assert_eq!(definition["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!((&job["revision"], &job["next_fires"][0]), (&json!(2), &json!("2026-11-30T12:15:00Z")));
    assert_eq!(job["recent_executions"].as_array().map(Vec::len), Some(1), "the slot of the old schedule is gone");
    assert_eq!(patch(&server, &id, Some("1"), edit).await.problem(412)["field"], "If-Match");
    for (wrong, field) in [
        (r#"{"schedul":null}"#, "schedul"),
        (r#"{"paused":true}"#, "paused"),
        (r#"{"task":"ecoh"}"#, "task"),
        (r#"{"schedule":{"value":"0 0 30 2 *"}}"#, "schedule.value"),
        (r#"{"schedule":{"type":"ONCE","value":"2026-11-30T11:59:00Z"}}"#, "schedule.value"),
    ] {
        assert_eq!(patch(&server, &id, None, wrong).await.problem(422)["field"], field, "{wrong}");
    }
    assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.json()["revision"], 2);
    patch(&server, "job_x", None, "{}").await.problem(404);
}

/// What the answer to an edit says of some fields.
async fn edited(server: &Server, id: &str, edit: &str, fields: &[&str]) -> Value {
    let reply = patch(server, id, None, edit).await;
    assert_eq!(reply.status, 200, "{edit}: {}", reply.text);
    let definition = &reply.json()["definition"];
    fields.iter().map(|field| (field.to_string(), definition[*field].clone())).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test]
async fn c57_every_policy_can_be_edited_in_part_and_taken_away_again() {
    let server = Server::with_echo().await;
    let id = server
        .job(
            r#"{"task":"echo","schedule":{"type":"CRON","value":"45 * * * *"},"retry":{"delays":["1s","2s"]},
            "on_failure":{"task":"echo","parameters":{"big":12345678901234567890123}}}"#,
        )
        .await;
    let edit = |edit: &'static str, fields: &'static [&str]| edited(&server, &id, edit, fields);
    let grown = edit(r#"{"retry":{"max_attempts":5}}"#, &["retry"]).await;
    assert_eq!(grown["retry"], json!({"delays": ["1s", "2s", "2s", "2s"], "max_attempts": 5}));
    let shorter = edit(r#"{"retry":{"delays":["7s"]}}"#, &["retry"]).await;
    assert_eq!(shorter["retry"], json!({"delays": ["7s"], "max_attempts": 2}));
    let other = edit(r#"{"retry":{"exponential":{"first":"1s","max":"1m"},"max_attempts":9}}"#, &["retry"]).await;
    let exponential = json!({"first": "1s", "factor": 2.0, "max": "1m", "jitter": true});
    assert_eq!(other["retry"], json!({"exponential": exponential, "max_attempts": 9}));
    let part = edit(r#"{"retry":{"exponential":{"jitter":false}}}"#, &["retry"]).await;
    let exponential = json!({"first": "1s", "factor": 2.0, "max": "1m", "jitter": false});
    assert_eq!(part["retry"], json!({"exponential": exponential, "max_attempts": 9}));
    let default = edit(r#"{"retry":null}"#, &["retry"]).await;
    assert_eq!(default["retry"], json!({"delays": ["10s", "1m", "10m"], "max_attempts": 4}));
    let handler = edit(r#"{"on_failure":{"parameters":[1]}}"#, &["on_failure"]).await;
    assert_eq!(
        (&handler["on_failure"]["task"]["reference"], &handler["on_failure"]["parameters"]),
        (&json!("echo"), &json!([1]))
    );
    let none = edit(r#"{"on_failure":null}"#, &["on_failure"]).await;
    assert_eq!(none["on_failure"], Value::Null);
    let rules = r#"{"max_concurrent":3,"splay":"1m","ends_at":"2027-01-01T00:00:00Z","max_runs":9,"lane":"batch"}"#;
    let fields = &["max_concurrent", "splay", "ends_at", "max_runs", "lane"];
    assert_eq!(edit(rules, fields).await, serde_json::from_str::<Value>(rules).unwrap());
    assert_eq!(edit(r#"{"name":"n"}"#, fields).await, serde_json::from_str::<Value>(rules).unwrap(), "the rest stays");
    assert_eq!(
        edit(r#"{"max_concurrent":null,"splay":null,"ends_at":null,"max_runs":null,"lane":null}"#, fields).await,
        json!({"max_concurrent": null, "splay": "0s", "ends_at": null, "max_runs": null, "lane": "default"})
    );
    for (wrong, field) in [
        (r#"{"retry":{"delays":["7s"],"exponential":{}}}"#, "retry.exponential"),
        (r#"{"on_failure":{"parameters":1}}"#, "on_failure.task"),
        (r#"{"on_failure":{"task":"nobody"}}"#, "on_failure.task"),
        (r#"{"retry":{"max_attempts":99}}"#, "retry.max_attempts"),
    ] {
        assert_eq!(patch(&server, &id, None, wrong).await.problem(422)["field"], field, "{wrong}");
    }
}

#[tokio::test]
async fn c30_c31_pause_resume_trigger_and_delete_answer_with_what_is() {
    let server = Server::with_echo().await;
    let id = server.job(HOURLY).await;
    let act = |verb: &str| format!("/v1/jobs/{id}/{verb}");
    let paused = server.post(&act("pause"), "").await.json();
    assert_eq!((&paused["state"], &paused["next_fires"]), (&json!("PAUSED"), &json!([])));
    let triggered = server.post(&act("trigger"), "{}").await;
    assert_eq!(triggered.status, 201);
    let execution = triggered.json()["execution_id"].as_str().unwrap().to_owned();
    assert_eq!(triggered.headers[header::LOCATION], format!("/v1/executions/{execution}"));
    let resumed = server.post(&act("resume"), "").await.json();
    assert_eq!((&resumed["state"], &resumed["next_fires"][0]), (&json!("ACTIVE"), &json!("2026-11-30T12:45:00Z")));
    server.post(&act("pause"), r#"{"for":"1h"}"#).await.problem(422);
    let filled = server.post(&act("backfill"), r#"{"from":"2026-11-30T02:00:00Z","to":"2026-11-30T05:00:00Z"}"#).await;
    assert_eq!((filled.status.as_u16(), &filled.json()["executions"]), (202, &json!(3)), "{}", filled.text);
    for (body, field) in [
        (r#"{"from":"2026-11-30T05:00:00Z","to":"2026-11-30T02:00:00Z"}"#, "to"),
        (r#"{"from":"2026-11-30T05:00:00Z","to":"2036-11-30T02:00:00Z"}"#, "to"),
        (r#"{"from":"2025-11-30T05:00","to":"2026-11-30T02:00:00Z"}"#, "from"),
        (r#"{"from":"2016-11-30T05:00:00Z","to":"2026-11-30T02:00:00Z"}"#, "to"),
    ] {
        assert_eq!(server.post(&act("backfill"), body).await.problem(422)["field"], field, "{body}");
    }
    let delete = format!("/v1/jobs/{id}");
    let gone = async |query: &str| server.method(Method::DELETE, &format!("{delete}{query}")).await;
    gone("?running=kill").await.problem(422);
    let deleted: Value = gone("?running=stop").await.json();
    assert_eq!((&deleted["state"], &deleted["cancelled"]), (&json!("DELETED"), &json!(4)));
    assert_eq!(gone("").await.json()["cancelled"], 0);
    assert_eq!(server.get(&delete).await.json()["state"], "DELETED");
    assert_eq!(server.get("/v1/jobs").await.json()["items"], json!([]));
    assert_eq!(server.get("/v1/jobs?status=DELETED").await.json()["items"][0]["job_id"], id);
    for verb in ["trigger", "backfill"] {
        let body = r#"{"from":"2026-11-30T02:00:00Z","to":"2026-11-30T05:00:00Z"}"#;
        server.post(&act(verb), if verb == "trigger" { "" } else { body }).await.problem(404);
    }
    for verb in ["pause", "resume"] {
        server.post(&act(verb), "").await.problem(409);
    }
    patch(&server, &id, None, "{}").await.problem(409);
    assert_eq!(server.get(&format!("/v1/executions/{execution}")).await.json()["status"], "CANCELLED");
}

#[tokio::test]
async fn cancelling_answers_with_what_became_of_it() {
    let server = Server::with_echo().await;
    let id = server.job(HOURLY).await;
    let job = server.get(&format!("/v1/jobs/{id}")).await.json();
    let execution = job["recent_executions"][0]["execution_id"].as_str().unwrap().to_owned();
    let cancel = format!("/v1/executions/{execution}/cancel");
    for _ in 0..2 {
        let reply = server.post(&cancel, "").await;
        assert_eq!((reply.status.as_u16(), &reply.json()["status"]), (200, &json!("CANCELLED")));
    }
    let next = &server.get(&format!("/v1/jobs/{id}")).await.json()["next_fires"][0];
    assert_eq!(next, "2026-11-30T13:45:00Z", "the schedule goes on behind it");
    server.post("/v1/executions/exec_x/cancel", "").await.problem(404);
    server.post(&cancel, r#"{"force":true}"#).await.problem(422);
}

#[tokio::test]
async fn a_job_can_begin_paused_if_it_has_something_to_wait_for() {
    let server = Server::with_echo().await;
    let reply = server
        .post("/v1/jobs", r#"{"task":"echo","schedule":{"type":"CRON","value":"45 * * * *"},"paused":true}"#)
        .await;
    let id = reply.json()["job_id"].as_str().unwrap().to_owned();
    let job = server.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!((&job["state"], &job["definition"]["paused"]), (&json!("PAUSED"), &json!(true)));
    assert_eq!(job["recent_executions"], json!([]));
    let resumed = server.post(&format!("/v1/jobs/{id}/resume"), "").await.json();
    assert_eq!(resumed["next_fires"][0], "2026-11-30T12:45:00Z");
    let now = r#"{"task":"echo","schedule":{"type":"NOW"},"paused":true}"#;
    assert_eq!(server.post("/v1/jobs", now).await.problem(422)["field"], "paused");
}
