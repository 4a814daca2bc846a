//! `cargo xtask bench`: the benchmarks, in a release build. One JSON object on stdout.

use anyhow::Result;

use crate::process::{cargo, run as run_shown, say};
use crate::{guests, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Which one, and its options: `sustained --rate 3000 --seconds 30`, `burst --count 25000`, `backlog --owed 200000`, `store --jobs 5000 --slots 20`; with
    /// `--store fdb:CLUSTER_FILE?prefix=PREFIX` on FoundationDB.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    bench: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    guests::build()?;
    say("building in release (the first time this takes long: it compiles wasmtime)");
    let mut build = cargo();
    build.args(["build", "--release", "-p", "compline-tests", "--bin", "bench", "--locked"]);
    if args.bench.iter().any(|option| option.trim_start_matches("--store=").starts_with("fdb:")) {
        build.args(["--features", "compline/foundationdb"]);
    }
    run_shown(build.current_dir(workspace::root()))?;
    let program = workspace::target().join("release").join("bench");
    // `--json` is what it prints anyway.
    let options = args.bench.iter().filter(|option| *option != "--json");
    run_shown(std::process::Command::new(program).args(options).current_dir(workspace::root()))
}
