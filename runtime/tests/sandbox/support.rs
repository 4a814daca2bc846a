//! What every test needs: an engine, a compiler, a run.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use compline_runtime::{
    CompileError, CompileLimits, CompilePlace, Compiler, Digest, Engine, EngineConfig, Invocation, Limits, Program,
    RunReport,
};

/// An engine for tests. Its pool is small, because every test has one of its own.
pub fn engine() -> Engine {
    engine_with(EngineConfig { concurrent_runs_max: 8, ..EngineConfig::default() })
}

pub fn engine_with(config: EngineConfig) -> Engine {
    Engine::new(config).expect("the engine starts")
}

pub fn compiler(engine: &Engine) -> Compiler {
    Compiler::new(engine.clone(), CompilePlace::InProcess, CompileLimits::default(), None)
        .expect("the limits are valid")
}

pub async fn compile_on(engine: &Engine, bytes: Bytes) -> Result<Program, CompileError> {
    compiler(engine).compile(Digest::of(&bytes), bytes).await
}

pub async fn program(bytes: Bytes) -> Program {
    compile_on(&engine(), bytes).await.expect("the component compiles")
}

pub async fn run(program: &Program, input: impl Into<Bytes>, limits: Limits) -> RunReport {
    let invocation = Invocation { input: input.into(), limits, ..Invocation::default() };
    program.run(invocation, pending()).await
}

/// Compiles and runs once, under the default limits.
pub async fn once(bytes: Bytes, input: impl Into<Bytes>) -> RunReport {
    run(&program(bytes).await, input, Limits::default()).await
}

pub fn nanoseconds(duration: Duration) -> Bytes {
    let nanoseconds = u64::try_from(duration.as_nanos()).expect("a test does not sleep for centuries");
    Bytes::copy_from_slice(&nanoseconds.to_le_bytes())
}
