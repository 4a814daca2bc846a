//! The real server, as a process that can be killed.

use std::ffi::OsStr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::work::{PATIENCE, target};

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    /// Starts a server on this store, named as `--store` takes it, and waits until it can be reached.
    pub async fn start(store: &str) -> Self {
        Self::start_in(store, []).await
    }

    /// The same with more in its environment.
    pub async fn start_in<'a>(store: &str, environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Self {
        let program = target().join("debug").join("compline");
        assert!(program.exists(), "{} is missing: run `cargo xtask test`, which builds it", program.display());
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--color", "never", "--store", store])
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its stderr")).lines();
        let mut said = Vec::new();
        let url = timeout(PATIENCE, async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, url)) = line.split_once("listening on ") {
                    return url.trim().to_owned();
                }
                said.push(line);
            }
            panic!("the server ended at once:\n{}", said.join("\n"));
        })
        .await
        .expect("the server says where it listens");
        // Its stderr is read on, so that the pipe never fills up.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, url }
    }

    /// SIGKILL: nothing of the process runs any more when this returns.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the server dies");
    }
}
