//! Runs the simulator: first the seeds that once failed, then a range of seeds, then fresh ones. `cargo xtask sim` builds and starts it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use compline_tests::sim::Outcome;
use compline_tests::sim::plant::Plant;
use compline_tests::sim::sweep::{Found, SEEDS_FILE, Sweep, seeds_in};

/// Runs the simulator over a range of seeds.
#[derive(Parser)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Then so many seeds that nobody has chosen; the first is printed.
    #[arg(long, default_value_t = 0)]
    fresh: u64,
    /// Only this seed.
    #[arg(long, conflicts_with_all = ["seeds", "from", "fresh"])]
    seed: Option<u64>,
    /// Plants a fault, and expects that it is found.
    #[arg(long, value_enum, conflicts_with = "fresh")]
    plant: Option<Plant>,
}

/// With fewer seeds some kinds of faults may rightly not have happened.
const SEEDS_FOR_ALL_KINDS: u64 = 100;
/// Seeds are drawn below this, so that they can be read out.
const FRESH_BELOW: u64 = 1 << 40;

#[expect(
    clippy::disallowed_methods,
    reason = "how fast the simulator is, is a matter of real time; and fresh seeds are nobody's choice"
)]
fn main() -> io::Result<ExitCode> {
    let Args { seeds, from, fresh, seed, plant } = Args::parse();
    let sweep = Sweep { from: seed.unwrap_or(from), seeds: seed.map_or(seeds, |_| 1), plant };
    let began = Instant::now();
    let mut out = io::stdout().lock();
    let tell = |ran| {
        // Nobody may be listening.
        let _ = writeln!(io::stderr(), "  {ran} seeds");
    };
    let mut found = if seed.is_none() && plant.is_none() { replay(&mut out)? } else { Found::default() };
    found.join(sweep.run(tell));
    writeln!(out, "{} seeds from {}", sweep.seeds, sweep.from)?;
    if fresh > 0 {
        let from = fastrand::u64(..FRESH_BELOW);
        writeln!(out, "{fresh} fresh seeds from {from}: cargo xtask sim --from {from} --seeds {fresh}")?;
        found.join(Sweep { from, seeds: fresh, plant }.run(tell));
    }
    let rate = found.ran as f64 / began.elapsed().as_secs_f64();
    for (name, count) in &found.counts {
        writeln!(out, "{count:>12}  {name}")?;
    }
    writeln!(out, "{} seeds, {rate:.1} a second", found.ran)?;
    for outcome in &found.failed {
        let planted = plant.and_then(|plant| plant.to_possible_value());
        let planted = planted.map(|value| format!(" --plant {}", value.get_name())).unwrap_or_default();
        writeln!(out, "{outcome}{planted}")?;
        if plant.is_none() {
            keep(&mut out, outcome)?;
        }
    }
    verdict(&mut out, &sweep, &found)
}

/// What failed once is run first.
fn replay(out: &mut impl Write) -> io::Result<Found> {
    let seeds = seeds_in(&fs::read_to_string(SEEDS_FILE)?).map_err(io::Error::other)?;
    writeln!(out, "{} seeds that once failed", seeds.len())?;
    Ok(Sweep::replay(&seeds))
}

/// Writes a seed that failed down, so that every run begins with it. What a seed stands for changes with the source: so the revision is told too.
fn keep(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let Some(violation) = &outcome.violation else { return Ok(()) };
    let revision = revision();
    writeln!(out, "  at revision {revision}, with {} written to tests/seeds.txt", outcome.seed)?;
    if seeds_in(&fs::read_to_string(SEEDS_FILE)?).map_err(io::Error::other)?.contains(&outcome.seed) {
        return Ok(());
    }
    let at = violation.at.as_secs_f64();
    let line = format!(
        "{}  rule `{}` at {at:.3} s, commit {}, at revision {revision}",
        outcome.seed, violation.rule, violation.version
    );
    writeln!(OpenOptions::new().append(true).open(SEEDS_FILE)?, "{line}")
}

fn revision() -> String {
    let described = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let words = described.ok().filter(|output| output.status.success());
    words.map_or("unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
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
