//! Small guests, written as component text around a few core instructions.

use bytes::Bytes;

/// A component around core code. The core code has memory, `$ok` and `$fail`, and is what the fields say.
#[derive(Default)]
pub struct Guest {
    /// Imports of the component, and their lowered functions.
    pub imports: &'static str,
    /// `(export "name" (func $lowered))`, one for each lowered function.
    pub lowered: &'static str,
    /// Imports of the core module: `(import "host" "name" …)`.
    pub core_imports: &'static str,
    /// Everything else in the core module.
    pub core: String,
    /// More of the component.
    pub extra: &'static str,
}

/// The shared memory and its allocator, as a module of their own, so that lowered functions can use them.
const LIBC: &str = r#"
  (core module $libc
    (memory (export "memory") 1)
    (global $top (mut i32) (i32.const 8192))
    (func (export "realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
      (global.set $top (i32.add (local.get $at) (local.get $size)))
      (block $done (loop $more
        (br_if $done (i32.le_u (global.get $top) (i32.mul (memory.size) (i32.const 65536))))
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $more)))
      (if (local.get $old_size) (then (memory.copy (local.get $at) (local.get $old) (local.get $old_size))))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
"#;

/// Builds `result<list<u8>, task-error>` at address 16.
const RESULTS: &str = r#"
    (func $ok (param $at i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (local.get $at))
      (i32.store (i32.const 24) (local.get $len))
      (i32.const 16))
    (func $fail (param $kind i32) (param $at i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 1))
      (i32.store8 (i32.const 20) (local.get $kind))
      (i32.store (i32.const 24) (local.get $at))
      (i32.store (i32.const 28) (local.get $len))
      (i32.const 16))
"#;

const TASK_ERROR: &str = r#"
  (import "compline:task/types@0.1.0" (instance $types
    (type $kind (enum "retryable" "permanent"))
    (export "error-kind" (type $error-kind (eq $kind)))
    (type $record (record (field "kind" $error-kind) (field "message" string)))
    (export "task-error" (type (eq $record)))))
  (alias export $types "task-error" (type $task-error))
"#;

impl Guest {
    /// A task: `core` has `(func $run (param $at i32) (param $len i32) (result i32) …)`.
    pub fn task(self) -> Bytes {
        let lift = r#"
  (func $run (param "input" (list u8)) (result (result (list u8) (error $task-error)))
    (canon lift (core func $main "run") (memory $memory) (realloc (core func $realloc))))
  (export "run" (func $run))"#;
        self.component(TASK_ERROR, lift)
    }

    /// A command: `core` has `(func $run (result i32) …)`, where 0 is success.
    pub fn command(self) -> Bytes {
        let lift = r#"
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $cli-run (export "run" (func $run)))
  (export "wasi:cli/run@0.2.3" (instance $cli-run))"#;
        self.component("", lift)
    }

    fn component(self, types: &str, lift: &str) -> Bytes {
        let Self { imports, lowered, core_imports, core, extra } = self;
        wasm(&format!(
            r#"(component {types} {LIBC} {imports}
  (core module $main
    {core_imports}
    (import "libc" "memory" (memory $memory 1))
    {RESULTS}
    {core}
    (export "run" (func $run)))
  (core instance $main (instantiate $main
    (with "libc" (instance $libc))
    (with "host" (instance {lowered}))))
  {lift} {extra})"#
        ))
    }
}

/// A component from its text.
pub fn wasm(text: &str) -> Bytes {
    match wat::parse_str(text) {
        Ok(bytes) => bytes.into(),
        Err(error) => panic!("{error}"),
    }
}

/// A task around a body that leaves its result on the stack.
pub fn task(body: &str) -> Bytes {
    task_with("", body)
}

/// The same, with more in its core module.
pub fn task_with(core: &str, body: &str) -> Bytes {
    let core = format!("{core} (func $run (param $at i32) (param $len i32) (result i32) {body})");
    Guest { core, ..Guest::default() }.task()
}

/// Returns its input.
pub fn echo() -> Bytes {
    task("(call $ok (local.get $at) (local.get $len))")
}

/// Computes for ever.
pub fn endless_loop() -> Bytes {
    task("(loop $again (br $again)) unreachable")
}

pub const SLEEP_IMPORTS: &str = r#"
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $pollable))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $after (canon lower (func $clock "subscribe-duration")))
"#;

/// Blocks in a host call for as many nanoseconds as its input says, as eight little-endian bytes.
pub fn sleep() -> Bytes {
    Guest {
        imports: SLEEP_IMPORTS,
        lowered: r#"(export "block" (func $block)) (export "after" (func $after))"#,
        core_imports: r#"(import "host" "block" (func $block (param i32))) (import "host" "after" (func $after (param i64) (result i32)))"#,
        core: r"(func $run (param $at i32) (param $len i32) (result i32)
            (call $block (call $after (i64.load (local.get $at))))
            (call $ok (i32.const 0) (i32.const 0)))"
            .into(),
        ..Guest::default()
    }
    .task()
}

