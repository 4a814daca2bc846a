//! Memory, tables and stack.

use compline_runtime::{CompileError, EngineConfig, Limits, Outcome};

use crate::guest;
use crate::support::{compile_on, engine_with, once, program, run};

const MIB: u64 = 1 << 20;

fn limits(memory_bytes: u64) -> Limits {
    Limits { memory_bytes, ..Limits::default() }
}

/// Answers with what `memory.grow` said, as one byte.
fn grow(pages: u32) -> bytes::Bytes {
    guest::task(&format!(
        "(i32.store (i32.const 128) (memory.grow (i32.const {pages}))) (call $ok (i32.const 128) (i32.const 4))"
    ))
}

#[tokio::test]
async fn growth_within_the_limit_is_granted_and_counted() {
    let report = run(&program(grow(255)).await, "", limits(16 * MIB)).await;
    assert_eq!(report.output.as_deref(), Some(&1_i32.to_le_bytes()[..]), "the old size in pages");
    assert_eq!((report.cost.memory_peak_bytes, report.cost.memory_denied), (16 * MIB, false));
}

#[tokio::test]
async fn growth_past_the_limit_is_refused_and_the_guest_goes_on() {
    for pages in [256, 1024] {
        let report = run(&program(grow(pages)).await, "", limits(16 * MIB)).await;
        assert_eq!(report.outcome, Outcome::Ok);
        assert_eq!(report.output.as_deref(), Some(&(-1_i32).to_le_bytes()[..]));
        assert_eq!((report.cost.memory_peak_bytes, report.cost.memory_denied), (65536, true));
    }
}

#[tokio::test]
async fn the_engine_has_a_ceiling_of_its_own() {
    let engine =
        engine_with(EngineConfig { concurrent_runs_max: 2, memory_bytes_max: 8 * MIB, ..EngineConfig::default() });
    let program = compile_on(&engine, grow(255)).await.unwrap();
    let report = run(&program, "", limits(64 * MIB)).await;
    assert_eq!(report.output.as_deref(), Some(&(-1_i32).to_le_bytes()[..]));
    assert!(report.cost.memory_denied);
}

#[tokio::test]
async fn starting_with_too_much_memory_is_a_memory_limit() {
    let program = program(guest::task_with("(memory $more 1024)", "(call $ok (i32.const 0) (i32.const 0))")).await;
    let report = run(&program, "", limits(16 * MIB)).await;
    assert_eq!((report.outcome, report.cost.memory_denied), (Outcome::MemoryLimit, true));
    assert_eq!(
        run(&program, "", limits(65 * MIB)).await.outcome,
        Outcome::Ok,
        "64 MiB and the page of the shared memory"
    );
}

#[tokio::test]
async fn several_memories_add_up() {
    let three = "(memory $a 240) (memory $b 240) (memory $c 240)";
    let program = program(guest::task_with(three, "(call $ok (i32.const 0) (i32.const 0))")).await;
    assert_eq!(run(&program, "", limits(16 * MIB)).await.outcome, Outcome::MemoryLimit);
    let report = run(&program, "", limits(46 * MIB)).await;
    assert_eq!((report.outcome, report.cost.memory_peak_bytes), (Outcome::Ok, 45 * MIB + 65536));
}

#[tokio::test]
async fn growing_in_a_loop_ends_by_fuel_and_the_denial_shows() {
    let body = "(loop $again (drop (memory.grow (i32.const 16))) (br $again)) unreachable";
    let program = program(guest::task(body)).await;
    let report = run(&program, "", Limits { fuel: 10_000_000, ..limits(16 * MIB) }).await;
    assert_eq!((report.outcome, report.cost.memory_denied), (Outcome::OutOfFuel, true));
}

#[tokio::test]
async fn dying_of_a_denied_request_is_a_trap_and_the_denial_shows() {
    let body = "(if (i32.eq (memory.grow (i32.const 1024)) (i32.const -1)) (then unreachable)) (call $ok (i32.const 0) (i32.const 0))";
    let report = run(&program(guest::task(body)).await, "", limits(16 * MIB)).await;
    assert_eq!((report.outcome.kind(), report.cost.memory_denied), ("trap", true));
}

#[tokio::test]
async fn tables_add_up_and_are_limited_at_the_start() {
    let engine =
        engine_with(EngineConfig { concurrent_runs_max: 2, table_elements_max: 10_000, ..EngineConfig::default() });
    let two = |size: u32| {
        let core = format!("(table $a {size} funcref) (table $b {size} funcref)");
        guest::task_with(&core, "(call $ok (i32.const 0) (i32.const 0))")
    };
    let fitting = compile_on(&engine, two(5_000)).await.unwrap();
    assert_eq!(run(&fitting, "", Limits::default()).await.outcome, Outcome::Ok);
    let too_large = compile_on(&engine, two(5_001)).await.unwrap();
    assert_eq!(run(&too_large, "", Limits::default()).await.outcome, Outcome::MemoryLimit);
}

