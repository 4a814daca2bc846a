//! How long a server keeps history.

use clap::Args;
use serde::Deserialize;

/// How long history is kept, and how much of it. A configuration file has the same, below `[retention]`.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionArgs {
    /// How long an execution is kept after its planned instant; at least 2h [default: 30d]
    #[arg(
        id = "retention-age",
        long = "retention-age",
        env = "COMPLINE_RETENTION_AGE",
        hide_env_values = true,
        value_name = "DURATION"
    )]
    pub age: Option<String>,
    /// How many executions of a job are kept that have ended and did not fail [default: 10000]
    #[arg(
        id = "retention-runs-per-job",
        long = "retention-runs-per-job",
        env = "COMPLINE_RETENTION_RUNS_PER_JOB",
        hide_env_values = true,
        value_name = "N"
    )]
    pub runs_per_job: Option<u32>,
    /// How many failed executions of a job are kept [default: 1000]
    #[arg(
        id = "retention-failures-per-job",
        long = "retention-failures-per-job",
        env = "COMPLINE_RETENTION_FAILURES_PER_JOB",
        hide_env_values = true,
        value_name = "N"
    )]
    pub failures_per_job: Option<u32>,
}
