//! The benchmarks behind `cargo xtask bench`. Each prints one JSON object on stdout and says on stderr what it does.

mod backlog;
mod burst;
mod live;
mod measure;
mod store;
mod sustained;

use std::io::Write;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Jobs that are due every second, each run a real component, everything in one process.
    Sustained(sustained::Args),
    /// Jobs that are due once, all in the same second, each run a real component.
    Burst(burst::Args),
    /// Jobs that are due every second beside the backlog of an outage, each run a real component.
    Backlog(backlog::Args),
    /// The four transactions of an execution, as fast as the store takes them, without a sandbox.
    Store(store::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let measured = match Cli::parse().bench {
        Bench::Sustained(args) => sustained::run(args).await?,
        Bench::Burst(args) => burst::run(args).await?,
        Bench::Backlog(args) => backlog::run(args).await?,
        Bench::Store(args) => store::run(args).await?,
    };
    writeln!(std::io::stdout(), "{measured}")?;
    Ok(())
}

/// Tells the person at the terminal what happens.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
