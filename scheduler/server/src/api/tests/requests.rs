//! What every route has in common: strictness, limits, and one shape for failures.

use axum::body::Body;
use axum::http::{Method, Request, header};
use bytes::Bytes;

use super::support::Server;
use crate::api::dto::Page;

#[tokio::test]
async fn routes_and_methods_that_are_not_there_are_problems() {
    let server = Server::new().await;
    for path in ["/", "/v1", "/v1/jobs/", "/v1/nothing", "/v1/executions/a/b/c", "//", "/%ff"] {
        server.get(path).await.problem(404);
    }
    for (method, path, allow) in [
        (Method::DELETE, "/v1/jobs", "GET,HEAD,POST"),
        (Method::POST, "/healthz", "GET,HEAD"),
        (Method::PATCH, "/v1/tasks/x", "GET,HEAD"),
        (Method::GET, "/v1/schedules:preview", "POST"),
    ] {
        let reply = server.method(method, path).await;
        reply.problem(405);
        let mut allowed: Vec<_> = reply.headers[header::ALLOW].to_str().unwrap().split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{path}");
    }
    let reply = server.get("/v1/tasks/%ff").await;
    reply.problem(404);
}

#[tokio::test]
async fn bodies_that_are_not_what_they_should_be_are_problems() {
    let server = Server::new().await;
    for path in ["/v1/jobs", "/v1/schedules:preview"] {
        let deep = "[".repeat(100_000);
        for text in ["{", "{\"a\":1e400}", "nul", "\u{feff}{}", &deep, "{}{}"] {
            let problem = server.post(path, text.to_owned()).await.problem(400);
            assert_eq!(problem["type"], "urn:compline:problem:broken-json");
        }
        for text in ["", "  \n"] {
            assert_eq!(server.post(path, text).await.problem(400)["type"], "urn:compline:problem:empty-body");
        }
        for text in ["[]", "5", "null", "\"x\"", "{}", r#"[null,"echo",{"type":"NOW"}]"#] {
            server.post(path, text).await.problem(422);
        }
        let plain = Request::post(path).header(header::CONTENT_TYPE, "text/plain").body(Body::from("{}")).unwrap();
        server.send(plain).await.problem(415);
        let untyped = Request::post(path).body(Body::from("{}")).unwrap();
        server.send(untyped).await.problem(415);
    }
}

#[tokio::test]
async fn a_json_body_is_a_mebibyte_at_most_however_it_is_sent() {
    let server = Server::new().await;
    let body = |bytes: usize| format!("{{{}", " ".repeat(bytes - 1));
    // At the limit the text is read, and found broken.
    server.post("/v1/jobs", body(1 << 20)).await.problem(400);
    let problem = server.post("/v1/jobs", body((1 << 20) + 1)).await.problem(413);
    assert_eq!(problem["limit_bytes"], 1 << 20);
    let chunks = (0..1025).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1024])));
    let chunked = Body::from_stream(futures::stream::iter(chunks));
    assert_eq!(server.post("/v1/jobs", chunked).await.problem(413)["limit_bytes"], 1 << 20);
    let lying = [("content-length", "10")];
    let chunks = (0..1025).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1024])));
    server.post_with("/v1/jobs", &lying, Body::from_stream(futures::stream::iter(chunks))).await.problem(413);
}

#[tokio::test]
async fn query_strings_are_read_as_strictly_as_bodies() {
    let server = Server::new().await;
    for (path, field) in [
        ("/v1/jobs?limt=5", "limt"),
        ("/v1/jobs?limit=0", "limit"),
        ("/v1/jobs?limit=5&limit=6", "limit"),
        ("/v1/jobs?status=ACTVE", "status"),
        ("/v1/jobs?label=a%20b", "label"),
        ("/v1/executions?status=done", "status"),
        ("/v1/executions?from=2026-12-01", "from"),
        ("/v1/executions?to=1764583200", "to"),
        ("/v1/tasks?tag=x", "tag"),
        ("/v1/nodes?x=1", "x"),
    ] {
        assert_eq!(server.get(path).await.problem(422)["field"], field, "{path}");
    }
    for path in ["/v1/jobs?cursor=x", "/v1/executions?cursor=", "/v1/tasks?cursor=%00", "/v1/jobs?cursor=null"] {
        assert_eq!(server.get(path).await.problem(400)["field"], "cursor", "{path}");
    }
    for path in
        ["/v1/jobs?status=active", "/v1/executions?status=open", "/v1/executions?from=2026-12-01T00:00:00%2B01:00"]
    {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_server_tells_how_it_is() {
    let server = Server::new().await;
    assert_eq!(server.get("/healthz").await.json()["status"], "ok");
    assert_eq!(server.get("/readyz").await.json()["status"], "ok");
    let nodes: Page<crate::api::dto::NodeView> = serde_json::from_str(&server.get("/v1/nodes").await.text).unwrap();
    assert_eq!((nodes.items.len(), nodes.next_cursor), (0, None));
    let metrics = server.get("/metrics").await;
    assert!(metrics.text.contains("compline_store_commits_total"), "{}", metrics.text);
    let described = server.get("/openapi.json").await.json();
    for path in
        ["/v1/tasks", "/v1/jobs", "/v1/jobs/{id}", "/v1/executions/{id}/logs", "/v1/schedules:preview", "/metrics"]
    {
        assert!(described["paths"][path].is_object(), "{path}");
    }
    let fields = &described["components"]["schemas"]["JobRequest"]["properties"];
    assert!(fields["schedule"].is_object() && fields["retry"].is_object(), "{fields}");
}

#[tokio::test]
async fn head_is_answered_without_a_body() {
    let server = Server::new().await;
    let reply = server.method(Method::HEAD, "/healthz").await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, ""));
}

#[tokio::test]
async fn a_schedule_is_previewed() {
    let server = Server::new().await;
    let body = r#"{"cron":"30 2 * * *","time_zone":"America/New_York","after":"2026-03-07T12:00:00Z","count":1}"#;
    let view = server.post("/v1/schedules:preview", body).await.json();
    assert_eq!(view["fires"][0]["at"], "2026-03-08T07:00:00Z");
    assert_eq!(view["fires"][0]["local"], "2026-03-08T03:00:00-04:00");
    let problem = server.post("/v1/schedules:preview", r#"{"cron":"0 24 * * *"}"#).await.problem(422);
    assert_eq!(problem["field"], "cron");
    assert!(problem["hint"].is_string());
    assert_eq!(
        server.post("/v1/schedules:preview", r#"{"crn":"x"}"#).await.problem(422)["hint"],
        "did you mean `cron`?"
    );
}
