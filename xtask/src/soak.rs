//! `cargo xtask soak`: the tests that kill, freeze and cut off real processes, for long.

use anyhow::Result;

use crate::process::{cargo, run as run_shown, say};
use crate::{guests, programs, workspace};

/// The test on the embedded store, and the one on FoundationDB.
const TESTS: [&str; 2] = [
    "sigkills_and_freezes_lose_nothing_and_repeat_nothing",
    "nodes_and_database_die_freeze_and_are_cut_off_and_nothing_is_lost",
];

#[derive(clap::Args)]
pub struct Args {
    /// How many kills in all: half of them of the one process on the embedded store, half in a fleet on FoundationDB, where it is installed.
    #[arg(long, default_value_t = 500)]
    kills: usize,
    /// The choices that the tests make: what a run says to repeat them with.
    #[arg(long)]
    seed: Option<u64>,
}

pub fn run(args: &Args) -> Result<()> {
    guests::build()?;
    programs::build()?;
    let kills = match programs::foundationdb() {
        Ok(()) => {
            programs::build_foundationdb()?;
            args.kills.div_ceil(TESTS.len())
        }
        Err(reason) => {
            say(&format!("the fleet on FoundationDB: SKIPPED: {reason}"));
            args.kills
        }
    };
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--locked", "--test", "crash", "--"]);
    tests.args(["--nocapture", "--test-threads", "1"]).args(TESTS);
    tests.env("COMPLINE_TEST_KILLS", kills.to_string());
    if let Some(seed) = args.seed {
        tests.env("COMPLINE_TEST_SEED", seed.to_string());
    }
    run_shown(tests.current_dir(workspace::root()))
}
