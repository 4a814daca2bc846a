//! A cluster: its servers, its cluster file, its configuration.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::server::{Programs, Server, ServerSpec, last_words, programs};

/// How long a cluster may take to serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take until its recovery is over, with all data where it should be, on a busy machine.
const PATIENCE_TO_SETTLE: Duration = Duration::from_secs(180);

/// How long a new cluster of several processes must have stayed as it is.
const SETTLED_FOR: Duration = Duration::from_secs(3);

/// How FoundationDB calls the states of its recovery in which it commits; in the first one it is over.
const RECOVERED: [&str; 4] = ["fully_recovered", "storage_recovered", "all_logs_recruited", "accepting_commits"];

/// How a cluster keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageEngine {
    /// In memory, with a log on disk.
    Memory,
    /// In a B-tree on disk.
    Ssd,
}

/// What kind of cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterOptions {
    /// How many processes: one keeps one copy of everything; three are three zones with two copies, so that any one may die.
    pub processes: usize,
    /// How they keep their data.
    pub engine: StorageEngine,
    /// The address of this machine that they listen on: loopback, unless some clients are to reach it from another network namespace.
    pub address: Ipv4Addr,
}

impl ClusterOptions {
    /// One process.
    pub const fn single(engine: StorageEngine) -> Self {
        Self { processes: 1, engine, address: Ipv4Addr::LOCALHOST }
    }

    /// Three processes, of which any one may die.
    pub const fn three(engine: StorageEngine) -> Self {
        Self { processes: 3, engine, address: Ipv4Addr::LOCALHOST }
    }

    /// The same on another address of this machine.
    pub const fn on(self, address: Ipv4Addr) -> Self {
        Self { address, ..self }
    }

    fn configuration(self) -> String {
        let redundancy = if self.processes >= 3 { "double" } else { "single" };
        format!("{redundancy} {}", self.engine.name())
    }
}

impl StorageEngine {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Ssd => "ssd",
        }
    }
}

/// A running cluster on loopback. Dropping it kills its processes and removes its data.
pub struct Cluster {
    options: ClusterOptions,
    programs: Programs,
    version: String,
    cluster_file: PathBuf,
    specs: Vec<ServerSpec>,
    /// Those that run.
    servers: BTreeMap<usize, Server>,
}

