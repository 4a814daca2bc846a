//! `compline serve`: what flags, environment and configuration file say, put together.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use compline_core::time::duration;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::CliError;
use super::args::{RetentionArgs, ServeArgs};
use super::fdb;
use super::out::Out;
use crate::api::{one_of, read_duration};
use crate::config::{Ceilings, LANE_DEFAULT, LISTEN_DEFAULT, Roles, STORE_DEFAULT, ServeConfig, StoreLocation};
use crate::liveness::{Liveness, LivenessWords};
use crate::passes::retain::Retention;
use crate::refusal::{Refusal, quoted};
use crate::serve::ServeError;
use crate::words;

/// Runs per core, unless told otherwise: tasks that wait for the host leave the core to others.
const WORKERS_PER_CORE: usize = 8;
const WORKERS_MAX: u32 = 10_000;
/// A job with all defaults is on its way for an hour and a quarter at the longest.
const RETENTION_AGE_MIN: Duration = Duration::from_secs(2 * 3_600);
const RETENTION_AGE_MAX: Duration = Duration::from_secs(3_650 * 86_400);
const RETENTION_RUNS_MAX: u32 = 1_000_000;

/// What a configuration file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    store: Option<String>,
    listen: Option<String>,
    roles: Option<Vec<String>>,
    workers: Option<u32>,
    lanes: Option<Vec<String>>,
    #[serde(default)]
    retention: RetentionArgs,
    #[serde(default)]
    node: NodeSection,
}

/// What it may say of the node itself.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSection {
    name: Option<String>,
    beat: Option<String>,
    lease_ttl: Option<String>,
    session_ttl: Option<String>,
    drain: Option<String>,
    clock_warn: Option<String>,
    clock_limit: Option<String>,
}

/// Runs a server until it is told to stop.
pub async fn serve(args: ServeArgs, out: &Out) -> Result<(), CliError> {
    let config = configure(args)?;
    fdb::become_linked(&config.store)?;
    log_to_stderr(out);
    crate::serve::run(config).await.map_err(|error| match error {
        ServeError::Open(error) => fdb::not_opened(error),
        error => CliError::failed(format!("{:#}", anyhow::Error::from(error))),
    })
}

fn log_to_stderr(out: &Out) {
    let level = match (out.quiet(), out.verbose) {
        (true, _) => "warn",
        (false, 0) => "info",
        (false, 1) => "debug,hyper=info,reqwest=info,wasmtime=info,cranelift=info,fjall=info,lsm_tree=info",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(out.color_stderr())
        // Told to the same stderr, which would end the task that logs: a server goes on when nobody reads its log any more.
        .log_internal_errors(false);
    // A second subscriber in one process is refused; the first one then goes on.
    let _ = logging.try_init();
}

/// Flags and environment first, then the configuration file, then defaults.
fn configure(args: ServeArgs) -> Result<ServeConfig, CliError> {
    let file = args.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
    let listen = args.listen.or(file.listen).unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
    let store = args.store.or(file.store).unwrap_or_else(|| STORE_DEFAULT.to_owned());
    let lanes = args.lanes.or(file.lanes).unwrap_or_else(|| vec![LANE_DEFAULT.to_owned()]);
    lanes.iter().try_for_each(|lane| words::lane("lanes", lane))?;
    if lanes.is_empty() {
        return Err(Refusal::new("lanes", "a node serves at least one lane").hint("leave it out for `default`").into());
    }
    let retention = read_retention(args.retention, file.retention)?;
    let node_name = args.node.node_name.or(file.node.name);
    node_name.iter().try_for_each(|name| words::node("node-name", name))?;
    let liveness = Liveness::read(&LivenessWords {
        beat: args.node.beat.or(file.node.beat),
        lease_ttl: args.node.lease_ttl.or(file.node.lease_ttl),
        session_ttl: args.node.session_ttl.or(file.node.session_ttl),
        drain: args.node.drain.or(file.node.drain),
        clock_warn: args.node.clock_warn.or(file.node.clock_warn),
        clock_limit: args.node.clock_limit.or(file.node.clock_limit),
    })?;
    Ok(ServeConfig {
        node_name,
        liveness,
        store: StoreLocation::parse(&store)?,
        listen: read_listen(&listen)?,
        roles: args.roles.or(file.roles).map_or(Ok(Roles::ALL), |names| read_roles(&names))?,
        workers: read_workers(args.workers.or(file.workers))?,
        lanes,
        ceilings: Ceilings { lifetime: retention.age, ..Ceilings::default() },
        retention,
    })
}

fn read_file(path: &Path) -> Result<ConfigFile, CliError> {
    let shown = path.display();
    let refuse = |detail: String| CliError::from(Refusal::new("--config", detail));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(format!("{shown} can't be read: {error}")))?;
    toml::from_str(&text).map_err(|error| {
        refuse(format!("{shown}: {}", error.to_string().trim_end()))
            .with_hint("it may have: store, listen, roles, workers, lanes, [node] with name, beat, lease_ttl, session_ttl, drain, clock_warn, clock_limit, \
                        and [retention] with age, runs_per_job, failures_per_job")
    })
}

