//! The compiling child process as a program of its own, for whoever has no binary that calls `compile_worker` itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    compline_runtime::compile_worker()
}
