//! Every class of ending, each from a guest that earns it.

use std::future::{pending, ready};

use bytes::Bytes;
use compline_runtime::{ERROR_MESSAGE_BYTES_MAX, ExecutionInfo, Invocation, Limits, LogLevel, Outcome, SchemaError};

use crate::guest;
use crate::support::{once, program, run};

fn trap_message(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Trap { message, .. } => message,
        other => panic!("a trap was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn ok_carries_the_output_and_the_cost() {
    let report = once(guest::echo(), "ping").await;
    assert_eq!((report.outcome, report.output), (Outcome::Ok, Some(Bytes::from("ping"))));
    assert!(report.cost.fuel > 0 && report.cost.fuel < 1000, "{:?}", report.cost);
    assert_eq!(report.cost.memory_peak_bytes, 65536);
    assert_eq!((report.cost.host_calls, report.cost.memory_denied), (0, false));
}

#[tokio::test]
async fn large_input_passes_through() {
    let input = Bytes::from(vec![b'x'; 1 << 20]);
    let program = program(guest::echo()).await;
    let report = run(&program, input.clone(), Limits { output_bytes: 1 << 20, ..Limits::default() }).await;
    assert_eq!(report.output, Some(input));
}

#[tokio::test]
async fn a_task_says_whether_a_retry_can_help() {
    for (kind, retryable) in [(0, true), (1, false)] {
        let body = format!("(call $fail (i32.const {kind}) (local.get $at) (local.get $len))");
        let report = once(guest::task(&body), "no such region").await;
        assert_eq!(report.outcome, Outcome::Error { retryable, message: "no such region".into() });
        assert_eq!(report.output, None);
    }
}

#[tokio::test]
async fn an_error_message_is_cut_between_characters() {
    let program = program(guest::task("(call $fail (i32.const 1) (local.get $at) (local.get $len))")).await;
    for (given, kept) in [
        ("x".repeat(ERROR_MESSAGE_BYTES_MAX), ERROR_MESSAGE_BYTES_MAX),
        (format!("{}é", "x".repeat(ERROR_MESSAGE_BYTES_MAX - 1)), ERROR_MESSAGE_BYTES_MAX - 1),
    ] {
        let report = run(&program, given, Limits::default()).await;
        let Outcome::Error { message, .. } = report.outcome else { panic!("{:?}", report.outcome) };
        assert_eq!(message.len(), kept);
    }
}

#[tokio::test]
async fn traps_name_the_fault_and_the_frames() {
    let core = "(func $inner (result i32) (i32.div_s (i32.const 1) (i32.const 0)))";
    let report = once(guest::task_with(core, "(call $inner)"), "").await;
    let Outcome::Trap { message, backtrace } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(message, "integer divide by zero");
    assert!(backtrace[0].starts_with("inner") && backtrace[1].starts_with("run"), "{backtrace:?}");

    let report = once(guest::task("unreachable"), "").await;
    assert_eq!(trap_message(&report.outcome), "wasm `unreachable` instruction executed");

    let report = once(guest::task("(i32.load (i32.const 65536))"), "").await;
    assert_eq!(trap_message(&report.outcome), "out of bounds memory access");
}

#[tokio::test]
async fn a_result_that_breaks_the_contract_is_a_trap() {
    let report = once(guest::task("(call $ok (i32.const 65000) (i32.const 65000))"), "").await;
    assert!(!trap_message(&report.outcome).is_empty());
    let report = once(guest::task("(call $fail (i32.const 9) (i32.const 0) (i32.const 0))"), "").await;
    assert!(!trap_message(&report.outcome).is_empty());
}

#[tokio::test]
async fn fuel_ends_a_loop_and_only_as_much_is_spent() {
    let program = program(guest::endless_loop()).await;
    let report = run(&program, "", Limits { fuel: 100_000, ..Limits::default() }).await;
    assert_eq!(report.outcome, Outcome::OutOfFuel);
    assert_eq!(report.cost.fuel, 100_000);
}

#[tokio::test]
async fn fuel_that_is_enough_is_enough() {
    let program = program(guest::echo()).await;
    let spent = run(&program, "abc", Limits::default()).await.cost.fuel;
    assert_eq!(run(&program, "abc", Limits { fuel: spent, ..Limits::default() }).await.outcome, Outcome::Ok);
    // Fuel is looked at when a function is entered and at the head of a loop, so a run may end a few instructions late.
    assert_eq!(run(&program, "abc", Limits { fuel: 1, ..Limits::default() }).await.outcome, Outcome::OutOfFuel);
}

#[tokio::test]
async fn output_is_limited_for_tasks() {
    let program = program(guest::echo()).await;
    let limits = Limits { output_bytes: 4, ..Limits::default() };
    assert_eq!(run(&program, "1234", limits.clone()).await.outcome, Outcome::Ok);
    let report = run(&program, "12345", limits).await;
    assert_eq!((report.outcome, report.output), (Outcome::OutputLimit, None));
}

#[tokio::test]
async fn output_is_limited_for_commands_while_they_write() {
    let endless = "(local $out i32) (local.set $out (call $stdout))
        (loop $again (call $write (local.get $out) (i32.const 64) (i32.const 8) (i32.const 512)) (br $again)) (i32.const 0)";
    let report = once(guest::stream_command(endless), "").await;
    assert_eq!((report.outcome, report.output), (Outcome::OutputLimit, None));

    let once_only = "(call $write (call $stdout) (i32.const 64) (i32.const 8) (i32.const 512)) (i32.const 0)";
    let program = program(guest::stream_command(once_only)).await;
    let report = run(&program, "", Limits { output_bytes: 8, ..Limits::default() }).await;
    assert_eq!((report.outcome, report.output), (Outcome::Ok, Some(Bytes::from("one\ntwo\n"))));
    let report = run(&program, "", Limits { output_bytes: 7, ..Limits::default() }).await;
    assert_eq!(report.outcome, Outcome::OutputLimit);
}

#[tokio::test]
async fn exit_codes_of_commands() {
    let cases = [
        ("(call $exit (i32.const 0))", Outcome::Ok),
        ("(call $exit (i32.const 1))", Outcome::Exit(1)),
        ("(call $exit-with-code (i32.const 0))", Outcome::Ok),
        ("(call $exit-with-code (i32.const 7))", Outcome::Exit(7)),
        ("(call $exit-with-code (i32.const 125))", Outcome::Exit(125)),
        ("(call $exit-with-code (i32.const 126))", Outcome::Exit(126)),
        ("(call $exit-with-code (i32.const 255))", Outcome::Exit(255)),
        ("(return (i32.const 0))", Outcome::Ok),
        ("(return (i32.const 1))", Outcome::Exit(1)),
    ];
    for (body, outcome) in cases {
        assert_eq!(once(guest::exit_with(body), "").await.outcome, outcome, "{body}");
    }
    assert_eq!(once(guest::exit_with(""), "").await.outcome.kind(), "trap", "a trap is no exit");
}

#[tokio::test]
async fn a_command_reads_standard_input_and_writes_standard_output() {
    // The result of a read: discriminant at 512, the list's address at 516 and its length at 520.
    let cat = "(call $read (call $stdin) (i64.const 100) (i32.const 512))
        (call $write (call $stdout) (i32.load (i32.const 516)) (i32.load (i32.const 520)) (i32.const 600)) (i32.const 0)";
    let report = once(guest::stream_command(cat), "{\"region\":\"eu\"}").await;
    assert_eq!((report.outcome, report.output), (Outcome::Ok, Some(Bytes::from("{\"region\":\"eu\"}"))));
    // Three streams are asked for or used in four calls, and the resource drops are not counted as they never happen.
    assert_eq!(report.cost.host_calls, 4);
}

#[tokio::test]
async fn what_a_task_prints_is_its_log() {
    let body = "(call $write (call $stderr) (i32.const 64) (i32.const 8) (i32.const 512))
        (call $write (call $stdout) (i32.const 64) (i32.const 3) (i32.const 512))
        (call $ok (i32.const 0) (i32.const 0))";
    let report = once(guest::stream_task(body), "").await;
    assert_eq!(report.output, Some(Bytes::new()));
    let lines: Vec<_> = report.logs.iter().map(|line| (line.level, line.message.as_str())).collect();
    assert_eq!(lines, [(LogLevel::Info, "one"), (LogLevel::Info, "two"), (LogLevel::Info, "one")]);
    assert_eq!(report.stderr_tail, "one\ntwo\n");
}

#[tokio::test]
async fn a_trap_carries_the_last_of_standard_error() {
    let body = "(call $write (call $stderr) (i32.const 64) (i32.const 8) (i32.const 512)) unreachable";
    let program = program(guest::stream_task(body)).await;
    let report = run(&program, "", Limits { log_bytes: 0, ..Limits::default() }).await;
    assert_eq!(report.outcome.kind(), "trap");
    assert_eq!((report.logs.len(), report.logs_dropped, report.stderr_tail.as_str()), (0, 2, "one\ntwo\n"));
}

#[tokio::test]
async fn log_lines_past_the_limit_are_counted_and_the_task_goes_on() {
    let body = "(local $n i32) (loop $again
            (call $write (i32.const 2) (local.get $at) (local.get $len))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const 100))))
        (call $ok (i32.const 0) (i32.const 0))";
    let program = program(guest::logger(body)).await;
    let report = run(&program, "123456789", Limits { log_bytes: 30, ..Limits::default() }).await;
    assert_eq!(report.outcome, Outcome::Ok);
    assert_eq!((report.logs.len(), report.logs_dropped, report.cost.host_calls), (3, 97, 100));
    assert!(report.logs.iter().all(|line| line.level == LogLevel::Warn && line.message == "123456789"));
}

