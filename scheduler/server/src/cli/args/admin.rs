//! The commands that open a store themselves.

use clap::Subcommand;

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
}
