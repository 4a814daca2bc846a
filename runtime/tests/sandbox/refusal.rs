//! Every refusal, from bytes that deserve it, and that it says what to do.

use compline_runtime::{COMPONENT_BYTES_MAX, Digest, Kind, Refusal, inspect};

use crate::guest::{self, wasm};

fn refused(bytes: &[u8], says: &str) -> Refusal {
    let refusal = inspect(bytes).expect_err("it has to be refused");
    assert!(refusal.to_string().contains(says), "`{refusal}` does not say `{says}`");
    refusal
}

#[test]
fn a_task_is_described() {
    let bytes = guest::who_am_i();
    let info = inspect(&bytes).unwrap();
    assert_eq!((info.kind, info.digest, info.size_bytes), (Kind::Task, Digest::of(&bytes), bytes.len() as u64));
    assert_eq!(info.imports, ["compline:task/types@0.1.0", "compline:task/execution@0.1.0"]);
    assert_eq!((info.exports, info.grants), (vec!["run".to_owned()], vec![]));
    assert!(!info.has_parameters_schema);
    assert!(inspect(&guest::described("(i32.const 0)")).unwrap().has_parameters_schema);
}

#[test]
fn a_command_is_described() {
    let info = inspect(&guest::exit_with("(call $exit (i32.const 0))")).unwrap();
    assert_eq!((info.kind, info.exports), (Kind::Command, vec!["wasi:cli/run@0.2.3".to_owned()]));
}

#[test]
fn bytes_that_are_no_component() {
    assert_eq!(refused(b"", "empty"), Refusal::Empty);
    assert_eq!(refused(b"\x7fELF\x02\x01\x01\0\0\0", "not WebAssembly"), Refusal::NotWasm);
    assert_eq!(refused(b"\xff\xfe\xfd", "not WebAssembly"), Refusal::NotWasm);
    assert_eq!(refused(b"#!/bin/sh\necho hello\n", "a text file"), Refusal::Text { is_wat: false });
    assert_eq!(refused(";; über\n\n  (component)".as_bytes(), "wasm-tools parse"), Refusal::Text { is_wat: true });
    assert_eq!(refused(b"(module)", "text form"), Refusal::Text { is_wat: true });
    // A character that is cut by the look at the first bytes only.
    let long = format!("{}é", "x".repeat(4095));
    assert_eq!(refused(long.as_bytes(), "a text file"), Refusal::Text { is_wat: false });
}

#[test]
fn core_modules() {
    assert_eq!(refused(&wasm("(module (func (export \"_start\")))"), "wasm32-wasip2"), Refusal::CoreModule);
    let preview1 = wasm(r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))))"#);
    assert_eq!(refused(&preview1, "instead of `wasm32-wasip1`"), Refusal::WasiPreview1);
}

#[test]
fn damaged_components() {
    let whole = guest::echo();
    let cut = refused(&whole[..whole.len() / 2], "cut short");
    assert!(matches!(cut, Refusal::Malformed { .. }), "{cut:?}");
    assert!(matches!(refused(&whole[..6], "upload the whole file"), Refusal::Malformed { .. }));
    assert!(matches!(refused(b"\0asm\xff\xff\xff\xff", "a version that is not known"), Refusal::Malformed { .. }));
    let mut flipped = whole.to_vec();
    flipped[40] ^= 0xff;
    assert!(inspect(&flipped).is_err());
}

#[test]
fn nothing_to_run() {
    assert_eq!(refused(&wasm("(component)"), "exports nothing"), Refusal::NoRun { found: vec![] });
    let other = wasm(r#"(component (type $t u32) (export "something" (type $t)))"#);
    assert_eq!(refused(&other, "`something`"), Refusal::NoRun { found: vec!["something".into()] });
}

#[test]
fn a_run_of_another_type() {
    let lifted = |ty: &str, core: &str| {
        wasm(&format!(
            r#"(component (core module $m (memory (export "memory") 1) (func (export "f") {core})
                 (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable))
               (core instance $i (instantiate $m))
               (func $f {ty} (canon lift (core func $i "f") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))))
               (export "run" (func $f)))"#
        ))
    };
    let string = lifted(r#"(param "input" string) (result string)"#, "(param i32 i32) (result i32) unreachable");
    assert_eq!(refused(&string, "list<u8>"), Refusal::WrongRun { found: "func(input: string) -> string".into() });
    let nothing = lifted("", "");
    assert_eq!(refused(&nothing, "`func()`"), Refusal::WrongRun { found: "func()".into() });
    // The right shape, but nobody can tell whether a retry helps.
    let untyped = lifted(
        r#"(param "input" (list u8)) (result (result (list u8) (error string)))"#,
        "(param i32 i32) (result i32) unreachable",
    );
    let found = "func(input: list<u8>) -> result<list<u8>, string>".into();
    assert_eq!(refused(&untyped, "task-error"), Refusal::WrongRun { found });
    let instance = wasm(r#"(component (instance $i) (export "run" (instance $i)))"#);
    assert_eq!(refused(&instance, "an interface"), Refusal::WrongRun { found: "an interface".into() });
}

#[test]
fn a_schema_of_another_type() {
    let extra = r#"
  (func $schema (result u32) (canon lift (core func $main "schema")))
  (export "parameters-schema" (func $schema))"#;
    let core = r#"(func (export "schema") (result i32) (i32.const 0))
        (func $run (param i32 i32) (result i32) unreachable)"#;
    let bytes = guest::Guest { core: core.into(), extra, ..guest::Guest::default() }.task();
    assert_eq!(refused(&bytes, "func() -> string"), Refusal::WrongParametersSchema { found: "func() -> u32".into() });
}

#[test]
fn imports_that_are_not_provided() {
    let importing = |name: &str| wasm(&format!(r#"(component (import "{name}" (instance)))"#));
    for (name, says) in [
        ("wasi:http/outgoing-handler@0.2.4", "requests to the outside"),
        ("wasi:cli/environment@0.3.0", "version 0.3.0 is not, 0.2 is"),
        ("compline:task/log@0.2.0", "compline:task/log@0.1.0"),
        ("acme:billing/ledger@1.0.0", "compose"),
    ] {
        let refusal = refused(&importing(name), says);
        assert!(matches!(refusal, Refusal::UnknownImport { name: found, .. } if found == name));
    }
    let function = wasm(r#"(component (import "print" (func)))"#);
    assert!(matches!(refused(&function, "interfaces"), Refusal::UnknownImport { .. }));
}

#[test]
fn size_at_the_limit_and_one_past() {
    let padded = |size: usize| {
        let mut bytes = guest::echo().to_vec();
        // One custom section up to the size that is wanted; its length takes five bytes, its name one.
        let length = size - bytes.len() - 6;
        bytes.push(0);
        bytes.extend((0..5).map(|i| u8::try_from((length >> (7 * i)) & 0x7f).unwrap() | if i < 4 { 0x80 } else { 0 }));
        bytes.resize(size, 0);
        bytes
    };
    assert_eq!(inspect(&padded(COMPONENT_BYTES_MAX)).unwrap().size_bytes, COMPONENT_BYTES_MAX as u64);
    let refusal = inspect(&padded(COMPONENT_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(refusal, Refusal::TooLarge { found: COMPONENT_BYTES_MAX + 1, limit: COMPONENT_BYTES_MAX });
}
