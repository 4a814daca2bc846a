//! Runs the simulator over a range of seeds. `cargo xtask sim` builds and starts it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use compline_tests::sim::plant::Plant;
use compline_tests::sim::sweep::{Found, Sweep};

/// Runs the simulator over a range of seeds.
#[derive(Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Only this seed.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Plants a fault, and expects that it is found.
    #[arg(long, value_enum)]
    plant: Option<Plant>,
}

/// With fewer seeds some kinds of faults may rightly not have happened.
const SEEDS_FOR_ALL_KINDS: u64 = 100;

#[expect(clippy::disallowed_methods, reason = "how fast the simulator is, is a matter of real time")]
fn main() -> io::Result<ExitCode> {
    let Args { seeds, from, seed, plant } = Args::parse();
    let sweep = Sweep { from: seed.unwrap_or(from), seeds: seed.map_or(seeds, |_| 1), plant };
    let began = Instant::now();
    let found = sweep.run(|ran| {
        // Nobody may be listening.
        let _ = writeln!(io::stderr(), "  {ran} seeds");
    });
    let rate = found.ran as f64 / began.elapsed().as_secs_f64();
    let mut out = io::stdout().lock();
    for (name, count) in &found.counts {
        writeln!(out, "{count:>12}  {name}")?;
    }
    writeln!(out, "{} seeds from {}, {rate:.1} a second", found.ran, sweep.from)?;
    for outcome in &found.failed {
        let planted = plant.and_then(|plant| plant.to_possible_value());
        let planted = planted.map(|value| format!(" --plant {}", value.get_name())).unwrap_or_default();
        writeln!(out, "{outcome}{planted}")?;
    }
    verdict(&mut out, &sweep, &found)
}

fn verdict(out: &mut impl Write, sweep: &Sweep, found: &Found) -> io::Result<ExitCode> {
    let missing = found.never_happened();
    let right = match sweep.plant {
        Some(_) => {
            let caught = !found.failed.is_empty();
            writeln!(out, "the planted fault was {}", if caught { "found" } else { "NOT found" })?;
            caught
        }
        None if !found.failed.is_empty() => {
            writeln!(out, "{} seeds FAILED", found.failed.len())?;
            false
        }
        None if found.ran >= SEEDS_FOR_ALL_KINDS && !missing.is_empty() => {
            writeln!(out, "these never happened: {}", missing.join(", "))?;
            false
        }
        None => {
            writeln!(out, "no violation")?;
            true
        }
    };
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
