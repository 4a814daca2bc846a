//! `cargo xtask check-layers`: imports run one way (ARCHITECTURE.md).
//!
//! The rules are about what a crate says in its `Cargo.toml`. Dev-dependencies are free: a test may stand on anything.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{capture, cargo, say};
use crate::workspace;

/// Which crates of this workspace a crate may depend on.
const INTERNAL: &[(&str, &[&str])] = &[
    ("compline-core", &[]),
    ("compline-fdb-cluster", &[]),
    ("compline-runtime", &[]),
    ("compline-store", &["compline-core"]),
    ("compline", &["compline-core", "compline-store", "compline-runtime"]),
    ("compline-sdk", &["compline-sdk-macros"]),
    ("compline-sdk-macros", &[]),
    ("compline-tests", &["compline", "compline-core", "compline-fdb-cluster", "compline-store", "compline-runtime"]),
    ("xtask", &["compline-fdb-cluster"]),
];

/// An outside crate that only some may use, and what its use elsewhere would break.
struct Reserved {
    names: &'static [&'static str],
    for_crates: &'static [&'static str],
    because: &'static str,
}

const RESERVED: &[Reserved] = &[
    Reserved {
        names: &["axum", "utoipa", "utoipa-axum", "tower-http"],
        for_crates: &["compline"],
        because: "only the server knows HTTP",
    },
    Reserved {
        names: &["wasmtime", "wasmtime-wasi", "wasmtime-wasi-http"],
        for_crates: &["compline-runtime"],
        because: "only the runtime knows the engine",
    },
    Reserved {
        names: &["fjall", "foundationdb"],
        for_crates: &["compline-store"],
        because: "only the store knows its backends",
    },
];

/// What the pure crate must not reach: input, output, waiting, ambient randomness.
const NOT_IN_CORE: &[&str] =
    &["tokio", "tokio-util", "futures", "async-trait", "reqwest", "tempfile", "nix", "fastrand", "rand", "tracing"];

pub fn run() -> Result<()> {
    let text =
        capture(cargo().args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(workspace::root()))?;
    let metadata: Metadata = serde_json::from_str(&text).context("reading `cargo metadata`")?;
    let crates = metadata.packages.into_iter().map(Package::into_pair).collect();
    let faults = faults(&crates);
    if !faults.is_empty() {
        bail!("imports run one way (ARCHITECTURE.md):\n  {}", faults.join("\n  "));
    }
    say(&format!("layers: {} crates, imports run one way", crates.len()));
    Ok(())
}

/// Every breach, one sentence each. The input is each crate with what it depends on.
fn faults(crates: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, dependencies) in crates {
        let Some((_, allowed)) = INTERNAL.iter().find(|(known, _)| known == name) else {
            faults.push(format!("{name} has no place yet: add it to INTERNAL in xtask/src/layers.rs"));
            continue;
        };
        for dependency in dependencies {
            if crates.contains_key(dependency) && !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{name} may not depend on {dependency} (allowed: {})", list(allowed)));
            }
            if name == "compline-core" && NOT_IN_CORE.contains(&dependency.as_str()) {
                faults.push(format!("compline-core may not depend on {dependency}: it does no IO and never waits"));
            }
            for rule in RESERVED {
                if rule.names.contains(&dependency.as_str()) && !rule.for_crates.contains(&name.as_str()) {
                    faults.push(format!("{name} may not depend on {dependency}: {}", rule.because));
                }
            }
        }
    }
    faults
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none of this workspace".to_owned() } else { names.join(", ") }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

impl Package {
    fn into_pair(self) -> (String, BTreeSet<String>) {
        let dependencies = self.dependencies.into_iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
        (self.name, dependencies.map(|dependency| dependency.name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        edges
            .iter()
            .map(|(name, to)| ((*name).to_owned(), to.iter().map(|name| (*name).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn the_drawn_shape_is_accepted() {
        let drawn = crates(&[
            ("compline", &["compline-core", "compline-store", "compline-runtime", "axum", "tokio"]),
            ("compline-store", &["compline-core", "fjall", "tokio"]),
            ("compline-core", &["chrono", "jiff"]),
            ("compline-runtime", &["wasmtime", "tokio"]),
        ]);
        assert_eq!(faults(&drawn), Vec::<String>::new());
    }

    #[test]
    fn an_import_against_the_direction_is_named() {
        let drawn = crates(&[("compline-core", &["compline-store"]), ("compline-store", &[])]);
        assert_eq!(
            faults(&drawn),
            ["compline-core may not depend on compline-store (allowed: none of this workspace)"]
        );
    }

    #[test]
    fn what_is_reserved_is_refused_elsewhere() {
        for (name, dependency) in [
            ("compline-core", "tokio"),
            ("compline-runtime", "axum"),
            ("compline", "wasmtime"),
            ("compline", "fjall"),
            ("compline-core", "fjall"),
        ] {
            let found = faults(&crates(&[(name, &[dependency])]));
            assert_eq!(found.len(), 1, "{name} -> {dependency}: {found:?}");
            assert!(found[0].starts_with(&format!("{name} may not depend on {dependency}: ")), "{found:?}");
        }
    }

    #[test]
    fn a_crate_without_a_place_is_a_fault() {
        assert_eq!(faults(&crates(&[("compline-extra", &[])])).len(), 1);
    }
}
