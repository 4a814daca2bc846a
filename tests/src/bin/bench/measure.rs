//! What a stretch of work cost this process and its store.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use compline_server::config::StoreLocation;
use compline_server::ctx::Ctx;
use compline_server::env::Env;
use compline_server::metrics::Metrics;
use compline_server::stores;
use compline_store::backend::{RangeQuery, Read};
use compline_store::keys::Table;
use compline_store::{CostSnapshot, Store};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Where a benchmark keeps its rows.
#[derive(clap::Args)]
pub struct StoreArgs {
    /// Where the store is, such as fdb:/etc/foundationdb/fdb.cluster?prefix=bench/; it must be empty. By default in a directory of its own.
    #[arg(long)]
    store: Option<String>,
}

impl StoreArgs {
    /// Opens the store, which must be empty. `directory` is where it lies if none was named.
    pub async fn open(&self, directory: &Path, env: Env) -> Result<Arc<Ctx>> {
        let location = match &self.store {
            None => StoreLocation::Embedded(directory.to_owned()),
            Some(store) => StoreLocation::parse(store)?,
        };
        let ctx = Ctx::open(stores::open(&location).await?, env, Arc::new(Metrics::default())).await?;
        let rows = ctx.store.transact(|tx| async move { tx.range(&any_execution()).await }).await?.value;
        ensure!(rows.is_empty(), "the store is not empty: name another directory, or another prefix");
        Ok(Arc::new(ctx))
    }
}

fn any_execution() -> RangeQuery {
    let table = Table::Execution as u8;
    let (begin, end) = (Bytes::copy_from_slice(&[table]), Bytes::copy_from_slice(&[table + 1]));
    RangeQuery { begin, end, limit: 1, reverse: false, read: Read::Snapshot }
}

/// The beginning of a stretch.
pub struct Stretch {
    began: Instant,
    cpu_micros: i64,
    cost: CostSnapshot,
}

impl Stretch {
    pub fn begin(store: &Store) -> Result<Self> {
        Ok(Self { began: Instant::now(), cpu_micros: cpu_micros()?, cost: store.cost() })
    }

    /// What it came to, for so many executions.
    pub fn end(&self, bench: &str, store: &Store, executions: u64) -> Result<Value> {
        let seconds = self.began.elapsed().as_secs_f64();
        let now = store.cost();
        let per = |count: u64, before: u64| round((count - before) as f64 / executions.max(1) as f64, 4);
        Ok(json!({
            "bench": bench,
            "executions": executions,
            "seconds": round(seconds, 2),
            "per_second": round(executions as f64 / seconds, 1),
            "cpu_us_per_execution": round((cpu_micros()? - self.cpu_micros) as f64 / executions.max(1) as f64, 1),
            "rss_mib": rss_mib()?,
            "store": {
                "backend": store.backend_name(),
                "fsync": true,
                "writes_per_execution": per(now.key_writes, self.cost.key_writes),
                "reads_per_execution": per(now.key_reads, self.cost.key_reads),
                "bytes_per_execution": per(now.bytes_written, self.cost.bytes_written),
                "commits_per_execution": per(now.commits, self.cost.commits),
                "conflicts_per_thousand_commits":
                    round((now.conflicts - self.cost.conflicts) as f64 * 1000.0 / (now.commits - self.cost.commits).max(1) as f64, 2),
            },
        }))
    }
}

pub fn round(number: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (number * scale).round() / scale
}

/// User and system time of this process.
fn cpu_micros() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

/// Resident memory of this process.
fn rss_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}
