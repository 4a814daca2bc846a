//! `cargo xtask demo`: the main job, end to end, on a fresh directory, with a SIGKILL in the middle.

mod server;
mod story;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};

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
}

/// How long the demo waits for anything before it calls it lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Result<()> {
    let print = Printer { quiet: args.quiet, step: std::cell::Cell::new(0) };
    print.step("build the example tasks for wasm32-wasip2");
    guests::build()?;
    print.step("build compline (the first time this takes some minutes: it compiles wasmtime)");
    programs::build()?;
    let directory = workspace::target().join("demo");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).context("the directory of an earlier demo cannot be removed")?;
    }
    std::fs::create_dir_all(&directory)?;
    let told = story::tell(&print, &directory);
    if !args.keep && told.is_ok() {
        std::fs::remove_dir_all(&directory)?;
    }
    let verdict = told
        .with_context(|| format!("the demo failed; the server's log is {}", directory.join("server.log").display()))?;
    say(&verdict);
    Ok(())
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
