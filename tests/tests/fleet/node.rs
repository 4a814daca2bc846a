//! One node of the fleet, as a process.

use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::work::{bounded, target};

/// A running node. Dropping it kills it.
pub struct Node {
    name: String,
    child: Option<Child>,
    /// Where it can be reached, if it has the role `api`.
    pub url: String,
}

impl Node {
    /// The program, if it can be started on a FoundationDB cluster.
    pub fn program() -> Result<PathBuf, String> {
        let linked = target().join("debug").join("compline-fdb");
        if !linked.exists() {
            return Err(format!(
                "{} is not built: `cargo xtask test` does it where FoundationDB is installed",
                linked.display()
            ));
        }
        Ok(target().join("debug").join("compline"))
    }

    /// Starts a node and waits until it says that it begins.
    pub async fn start(store: &str, name: &str, roles: &str) -> Self {
        let program = Self::program().expect("looked for before");
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--color", "never"])
            .args(["--store", store, "--node-name", name, "--roles", roles, "--workers", "8"])
            // Short, so that the test is: a dead node is given up after four seconds.
            .args(["--session-ttl", "4s", "--lease-ttl", "3s", "--beat", "500ms"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the node starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its stderr")).lines();
        let awaited = if roles == "api" { "listening on " } else { "the node begins" };
        let mut said = Vec::new();
        let url = bounded("a node to begin", async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, rest)) = line.split_once(awaited) {
                    return rest.trim().to_owned();
                }
                said.push(line);
            }
            panic!("{name} ended at once:\n{}", said.join("\n"));
        })
        .await;
        // Its stderr is read on, so that the pipe never fills up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { name: name.to_owned(), child: Some(child), url }
    }

    /// SIGKILL: nothing of the process runs any more when this returns.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("the node dies");
        }
    }

    /// SIGTERM: it finishes what runs, and ends well.
    pub async fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a signal");
        let status = bounded("a node to stop", child.wait()).await.expect("a status");
        assert!(status.success(), "{} ended with {status}", self.name);
    }
}