const LOG_IMPORTS: &str = r#"
  (import "compline:task/log@0.1.0" (instance $log
    (type $enum (enum "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $enum)))
    (export "write" (func (param "level" $level) (param "message" string)))))
  (core func $write (canon lower (func $log "write") (memory $memory)))
"#;

/// Uses the log as the body says, through `$write (level, at, len)`.
pub fn logger(body: &str) -> Bytes {
    Guest {
        imports: LOG_IMPORTS,
        lowered: r#"(export "write" (func $write))"#,
        core_imports: r#"(import "host" "write" (func $write (param i32 i32 i32)))"#,
        core: format!("(func $run (param $at i32) (param $len i32) (result i32) {body})"),
        ..Guest::default()
    }
    .task()
}

/// Answers with the execution id and the job id, joined.
pub fn who_am_i() -> Bytes {
    Guest {
        imports: r#"
  (import "compline:task/execution@0.1.0" (instance $execution
    (type $record (record (field "id" string) (field "attempt" u32) (field "slot" string) (field "job-id" string)
      (field "tenant" string) (field "lag-ms" u64)))
    (export "info" (type $info (eq $record)))
    (export "get" (func (result $info)))))
  (core func $get (canon lower (func $execution "get") (memory $memory) (realloc (core func $realloc))))
"#,
        lowered: r#"(export "get" (func $get))"#,
        core_imports: r#"(import "host" "get" (func $get (param i32)))"#,
        // The record: id at 0, attempt at 8, slot at 12, job-id at 20, tenant at 28, lag-ms at 40.
        core: r"(func $run (param $at i32) (param $len i32) (result i32)
            (call $get (i32.const 1024))
            (memory.copy (i32.const 2048) (i32.load (i32.const 1024)) (i32.load (i32.const 1028)))
            (memory.copy (i32.add (i32.const 2048) (i32.load (i32.const 1028)))
                (i32.load (i32.const 1044)) (i32.load (i32.const 1048)))
            (i32.store8 (i32.const 2047) (i32.add (i32.const 48) (i32.load (i32.const 1032))))
            (call $ok (i32.const 2047) (i32.add (i32.const 1)
                (i32.add (i32.load (i32.const 1028)) (i32.load (i32.const 1048))))))"
            .into(),
        ..Guest::default()
    }
    .task()
}

/// Ends through `wasi:cli/exit` with the code that its body leaves on the stack.
pub fn exit_with(body: &str) -> Bytes {
    Guest {
        imports: r#"
  (import "wasi:cli/exit@0.2.12" (instance $exit
    (export "exit" (func (param "status" (result))))
    (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $exit (canon lower (func $exit "exit")))
  (core func $exit-with-code (canon lower (func $exit "exit-with-code")))
"#,
        lowered: r#"(export "exit" (func $exit)) (export "exit-with-code" (func $exit-with-code))"#,
        core_imports: r#"(import "host" "exit" (func $exit (param i32))) (import "host" "exit-with-code" (func $exit-with-code (param i32)))"#,
        core: format!("(func $run (result i32) {body} unreachable)"),
        ..Guest::default()
    }
    .command()
}

const STREAM_IMPORTS: &str = r#"
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $error (type $outer-error))
    (export "error" (type $e (eq $outer-error)))
    (type $variant (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $variant)))
    (export "input-stream" (type $in (sub resource)))
    (export "output-stream" (type $out (sub resource)))
    (export "[method]input-stream.blocking-read"
      (func (param "self" (borrow $in)) (param "len" u64) (result (result (list u8) (error $stream-error)))))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "input-stream" (type $in))
  (alias export $streams "output-stream" (type $out))
  (import "wasi:cli/stdin@0.2.0" (instance $stdin (alias outer 1 $in (type $in)) (export "get-stdin" (func (result (own $in))))))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout (alias outer 1 $out (type $out)) (export "get-stdout" (func (result (own $out))))))
  (import "wasi:cli/stderr@0.2.0" (instance $stderr (alias outer 1 $out (type $out)) (export "get-stderr" (func (result (own $out))))))
  (core func $get-stdin (canon lower (func $stdin "get-stdin")))
  (core func $get-stdout (canon lower (func $stdout "get-stdout")))
  (core func $get-stderr (canon lower (func $stderr "get-stderr")))
  (core func $read (canon lower (func $streams "[method]input-stream.blocking-read") (memory $memory) (realloc (core func $realloc))))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $memory)))
"#;

const STREAM_LOWERED: &str = r#"(export "stdin" (func $get-stdin)) (export "stdout" (func $get-stdout)) (export "stderr" (func $get-stderr))
    (export "read" (func $read)) (export "write" (func $write))"#;

const STREAM_CORE_IMPORTS: &str = r#"
    (import "host" "stdin" (func $stdin (result i32)))
    (import "host" "stdout" (func $stdout (result i32)))
    (import "host" "stderr" (func $stderr (result i32)))
    (import "host" "read" (func $read (param i32 i64 i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))"#;

/// A command with the standard streams: `$read (stream, len, result)`, `$write (stream, at, len, result)`.
pub fn stream_command(body: &str) -> Bytes {
    let core = format!("(data (i32.const 64) \"one\\ntwo\\n\") (func $run (result i32) {body})");
    streams(core).command()
}

/// A task with the standard streams.
pub fn stream_task(body: &str) -> Bytes {
    let core = format!(
        "(data (i32.const 64) \"one\\ntwo\\n\") (func $run (param $at i32) (param $len i32) (result i32) {body})"
    );
    streams(core).task()
}

fn streams(core: String) -> Guest {
    Guest { imports: STREAM_IMPORTS, lowered: STREAM_LOWERED, core_imports: STREAM_CORE_IMPORTS, core, extra: "" }
}

/// A task that says which parameters it takes.
pub fn described(schema_body: &str) -> Bytes {
    let core = format!(
        r#"(data (i32.const 64) "{{\"type\":\"object\"}}")
        (func (export "schema") (result i32) {schema_body})
        (func $run (param $at i32) (param $len i32) (result i32) (call $ok (i32.const 0) (i32.const 0)))"#
    );
    let extra = r#"
  (func $schema (result string) (canon lift (core func $main "schema") (memory $memory) (realloc (core func $realloc))))
  (export "parameters-schema" (func $schema))"#;
    Guest { core, extra, ..Guest::default() }.task()
}
