//! `compline task run`: one run in the local sandbox. What it prints is what the task returned; its log goes to stderr.

use std::ffi::OsStr;
use std::future::pending;
use std::path::Path;

use bytes::Bytes;
use compline_core::job::RunLimits;
use compline_core::time::instant;
use compline_runtime::{
    CompileLimits, CompilePlace, Compiler, Digest, Engine, EngineConfig, ExecutionInfo, Invocation, LogLine, Outcome,
    Program, RunReport,
};

use super::args::TaskRunArgs;
use super::out::{Out, printable};
use super::{CliError, input};
use crate::api::{read_duration, read_memory};
use crate::client::Client;
use crate::env::Env;
use crate::ops::schema::ParametersSchema;
use crate::refusal::Refusal;
use crate::sandbox::{level_name, limits};

/// The most memory that a local run can be given: a component has no more.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Runs a component once.
pub async fn run(args: TaskRunArgs, client: impl Fn() -> Result<Client, CliError>, out: &Out) -> Result<(), CliError> {
    let limits = read_limits(&args)?;
    let parameters = match &args.input {
        None => Bytes::new(),
        Some(text) if text == "-" || text.starts_with('@') => input::read("--input", text)?,
        Some(text) => input::read_json("--input", text)?.get().as_bytes().to_vec().into(),
    };
    let component = find(&args.task, client).await?;
    let program = compile(component, limits.memory_bytes, out).await?;
    check(&program, &parameters).await?;
    let invocation = Invocation {
        execution: ExecutionInfo {
            id: args.execution_id,
            attempt: 1,
            slot: instant::format(Env::system().now().to_utc()),
            job_id: "job_local".to_owned(),
            tenant: "local".to_owned(),
            lag_ms: 0,
        },
        input: parameters,
        limits: self::limits(&limits),
    };
    report(program.run(invocation, pending()).await, out)
}

fn read_limits(args: &TaskRunArgs) -> Result<RunLimits, CliError> {
    let default = RunLimits::default();
    let memory_bytes = args.memory.as_deref().map(|text| input::read_size("--memory", text)).transpose()?;
    let timeout = args.timeout.as_deref().map(|text| read_duration("--timeout", text)).transpose()?;
    Ok(RunLimits {
        fuel: args.fuel.unwrap_or(default.fuel),
        memory_bytes: read_memory("--memory", memory_bytes, MEMORY_BYTES_MAX)?,
        timeout: timeout.unwrap_or(default.timeout),
    })
}

/// A file's bytes; if there is no such file, the component that the server has under this name.
async fn find(task: &OsStr, client: impl Fn() -> Result<Client, CliError>) -> Result<Bytes, CliError> {
    let path = Path::new(task);
    if path.is_file() {
        let bytes = std::fs::read(path)
            .map_err(|error| Refusal::new("FILE", format!("{} can't be read: {error}", path.display())))?;
        return Ok(bytes.into());
    }
    let reference = task.to_str().filter(|text| crate::words::TaskName::parse("REF", text).is_ok());
    let looks_like_a_file =
        path.components().count() > 1 || path.extension().is_some_and(|extension| extension == "wasm");
    let Some(reference) = reference.filter(|_| !looks_like_a_file) else {
        let refusal = Refusal::new("FILE", format!("there is no file {}", path.display()));
        return Err(refusal.hint("build the task first, or give the name of a pushed one").into());
    };
    client()?.get_bytes(&["v1", "tasks", reference, "component"]).await
}

async fn compile(component: Bytes, memory_bytes: u64, out: &Out) -> Result<Program, CliError> {
    let no_sandbox = |error: &dyn std::fmt::Display| CliError::failed(format!("there is no sandbox: {error}"));
    let config = EngineConfig {
        concurrent_runs_max: 1,
        memory_bytes_max: memory_bytes.max(EngineConfig::default().memory_bytes_max),
        ..EngineConfig::default()
    };
    let engine = Engine::new(config).map_err(|error| no_sandbox(&error))?;
    let compiler = Compiler::new(engine, CompilePlace::InProcess, CompileLimits::default(), None)
        .map_err(|error| no_sandbox(&error))?;
    let spinner = out.spinner("compiling");
    let compiled = compiler.compile(Digest::of(&component), component).await;
    spinner.finish_and_clear();
    compiled.map_err(|error| CliError::failed(error.to_string()))
}

