//! `cargo xtask test`: every test of the project, on a machine that may have nothing prepared.

use anyhow::Result;

use crate::process::{cargo, exists, run as run_shown, say};
use crate::{guests, programs, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Passed on to the test runner, such as the name of a test.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    say("[1/4] example tasks, for the guest target");
    guests::build()?;
    say("[2/4] everything else, tests included");
    // One selection of packages for build and test: another would unify features anew and compile the dependencies twice.
    // It also builds the `compline` program, which the crash tests start.
    run_shown(cargo().args(["build", "--workspace", "--all-targets", "--locked"]).current_dir(workspace::root()))?;
    let foundationdb = programs::foundationdb();
    match &foundationdb {
        Ok(()) => programs::build_foundationdb()?,
        Err(reason) => say(&format!("tests on FoundationDB: SKIPPED: {reason}")),
    }
    say("[3/4] the example tasks' own tests, on this machine");
    let examples = workspace::target().join("examples-host");
    run_shown(
        cargo()
            .args(["test", "--workspace", "--locked"])
            .current_dir(workspace::examples())
            .env("CARGO_TARGET_DIR", examples),
    )?;
    say("[4/4] the workspace's tests");
    let mut tests = cargo();
    if exists("cargo-nextest") {
        run_shown(cargo().args(["test", "--workspace", "--locked", "--doc"]).current_dir(workspace::root()))?;
        tests.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
    } else {
        tests.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    }
    run_shown(tests.args(&args.rest).current_dir(workspace::root()))?;
    match foundationdb {
        // A test that was asked for by name has run.
        Ok(()) if args.rest.is_empty() => programs::test_foundationdb(),
        Ok(()) => Ok(()),
        // Said again where the run ends, so that nobody misses it.
        Err(reason) => {
            say(&format!("tests on FoundationDB: SKIPPED: {reason}"));
            Ok(())
        }
    }
}
