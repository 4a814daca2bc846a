//! A program that is not linked with FoundationDB's client library, and the one beside it that is.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cli::CliError;
use crate::config::StoreLocation;
use crate::refusal::Refusal;

/// Where the client library comes from.
const RELEASES: &str = "https://github.com/apple/foundationdb/releases";

/// Becomes `compline-fdb`, with the same arguments, if the store is on FoundationDB. Returns only if it is not, or with what is missing.
pub fn become_linked(store: &StoreLocation) -> Result<(), CliError> {
    match store {
        StoreLocation::Embedded(_) => Ok(()),
        StoreLocation::FoundationDb { .. } => {
            let program = linked()?;
            let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
            Err(CliError::failed(format!("{} could not be started: {error}", program.display())))
        }
    }
}

/// The program beside this one that is linked with the client library, once it is clear that it starts.
fn linked() -> Result<PathBuf, CliError> {
    let own = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("this program does not find its own file: {error}")))?;
    let program = own.with_file_name("compline-fdb");
    let shown = program.display();
    if !program.is_file() {
        let detail =
            format!("a store on FoundationDB needs the program compline-fdb beside this one, and {shown} is missing");
        let hint = format!(
            "install the package foundationdb-clients 7.3 ({RELEASES}), build it with `cargo build --release --workspace --features \
             compline/foundationdb --bin compline-fdb`, and put it beside this program"
        );
        return Err(Refusal::new("store", detail).hint(hint).into());
    }
    // What the loader says of a missing library, it says to this probe.
    let probe = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let probe = probe.map_err(|error| CliError::failed(format!("{shown} could not be started: {error}")))?;
    let said = String::from_utf8_lossy(&probe.stderr);
    if !probe.status.success() {
        if said.contains("libfdb_c") {
            let detail = format!("FoundationDB's client library is missing: {}", said.trim());
            let hint = format!(
                "install the package foundationdb-clients 7.3 ({RELEASES}), or name its directory in LD_LIBRARY_PATH"
            );
            return Err(Refusal::new("store", detail).hint(hint).into());
        }
        return Err(CliError::failed(format!("{shown} does not start ({}): {}", probe.status, said.trim())));
    }
    let (own, other) = (env!("CARGO_PKG_VERSION"), String::from_utf8_lossy(&probe.stdout).trim().to_owned());
    if other.split_whitespace().last() != Some(own) {
        let detail = format!("{shown} is `{other}`, and this program is version {own}");
        return Err(Refusal::new("store", detail).hint("build and install both from the same source").into());
    }
    Ok(program)
}

/// What `compline version` says of it.
pub fn support() -> String {
    match linked() {
        Ok(program) => format!("foundationdb through {}", program.display()),
        Err(_) => "no foundationdb (`serve --store fdb:…` says what is missing)".to_owned(),
    }
}
