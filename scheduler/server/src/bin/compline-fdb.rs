//! The `compline` command, linked with FoundationDB's client library.

use std::process::ExitCode;

fn main() -> ExitCode {
    compline_server::cli::main()
}