#[tokio::test]
async fn a_table_that_no_run_may_have_is_refused_before_any_run() {
    let engine =
        engine_with(EngineConfig { concurrent_runs_max: 2, table_elements_max: 10_000, ..EngineConfig::default() });
    let huge = guest::task_with("(table $huge 10000000 funcref)", "(call $ok (i32.const 0) (i32.const 0))");
    let error = compile_on(&engine, huge).await.unwrap_err();
    assert!(matches!(error, CompileError::OverCeiling { .. }), "{error:?}");
    assert!(error.to_string().contains("10000000"), "{error}");
}

#[tokio::test]
async fn table_growth_is_refused_past_the_limit() {
    let engine =
        engine_with(EngineConfig { concurrent_runs_max: 2, table_elements_max: 100, ..EngineConfig::default() });
    let grow = |by: u32| {
        let body = format!(
            "(i32.store (i32.const 128) (table.grow $t (ref.null func) (i32.const {by}))) (call $ok (i32.const 128) (i32.const 4))"
        );
        guest::task_with("(table $t 10 funcref)", &body)
    };
    for (by, answer, denied) in [(90, 10_i32, false), (91, -1, true)] {
        let program = compile_on(&engine, grow(by)).await.unwrap();
        let report = run(&program, "", Limits::default()).await;
        assert_eq!((report.output.as_deref(), report.cost.memory_denied), (Some(&answer.to_le_bytes()[..]), denied));
    }
}

#[tokio::test]
async fn endless_recursion_is_a_stack_overflow_and_harms_nobody() {
    let recursing = [
        guest::task_with(
            "(func $deeper (param i32) (result i32) (i32.add (local.get 0) (call $deeper (i32.add (local.get 0) (i32.const 1)))))",
            "(call $deeper (i32.const 0))",
        ),
        // Every level calls the host, so that the stack also ends inside one of its functions.
        guest::logger(
            "(call $write (i32.const 0) (i32.const 0) (i32.const 1)) (call $run (local.get $at) (local.get $len))",
        ),
    ];
    for component in recursing {
        let program = program(component).await;
        for _ in 0..3 {
            let report = run(&program, "", Limits::default()).await;
            let Outcome::Trap { message, backtrace } = report.outcome else { panic!("{:?}", report.outcome) };
            assert!(message.starts_with("stack overflow"), "{message}");
            assert!(!backtrace.is_empty() && backtrace.len() <= 32);
        }
    }
    assert_eq!(once(guest::echo(), "").await.outcome, Outcome::Ok);
}

#[tokio::test]
async fn recursion_within_the_stack_is_fine() {
    let core = "(func $down (param i32) (result i32)
        (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0)) (else (call $down (i32.sub (local.get 0) (i32.const 1))))))";
    let report = once(guest::task_with(core, "(call $ok (i32.const 0) (call $down (i32.const 10000)))"), "").await;
    assert_eq!(report.outcome, Outcome::Ok);
}

#[tokio::test]
async fn a_slot_is_clean_whatever_ran_in_it_before() {
    let engine = engine_with(EngineConfig { concurrent_runs_max: 1, ..EngineConfig::default() });
    // Both grow to 4 MiB; one fills all of it above its own results, the other looks whether anything is there. The table too.
    let grown = "(drop (memory.grow (i32.const 63)))";
    let fill = format!(
        "{grown} (memory.fill (i32.const 65536) (i32.const 170) (i32.const 4128768))
         (memory.fill (i32.const 4096) (i32.const 170) (i32.const 61440))
         (table.set $t (i32.const 3) (ref.func $run)) (call $ok (i32.const 0) (i32.const 0))"
    );
    let look = format!(
        "{grown} (local.set $at (i32.const 4096))
         (loop $next
           (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then unreachable))
           (local.set $at (i32.add (local.get $at) (i32.const 8)))
           (br_if $next (i32.lt_u (local.get $at) (i32.const 4194304))))
         (if (i32.eqz (ref.is_null (table.get $t (i32.const 3)))) (then unreachable))
         (call $ok (i32.const 0) (i32.const 0))"
    );
    let table = "(table $t 10 funcref) (elem declare func $run)";
    let fill = compile_on(&engine, guest::task_with(table, &fill)).await.unwrap();
    let look = compile_on(&engine, guest::task_with(table, &look)).await.unwrap();
    for _ in 0..10 {
        assert_eq!(run(&fill, "", Limits::default()).await.outcome, Outcome::Ok);
        for _ in 0..2 {
            assert_eq!(run(&look, "", Limits::default()).await.outcome, Outcome::Ok);
        }
    }
    // The same component in the same slot: its memory is not only unmapped and mapped again.
    let twice = "(if (i32.load (i32.const 5000)) (then unreachable)) (i32.store (i32.const 5000) (i32.const 1))
        (drop (memory.grow (i32.const 63))) (if (i32.load (i32.const 4000000)) (then unreachable))
        (i32.store (i32.const 4000000) (i32.const 1)) (call $ok (i32.const 0) (i32.const 0))";
    let twice = compile_on(&engine, guest::task(twice)).await.unwrap();
    for _ in 0..10 {
        assert_eq!(run(&twice, "", Limits::default()).await.outcome, Outcome::Ok);
    }
}
