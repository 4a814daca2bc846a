//! Running other programs: what is run is printed, and a failure names it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Prints one line for the person who runs `cargo xtask`. Stdout stays free for results.
pub fn say(line: &str) {
    // With stderr closed there is nobody to tell, and the work itself can go on.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The cargo that runs this program, so that every step uses one toolchain.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The rustc beside that cargo.
pub fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// Whether `program` can be started at all.
pub fn exists(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .status()
        .is_ok()
}

/// Runs `command` with its output shown; an exit code other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    say(&format!("  $ {shown}"));
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("`{shown}` could not be started"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` silently and returns its stdout; on failure the error carries its stderr.
pub fn capture(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("`{shown}` could not be started"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed something that is not UTF-8"))
}

/// The command as a person would type it: program by its file name, arguments as they are.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