impl Cluster {
    /// Starts a cluster and waits until it serves: a few seconds, in which the calling thread is blocked.
    pub fn start(options: ClusterOptions) -> Result<Self> {
        ensure!(options.processes > 0, "a cluster has at least one process");
        let programs = programs().map_err(anyhow::Error::msg)?;
        let version = version(&programs)?;
        let root = tempfile::Builder::new().prefix("compline-fdb-").tempdir().context("no directory for a cluster")?;
        let addresses = free_addresses(options)?;
        let coordinators: Vec<String> = addresses.iter().map(SocketAddrV4::to_string).collect();
        let description = format!("compline:throwaway{}@{}\n", addresses[0].port(), coordinators.join(","));
        // Every process gets its own copy: servers and clients rewrite theirs.
        let copy = |name: String| -> Result<PathBuf> {
            let path = root.path().join(name);
            std::fs::write(&path, &description)?;
            Ok(path)
        };
        let cluster_file = copy("fdb.cluster".to_owned())?;
        let mut specs = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            specs.push(ServerSpec {
                program: programs.server.clone(),
                root: root.path().to_owned(),
                cluster_file: copy(format!("server-{index}.cluster"))?,
                directory: root.path().join(format!("server-{index}")),
                address: *address,
                zone: format!("zone-{index}"),
            });
        }
        let servers = BTreeMap::new();
        let mut cluster = Self { options, programs, version, cluster_file, specs, servers };
        cluster.start_all()?;
        // From here on the servers' watchers remove it.
        let _ = root.keep();
        cluster.until_it_says(&format!("configure new {}", options.configuration()), "Database created")?;
        cluster.until_it_serves()?;
        if options.processes > 1 {
            cluster.until_it_settles()?;
        }
        Ok(cluster)
    }

    /// The cluster file for clients.
    pub fn cluster_file(&self) -> &Path {
        &self.cluster_file
    }

    /// FoundationDB's version, such as `7.3.79`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How many processes it has, dead ones included.
    pub fn processes(&self) -> usize {
        self.specs.len()
    }

    /// What it is, in a few words.
    pub fn description(&self) -> String {
        let (count, engine) = (self.options.processes, self.options.engine.name());
        let processes = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
        format!("FoundationDB {}, {processes}, {engine} engine", self.version)
    }

    /// Kills one process with SIGKILL; its data stays.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.servers.remove(&index).with_context(|| format!("process {index} does not run"))?.kill()
    }

    /// Starts one process again.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        ensure!(!self.servers.contains_key(&index), "process {index} runs");
        let spec = self.specs.get(index).with_context(|| format!("there is no process {index}"))?;
        self.servers.insert(index, Server::start(spec)?);
        Ok(())
    }

    /// Kills all processes with SIGKILL: nothing answers any more until [`Cluster::start_all`].
    pub fn kill_all(&mut self) -> Result<()> {
        std::mem::take(&mut self.servers).into_values().try_for_each(Server::kill)
    }

    /// Starts all processes that do not run.
    pub fn start_all(&mut self) -> Result<()> {
        let dead: Vec<usize> = (0..self.specs.len()).filter(|index| !self.servers.contains_key(index)).collect();
        dead.into_iter().try_for_each(|index| self.restart(index))
    }

    /// Waits until the cluster serves, with as many processes as run.
    pub fn until_it_serves(&self) -> Result<()> {
        self.until_it_says("status minimal", "The database is available")
    }

    /// Waits until the cluster serves and has not begun to recover again for a few seconds. While its processes find each other it does, and commits
    /// of that moment have an unknown result. Returns for how long it has served.
    #[expect(clippy::disallowed_methods, reason = "another program has no clock that could be moved")]
    pub fn until_it_settles(&self) -> Result<Duration> {
        // With a process that is dead a recovery does not end: its log is kept for it.
        let all_run = self.servers.len() == self.specs.len();
        let until = Instant::now() + PATIENCE_TO_SETTLE;
        let mut generation = String::new();
        let mut since = Instant::now();
        while Instant::now() < until {
            let status = self.cli("status json")?;
            let is = |state: &str| status.contains(&format!("\"{state}\""));
            let now = status.lines().find(|line| line.contains("\"generation\"")).unwrap_or_default();
            if !RECOVERED.iter().any(|state| is(state)) || generation != now {
                (generation, since) = (now.to_owned(), Instant::now());
            } else if since.elapsed() >= SETTLED_FOR && (!all_run || is(RECOVERED[0])) {
                return Ok(since.elapsed());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("the cluster has not settled within {PATIENCE_TO_SETTLE:?}");
    }

    /// Runs commands of `fdbcli` and returns what it prints.
    pub fn cli(&self, commands: &str) -> Result<String> {
        let output = Command::new(&self.programs.cli)
            .arg("-C")
            .arg(&self.cluster_file)
            .args(["--timeout", "10", "--exec", commands])
            .stdin(Stdio::null())
            .output()
            .context("`fdbcli` could not be started")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    #[expect(clippy::disallowed_methods, reason = "another program has no clock that could be moved")]
    fn until_it_says(&self, commands: &str, expected: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.cli(commands)?;
            if said.contains(expected) {
                return Ok(());
            }
            if Instant::now() > until {
                let words: Vec<String> = self.specs.iter().map(|spec| last_words(&spec.directory)).collect();
                bail!("`{commands}` failed for {PATIENCE:?}: {}; servers: {}", said.trim(), words.join("; "));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn version(programs: &Programs) -> Result<String> {
    let output =
        Command::new(&programs.server).arg("--version").output().context("`fdbserver` could not be started")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = said.split(['(', ')']).find_map(|part| part.strip_prefix('v'));
    version.map(str::to_owned).with_context(|| format!("`fdbserver --version` says no version: {said}"))
}

/// Addresses that nobody listens on at the moment.
fn free_addresses(options: ClusterOptions) -> Result<Vec<SocketAddrV4>> {
    let bind = |_| TcpListener::bind((options.address, 0));
    let listeners = (0..options.processes).map(bind).collect::<Result<Vec<_>, _>>()?;
    let port = |listener: &TcpListener| Ok(SocketAddrV4::new(options.address, listener.local_addr()?.port()));
    listeners.iter().map(port).collect()
}