fn read_retention(args: RetentionArgs, file: RetentionArgs) -> Result<Retention, Refusal> {
    let default = Retention::default();
    let age = match args.age.or(file.age) {
        Some(text) => read_duration("retention.age", &text)?,
        None => default.age,
    };
    if !(RETENTION_AGE_MIN..=RETENTION_AGE_MAX).contains(&age) {
        let [age, min, max] = [age, RETENTION_AGE_MIN, RETENTION_AGE_MAX].map(duration::format);
        return Err(Refusal::new("retention.age", format!("{age} is not from {min} to {max}"))
            .hint("a job with the default misfire deadline and retries can be on its way for over an hour"));
    }
    let count = |field, given: Option<u32>, default: usize| match given {
        None => Ok(default),
        Some(count @ 1..=RETENTION_RUNS_MAX) => Ok(count as usize),
        Some(other) => Err(Refusal::new(field, format!("{other} is not from 1 to {RETENTION_RUNS_MAX}"))),
    };
    Ok(Retention {
        age,
        runs_per_job: count("retention.runs_per_job", args.runs_per_job.or(file.runs_per_job), default.runs_per_job)?,
        failures_per_job: count(
            "retention.failures_per_job",
            args.failures_per_job.or(file.failures_per_job),
            default.failures_per_job,
        )?,
        ..default
    })
}

fn read_listen(text: &str) -> Result<SocketAddr, Refusal> {
    let refuse = |detail: String| Refusal::new("listen", detail).hint("use a loopback address such as 127.0.0.1:7878");
    let text = text.replace("localhost:", "127.0.0.1:");
    let address: SocketAddr =
        text.parse().map_err(|_| refuse(format!("{} is not an address with a port", quoted(&text))))?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    let detail = format!(
        "{address} can be reached from other machines, and this version has no authentication: whoever reaches it could run code here"
    );
    Err(refuse(detail))
}

fn read_roles(names: &[String]) -> Result<Roles, Refusal> {
    let mut roles = Roles { api: false, scheduler: false, executor: false };
    for name in names {
        match one_of("roles", name.trim(), &["api", "scheduler", "executor"])? {
            "api" => roles.api = true,
            "scheduler" => roles.scheduler = true,
            _ => roles.executor = true,
        }
    }
    if names.is_empty() {
        return Err(Refusal::new("roles", "a node has at least one role").hint("leave it out for all three"));
    }
    Ok(roles)
}

