//! Why bytes are not a task. Each refusal says what to do about it.

/// Why bytes are not a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No bytes at all.
    #[error("the file is empty: upload the built component, for Rust `target/wasm32-wasip2/release/<name>.wasm`")]
    Empty,
    /// Text instead of WebAssembly.
    #[error("{}", text_hint(*.is_wat))]
    Text {
        /// Whether the text is WebAssembly's own.
        is_wat: bool,
    },
    /// A core module without WASI.
    #[error(
        "this is a core WebAssembly module, and a task is a component: build for `wasm32-wasip2`, or wrap the module with \
         `wasm-tools component new`"
    )]
    CoreModule,
    /// A core module for WASI preview 1.
    #[error(
        "this is a core module for WASI preview 1, and a task is a component: build for `wasm32-wasip2` instead of \
         `wasm32-wasip1`, or adapt it with `wasm-tools component new --adapt wasi_snapshot_preview1.command.wasm`"
    )]
    WasiPreview1,
    /// Something else entirely.
    #[error("this is not WebAssembly: upload the built component, for Rust `target/wasm32-wasip2/release/<name>.wasm`")]
    NotWasm,
    /// A component that can't be run.
    #[error(
        "the component exports neither `run` nor `wasi:cli/run@0.2`, so there is nothing to run (it exports {}): implement the \
         world `compline:task/task`, in Rust with `#[compline_sdk::task]`, or build a program with a `main`",
        listed(.found)
    )]
    NoRun {
        /// What it exports.
        found: Vec<String>,
    },
    /// `run` has another type than the contract gives it.
    #[error(
        "the export `run` is `{found}`, but it has to be `func(input: list<u8>) -> result<list<u8>, task-error>`: implement the \
         world `compline:task/task`"
    )]
    WrongRun {
        /// Its type.
        found: String,
    },
    /// `parameters-schema` has another type than the contract gives it.
    #[error(
        "the export `parameters-schema` is `{found}`, but it has to be `func() -> string`: implement the world \
         `compline:task/described-task`, or leave the export out"
    )]
    WrongParametersSchema {
        /// Its type.
        found: String,
    },
    /// An interface that is not linked.
    #[error("the component imports `{name}`, which is not provided here: {hint}")]
    UnknownImport {
        /// The interface, with its version.
        name: String,
        /// What to do.
        hint: String,
    },
    /// Broken bytes.
    #[error("the component is broken, or was cut short on its way: {reason}. Build it again and upload the whole file")]
    Malformed {
        /// What is wrong, and where.
        reason: String,
    },
    /// Too many bytes.
    #[error(
        "the component has {found} bytes, and at most {limit} are accepted: build it in release mode, strip its debug info \
         (`wasm-tools strip`), and pass data as parameters instead of building it in"
    )]
    TooLarge {
        /// How many it has.
        found: usize,
        /// How many are accepted.
        limit: usize,
    },
}

fn text_hint(is_wat: bool) -> &'static str {
    if is_wat {
        "this is WebAssembly in text form: turn it into a binary with `wasm-tools parse`, and upload that"
    } else {
        "this is a text file, not a WebAssembly component: build the task and upload the `.wasm` file"
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "nothing".to_owned(),
        names => names.iter().take(8).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}
