//! Pushing tasks and finding them again.

use axum::body::Body;
use axum::http::{Request, header};
use bytes::Bytes;
use compline_core::ids::TaskDigest;

use super::support::{COMPONENT_BYTES_MAX, Server, echo, picky};

#[tokio::test]
async fn a_pushed_task_is_found_by_name_tag_and_digest() {
    let server = Server::new().await;
    let reply = server.push("name=echo&tag=stable&tag=v1", echo()).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let digest = TaskDigest::of(&echo()).to_string();
    assert_eq!(reply.headers[header::LOCATION], format!("/v1/tasks/{digest}"));
    let task = reply.json();
    assert_eq!(
        (&task["name"], &task["digest"], &task["status"]),
        (&"echo".into(), &digest.clone().into(), &"ready".into())
    );
    assert_eq!(task["tags"], serde_json::json!(["stable", "v1"]));
    assert_eq!(task["size_bytes"], echo().len());
    assert_eq!(task["exports"], serde_json::json!(["run"]));
    for reference in ["echo", "echo@stable", "echo@v1", &digest] {
        assert_eq!(server.get(&format!("/v1/tasks/{reference}")).await.json()["digest"], digest, "{reference}");
    }
    for (reference, hint) in [
        ("ecoh", "did you mean `echo`?"),
        ("echo@stabel", "the task echo has the tags stable, v1"),
        ("Echo", "use ASCII lower-case letters, digits, `-`, `_`, `.`"),
        ("zzz", "push it first: `compline task push FILE --name NAME`"),
    ] {
        let problem = server.get(&format!("/v1/tasks/{reference}")).await.problem(404);
        assert_eq!(problem["hint"], hint, "{reference}");
    }
}

#[tokio::test]
async fn the_same_bytes_are_the_same_version() {
    let server = Server::new().await;
    let first = server.push("name=echo", echo()).await.json();
    let writes = server.ctx.store.cost().bytes_written;
    let again = server.push("name=echo&tag=x", echo()).await.json();
    assert_eq!(first["digest"], again["digest"]);
    assert!(server.ctx.store.cost().bytes_written - writes < echo().len() as u64, "no second copy");
    server.push("name=other", echo()).await;
    let names: Vec<_> = server.get("/v1/tasks").await.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["echo", "other"]);
    assert_eq!(server.get("/v1/tasks/echo").await.json()["versions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_tag_moves_and_the_name_means_the_latest() {
    let server = Server::new().await;
    server.push("name=t&tag=stable", echo()).await;
    server.push("name=t", picky()).await;
    let digest = |json: serde_json::Value| json["digest"].as_str().unwrap().to_owned();
    assert_eq!(digest(server.get("/v1/tasks/t").await.json()), TaskDigest::of(&picky()).to_string());
    assert_eq!(digest(server.get("/v1/tasks/t@stable").await.json()), TaskDigest::of(&echo()).to_string());
    server.push("name=t&tag=stable", picky()).await;
    let task = server.get("/v1/tasks/t@stable").await.json();
    assert_eq!(task["digest"], TaskDigest::of(&picky()).to_string());
    assert_eq!(task["versions"].as_array().unwrap().len(), 2);
    assert_eq!(task["parameters_schema"]["required"][0], "region");
}

#[tokio::test]
async fn what_is_not_a_task_is_refused_with_what_to_do() {
    let server = Server::new().await;
    let module = wat::parse_str("(module)").unwrap();
    let no_run = wat::parse_str("(component)").unwrap();
    let cut = echo()[..100].to_vec();
    for (component, word) in [
        (Vec::new(), "empty"),
        (b"hello".to_vec(), "text file"),
        (b"(component)".to_vec(), "wasm-tools parse"),
        (module, "wasm32-wasip2"),
        (no_run, "exports neither"),
        (cut, "cut short"),
        (vec![0xff; 100], "not WebAssembly"),
    ] {
        let problem = server.push("name=x", component).await.problem(422);
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
        assert_eq!(problem["type"], "urn:compline:problem:refused-task");
    }
    server.get("/v1/tasks/x").await.problem(404);
}

#[tokio::test]
async fn names_tags_and_types_are_checked_before_the_body_is_read() {
    let server = Server::new().await;
    for (query, field) in [
        ("", "name"),
        ("name=", "name"),
        ("name=A", "name"),
        ("name=a&name=b", "name"),
        ("name=a&tag=b%20c", "tag"),
        ("name=a&tag=", "tag"),
        ("name=a&tags=b", "tags"),
    ] {
        assert_eq!(server.push(query, echo()).await.problem(422)["field"], field, "{query}");
    }
    let json = Request::post("/v1/tasks?name=a").header(header::CONTENT_TYPE, "application/json");
    server.send(json.body(Body::from(echo())).unwrap()).await.problem(415);
}

#[tokio::test]
async fn a_component_may_be_as_large_as_the_limit_and_no_larger() {
    let server = Server::new().await;
    let padded = |bytes: u64| {
        // A custom section at the end: its id, its length in five bytes, an empty name, and nothing that matters.
        let mut component = echo();
        let content = usize::try_from(bytes).unwrap() - component.len() - 6;
        let length = u32::try_from(content).unwrap();
        component.push(0);
        component.extend((0..5).map(|index| ((length >> (7 * index)) & 0x7f) as u8 | if index < 4 { 0x80 } else { 0 }));
        component.resize(usize::try_from(bytes).unwrap(), 0);
        component
    };
    let reply = server.push("name=large", padded(COMPONENT_BYTES_MAX)).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    assert_eq!(reply.json()["size_bytes"], COMPONENT_BYTES_MAX);
    let component =
        compline_store::tables::task::load_component(&server.ctx.store, TaskDigest::of(&padded(COMPONENT_BYTES_MAX)));
    assert_eq!(component.await.unwrap().unwrap(), padded(COMPONENT_BYTES_MAX));
    let problem = server.push("name=large", padded(COMPONENT_BYTES_MAX + 1)).await.problem(413);
    assert_eq!(problem["limit_bytes"], COMPONENT_BYTES_MAX);
    let pieces: Vec<_> = padded(COMPONENT_BYTES_MAX + 1)
        .chunks(8192)
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    let chunked = Body::from_stream(futures::stream::iter(pieces));
    assert_eq!(server.push("name=large", chunked).await.problem(413)["limit_bytes"], COMPONENT_BYTES_MAX);
}

#[tokio::test]
async fn tasks_are_listed_page_by_page() {
    let server = Server::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        server.push(&format!("name={name}"), echo()).await;
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/tasks?limit=2{cursor}")).await.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn a_component_comes_back_as_it_went_in() {
    let server = Server::with_echo().await;
    let request = Request::get("/v1/tasks/echo@stable/component").body(Body::empty()).unwrap();
    let (status, bytes) = server.bytes(request).await;
    assert_eq!((status, bytes), (200, echo()));
    server.get("/v1/tasks/nothing/component").await.problem(404);
}
