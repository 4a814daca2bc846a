//! The real server, as a process that can be killed, frozen and stopped.

use std::ffi::{OsStr, OsString};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::work::{bounded, target};

/// What a server is started with.
#[derive(Default)]
pub struct ServerOptions {
    /// What comes before the program: one that starts it somewhere else, by becoming it.
    pub by: Vec<OsString>,
    /// What comes after `serve`.
    pub arguments: Vec<String>,
    /// What is more in its environment.
    pub environment: Vec<(&'static str, OsString)>,
    /// What it says once it can be used; empty: what a server says that listens.
    pub awaited: &'static str,
}

impl ServerOptions {
    /// A server on this store, named as `--store` takes it.
    pub fn on(store: &str) -> Self {
        let arguments = ["--listen", "127.0.0.1:0", "--store", store].map(str::to_owned).to_vec();
        Self { arguments, ..Self::default() }
    }

    pub fn with<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.arguments.extend(arguments.map(str::to_owned));
        self
    }

    /// The address to listen on, instead of any free port.
    pub fn listen(&mut self, address: &str) {
        self.arguments[1] = address.to_owned();
    }

    fn awaited(&self) -> &'static str {
        if self.awaited.is_empty() { "listening on " } else { self.awaited }
    }
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    /// Where it can be reached, if it has the role `api`.
    pub url: String,
    /// The arguments by which a person tells it from others.
    name: String,
    said: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of what {} said:\n{}\n", self.name, self.last_words());
        }
    }
}

impl Server {
    /// Starts a server and waits until it can be used.
    pub async fn start(options: &ServerOptions) -> Self {
        let program = target().join("debug").join("compline");
        assert!(program.exists(), "{} is missing: run `cargo xtask test`, which builds it", program.display());
        let mut words = options.by.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut child = Command::new(words.next().expect("the program, at least"))
            .args(words)
            .args(["serve", "--color", "never"].map(OsStr::new))
            .args(&options.arguments)
            .envs(options.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its stderr")).lines();
        let said = Arc::new(Mutex::new(Vec::new()));
        let url = bounded("a server to begin", async {
            while let Ok(Some(line)) = lines.next_line().await {
                let rest = line.split_once(options.awaited()).map(|(_, rest)| rest.trim().to_owned());
                said.lock().expect("no panic").push(line);
                if let Some(rest) = rest {
                    return rest;
                }
            }
            panic!("the server ended at once:\n{}", said.lock().expect("no panic").join("\n"));
        })
        .await;
        // Its stderr is read on, so that the pipe never fills up.
        let reader = tokio::spawn({
            let said = said.clone();
            async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    said.lock().expect("no panic").push(line);
                }
            }
        });
        Self { child, url, name: options.arguments.join(" "), said, reader }
    }

    /// How long its log is.
    pub fn log_lines(&self) -> usize {
        self.said.lock().expect("no panic").len()
    }

    /// What it has said since its log was so long.
    pub fn said_since(&self, lines: usize) -> Vec<String> {
        self.said.lock().expect("no panic")[lines..].to_vec()
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        let said = self.said.lock().expect("no panic");
        said[said.len().saturating_sub(30)..].join("\n")
    }

    /// From here on nobody reads its log: writing there fails.
    pub async fn stop_reading(&mut self) {
        self.reader.abort();
        assert!((&mut self.reader).await.is_err(), "it was read until now");
    }

    /// SIGKILL: nothing of the process runs any more when this returns.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the server dies");
    }

    /// SIGSTOP: it does nothing until [`Server::thaw`], and does not know that time passes.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGTERM: it finishes what runs, and ends well.
    pub async fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status: ExitStatus = bounded("a server to stop", self.child.wait()).await.expect("a status");
        assert!(status.success(), "it ended with {status}:\n{}", self.last_words());
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).expect("it runs");
        kill(Pid::from_raw(pid), signal).expect("a signal");
    }
}
