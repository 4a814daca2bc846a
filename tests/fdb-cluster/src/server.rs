//! One `fdbserver` process, and the shell that watches over it.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs `"$@"` until a line comes in, or until standard input ends because its other side died. In the second case the directory `$root` goes
/// too. A server that ends by itself is left for the next look.
const WATCH: &str = r#"
trap 'exit 1' INT TERM HUP
trap 'kill -9 "$server" 2>/dev/null' EXIT
"$@" </dev/null >>"$log" 2>&1 &
server=$!
echo "$server"
exec >/dev/null
if read -r _; then kill -9 "$server"; wait "$server"; exit 0; fi
kill -9 "$server"; wait "$server"; rm -rf "$root"
"#;

/// FoundationDB's programs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub server: PathBuf,
    pub cli: PathBuf,
}

/// Finds them on PATH. `Err` says what is missing and how to get it.
pub(crate) fn programs() -> Result<Programs, String> {
    let find = |name: &str, package: &str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.is_file()).ok_or_else(|| {
            format!(
                "`{name}` is not on PATH: it is in the package {package} 7.3 (https://github.com/apple/foundationdb/releases), or name the \
                 cluster file of a running cluster in {}",
                crate::CLUSTER_VARIABLE
            )
        })
    };
    Ok(Programs { server: find("fdbserver", "foundationdb-server")?, cli: find("fdbcli", "foundationdb-clients")? })
}

/// What a server is started with.
#[derive(Debug, Clone)]
pub(crate) struct ServerSpec {
    pub program: PathBuf,
    /// What goes with the whole cluster.
    pub root: PathBuf,
    pub cluster_file: PathBuf,
    pub directory: PathBuf,
    pub address: SocketAddrV4,
    pub zone: String,
}

/// A running server. Dropping it kills it and removes the cluster's directory.
pub(crate) struct Server {
    watcher: Child,
}

impl Server {
    pub fn start(spec: &ServerSpec) -> Result<Self> {
        std::fs::create_dir_all(&spec.directory)?;
        let mut watcher = Command::new("sh")
            .args(["-c", WATCH, "sh"])
            .arg(&spec.program)
            .args(["--public-address", &spec.address.to_string()])
            .arg("--cluster-file")
            .arg(&spec.cluster_file)
            .arg("--datadir")
            .arg(&spec.directory)
            .arg("--logdir")
            .arg(&spec.directory)
            .args(["--locality-zoneid", &spec.zone, "--locality-machineid", &spec.zone])
            .args(["--memory", "2GiB", "--cache-memory", "100MiB"])
            .env("root", &spec.root)
            .env("log", spec.directory.join("fdbserver.out"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("`sh` could not be started")?;
        let mut line = String::new();
        let output = watcher.stdout.take().context("the watcher has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        if line.trim().parse::<u32>().is_err() {
            bail!("the watcher over fdbserver ended at once");
        }
        Ok(Self { watcher })
    }

    /// Kills the server with SIGKILL. Its directory stays, so that it can be started again.
    pub fn kill(mut self) -> Result<()> {
        let mut input = self.watcher.stdin.take().context("the server was killed before")?;
        input.write_all(b"\n").context("the watcher over fdbserver is gone")?;
        self.watcher.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// The end of what a server printed, for a message.
pub(crate) fn last_words(directory: &Path) -> String {
    let said = std::fs::read_to_string(directory.join("fdbserver.out")).unwrap_or_default();
    said.lines().rev().take(3).collect::<Vec<_>>().join(" / ")
}
