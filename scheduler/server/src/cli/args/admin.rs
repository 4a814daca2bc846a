//! The commands that open a store themselves.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::STORE_DEFAULT;

/// What is done to a store itself.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Reads every row of a store and proves that no row is unreadable or an orphan
    ///
    /// Every table is read, each row together with those that it names, so that a store can be checked while it serves (an embedded one only
    /// when no server runs on it). Nothing is changed.
    ///
    /// Exit codes: 0 nothing is wrong; 1 something is, or the store cannot be opened.
    ///
    /// With `-o json` the result is one document:
    /// {"clean": false, "rows": {"job": 12, …}, "findings_total": 1, "findings": [{"kind": "unreadable", "table": "execution",
    /// "key": "\\x10\\x00…", "problem": "schema version 9, and this build knows 1: …"}], "busy_buckets": 0}.
    /// A kind is `unreadable` (this build cannot read the row), `orphan` (it names a row that is not there) or `mismatch` (it and another row
    /// contradict each other). At most 1000 findings are listed; `findings_total` counts all. `busy_buckets` are counters that changed too often
    /// to be verified. `-o jsonl` prints the findings, one per line.
    #[command(verbatim_doc_comment)]
    Check {
        /// Where the store is: embedded:DIR or fdb:CLUSTER_FILE
        #[arg(long, env = "COMPLINE_STORE", hide_env_values = true, value_name = "STORE", default_value = STORE_DEFAULT)]
        store: String,
    },
    /// Writes all that a store holds into a file
    ///
    /// No node may run: on an embedded store its lock proves that, on a shared one the nodes' counters do. What runs is handed back, and everything
    /// travels: tasks, jobs, executions, history, logs. The file appears whole or not at all, and ends with a count and a digest of every table.
    ///
    /// Exit codes: 0 done; 1 a node runs, or the store or the file failed.
    ///
    /// With `-o json` the result is one document: {"file": "…", "rows": 12, "tables": [{"table": "job", "rows": 3, "digest": "…"}],
    /// "findings": {"handed_back": 0, "unplaced": 0, "stale_places": 0, "unreadable": 0, "stuck": 0}}. `-o jsonl` prints the tables, one per line.
    #[command(verbatim_doc_comment)]
    Export(TransferArgs),
    /// Writes all that a file holds into an empty store, and verifies it
    ///
    /// The file is checked from end to end before anything is written. An import that was interrupted goes on when the same command is run again;
    /// until it is finished, no node can start on the store. The store's incarnation rises above those of both stores, so that nothing which the
    /// old one granted counts in the new one.
    ///
    /// Exit codes: 0 done and verified; 1 a node runs, the store is not empty, the file is damaged, or the store failed.
    ///
    /// With `-o json` the result is one document: {"file": "…", "rows": 12, "resumed_at": 0, "incarnation": 2, "exported": {"at": "…",
    /// "by": "0.1.0", "from": "embedded"}, "tables": […]}, whose tables are those that `admin export` printed.
    #[command(verbatim_doc_comment)]
    Import(TransferArgs),
    /// Makes a store that was restored from a backup safe to start on
    ///
    /// It raises the store's incarnation, so that nothing counts which was granted after the backup, and gives what waits new places in the old
    /// order. Stores that were imported need it not.
    RaiseIncarnation(QuietArgs),
}

/// A store and a file.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// The file
    pub file: PathBuf,
    /// The store.
    #[command(flatten)]
    pub quiet: QuietArgs,
}

/// A store that no node may use meanwhile.
#[derive(Debug, Args)]
pub struct QuietArgs {
    /// Where the store is: embedded:DIR or fdb:CLUSTER_FILE
    #[arg(long, env = "COMPLINE_STORE", hide_env_values = true, value_name = "STORE", default_value = STORE_DEFAULT)]
    pub store: String,
    /// After so long without a sign of life a node of a shared store is known to be dead: what `serve` was given
    #[arg(long, env = "COMPLINE_SESSION_TTL", hide_env_values = true, value_name = "DURATION", default_value = "15s")]
    pub session_ttl: String,
}
