//! `cargo xtask`: set-up, guests, tests and checks. One file per command.

mod bench;
mod debian;
mod demo;
mod docs;
mod guests;
mod layers;
mod process;
mod programs;
mod setup;
mod sim;
mod soak;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Everything that is needed around the code: one command each.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, in a release build; prints one JSON object.
    Bench(bench::Args),
    /// Shows the main job end to end: serve, push, schedule, kill, restart, check.
    Demo(demo::Args),
    /// Makes this machine able to build tasks for wasm32-wasip2.
    Setup(setup::Args),
    /// Builds the example tasks into target/guests/.
    Guests(guests::Args),
    /// Runs the simulator over many seeds.
    Sim(sim::Args),
    /// Kills, freezes and cuts off real processes, hundreds of times.
    Soak(soak::Args),
    /// Runs every test, with the example tasks built first.
    Test(test::Args),
    /// Writes the reference documents in docs/, or checks that they are fresh.
    Docs(docs::Args),
    /// Checks that the crates depend on each other in one direction only.
    CheckLayers,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Guests(args) => guests::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::CheckLayers => layers::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
