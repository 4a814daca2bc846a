//! Compiling: its limits, its cache, and that it disturbs nobody.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use compline_runtime::{
    CompileError, CompileLimits, CompilePlace, Compiler, CompilerError, Digest, Engine, Limits, Outcome, Program,
    Refusal, engine_version,
};
use tempfile::TempDir;

use crate::guest::{self, wasm};
use crate::support::{compiler, engine, run};

const WORKER: &str = env!("CARGO_BIN_EXE_compline-compile-worker");

/// A compiler whose every child process leaves a line in a file, so that tests can count them.
struct Counted {
    engine: Engine,
    dir: TempDir,
}

impl Counted {
    fn new() -> Self {
        Self { engine: engine(), dir: tempfile::tempdir().unwrap() }
    }

    fn compiler(&self, limits: CompileLimits) -> Compiler {
        let script = OsString::from("echo started >> \"$0\"; exec \"$1\"");
        let args = vec!["-c".into(), script, self.count_file().into(), WORKER.into()];
        let place = CompilePlace::ChildProcess { program: "/bin/sh".into(), args };
        Compiler::new(self.engine.clone(), place, limits, Some(self.cache_dir())).unwrap()
    }

    fn count_file(&self) -> PathBuf {
        self.dir.path().join("count")
    }

