//! The `compline` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    compline_server::cli::main()
}
