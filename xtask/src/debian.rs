//! The guest's standard library from Debian: `rust-src` of the installed compiler's version, and `wasi-libc`.
//!
//! apt itself fetches them, from the mirror and with the keys that it is configured with, into directories of our own: signatures and
//! checksums are checked by apt, nothing is installed, and no root is needed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{capture, exists};
use crate::setup::{Sources, TARGET};

/// The suite that carries both packages.
const SUITE: &str = "trixie-backports";

/// What an earlier [`fetch`] left in `directory`, if it came to its end.
pub fn unpacked(directory: &Path, version: &str) -> Option<Sources> {
    let sources = Sources {
        library: directory.join("root/usr/src").join(format!("rustc-{version}")).join("library"),
        libc: directory.join("root/usr/lib").join(TARGET),
    };
    let complete = sources.library.join("Cargo.lock").is_file() && sources.libc.join("libc.a").is_file();
    complete.then_some(sources)
}

/// Fetches and unpacks both packages below `directory`.
pub fn fetch(directory: &Path, version: &str) -> Result<Sources> {
    if !exists("apt-get") || !exists("dpkg-deb") {
        bail!("this is not a Debian machine (no apt-get and dpkg-deb)");
    }
    let partial = directory.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("removing {}", partial.display()))?;
    }
    let apt = PrivateApt::new(&partial)?;
    capture(apt.command("apt-get").arg("update"))?;
    let rust_src = matching_version(&capture(apt.command("apt-cache").args(["madison", "rust-src"]))?, version)?;
    let debs = partial.join("debs");
    fs::create_dir_all(&debs)?;
    capture(
        apt.command("apt-get").args(["download", &format!("rust-src={rust_src}"), "wasi-libc"]).current_dir(&debs),
    )?;
    for deb in fs::read_dir(&debs)? {
        capture(Command::new("dpkg-deb").arg("-x").arg(deb?.path()).arg(partial.join("root")))?;
    }
    fs::remove_dir_all(&debs)?;
    // Renaming is the last step, so that what is found under the final name is whole.
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::rename(&partial, directory)?;
    unpacked(directory, version)
        .with_context(|| format!("Debian's packages lack library/Cargo.lock or libc.a: see {}", directory.display()))
}

/// apt with state, cache and sources of its own.
struct PrivateApt {
    options: Vec<String>,
}

impl PrivateApt {
    fn new(directory: &Path) -> Result<Self> {
        let (mirror, keys) = configured_mirror()?;
        for part in ["apt/lists/partial", "apt/cache/archives/partial"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let directory = fs::canonicalize(directory)?.join("apt");
        let list = directory.join("sources.list");
        let signed_by = keys.map(|path| format!("[signed-by={path}] ")).unwrap_or_default();
        fs::write(&list, format!("deb {signed_by}{mirror} {SUITE} main\n"))?;
        let options = [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", directory.join("lists").display()),
            format!("Dir::Cache={}", directory.join("cache").display()),
            // As root, apt would download as a user who may not write here.
            "APT::Sandbox::User=".to_owned(),
        ];
        Ok(Self { options: options.into() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }
}

/// The mirror of Debian's main archive among apt's sources, and the keyring to check it with.
fn configured_mirror() -> Result<(String, Option<String>)> {
    let fetched = capture(Command::new("apt-get").args(["indextargets", "Created-By: Packages"]))?;
    let mirror = match mirror_in(&fetched) {
        Some(mirror) => mirror,
        // Before the first `apt-get update` apt knows its sources, but not whose they are.
        None => {
            let listed =
                capture(Command::new("apt-get").args(["indextargets", "--no-release-info", "Created-By: Packages"]))?;
            mirror_in(&listed).context("apt is configured with no mirror of Debian's main archive")?
        }
    };
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    Ok((mirror, Path::new(keys).exists().then(|| keys.to_owned())))
}

/// Stanzas are separated by an empty line. Security updates and third parties live in archives that have no backports.
fn mirror_in(indextargets: &str) -> Option<String> {
    indextargets.split("\n\n").find_map(|stanza| {
        let field =
            |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim);
        let mirror = field("Repo-URI")?;
        let debian = field("Origin").map_or(mirror.contains("debian"), |origin| origin == "Debian");
        let main = field("MetaKey")?.starts_with("main/");
        let security = field("Release")?.contains("-security");
        (debian && main && !security).then(|| mirror.to_owned())
    })
}

/// The Debian version of `rust-src` for this compiler, out of `apt-cache madison`'s table.
fn matching_version(table: &str, version: &str) -> Result<String> {
    let offered: Vec<&str> = table.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    match offered.iter().find(|offer| offer.strip_prefix(version).is_some_and(|rest| rest.starts_with(['+', '-', '~'])))
    {
        Some(found) => Ok((*found).to_owned()),
        None => bail!("{SUITE} has rust-src {}, but not {version}", offered.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "  rust-src | 1.96.1+dfsg1-2~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages
  rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages\n";

    #[test]
    fn the_sources_are_of_exactly_the_compilers_version() {
        assert_eq!(matching_version(TABLE, "1.95.0").unwrap(), "1.95.0+dfsg1-2~bpo13+1");
        let refusal = matching_version(TABLE, "1.95").unwrap_err().to_string();
        assert!(refusal.contains("but not 1.95"), "{refusal}");
    }

    #[test]
    fn the_mirror_is_the_one_of_debians_main_archive() {
        let text = "MetaKey: main/binary-amd64/Packages\nRelease: stable-security\nRepo-URI: http://mirror.example/debian-security/\n\n\
            MetaKey: main/binary-amd64/Packages\nRelease: tools\nOrigin: Elsewhere\nRepo-URI: http://other.example/debian/\n\n\
            MetaKey: main/binary-amd64/Packages\nRelease: bookworm\nOrigin: Debian\nRepo-URI: http://mirror.example/main/\n";
        assert_eq!(mirror_in(text).as_deref(), Some("http://mirror.example/main/"));
        assert_eq!(mirror_in(&text.replace("Debian", "Elsewhere")), None);
    }

    #[test]
    fn a_mirror_without_release_information_is_known_by_its_name() {
        let text = "MetaKey: main/binary-amd64/Packages\nRelease: tools\nRepo-URI: http://other.example/apt/\n\n\
            MetaKey: main/binary-amd64/Packages\nRelease: bookworm\nRepo-URI: http://mirror.example/debian/\n";
        assert_eq!(mirror_in(text).as_deref(), Some("http://mirror.example/debian/"));
    }
}