fn read_workers(workers: Option<u32>) -> Result<u32, Refusal> {
    match workers {
        None => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Ok(u32::try_from(cores * WORKERS_PER_CORE).unwrap_or(WORKERS_MAX))
        }
        Some(workers @ 1..=WORKERS_MAX) => Ok(workers),
        Some(other) => Err(Refusal::new("workers", format!("{other} is not from 1 to {WORKERS_MAX}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::NodeArgs;

    fn nothing() -> ServeArgs {
        ServeArgs {
            config: None,
            store: None,
            listen: None,
            roles: None,
            workers: None,
            lanes: None,
            node: NodeArgs::default(),
            retention: RetentionArgs::default(),
        }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("compline.toml");
        std::fs::write(&path, "listen = '127.0.0.1:1'\nworkers = 3\nlanes = ['a', 'b']\nroles = ['api']\n[node]\nname = 'n'\nsession_ttl = '2s'\n").unwrap();
        let args = ServeArgs { config: Some(path.clone()), workers: Some(5), ..nothing() };
        let config = configure(args).unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.workers), ("127.0.0.1:1", 5));
        assert_eq!(config.lanes, ["a", "b"]);
        assert_eq!((config.node_name.as_deref(), config.liveness.session_ttl.as_secs()), (Some("n"), 2));
        assert_eq!(config.roles, Roles { api: true, scheduler: false, executor: false });
        assert_eq!(config.store, StoreLocation::Embedded("./compline-data".into()));
        std::fs::write(&path, "workers = 3\n").unwrap();
        let args = ServeArgs { config: Some(path.clone()), ..nothing() };
        assert_eq!(configure(args).unwrap().workers, 3, "every part of the file may be left out");
        std::fs::write(&path, "workrs = 3\n").unwrap();
        let refused = configure(ServeArgs { config: Some(path), ..nothing() }).unwrap_err();
        assert!(refused.text().contains("workrs"), "{}", refused.text());
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_its_reason() {
        for (args, word) in [
            (ServeArgs { store: Some("fdb:".into()), ..nothing() }, "cluster file"),
            (ServeArgs { store: Some("fdb:/etc/fdb.cluster?prefx=a".into()), ..nothing() }, "prefix="),
            (ServeArgs { store: Some("fdb:/etc/fdb.cluster?prefix=".into()), ..nothing() }, "prefix="),
            (ServeArgs { store: Some("embedded:".into()), ..nothing() }, "directory"),
            (ServeArgs { store: Some("/tmp/x".into()), ..nothing() }, "not a store"),
            (ServeArgs { listen: Some("0.0.0.0:7878".into()), ..nothing() }, "no authentication"),
            (ServeArgs { listen: Some("[::]:7878".into()), ..nothing() }, "no authentication"),
            (ServeArgs { listen: Some("7878".into()), ..nothing() }, "not an address"),
            (ServeArgs { roles: Some(vec!["exector".into()]), ..nothing() }, "not known"),
            (ServeArgs { workers: Some(0), ..nothing() }, "not from 1"),
            (ServeArgs { lanes: Some(vec!["A".into()]), ..nothing() }, "a lane"),
            (
                ServeArgs { node: NodeArgs { node_name: Some("a b".into()), ..NodeArgs::default() }, ..nothing() },
                "a node's name",
            ),
            (
                ServeArgs { node: NodeArgs { beat: Some("9s".into()), ..NodeArgs::default() }, ..nothing() },
                "beat: 9s is too long",
            ),
        ] {
            let refused = configure(args).unwrap_err();
            assert!(refused.text().contains(word) && refused.exit() == crate::cli::Exit::Usage, "{}", refused.text());
        }
        let on_a_cluster = ServeArgs { store: Some("fdb:/etc/fdb.cluster?prefix=blue/".into()), ..nothing() };
        let location =
            StoreLocation::FoundationDb { cluster_file: "/etc/fdb.cluster".into(), prefix: Some("blue/".to_owned()) };
        assert_eq!(configure(on_a_cluster).unwrap().store, location);
        for (retention, word) in [
            (RetentionArgs { age: Some("1h".into()), ..RetentionArgs::default() }, "not from 2h"),
            (RetentionArgs { age: Some("30".into()), ..RetentionArgs::default() }, "not a duration"),
            (RetentionArgs { runs_per_job: Some(0), ..RetentionArgs::default() }, "not from 1"),
        ] {
            let refused = configure(ServeArgs { retention, ..nothing() }).unwrap_err();
            assert!(refused.text().contains(word), "{}", refused.text());
        }
        let kept = RetentionArgs { age: Some("2h".into()), ..RetentionArgs::default() };
        let config = configure(ServeArgs { retention: kept, ..nothing() }).unwrap();
        assert_eq!((config.retention.age, config.ceilings.lifetime), (RETENTION_AGE_MIN, RETENTION_AGE_MIN));
        assert!(configure(ServeArgs { listen: Some("localhost:0".into()), ..nothing() }).is_ok());
        assert!(configure(ServeArgs { listen: Some("[::1]:7878".into()), ..nothing() }).is_ok());
    }
}
