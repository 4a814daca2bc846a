//! What a server is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use compline_core::job::LANE_DEFAULT;

use crate::liveness::Liveness;
use crate::passes::retain::Retention;
use crate::refusal::{Refusal, quoted};

/// The address that a server listens on, unless told otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7878";
/// The directory of the embedded store, unless told otherwise.
pub const STORE_DEFAULT: &str = "embedded:./compline-data";

/// Everything that a server is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
    /// Where the store is.
    pub store: StoreLocation,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What this node is called; `None`: it gets a name.
    pub node_name: Option<String>,
    /// What this node does.
    pub roles: Roles,
    /// How many runs this node has in progress at most.
    pub workers: u32,
    /// The lanes that this node serves.
    pub lanes: Vec<String>,
    /// How this node proves that it lives.
    pub liveness: Liveness,
    /// What requests may ask for at most.
    pub ceilings: Ceilings,
    /// How long history is kept.
    pub retention: Retention,
}

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// In a directory, for this process alone.
    Embedded(PathBuf),
    /// On a FoundationDB cluster, for a fleet.
    FoundationDb {
        /// The cluster file.
        cluster_file: PathBuf,
        /// What all keys begin with; `None`: the default.
        prefix: Option<String>,
    },
}

impl StoreLocation {
    /// Reads `embedded:DIR`, `fdb:CLUSTER_FILE` or `fdb:CLUSTER_FILE?prefix=PREFIX`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let refuse = |detail: &str| {
            let hint = "use embedded:DIR, such as embedded:./compline-data, or fdb:CLUSTER_FILE, such as fdb:/etc/foundationdb/fdb.cluster";
            Err(Refusal::new("store", detail).hint(hint))
        };
        match text.split_once(':') {
            Some(("embedded", "")) => refuse("the store's directory is missing"),
            Some(("embedded", directory)) => Ok(Self::Embedded(PathBuf::from(directory))),
            Some(("fdb", rest)) => {
                let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
                let prefix = query.map(|query| query.strip_prefix("prefix="));
                match (path, prefix) {
                    ("", _) => refuse("the cluster file is missing"),
                    // Without a prefix it would take all keys of the cluster for its own.
                    (_, Some(None | Some(""))) => refuse("after `?` comes `prefix=` and what all keys begin with"),
                    (path, prefix) => Ok(Self::FoundationDb {
                        cluster_file: PathBuf::from(path),
                        prefix: prefix.flatten().map(str::to_owned),
                    }),
                }
            }
            _ => refuse(&format!("{} is not a store", quoted(text))),
        }
    }

    /// Whether it lets only one process in.
    pub fn is_exclusive(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::FoundationDb { .. } => false,
        }
    }
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// It answers requests.
    pub api: bool,
    /// It queues what is due.
    pub scheduler: bool,
    /// It runs tasks.
    pub executor: bool,
}

impl Roles {
    /// All three.
    pub const ALL: Self = Self { api: true, scheduler: true, executor: true };

    /// Their names.
    pub fn names(self) -> Vec<String> {
        let named = [(self.api, "api"), (self.scheduler, "scheduler"), (self.executor, "executor")];
        named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name.to_owned()).collect()
    }
}

/// What requests may ask for at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// The largest component.
    pub component_bytes: u64,
    /// The largest parameters of a job.
    pub parameters_bytes: usize,
    /// The most fuel of one attempt.
    pub fuel: u64,
    /// The most memory of one attempt.
    pub memory_bytes: u64,
    /// The longest attempt.
    pub timeout: Duration,
    /// A slot must not be on its way for so long: misfire deadline, retries and attempts together. It is the retention age, so that no
    /// execution that goes its way is old before it ends.
    pub lifetime: Duration,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self {
            component_bytes: 64 << 20,
            parameters_bytes: 64 << 10,
            fuel: 1_000_000_000_000,
            memory_bytes: 256 << 20,
            timeout: Duration::from_secs(3_600),
            lifetime: Retention::default().age,
        }
    }
}
