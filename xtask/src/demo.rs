//! `cargo xtask demo`: the main job, end to end, on a fresh directory, with a SIGKILL in the middle.

mod server;
mod story;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use compline_fdb_cluster::{Cluster, ClusterOptions, StorageEngine};

use crate::process::say;
use crate::{guests, programs, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Print the verdict only.
    #[arg(long, short)]
    quiet: bool,
    /// Keep the server's directory, to look at afterwards.
    #[arg(long)]
    keep: bool,
    /// The store to show it on; `fdb` starts a throw-away FoundationDB cluster
    #[arg(long, value_enum, default_value_t = Store::Embedded)]
    store: Store,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Store {
    Embedded,
    Fdb,
}

/// How long the demo waits for anything before it calls it lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Result<()> {
    let print = Printer { quiet: args.quiet, step: std::cell::Cell::new(0) };
    print.step("build the example tasks for wasm32-wasip2");
    guests::build()?;
    print.step("build compline (the first time this takes some minutes: it compiles wasmtime)");
    programs::build()?;
    if args.store == Store::Fdb {
        programs::foundationdb().map_err(anyhow::Error::msg)?;
        print.step("build compline-fdb, which is linked with FoundationDB's client library");
        programs::build_foundationdb()?;
    }
    let directory = workspace::target().join("demo");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("the directory of an earlier demo cannot be removed")?;
    }
    std::fs::create_dir_all(&directory)?;
    let cluster = (args.store == Store::Fdb).then(|| start_cluster(&print)).transpose()?;
    let store = match &cluster {
        Some(cluster) => format!("fdb:{}", cluster.cluster_file().display()),
        None => format!("embedded:{}", directory.join("store").display()),
    };
    let told = story::tell(&print, &Place { directory: directory.clone(), store });
    if !args.keep && told.is_ok() {
        std::fs::remove_dir_all(&directory)?;
    }
    let verdict = told
        .with_context(|| format!("the demo failed; the server's log is {}", directory.join("server.log").display()))?;
    say(&verdict);
    Ok(())
}

/// Where the demo happens.
pub(crate) struct Place {
    /// The server's log goes here.
    pub(crate) directory: PathBuf,
    /// As `--store` takes it.
    pub(crate) store: String,
}

fn start_cluster(print: &Printer) -> Result<Cluster> {
    print.step("start a FoundationDB cluster on loopback");
    let cluster = Cluster::start(ClusterOptions::single(StorageEngine::Ssd))?;
    print.show(&cluster.description());
    Ok(cluster)
}

/// Tells the person at the terminal what happens.
pub(crate) struct Printer {
    quiet: bool,
    step: std::cell::Cell<u32>,
}

impl Printer {
    /// The next step.
    pub(crate) fn step(&self, what: &str) {
        self.step.set(self.step.get() + 1);
        if !self.quiet {
            say(&format!("\n[{}] {what}", self.step.get()));
        }
    }

    /// Something that the step showed.
    pub(crate) fn show(&self, text: &str) {
        if !self.quiet {
            text.lines().for_each(|line| say(&format!("    {line}")));
        }
    }

    /// A sign of life while something is waited for.
    pub(crate) fn dot(&self) {
        if !self.quiet && std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), ".");
            let _ = std::io::stderr().flush();
        }
    }
}
