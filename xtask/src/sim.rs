//! `cargo xtask sim`: the simulator of `tests/` over many seeds.

use std::process::Command;

use anyhow::Result;

use crate::process::run as run_shown;
use crate::{programs, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Then so many seeds that nobody has chosen; the first is printed.
    #[arg(long, default_value_t = 0)]
    fresh: u64,
    /// Only this seed: what a failure says to repeat it with.
    #[arg(long, conflicts_with_all = ["seeds", "from", "fresh"])]
    seed: Option<u64>,
    /// Plants a fault, and expects that it is found. An unknown one is answered with those that there are.
    #[arg(long, conflicts_with = "fresh")]
    plant: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    programs::build()?;
    let mut sim = Command::new(programs::path("sim"));
    match args.seed {
        Some(seed) => sim.args(["--seed".to_owned(), seed.to_string()]),
        None => sim.args(["--seeds".to_owned(), args.seeds.to_string(), "--from".to_owned(), args.from.to_string()]),
    };
    if args.fresh > 0 {
        sim.args(["--fresh".to_owned(), args.fresh.to_string()]);
    }
    if let Some(plant) = &args.plant {
        sim.args(["--plant", plant]);
    }
    run_shown(sim.current_dir(workspace::root()))
}
