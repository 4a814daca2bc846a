//! Creating jobs, replaying requests, and listings.

use axum::http::header;
use compline_store::backend::memory::Faults;

use super::support::{Server, picky};

const NOW: &str = r#"{"task":"echo","schedule":{"type":"NOW"}}"#;

#[tokio::test]
async fn a_created_job_comes_back_with_every_field() {
    let server = Server::with_echo().await;
    let body = r#"{"name":"nightly-billing","task":"echo@stable",
        "schedule":{"type":"CRON","value":"0 10 * * *","time_zone":"UTC","gap":"shift","fold":"first"},
        "parameters":{"b":1.0,"a":12345678901234567890123},
        "lane":"batch","misfire":{"policy":"run_all","deadline":"PT1H30M","cap":50},"overlap":"allow","max_concurrent":4,"splay":"90s",
        "starts_at":"2026-11-01T00:00:00Z","ends_at":"2099-01-01T00:00:00Z","max_runs":77,
        "retry":{"delays":["10s","1m","600s"]},"limits":{"fuel":5000,"memory_bytes":131072,"timeout":"1500ms"},
        "labels":{"team":"billing"},"paused":false}"#;
    let reply = server.post("/v1/jobs", body).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let id = reply.json()["job_id"].as_str().unwrap().to_owned();
    assert_eq!(reply.headers[header::LOCATION], format!("/v1/jobs/{id}"));
    assert_eq!(reply.json()["next_fires"][0], "2026-12-01T10:00:00Z");
    let reply = server.get(&format!("/v1/jobs/{id}")).await;
    let job = reply.json();
    assert_eq!(
        (&job["state"], &job["revision"], &job["created_at"]),
        (&"ACTIVE".into(), &1.into(), &"2026-11-30T12:00:00Z".into())
    );
    let definition = &job["definition"];
    for (pointer, want) in [
        ("/name", r#""nightly-billing""#),
        ("/task/reference", r#""echo@stable""#),
        ("/task/name", r#""echo""#),
        ("/schedule", r#"{"type":"CRON","value":"0 10 * * *","time_zone":"UTC","gap":"shift","fold":"first"}"#),
        ("/lane", r#""batch""#),
        ("/misfire", r#"{"policy":"run_all","deadline":"1h30m","cap":50}"#),
        ("/overlap", r#""allow""#),
        ("/max_concurrent", "4"),
        ("/splay", r#""1m30s""#),
        ("/starts_at", r#""2026-11-01T00:00:00Z""#),
        ("/ends_at", r#""2099-01-01T00:00:00Z""#),
        ("/max_runs", "77"),
        ("/retry/delays", r#"["10s","1m","10m"]"#),
        ("/limits", r#"{"fuel":5000,"memory_bytes":131072,"timeout":"1s500ms"}"#),
        ("/labels", r#"{"team":"billing"}"#),
        ("/paused", "false"),
    ] {
        let want: serde_json::Value = serde_json::from_str(want).unwrap();
        assert_eq!(definition.pointer(pointer), Some(&want), "{pointer}");
    }
    // Parameters are the task's own: not a digit or a key of them is touched.
    assert!(reply.text.contains(r#""parameters":{"b":1.0,"a":12345678901234567890123}"#), "{}", reply.text);
    assert_eq!(job["next_fires"].as_array().unwrap().len(), 5);
    let execution = &job["recent_executions"][0];
    assert_eq!((&execution["status"], &execution["slot"]), (&"PENDING".into(), &"2026-12-01T10:00:00Z".into()));
    assert_eq!(execution["task"]["name"], "echo");
    let id = execution["execution_id"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/executions/{id}")).await.json()["execution_id"], id);
    assert_eq!(server.get(&format!("/v1/executions/{id}/logs")).await.json()["items"], serde_json::json!([]));
}

#[tokio::test]
async fn a_request_that_can_not_be_is_refused_and_nothing_is_made() {
    let server = Server::with_echo().await;
    server.push("name=picky", picky()).await;
    for (body, field) in [
        (r#"{"task":"echo","schedul":{"type":"NOW"}}"#, "schedul"),
        (r#"{"task":"ecoh","schedule":{"type":"NOW"}}"#, "task"),
        (r#"{"task":"echo@gone","schedule":{"type":"NOW"}}"#, "task"),
        (
            r#"{"task":"sha256:0000000000000000000000000000000000000000000000000000000000000000","schedule":{"type":"NOW"}}"#,
            "task",
        ),
        (r#"{"task":"picky","schedule":{"type":"NOW"}}"#, "parameters"),
        (r#"{"task":"picky","schedule":{"type":"NOW"},"parameters":{"region":5}}"#, "parameters.region"),
        (r#"{"task":"echo","schedule":{"type":"ONCE","value":"2020-01-01T00:00:00Z"}}"#, "schedule.value"),
        (r#"{"task":"echo","task":"echo","schedule":{"type":"NOW"}}"#, "task"),
        (
            r#"{"task":"echo","schedule":{"type":"NOW"},"on_failure":{"task":"notify","parameters":{}}}"#,
            "on_failure.task",
        ),
    ] {
        assert_eq!(server.post("/v1/jobs", body).await.problem(422)["field"], field, "{body}");
    }
    assert_eq!(server.get("/v1/jobs").await.json()["items"], serde_json::json!([]));
    assert_eq!(
        server
            .post("/v1/jobs", r#"{"task":"picky","schedule":{"type":"NOW"},"parameters":{"region":"eu"}}"#)
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn a_key_makes_a_repeat_safe() {
    let server = Server::with_echo().await;
    let once = r#"{"task":"echo@stable","schedule":{"type":"ONCE","value":"2026-11-30T12:30:00Z"},"misfire":{"deadline":"1m"}}"#;
    let first = server.post_with("/v1/jobs", &[("idempotency-key", "k1")], once).await;
    assert_eq!(first.status, 201);
    assert!(!first.headers.contains_key("idempotent-replayed"));
    // By now the instant is over and would be refused; the repeat still is the same request.
    server.set_clock("2026-11-30T20:00:00Z");
    let again = server.post_with("/v1/jobs", &[("idempotency-key", "k1")], once).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.headers[header::LOCATION], first.headers[header::LOCATION]);
    let other = server.post_with("/v1/jobs", &[("idempotency-key", "k1")], NOW).await.problem(422);
    assert_eq!(other["type"], "urn:compline:problem:idempotency-key-reused");
    assert_eq!(server.get("/v1/jobs").await.json()["items"].as_array().unwrap().len(), 1);
    // A day later the key is free again.
    server.set_clock("2026-12-01T20:00:00Z");
    let fresh = server.post_with("/v1/jobs", &[("idempotency-key", "k1")], NOW).await;
    assert_eq!(fresh.status, 201);
    assert_ne!(fresh.json()["job_id"], first.json()["job_id"]);
}

#[tokio::test]
async fn fifty_at_once_with_one_key_make_one_job() {
    let server = Server::with_echo().await;
    server.backend.set_faults(Faults::default());
    let headers = [("idempotency-key", "k")];
    let requests = (0..50).map(|_| server.post_with("/v1/jobs", &headers, NOW));
    let replies = futures::future::join_all(requests).await;
    let first = replies[0].json();
    for reply in &replies {
        assert_eq!((reply.status.as_u16(), &reply.json()["job_id"]), (201, &first["job_id"]));
    }
    let replayed = replies.iter().filter(|reply| reply.headers.contains_key("idempotent-replayed")).count();
    assert_eq!(replayed, 49);
    assert_eq!(server.get("/v1/jobs").await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_is_of_a_reasonable_length() {
    let server = Server::with_echo().await;
    let longest = "k".repeat(255);
    assert_eq!(server.post_with("/v1/jobs", &[("idempotency-key", &longest)], NOW).await.status, 201);
    for key in ["k".repeat(256), String::new()] {
        server.post_with("/v1/jobs", &[("idempotency-key", &key)], NOW).await.problem(400);
    }
    server.post_with("/v1/jobs", &[("idempotency-key", "a"), ("idempotency-key", "b")], NOW).await.problem(400);
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_cursors_hold_while_jobs_come() {
    let server = Server::with_echo().await;
    let mut made = Vec::new();
    for index in 0..5 {
        server.set_clock(&format!("2026-11-30T12:00:0{index}Z"));
        let label = if index % 2 == 0 { "even" } else { "odd" };
        made.push(
            server
                .job(&format!(r#"{{"task":"echo","schedule":{{"type":"NOW"}},"labels":{{"kind":"{label}"}}}}"#))
                .await,
        );
    }
    made.reverse();
    let ids = |json: &serde_json::Value| -> Vec<String> {
        json["items"].as_array().unwrap().iter().map(|job| job["job_id"].as_str().unwrap().to_owned()).collect()
    };
    let first = server.get("/v1/jobs?limit=2").await.json();
    assert_eq!(ids(&first), made[..2]);
    server.set_clock("2026-11-30T12:01:00Z");
    server.job(NOW).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server.get(&format!("/v1/jobs?limit=3&cursor={cursor}")).await.json();
    assert_eq!(ids(&second), made[2..]);
    let odd = server.get("/v1/jobs?label=kind=odd").await.json();
    assert_eq!(ids(&odd), [made[1].clone(), made[3].clone()]);
    assert_eq!(ids(&server.get("/v1/jobs?label=none").await.json()), Vec::<String>::new());
    // A cursor of one listing is no cursor of another.
    server.get(&format!("/v1/executions?cursor={cursor}")).await.problem(400);
    server.get(&format!("/v1/jobs/{}/executions?cursor={cursor}", made[0])).await.problem(400);
}

#[tokio::test]
async fn executions_are_listed_by_job_and_for_all() {
    let server = Server::with_echo().await;
    let mut jobs = Vec::new();
    for hour in 13..18 {
        let body = format!(r#"{{"task":"echo","schedule":{{"type":"ONCE","value":"2026-11-30T{hour}:00:00Z"}}}}"#);
        jobs.push(server.job(&body).await);
    }
    let slots = |json: &serde_json::Value| -> Vec<String> {
        json["items"].as_array().unwrap().iter().map(|run| run["slot"].as_str().unwrap()[11..13].to_owned()).collect()
    };
    let all = server.get("/v1/executions").await.json();
    assert_eq!(slots(&all), ["17", "16", "15", "14", "13"]);
    let page = server.get("/v1/executions?limit=2&status=PENDING").await.json();
    assert_eq!(slots(&page), ["17", "16"]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = server.get(&format!("/v1/executions?limit=5&status=PENDING&cursor={cursor}")).await.json();
    assert_eq!(slots(&rest), ["15", "14", "13"]);
    let window = "/v1/executions?from=2026-11-30T14:00:00Z&to=2026-11-30T16:00:00Z";
    assert_eq!(slots(&server.get(window).await.json()), ["15", "14"]);
    assert_eq!(slots(&server.get("/v1/executions?status=FAILED").await.json()), Vec::<String>::new());
    let of_job = server.get(&format!("/v1/jobs/{}/executions?status=OPEN", jobs[1])).await.json();
    assert_eq!(slots(&of_job), ["14"]);
    // A cursor stays with its filter: FAILED is another listing.
    server.get(&format!("/v1/executions?status=FAILED&cursor={cursor}")).await.problem(400);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let server = Server::with_echo().await;
    for path in [
        "/v1/jobs/job_00000000000000000000000000",
        "/v1/jobs/nonsense",
        "/v1/jobs/job_00000000000000000000000000/executions",
        "/v1/executions/exec_00000000000000000000000000000000",
        "/v1/executions/exec_0/logs",
        "/v1/executions/%20",
    ] {
        assert_eq!(server.get(path).await.problem(404)["field"], "id", "{path}");
    }
}

#[tokio::test]
async fn a_store_that_is_cut_off_is_said_to_be_unavailable() {
    let server = Server::with_echo().await;
    server.ctx.store.close().await.unwrap();
    for reply in [server.get("/readyz").await, server.get("/v1/jobs").await, server.post("/v1/jobs", NOW).await] {
        reply.problem(503);
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}