    fn cache_dir(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn cached_file(&self, bytes: &[u8]) -> PathBuf {
        self.cache_dir().join(engine_version()).join(format!("{}.code", Digest::of(bytes).hex()))
    }

    fn compilations(&self) -> usize {
        std::fs::read_to_string(self.count_file()).map_or(0, |text| text.lines().count())
    }
}

fn in_child(engine: &Engine, program: impl AsRef<Path>, limits: CompileLimits) -> Compiler {
    let place = CompilePlace::ChildProcess { program: program.as_ref().into(), args: vec![] };
    Compiler::new(engine.clone(), place, limits, None).unwrap()
}

async fn compile(compiler: &Compiler, bytes: &Bytes) -> Result<Program, CompileError> {
    compiler.compile(Digest::of(bytes), bytes.clone()).await
}

/// One function of many additions: small to upload, long to compile.
fn bomb(additions: usize) -> Bytes {
    let mut body = String::from("(local.get $at)");
    for _ in 0..additions {
        body.push_str("i32.const 7 i32.add ");
    }
    guest::task(&format!("{body} drop (call $ok (i32.const 0) (i32.const 0))"))
}

#[tokio::test]
async fn a_child_process_compiles_what_this_process_runs() {
    let engine = engine();
    let program = compile(&in_child(&engine, WORKER, CompileLimits::default()), &guest::echo()).await.unwrap();
    assert_eq!(run(&program, "hello", Limits::default()).await.output, Some(Bytes::from("hello")));
    assert_eq!(program.digest(), Digest::of(&guest::echo()));
}

#[tokio::test]
async fn many_small_functions_compile() {
    let functions: String = (0..2_000)
        .map(|n| format!("(func (param i32) (result i32) (i32.add (local.get 0) (i32.const {n})))"))
        .collect();
    let bytes = guest::task_with(&functions, "(call $ok (i32.const 0) (i32.const 0))");
    assert!(compile(&in_child(&engine(), WORKER, CompileLimits::default()), &bytes).await.is_ok());
}

#[tokio::test]
async fn a_compilation_over_its_wall_limit_is_ended() {
    let limit = Duration::from_millis(100);
    let limits = CompileLimits { wall: limit, ..CompileLimits::default() };
    let error = compile(&in_child(&engine(), WORKER, limits), &bomb(300_000)).await.unwrap_err();
    assert_eq!(error, CompileError::OverTime { limit });
    assert!(!error.is_lasting(), "on a quieter machine it may do");
}

#[tokio::test]
async fn a_compilation_over_its_computing_time_is_ended_and_remembered() {
    let counted = Counted::new();
    let limit = Duration::from_secs(1);
    let compiler = counted.compiler(CompileLimits { cpu: limit, ..CompileLimits::default() });
    let bomb = bomb(600_000);
    for _ in 0..2 {
        let error = compile(&compiler, &bomb).await.unwrap_err();
        assert_eq!(error, CompileError::OverCpu { limit });
        assert!(error.to_string().contains("make the component smaller"), "{error}");
    }
    assert_eq!(counted.compilations(), 1);
}

#[tokio::test]
async fn a_compilation_over_its_memory_is_ended() {
    let limit_bytes = 128 << 20;
    let limits = CompileLimits { memory_bytes: limit_bytes, ..CompileLimits::default() };
    let compiler = in_child(&engine(), WORKER, limits);
    assert_eq!(compile(&compiler, &bomb(600_000)).await.unwrap_err(), CompileError::OverMemory { limit_bytes });
    assert!(compile(&compiler, &guest::echo()).await.is_ok(), "it is enough for a small one");
}

#[tokio::test]
async fn runs_go_on_while_a_bomb_is_compiled() {
    let engine = engine();
    let healthy = compile(&compiler(&engine), &guest::echo()).await.unwrap();
    let limits = CompileLimits { wall: Duration::from_millis(300), ..CompileLimits::default() };
    let compiler = in_child(&engine, WORKER, limits);
    let mut runs = 0_u32;
    let bomb = bomb(300_000);
    let mut compiling = std::pin::pin!(compile(&compiler, &bomb));
    let error = loop {
        tokio::select! {
            biased;
            ended = &mut compiling => break ended.unwrap_err(),
            report = run(&healthy, "", Limits::default()) => {
                assert_eq!(report.outcome, Outcome::Ok);
                runs += 1;
                // Lets the runtime look at its timers and the child's pipes.
                tokio::task::yield_now().await;
            }
        }
    };
    assert!(matches!(error, CompileError::OverTime { .. }), "{error:?}");
    assert!(runs > 10, "{runs} runs on the one thread, meanwhile");
}

#[tokio::test]
async fn a_compiler_that_dies_is_told_from_one_that_can_not_start() {
    let crashed = compile(&in_child(&engine(), "/bin/false", CompileLimits::default()), &guest::echo()).await;
    assert!(matches!(crashed, Err(CompileError::Crashed { .. })), "{crashed:?}");
    let missing = compile(&in_child(&engine(), "/no/such/program", CompileLimits::default()), &guest::echo()).await;
    assert!(missing.as_ref().is_err_and(CompileError::is_host_fault), "{missing:?}");
    // `cat` gives back what it is given: an answer, but not from a compiler of this version.
    let stranger = compile(&in_child(&engine(), "/bin/cat", CompileLimits::default()), &guest::echo()).await;
    assert!(stranger.as_ref().is_err_and(CompileError::is_host_fault), "{stranger:?}");
}

#[tokio::test]
async fn code_that_is_not_valid_is_refused_with_the_reason() {
    // Types are right everywhere but inside a function, which only the compiler looks at.
    let bytes = wasm_with_wrong_body();
    for compiler in [in_child(&engine(), WORKER, CompileLimits::default()), compiler(&engine())] {
        let error = compile(&compiler, &bytes).await.unwrap_err();
        assert!(matches!(&error, CompileError::Invalid { reason } if reason.contains("type mismatch")), "{error:?}");
    }
}

fn wasm_with_wrong_body() -> Bytes {
    let mut bytes = guest::task("(i64.const 77) drop (call $ok (i32.const 0) (i32.const 0))").to_vec();
    // `i64.const 77, drop` becomes `i64.const 77, i32.eqz`.
    let at = bytes.windows(4).position(|window| window == [0x42, 0xcd, 0x00, 0x1a]).expect("the constant is there");
    bytes[at + 3] = 0x45;
    bytes.into()
}

#[tokio::test]
async fn functions_of_another_type_do_not_link() {
    let bytes = wasm(
        r#"(component (import "compline:task/log@0.1.0" (instance (export "write" (func (param "message" string)))))
             (core module $m (func (export "f") (result i32) (i32.const 0))) (core instance $i (instantiate $m))
             (func $f (result (result)) (canon lift (core func $i "f"))) (instance $run (export "run" (func $f)))
             (export "wasi:cli/run@0.2.0" (instance $run)))"#,
    );
    let error = compile(&compiler(&engine()), &bytes).await.unwrap_err();
    assert!(matches!(&error, CompileError::Link { reason } if reason.contains("write")), "{error:?}");
}

#[tokio::test]
async fn bytes_have_to_be_the_ones_that_were_asked_for() {
    let compiler = compiler(&engine());
    let (wanted, found) = (Digest::of(&guest::echo()), Digest::of(&guest::sleep()));
    let error = compiler.compile(wanted, guest::sleep()).await.unwrap_err();
    assert_eq!(error, CompileError::WrongDigest { wanted, found });
    assert!(compile(&compiler, &guest::echo()).await.is_ok(), "the mistake is not held against the digest");
    let text = Bytes::from_static(b"(component)");
    let error = compile(&compiler, &text).await.unwrap_err();
    assert_eq!(error, CompileError::Refused(Refusal::Text { is_wat: true }));
}

