//! `cargo xtask guests`: builds every example task into `target/guests/<name>.wasm`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{capture, cargo, run as run_shown, say};
use crate::setup::{self, GuestToolchain, TARGET};
use crate::workspace;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<()> {
    build()?;
    Ok(())
}

/// Builds all example tasks; the components lie at stable absolute paths. What is up to date is left alone.
pub fn build() -> Result<Vec<PathBuf>> {
    let toolchain = setup::prepare()?;
    compile(&toolchain)?;
    let built = workspace::target().join("guests-build").join(TARGET).join("release");
    let out = workspace::target().join("guests");
    fs::create_dir_all(&out)?;
    let mut components = Vec::new();
    for name in names()? {
        let component = out.join(format!("{name}.wasm"));
        let bytes = publish(&built.join(format!("{}.wasm", name.replace('-', "_"))), &component)?;
        say(&format!("  {:<28} {:>4} KiB", format!("target/guests/{name}.wasm"), bytes.div_ceil(1024)));
        components.push(component);
    }
    Ok(components)
}

fn compile(toolchain: &GuestToolchain) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--workspace", "--release", "--locked"]);
    toolchain.configure(&mut command);
    command.current_dir(workspace::examples()).env("CARGO_TARGET_DIR", workspace::target().join("guests-build"));
    run_shown(&mut command)
}

/// Puts a new component in place whole, so that a reader never sees half of one. Returns its size.
fn publish(built: &Path, component: &Path) -> Result<usize> {
    let bytes = fs::read(built).with_context(|| format!("reading the component {}", built.display()))?;
    if fs::read(component).ok().as_deref() != Some(&bytes) {
        let partial = component.with_extension("partial");
        fs::write(&partial, &bytes)?;
        fs::rename(&partial, component)?;
    }
    Ok(bytes.len())
}

/// The examples' names: every package of that workspace that makes a component.
fn names() -> Result<Vec<String>> {
    let text =
        capture(cargo().args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(workspace::examples()))?;
    let metadata: Metadata = serde_json::from_str(&text).context("reading `cargo metadata`")?;
    let mut names: Vec<String> =
        metadata.packages.into_iter().filter(Package::is_task).map(|package| package.name).collect();
    if names.is_empty() {
        bail!("tasks-examples has no package with crate-type cdylib");
    }
    names.sort();
    Ok(names)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

impl Package {
    fn is_task(&self) -> bool {
        self.targets.iter().any(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    }
}
