//! Whether programs can be linked with FoundationDB's client library here.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Links a program with `libfdb_c` and starts it. `Err` says what is missing and how to get it.
pub fn library() -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    probe(directory.path()).map_err(|error| {
        format!(
            "{error:#}: FoundationDB's client library is in the package foundationdb-clients 7.3 \
             (https://github.com/apple/foundationdb/releases)"
        )
    })
}

fn probe(directory: &Path) -> Result<()> {
    let (source, program) = (directory.join("probe.c"), directory.join("probe"));
    std::fs::write(&source, "int main(void) { return 0; }\n")?;
    let mut link = Command::new("cc");
    // Also a library that the program does not call is to be there when it starts.
    link.arg("-Wl,--no-as-needed").arg("-o").arg(&program).arg(&source);
    if let Some(path) = std::env::var_os("FDB_CLIENT_LIB_PATH") {
        link.arg("-L").arg(path);
    }
    if !quiet(link.arg("-lfdb_c"))? {
        bail!("libfdb_c is not in the linker's path");
    }
    if !quiet(&mut Command::new(program))? {
        bail!("libfdb_c is there to link with, but not in the loader's path");
    }
    Ok(())
}

fn quiet(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.with_context(|| format!("`{program}` could not be started"))?.success())
}
