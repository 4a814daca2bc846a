//! What one run costs, in time and in computing time, under several settings of the pool. `cargo bench -p compline-runtime`.
//!
//! With a path as argument it measures that component instead of the smallest one; with `INPUT` in the environment, on that input.

use std::future::pending;
use std::io::Write as _;

use bytes::Bytes;
use compline_runtime::{
    CompileLimits, CompilePlace, Compiler, Digest, Engine, EngineConfig, Invocation, Limits, Outcome, Program,
};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use tokio::runtime::Builder;
use tokio::time::Instant;

const ROUNDS: u32 = 2;
const RUNS: u32 = 6_400;
const SIDE_BY_SIDE: u32 = 64;

#[path = "../tests/sandbox/guest.rs"]
#[expect(dead_code, reason = "most guests are for the tests")]
mod guest;

fn main() {
    let component = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let component =
        component.map_or_else(guest::echo, |path| std::fs::read(path).expect("the component can be read").into());
    let input: Bytes = std::env::var("INPUT").unwrap_or_default().into();
    let settings = |change: fn(&mut EngineConfig)| {
        let mut config = EngineConfig::default();
        change(&mut config);
        config
    };
    let cases = [
        ("default", settings(|_| {})),
        ("nothing kept resident", settings(|c| c.memory_keep_resident_bytes = 0)),
        ("16 KiB kept resident", settings(|c| c.memory_keep_resident_bytes = 16 << 10)),
        ("256 KiB kept resident", settings(|c| c.memory_keep_resident_bytes = 256 << 10)),
        ("no tables kept", settings(|c| c.table_keep_resident_bytes = 0)),
        ("decommit batch 1", settings(|c| c.decommit_batch = 1)),
        ("decommit batch 256", settings(|c| c.decommit_batch = 256)),
        ("no warm slots", settings(|c| c.warm_slots_max = 0)),
    ];
    let mut out = std::io::stdout().lock();
    for (name, config) in cases {
        let alone = best(|| one_thread(config.clone(), &component, &input));
        let many = best(|| two_threads(config.clone(), &component, &input));
        writeln!(out, "{name:<22} one thread: {alone}   two, {SIDE_BY_SIDE} at once: {many}").unwrap();
    }
}

fn best(mut measure: impl FnMut() -> Cost) -> Cost {
    let rounds = (0..ROUNDS).map(|_| measure());
    rounds.min_by(|a, b| a.cpu.total_cmp(&b.cpu)).expect("there is at least one round")
}

/// Microseconds. CPU time is what can be compared on a machine that has other work too.
struct Cost {
    started: Instant,
    cpu: f64,
    wall: f64,
}

impl Cost {
    fn now() -> Self {
        Self { started: Instant::now(), cpu: cpu_micros(), wall: 0.0 }
    }

    fn per_run(self) -> Self {
        let runs = f64::from(RUNS);
        let wall = self.started.elapsed().as_secs_f64() * 1e6 / runs;
        Self { cpu: (cpu_micros() - self.cpu) / runs, wall, ..self }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>6.1} µs CPU {:>6.1} µs wall", self.cpu, self.wall)
    }
}

fn cpu_micros() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask about itself");
    let micros = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64;
    micros(usage.user_time()) + micros(usage.system_time())
}

fn one_thread(config: EngineConfig, component: &Bytes, input: &Bytes) -> Cost {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let program = compile(config, component).await;
        repeat(&program, input, RUNS / 10).await;
        let started = Cost::now();
        repeat(&program, input, RUNS).await;
        started.per_run()
    })
}

fn two_threads(config: EngineConfig, component: &Bytes, input: &Bytes) -> Cost {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        let program = compile(config, component).await;
        repeat(&program, input, RUNS / 10).await;
        let started = Cost::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..SIDE_BY_SIDE {
            let (program, input) = (program.clone(), input.clone());
            tasks.spawn(async move { repeat(&program, &input, RUNS / SIDE_BY_SIDE).await });
        }
        tasks.join_all().await;
        started.per_run()
    })
}

async fn repeat(program: &Program, input: &Bytes, runs: u32) {
    for _ in 0..runs {
        let invocation = Invocation { input: input.clone(), limits: Limits::default(), ..Invocation::default() };
        let report = program.run(invocation, pending()).await;
        assert_eq!(report.outcome, Outcome::Ok);
        // What the server's loop does too: other tasks get a turn between runs.
        tokio::task::yield_now().await;
    }
}

async fn compile(config: EngineConfig, component: &Bytes) -> Program {
    let engine = Engine::new(config).expect("the engine starts");
    let compiler =
        Compiler::new(engine, CompilePlace::InProcess, CompileLimits::default(), None).expect("the limits work");
    compiler.compile(Digest::of(component), component.clone()).await.expect("the component compiles")
}
