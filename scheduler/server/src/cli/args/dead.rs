//! `compline dead`.

use clap::{Args, Subcommand};

use super::Paging;

/// Dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// Lists executions that failed for good: lane after lane, oldest first
    List {
        /// Only those of this lane
        #[arg(long, value_name = "LANE")]
        lane: Option<String>,
        /// Only those of this job
        #[arg(long, value_name = "JOB")]
        job: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Lets them run again: each keeps its id and history, and its attempts are counted anew
    Redrive {
        #[command(flatten)]
        selection: DeadSelectionArgs,
        /// How many of a bulk become due in a second [default: 100]
        #[arg(long, value_name = "N")]
        per_second: Option<u32>,
    },
    /// Drops them: the executions stay failed in their histories
    Drop {
        #[command(flatten)]
        selection: DeadSelectionArgs,
    },
}

/// Which dead letters are meant.
#[derive(Debug, Args)]
pub struct DeadSelectionArgs {
    /// These executions
    #[arg(value_name = "ID", conflicts_with_all = ["lane", "job", "all", "limit"])]
    pub ids: Vec<String>,
    /// Those of this lane
    #[arg(long, value_name = "LANE")]
    pub lane: Option<String>,
    /// Those of this job
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// All of them
    #[arg(long, conflicts_with_all = ["lane", "job"])]
    pub all: bool,
    /// No more than so many, the oldest [default: 1000]
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
}
