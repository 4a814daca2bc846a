//! `cargo xtask docs`: the reference documents that the program writes about itself.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{run as run_shown, say};
use crate::{programs, workspace};

/// What the program writes.
const DOCUMENTS: [&str; 2] = ["openapi.json", "cli.md"];

#[derive(clap::Args)]
pub struct Args {
    /// Change nothing; fail if a document in `docs/` is stale.
    #[arg(long)]
    check: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let fresh = workspace::target().join("docs");
    fs::create_dir_all(&fresh).with_context(|| format!("creating {}", fresh.display()))?;
    programs::build()?;
    run_shown(
        Command::new(programs::path("compline")).args(["--quiet", "__docs"]).arg(&fresh).current_dir(workspace::root()),
    )?;
    for name in DOCUMENTS {
        let checked_in = workspace::root().join("docs").join(name);
        let wanted = fs::read(fresh.join(name)).with_context(|| format!("reading the new {name}"))?;
        if fs::read(&checked_in).is_ok_and(|found| found == wanted) {
            continue;
        }
        if args.check {
            bail!("docs/{name} is stale: run `cargo xtask docs` and commit what it changed");
        }
        fs::write(&checked_in, wanted).with_context(|| format!("writing {}", checked_in.display()))?;
        say(&format!("wrote docs/{name}"));
    }
    Ok(())
}