/// Refuses what a server would refuse when a job is created with it.
async fn check(program: &Program, parameters: &Bytes) -> Result<(), CliError> {
    let schema = program.parameters_schema().await.map_err(|error| CliError::failed(error.to_string()))?;
    let Some(text) = schema else { return Ok(()) };
    let schema = ParametersSchema::parse(&text).map_err(CliError::failed)?;
    schema.check_text(parameters).map_err(|mut refusal| {
        refusal.field = refusal.field.replacen("parameters", "--input", 1);
        refusal.hint = Some(format!("the task's schema is {text}"));
        refusal.into()
    })
}

fn report(report: RunReport, out: &Out) -> Result<(), CliError> {
    for LogLine { level, message } in &report.logs {
        out.say(&format!("{:5} {}", level_name(*level), printable(message)));
    }
    if report.logs_dropped > 0 {
        out.say(&format!("({} more lines did not fit the log's limit)", report.logs_dropped));
    }
    let cost = &report.cost;
    out.detail(&format!(
        "cost: {} fuel, {:.1?} wall, {} bytes of memory at the peak, {} host calls",
        cost.fuel, cost.wall, cost.memory_peak_bytes, cost.host_calls
    ));
    if let Some(output) = report.output.as_deref().filter(|output| !output.is_empty()) {
        out.bytes(output)?;
    }
    match explain(&report.outcome) {
        None => Ok(()),
        Some((text, backtrace)) => {
            backtrace.iter().for_each(|frame| out.say(&format!("  at {}", printable(frame))));
            let kind = report.outcome.kind();
            let text = if kind == "error" { text } else { format!("{kind}: {text}") };
            let error = CliError::failed(text);
            Err(if cost.memory_denied {
                error.with_hint("it was refused memory: --memory gives it more")
            } else {
                error
            })
        }
    }
}

/// What to say about a run that did not do its work, and where it broke.
fn explain(outcome: &Outcome) -> Option<(String, &[String])> {
    let plain = |text: &str| Some((text.to_owned(), [].as_slice()));
    match outcome {
        Outcome::Ok => None,
        Outcome::Error { retryable, message } => {
            let kind = if *retryable { "retryable" } else { "permanent" };
            Some((format!("the task failed ({kind}): {}", printable(message)), &[]))
        }
        Outcome::Trap { message, backtrace } => Some((printable(message), backtrace)),
        Outcome::OutOfFuel => plain("it used up its fuel: --fuel gives it more"),
        Outcome::TimedOut => plain("it did not end in time: --timeout gives it more"),
        Outcome::MemoryLimit => plain("it needs more memory to start: --memory gives it more"),
        Outcome::OutputLimit => plain("its output is larger than the limit"),
        Outcome::Exit(code) => Some((format!("the command exited with code {code}"), &[])),
        Outcome::Cancelled => plain("it was cancelled"),
        Outcome::HostError(message) => Some((message.clone(), &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_success_needs_no_explanation() {
        assert!(explain(&Outcome::Ok).is_none());
        for outcome in [
            Outcome::Error { retryable: true, message: "no".into() },
            Outcome::Trap { message: "unreachable".into(), backtrace: vec!["main".into()] },
            Outcome::OutOfFuel,
            Outcome::TimedOut,
            Outcome::MemoryLimit,
            Outcome::OutputLimit,
            Outcome::Exit(1),
            Outcome::Cancelled,
            Outcome::HostError("x".into()),
        ] {
            assert!(explain(&outcome).is_some_and(|(text, _)| !text.is_empty()), "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_not_looked_for_on_a_server() {
        let no_client = || -> Result<Client, CliError> { panic!("no server is needed") };
        for path in ["./nothing.wasm", "nothing.wasm", "a/b", "/no/such/file"] {
            let error = find(OsStr::new(path), no_client).await.unwrap_err();
            assert_eq!(error.exit(), crate::cli::Exit::Usage, "{path}");
        }
    }
}
