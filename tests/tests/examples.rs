//! The example tasks through the real runtime: each does what its README says, inside the default limits.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use compline_runtime::{
    CompileLimits, CompilePlace, Compiler, Digest, Engine, EngineConfig, ExecutionInfo, Invocation, Limits, Outcome,
    Program, RunReport,
};
use serde_json::{Value, json};

static COMPILER: LazyLock<Compiler> = LazyLock::new(|| {
    let engine = Engine::new(EngineConfig::default()).expect("the engine starts");
    Compiler::new(engine, CompilePlace::InProcess, CompileLimits::default(), None).expect("the compiler starts")
});

fn component(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests").join(name).with_extension("wasm")
}

async fn program(name: &str) -> Program {
    let path = component(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}. Build the example tasks first: `cargo xtask guests`", path.display())
    });
    COMPILER.compile(Digest::of(&bytes), Bytes::from(bytes)).await.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// One attempt of the execution `exec_1`, under the default limits.
async fn attempt(program: &Program, attempt: u32, input: &Value) -> RunReport {
    let execution = ExecutionInfo {
        id: "exec_1".into(),
        attempt,
        slot: "2026-12-01T10:00:00Z".into(),
        job_id: "job_1".into(),
        tenant: "default".into(),
        lag_ms: 3,
    };
    let invocation = Invocation { execution, input: input.to_string().into(), limits: Limits::default() };
    program.run(invocation, std::future::pending()).await
}

async fn run(name: &str, input: Value) -> RunReport {
    attempt(&program(name).await, 1, &input).await
}

fn output(report: &RunReport) -> Value {
    assert_eq!(report.outcome, Outcome::Ok, "stderr: {}", report.stderr_tail);
    let output = report.output.as_ref().expect("a task that is ok has an output");
    serde_json::from_slice(output).expect("the output is JSON")
}

/// The message of a failure, and whether it may be retried.
fn failure(report: &RunReport) -> (bool, &str) {
    match &report.outcome {
        Outcome::Error { retryable, message } => (*retryable, message),
        other => panic!("expected an error, got {other:?}"),
    }
}

#[tokio::test]
async fn every_example_says_which_parameters_it_takes() {
    for name in ["csv-report", "flaky", "invoice", "thumbnail"] {
        let schema = program(name).await.parameters_schema().await.unwrap().expect(name);
        let schema: Value = serde_json::from_str(&schema).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        // Only an invoice needs to be told something.
        let kind = if name == "invoice" { json!("object") } else { json!(["object", "null"]) };
        assert_eq!(schema["type"], kind, "{name}");
        assert_eq!(schema["additionalProperties"], false, "{name}: a misspelt parameter is refused");
    }
}

#[tokio::test]
async fn every_example_refuses_parameters_that_do_not_fit_with_the_field_named() {
    for (name, input, field) in [
        ("csv-report", json!({"outlier_threshold": "high"}), "parameter `outlier_threshold`"),
        ("flaky", json!({"mode": "explode"}), "parameter `mode`: unknown variant `explode`"),
        (
            "invoice",
            json!({"customer": "Ada", "items": [{"description": "x", "quantity": -1, "unit_price_cents": 1}]}),
            "parameter `items[0].quantity`",
        ),
        ("thumbnail", json!({"fitt": 3}), "parameter `fitt`: unknown field"),
    ] {
        let report = run(name, input).await;
        let (retryable, message) = failure(&report);
        assert!(!retryable && message.starts_with(field), "{name}: {message}");
    }
}

#[tokio::test]
async fn csv_report_summarises_the_built_in_table() {
    let report = run("csv-report", json!({})).await;
    let output = output(&report);
    assert_eq!(output["rows"], 5760);
    assert_eq!(output["groups"].as_array().map(Vec::len), Some(4));
    assert_eq!(output["outliers"][0]["value"], 9999.0);
    assert_eq!(report.logs.len(), 2, "{:?}", report.logs);
}

#[tokio::test]
async fn csv_report_summarises_a_table_from_the_parameters() {
    let input = json!({"csv": "team,points\nred,3\nblue,5\nred,4\n", "group_by": "team", "value": "points"});
    let output = output(&run("csv-report", input).await);
    assert_eq!((&output["total"], &output["median"]), (&json!(12.0), &json!(4.0)));
    assert_eq!(
        output["groups"][1],
        json!({"name": "red", "rows": 2, "total": 7.0, "mean": 3.5, "median": 3.5, "min": 3.0, "max": 4.0})
    );
}

#[tokio::test]
async fn invoice_names_the_same_charge_at_every_attempt() {
    let program = program("invoice").await;
    let item =
        json!({"description": "Engine time, hours", "quantity": 3, "unit_price_cents": 1999, "tax_basis_points": 1900});
    let input = json!({"customer": "Ada Lovelace", "items": [item]});
    let first = output(&attempt(&program, 1, &input).await);
    assert_eq!(first["charge"], json!({"idempotency_key": "exec_1/charge", "amount_cents": 5997 + 1139}));
    assert_eq!(output(&attempt(&program, 2, &input).await), first);
}

#[tokio::test]
async fn thumbnail_shrinks_its_own_picture_and_then_that_one_again() {
    let program = program("thumbnail").await;
    let report = attempt(&program, 1, &json!({})).await;
    assert!(report.cost.fuel > Limits::default().fuel / 100, "it is the example that computes: {:?}", report.cost);
    let large = output(&report);
    assert_eq!((&large["width"], &large["height"]), (&json!(128), &json!(96)));
    let small = output(&attempt(&program, 1, &json!({"png_base64": large["png_base64"], "fit": 32})).await);
    assert_eq!((&small["source_width"], &small["width"], &small["height"]), (&json!(128), &json!(32), &json!(24)));
}

#[tokio::test]
async fn flaky_succeeds_after_the_attempts_that_fail() {
    let program = program("flaky").await;
    let input = json!({"fail_attempts": 2});
    for number in [1, 2] {
        let report = attempt(&program, number, &input).await;
        let (retryable, message) = failure(&report);
        assert!(retryable && message.starts_with(&format!("attempt {number} of 2")), "{message}");
    }
    assert_eq!(output(&attempt(&program, 3, &input).await), json!({"succeeded_at_attempt": 3}));
}

#[tokio::test]
async fn flaky_shows_every_other_outcome() {
    let permanent = run("flaky", json!({"mode": "permanent"})).await;
    assert_eq!(failure(&permanent), (false, "asked to fail for good"));

    let trap = run("flaky", json!({"mode": "trap"})).await;
    assert_eq!(trap.outcome.kind(), "trap");
    assert!(trap.stderr_tail.contains("asked to panic"), "{}", trap.stderr_tail);

    let spin = run("flaky", json!({"mode": "spin"})).await;
    assert_eq!(spin.outcome, Outcome::OutOfFuel);

    let hog = run("flaky", json!({"mode": "hog"})).await;
    assert!(hog.cost.memory_denied && hog.outcome != Outcome::Ok, "{:?}", hog.outcome);
    assert!(hog.cost.memory_peak_bytes <= Limits::default().memory_bytes);
}