#[tokio::test]
async fn one_digest_is_compiled_once_however_many_ask() {
    let counted = Counted::new();
    let compiler = counted.compiler(CompileLimits::default());
    let bytes = guest::echo();
    let (a, b, c) = tokio::join!(compile(&compiler, &bytes), compile(&compiler, &bytes), compile(&compiler, &bytes));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(counted.compilations(), 1);
}

#[tokio::test]
async fn whoever_began_may_go_and_the_next_goes_on() {
    let counted = Counted::new();
    let compiler = counted.compiler(CompileLimits::default());
    let first = {
        let compiler = compiler.clone();
        tokio::spawn(async move { compile(&compiler, &guest::echo()).await })
    };
    tokio::task::yield_now().await;
    let second = async {
        first.abort();
        compile(&compiler, &guest::echo()).await
    };
    assert!(second.await.is_ok());
    assert!(first.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn compiled_code_is_found_again_by_the_next_process() {
    let counted = Counted::new();
    let bytes = guest::echo();
    for _ in 0..2 {
        let program = compile(&counted.compiler(CompileLimits::default()), &bytes).await.unwrap();
        assert_eq!(run(&program, "x", Limits::default()).await.output, Some(Bytes::from("x")));
        drop(program);
    }
    assert_eq!(counted.compilations(), 1);
    let leftovers = std::fs::read_dir(counted.cached_file(&bytes).parent().unwrap()).unwrap().count();
    assert_eq!(leftovers, 1, "nothing but the code is left");
}

#[tokio::test]
async fn a_damaged_file_is_compiled_again_and_replaced() {
    let counted = Counted::new();
    let bytes = guest::echo();
    compile(&counted.compiler(CompileLimits::default()), &bytes).await.unwrap();
    let path = counted.cached_file(&bytes);
    let whole = std::fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        damaged
    };
    let damages = [flipped(0), flipped(20), flipped(50), flipped(whole.len() - 1), whole[..40].to_vec(), vec![]];
    for (n, damaged) in damages.into_iter().enumerate() {
        std::fs::write(&path, damaged).unwrap();
        let program = compile(&counted.compiler(CompileLimits::default()), &bytes).await.unwrap();
        assert_eq!(run(&program, "x", Limits::default()).await.outcome, Outcome::Ok);
        assert_eq!(counted.compilations(), n + 2);
        assert_eq!(std::fs::read(&path).unwrap().len(), whole.len(), "it is whole again");
    }
}

#[tokio::test]
async fn another_components_file_and_another_engine_versions_are_not_used() {
    let counted = Counted::new();
    let (bytes, other) = (guest::echo(), guest::endless_loop());
    compile(&counted.compiler(CompileLimits::default()), &bytes).await.unwrap();
    std::fs::copy(counted.cached_file(&bytes), counted.cached_file(&other)).unwrap();
    compile(&counted.compiler(CompileLimits::default()), &other).await.unwrap();
    assert_eq!(counted.compilations(), 2);
    let version_dir = counted.cache_dir().join(engine_version());
    std::fs::rename(&version_dir, counted.cache_dir().join("wasmtime-1.0.0")).unwrap();
    compile(&counted.compiler(CompileLimits::default()), &bytes).await.unwrap();
    assert_eq!(counted.compilations(), 3);
}

#[tokio::test]
async fn what_a_killed_process_left_is_removed() {
    let counted = Counted::new();
    compile(&counted.compiler(CompileLimits::default()), &guest::echo()).await.unwrap();
    let left = counted.cached_file(b"").with_extension("1.0.tmp");
    std::fs::write(&left, "half").unwrap();
    drop(counted.compiler(CompileLimits::default()));
    assert!(!left.exists());
}

#[test]
fn a_compiler_needs_limits_and_a_directory_that_work() {
    let new = |limits, cache| Compiler::new(engine(), CompilePlace::InProcess, limits, cache).err().unwrap();
    let error = new(CompileLimits { parallel_max: 0, ..CompileLimits::default() }, None);
    assert!(matches!(error, CompilerError::Limit { field: "parallel_max" }));
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = new(CompileLimits::default(), Some(file.path().to_owned()));
    assert!(matches!(error, CompilerError::Cache { .. }) && error.to_string().contains("choose another"));
}

#[test]
fn the_engine_version_names_the_wasmtime_in_the_lock_file() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let (_, entry) = lock.split_once("name = \"wasmtime\"\nversion = \"").unwrap();
    let (version, _) = entry.split_once('"').unwrap();
    assert!(engine_version().starts_with(&format!("wasmtime-{version}-")), "{} with {version}", engine_version());
}
