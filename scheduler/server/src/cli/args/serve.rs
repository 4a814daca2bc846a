//! `compline serve`.

use std::path::PathBuf;

use clap::Args;

use super::RetentionArgs;

/// How a server runs. What a flag does not say, the environment does, then the configuration file, then the default.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A configuration file (TOML) with any of: store, listen, roles, workers, lanes; a table `node` with any of: name, beat, lease_ttl,
    /// session_ttl, drain, clock_warn, clock_limit; a table `retention`
    #[arg(long, env = "COMPLINE_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the store is: embedded:DIR or fdb:CLUSTER_FILE [default: embedded:./compline-data]
    #[arg(long, env = "COMPLINE_STORE", hide_env_values = true, value_name = "STORE")]
    pub store: Option<String>,
    /// The address to listen on; port 0 takes a free one [default: 127.0.0.1:7878]
    #[arg(long, env = "COMPLINE_LISTEN", hide_env_values = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// What this node does: api, scheduler, executor [default: all three]
    #[arg(long, env = "COMPLINE_ROLES", hide_env_values = true, value_name = "ROLES", value_delimiter = ',')]
    pub roles: Option<Vec<String>>,
    /// How many runs this node has in progress at most [default: 8 per core]
    #[arg(long, env = "COMPLINE_WORKERS", hide_env_values = true, value_name = "N")]
    pub workers: Option<u32>,
    /// The lanes that this node serves [default: default]
    #[arg(long, env = "COMPLINE_LANES", hide_env_values = true, value_name = "LANES", value_delimiter = ',')]
    pub lanes: Option<Vec<String>>,
    #[command(flatten)]
    pub node: NodeArgs,
    /// How long history is kept.
    #[command(flatten)]
    pub retention: RetentionArgs,
}

/// What a server says of itself to the others of its store, and how patient it is with them.
#[derive(Debug, Default, Args)]
pub struct NodeArgs {
    /// What this node is called; of two live nodes of one name the second is refused [default: the host's name and a random end; `local` on an
    /// embedded store]
    #[arg(long, env = "COMPLINE_NODE_NAME", hide_env_values = true, value_name = "NAME")]
    pub node_name: Option<String>,
    /// How often this node proves that it lives [default: 1s, or less if lease-ttl is short]
    #[arg(long, env = "COMPLINE_BEAT", hide_env_values = true, value_name = "DURATION")]
    pub beat: Option<String>,
    /// After so long without a sign of life others tick a scheduler's shards [default: 5s]
    #[arg(long, env = "COMPLINE_LEASE_TTL", hide_env_values = true, value_name = "DURATION")]
    pub lease_ttl: Option<String>,
    /// After so long without a sign of life others run again what this node ran; at least 2s [default: 15s]
    #[arg(long, env = "COMPLINE_SESSION_TTL", hide_env_values = true, value_name = "DURATION")]
    pub session_ttl: Option<String>,
    /// How long a node that is told to end waits for what it runs [default: 30s]
    #[arg(long, env = "COMPLINE_DRAIN", hide_env_values = true, value_name = "DURATION")]
    pub drain: Option<String>,
    /// A clock that is off by more is warned about [default: 250ms]
    #[arg(long, env = "COMPLINE_CLOCK_WARN", hide_env_values = true, value_name = "DURATION")]
    pub clock_warn: Option<String>,
    /// A scheduler whose clock is off by more ticks nothing until it is right again [default: 1s]
    #[arg(long, env = "COMPLINE_CLOCK_LIMIT", hide_env_values = true, value_name = "DURATION")]
    pub clock_limit: Option<String>,
}