#[tokio::test]
async fn a_task_knows_which_execution_it_is() {
    let program = program(guest::who_am_i()).await;
    let execution =
        ExecutionInfo { id: "exec_1".into(), attempt: 2, job_id: "job_9".into(), ..ExecutionInfo::default() };
    let report = program.run(Invocation { execution, ..Invocation::default() }, pending()).await;
    assert_eq!(report.output, Some(Bytes::from("2exec_1job_9")), "{:?}", report.outcome);
    assert_eq!(report.cost.host_calls, 1);
}

#[tokio::test]
async fn nothing_of_one_run_is_left_for_the_next() {
    let counter = "(i32.store (i32.const 128) (i32.add (i32.load (i32.const 128)) (i32.const 1))) (call $ok (i32.const 128) (i32.const 1))";
    let program = program(guest::task(counter)).await;
    for _ in 0..50 {
        assert_eq!(run(&program, "", Limits::default()).await.output, Some(Bytes::from_static(&[1])));
    }
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_starts_runs_nothing() {
    let program = program(guest::echo()).await;
    let report = program.run(Invocation::default(), ready(())).await;
    assert_eq!((report.outcome, report.cost.fuel), (Outcome::Cancelled, 0));
}

#[tokio::test]
async fn a_task_describes_its_parameters() {
    let at_64 = "(i32.store (i32.const 32) (i32.const 64)) (i32.store (i32.const 36) (i32.const 17)) (i32.const 32)";
    let schema = program(guest::described(at_64)).await.parameters_schema().await;
    assert_eq!(schema, Ok(Some("{\"type\":\"object\"}".to_owned())));
    assert_eq!(program(guest::echo()).await.parameters_schema().await, Ok(None));
    let failed = program(guest::described("(loop $again (br $again)) unreachable")).await.parameters_schema().await;
    assert!(matches!(failed, Err(SchemaError::Failed { outcome: Outcome::OutOfFuel, .. })), "{failed:?}");
}

#[test]
fn kinds_are_the_names_that_records_use() {
    let trap = Outcome::Trap { message: String::new(), backtrace: Vec::new() };
    let error = Outcome::Error { retryable: true, message: String::new() };
    let all = [
        Outcome::Ok,
        error,
        trap,
        Outcome::OutOfFuel,
        Outcome::TimedOut,
        Outcome::MemoryLimit,
        Outcome::OutputLimit,
        Outcome::Exit(3),
        Outcome::Cancelled,
        Outcome::HostError(String::new()),
    ];
    let kinds = all.map(|outcome| outcome.kind());
    assert_eq!(
        kinds,
        [
            "ok",
            "error",
            "trap",
            "out-of-fuel",
            "timed-out",
            "memory-limit",
            "output-limit",
            "exit",
            "cancelled",
            "host-error"
        ]
    );
}
