//! What a guest must not find, and what it may not hoard.

use compline_runtime::Outcome;

use crate::guest::{Guest, SLEEP_IMPORTS};
use crate::support::once;

/// Answers with the lengths of its environment, its arguments and its directories.
fn surroundings() -> Guest {
    Guest {
        imports: r#"
  (import "wasi:filesystem/types@0.2.0" (instance $fs (export "descriptor" (type (sub resource)))))
  (alias export $fs "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (alias outer 1 $descriptor (type $d))
    (export "get-directories" (func (result (list (tuple (own $d) string)))))))
  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-environment" (func (result (list (tuple string string)))))
    (export "get-arguments" (func (result (list string))))))
  (core func $directories (canon lower (func $preopens "get-directories") (memory $memory) (realloc (core func $realloc))))
  (core func $variables (canon lower (func $environment "get-environment") (memory $memory) (realloc (core func $realloc))))
  (core func $arguments (canon lower (func $environment "get-arguments") (memory $memory) (realloc (core func $realloc))))
"#,
        lowered: r#"(export "directories" (func $directories)) (export "variables" (func $variables)) (export "arguments" (func $arguments))"#,
        core_imports: r#"
    (import "host" "directories" (func $directories (param i32)))
    (import "host" "variables" (func $variables (param i32)))
    (import "host" "arguments" (func $arguments (param i32)))"#,
        // Each writes an address and a length; the lengths are then moved side by side.
        core: r"(func $run (param $at i32) (param $len i32) (result i32)
            (call $variables (i32.const 128)) (call $arguments (i32.const 136)) (call $directories (i32.const 144))
            (i32.store8 (i32.const 200) (i32.load (i32.const 132)))
            (i32.store8 (i32.const 201) (i32.load (i32.const 140)))
            (i32.store8 (i32.const 202) (i32.load (i32.const 148)))
            (call $ok (i32.const 200) (i32.const 3)))"
            .into(),
        ..Guest::default()
    }
}

#[tokio::test]
async fn there_are_no_variables_no_arguments_and_no_directories() {
    let report = once(surroundings().task(), "").await;
    assert_eq!(report.output.as_deref(), Some(&[0, 0, 0][..]), "{:?}", report.outcome);
}

#[tokio::test]
async fn there_are_no_sockets() {
    let guest = Guest {
        imports: r#"
  (import "wasi:sockets/network@0.2.0" (instance $network
    (type $codes (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
      "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable"
      "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted"
      "datagram-too-large" "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $codes)))
    (type $families (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $families)))))
  (alias export $network "error-code" (type $error-code))
  (alias export $network "ip-address-family" (type $family))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $create
    (alias outer 1 $socket (type $socket-type)) (alias outer 1 $error-code (type $code)) (alias outer 1 $family (type $ip))
    (export "tcp-socket" (type $s (eq $socket-type)))
    (export "error-code" (type $e (eq $code)))
    (export "ip-address-family" (type $f (eq $ip)))
    (export "create-tcp-socket" (func (param "address-family" $f) (result (result (own $s) (error $e)))))))
  (core func $create (canon lower (func $create "create-tcp-socket") (memory $memory)))
"#,
        lowered: r#"(export "create" (func $create))"#,
        core_imports: r#"(import "host" "create" (func $create (param i32 i32)))"#,
        core: r"(func $run (param $at i32) (param $len i32) (result i32)
            (call $create (i32.const 0) (i32.const 128)) (call $ok (i32.const 128) (i32.const 5)))"
            .into(),
        ..Guest::default()
    };
    let report = once(guest.task(), "").await;
    let answer = report.output.unwrap_or_else(|| panic!("{:?}", report.outcome));
    assert_eq!((answer[0], answer[4]), (1, 1), "an error, and it is `access-denied`");
}

#[tokio::test]
async fn what_the_host_holds_for_a_guest_is_limited() {
    let timers = |count: u32| Guest {
        imports: SLEEP_IMPORTS,
        lowered: r#"(export "after" (func $after))"#,
        core_imports: r#"(import "host" "after" (func $after (param i64) (result i32)))"#,
        core: format!(
            "(func $run (param $at i32) (param $len i32) (result i32) (local $n i32)
               (loop $again (drop (call $after (i64.const 1000000000000)))
                 (local.set $n (i32.add (local.get $n) (i32.const 1)))
                 (br_if $again (i32.lt_u (local.get $n) (i32.const {count}))))
               (call $ok (i32.const 0) (i32.const 0)))"
        ),
        ..Guest::default()
    };
    assert_eq!(once(timers(4096).task(), "").await.outcome, Outcome::Ok);
    assert_eq!(once(timers(4097).task(), "").await.outcome.kind(), "trap");
}
