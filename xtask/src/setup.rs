//! `cargo xtask setup`: makes this machine able to build for the guest target.
//!
//! Three routes, cheapest first: the target is installed; rustup installs it; its standard library is built from Debian's source of
//! the same compiler version. The last one writes below `target/` only, and is there for machines where rustup can't download.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::debian;
use crate::process::{capture, exists, rustc, say};
use crate::workspace;

/// The target that tasks are built for.
pub const TARGET: &str = "wasm32-wasip2";

#[derive(clap::Args)]
pub struct Args {
    /// Take this route only, instead of the first that works.
    #[arg(long)]
    route: Option<Route>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Route {
    /// The target is already part of the toolchain.
    Installed,
    /// `rustup target add`.
    Rustup,
    /// Debian's sources of this rustc version, built with the tasks.
    Debian,
}

/// How guests get their standard library.
pub enum GuestToolchain {
    /// It is part of the installed toolchain.
    Installed,
    /// It is built from source together with the guests.
    FromSource(Sources),
}

/// What is needed to build the guest's standard library.
pub struct Sources {
    /// Rust's `library/` directory, of exactly the installed compiler's version.
    pub library: PathBuf,
    /// The directory with the target's `libc.a`.
    pub libc: PathBuf,
}

impl GuestToolchain {
    /// Adds to a `cargo build` what this toolchain needs.
    pub fn configure(&self, build: &mut Command) {
        build.args(["--target", TARGET]);
        // A component names no directory of the machine that built it.
        let mut flags = vec![format!("--remap-path-prefix={}=.", workspace::root().display())];
        if let Some(home) = cargo_home() {
            flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
        }
        if let Self::FromSource(sources) = self {
            flags.push(format!("-Lnative={}", sources.libc.display()));
            build
                .args(["-Z", "build-std=std,panic_abort"])
                .env("RUSTC_BOOTSTRAP", "1")
                .env("__CARGO_TESTS_ONLY_SRC_ROOT", &sources.library);
        }
        // This also keeps out flags that were meant for the host's code, such as CI's.
        build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    }
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}

pub fn run(args: &Args) -> Result<()> {
    match prepare_by(args.route)? {
        GuestToolchain::Installed => say(&format!("ready: {TARGET} is installed")),
        GuestToolchain::FromSource(sources) => {
            say(&format!("ready: {TARGET} is built from {}", sources.library.display()));
        }
    }
    Ok(())
}

/// Finds or makes a guest toolchain. The second call is quick.
pub fn prepare() -> Result<GuestToolchain> {
    prepare_by(None)
}

fn prepare_by(route: Option<Route>) -> Result<GuestToolchain> {
    let allowed = |candidate| route.is_none_or(|chosen| chosen == candidate);
    if allowed(Route::Installed) && installed()? {
        return Ok(GuestToolchain::Installed);
    }
    let version = rustc_version()?;
    let directory = workspace::target().join("guest-toolchain").join(&version);
    if allowed(Route::Debian)
        && let Some(sources) = debian::unpacked(&directory, &version)
    {
        return Ok(GuestToolchain::FromSource(sources));
    }
    let mut refusals = Vec::new();
    if allowed(Route::Rustup) {
        match add_with_rustup() {
            Ok(()) => return Ok(GuestToolchain::Installed),
            Err(error) => refusals.push(format!("rustup: {error:#}")),
        }
    }
    if allowed(Route::Debian) {
        say(&format!(
            "fetching Debian's sources of the {TARGET} standard library, rustc {version} (about 46 MB, once)"
        ));
        match debian::fetch(&directory, &version) {
            Ok(sources) => return Ok(GuestToolchain::FromSource(sources)),
            Err(error) => refusals.push(format!("Debian: {error:#}")),
        }
    }
    bail!(
        "tasks are built for {TARGET}, and this toolchain lacks it. Install it with `rustup target add {TARGET}`.\n{}",
        refusals.join("\n")
    )
}

/// Whether the toolchain already has a standard library for the target.
fn installed() -> Result<bool> {
    let directory = capture(rustc().args(["--print", "target-libdir", "--target", TARGET]))?;
    let Ok(entries) = std::fs::read_dir(directory.trim()) else { return Ok(false) };
    Ok(entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    }))
}

fn rustc_version() -> Result<String> {
    let text = capture(rustc().arg("-vV"))?;
    let release =
        text.lines().find_map(|line| line.strip_prefix("release: ")).context("`rustc -vV` names no release")?;
    Ok(release.to_owned())
}

fn add_with_rustup() -> Result<()> {
    if !exists("rustup") {
        bail!("it is not on the PATH");
    }
    say(&format!("adding {TARGET} with rustup"));
    // One try: a machine that can't reach rustup's server has another route.
    capture(Command::new("rustup").args(["target", "add", TARGET]).env("RUSTUP_MAX_RETRIES", "0"))?;
    if !installed()? {
        bail!("it added {TARGET} to another toolchain than this rustc's");
    }
    Ok(())
}
