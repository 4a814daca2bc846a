//! A server without a socket.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use compline_core::Timestamp;
use compline_core::time::instant;
use compline_runtime::{CompileLimits, CompilePlace, Compiler, Engine, EngineConfig};
use compline_store::Store;
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use tower::ServiceExt;

use crate::api::{ApiState, router};
use crate::config::Ceilings;
use crate::ctx::Ctx;
use crate::env::{Clock, Env};
use crate::metrics::Metrics;

/// Components in tests are small; this keeps the limit's tests quick.
pub const COMPONENT_BYTES_MAX: u64 = 3 << 20;

struct TestClock(Mutex<Timestamp>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

/// A server, its store and its clock.
pub struct Server {
    router: Router,
    clock: Arc<TestClock>,
    pub ctx: Arc<Ctx>,
    pub backend: Arc<MemoryBackend>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// A failure is a problem document that repeats its status, or it is a bug.
    pub fn problem(&self, status: u16) -> Value {
        let json = self.json();
        assert_eq!((self.status.as_u16(), json["status"].as_u64()), (status, Some(u64::from(status))), "{}", self.text);
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        assert!(json["type"].is_string() && json["title"].is_string() && json["detail"].is_string(), "{}", self.text);
        json
    }
}

impl Server {
    /// An empty server at 2026-11-30T12:00:00Z.
    pub async fn new() -> Self {
        let engine = Engine::new(EngineConfig { concurrent_runs_max: 2, ..EngineConfig::default() }).unwrap();
        let compiler = Compiler::new(engine, CompilePlace::InProcess, CompileLimits::default(), None).unwrap();
        let backend = MemoryBackend::new(MemoryOptions { seed: 1, ..MemoryOptions::default() });
        let clock = Arc::new(TestClock(Mutex::new(instant::parse("2026-11-30T12:00:00Z").unwrap().into())));
        let env = Env::injected(clock.clone(), 1);
        let ctx = Ctx::open(Store::new(backend.clone()), env, Arc::new(Metrics::default())).await.unwrap();
        let ctx = Arc::new(ctx);
        let ceilings = Ceilings { component_bytes: COMPONENT_BYTES_MAX, ..Ceilings::default() };
        Self { router: router(ApiState::new(ctx.clone(), compiler, ceilings)), clock, ctx, backend }
    }

    /// The same with the task `echo`.
    pub async fn with_echo() -> Self {
        let server = Self::new().await;
        let reply = server.push("name=echo&tag=stable", echo()).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        server
    }

    /// Its routes, for a socket.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    pub fn set_clock(&self, text: &str) {
        *self.clock.0.lock() = instant::parse(text).unwrap().into();
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Reply { status: parts.status, headers: parts.headers, text }
    }

    pub async fn bytes(&self, request: Request<Body>) -> (u16, Vec<u8>) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn method(&self, method: Method, path: &str) -> Reply {
        self.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        self.post_with(path, &[], body).await
    }

    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Reply {
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    pub async fn push(&self, query: &str, component: impl Into<Body>) -> Reply {
        let request = Request::post(format!("/v1/tasks?{query}")).header(header::CONTENT_TYPE, "application/wasm");
        self.send(request.body(component.into()).unwrap()).await
    }

    /// Creates a job and returns its id.
    pub async fn job(&self, body: &str) -> String {
        let reply = self.post("/v1/jobs", body.to_owned()).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.json()["job_id"].as_str().unwrap().to_owned()
    }
}

/// A task that returns its input.
pub fn echo() -> Vec<u8> {
    task("", "")
}

/// A task that returns its input, and says that its parameters are an object with a string `region`.
pub fn picky() -> Vec<u8> {
    let schema = r#"{\"type\":\"object\",\"required\":[\"region\"],\"properties\":{\"region\":{\"type\":\"string\"}}}"#;
    let length = schema.replace('\\', "").len();
    let core = format!(
        r#"(data (i32.const 1024) "{schema}")
           (func (export "parameters-schema") (result i32)
             (i32.store (i32.const 512) (i32.const 1024)) (i32.store (i32.const 516) (i32.const {length})) (i32.const 512))"#
    );
    let lift = r#"(func $schema (result string) (canon lift (core func $main "parameters-schema") (memory $memory)))
                  (export "parameters-schema" (func $schema))"#;
    task(&core, lift)
}

fn task(core: &str, extra: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
  (import "compline:task/types@0.1.0" (instance $types
    (type $kind (enum "retryable" "permanent"))
    (export "error-kind" (type $error-kind (eq $kind)))
    (type $record (record (field "kind" $error-kind) (field "message" string)))
    (export "task-error" (type (eq $record)))))
  (alias export $types "task-error" (type $task-error))
  (core module $m
    (memory (export "memory") 1)
    (global $top (mut i32) (i32.const 8192))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (global.get $top)
      (global.set $top (i32.add (global.get $top) (local.get 3))))
    (func (export "run") (param i32 i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (local.get 0))
      (i32.store (i32.const 24) (local.get 1))
      (i32.const 16))
    {core})
  (core instance $main (instantiate $m))
  (alias core export $main "memory" (core memory $memory))
  (alias core export $main "realloc" (core func $realloc))
  (func $run (param "input" (list u8)) (result (result (list u8) (error $task-error)))
    (canon lift (core func $main "run") (memory $memory) (realloc (core func $realloc))))
  (export "run" (func $run))
  {extra})"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"))
}
