//! `compline run`.

use clap::Subcommand;

use super::Paging;

/// Executions.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Lists executions, newest first
    List {
        /// Only those of this job
        #[arg(long, value_name = "JOB")]
        job: Option<String>,
        /// Only those with this status; OPEN stands for all that are not over
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Only those from this instant on
        #[arg(long, value_name = "T")]
        from: Option<String>,
        /// Only those before this instant
        #[arg(long, value_name = "T")]
        to: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Shows an execution with its attempts
    Show {
        /// `exec_…`
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Prints what an execution logged
    Logs {
        /// `exec_…`
        #[arg(value_name = "ID")]
        id: String,
        /// Goes on until it is over: an attempt's lines appear when it ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Lets an execution that failed for good run again; it keeps its id and history
    Redrive {
        /// `exec_…`
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Cancels an execution: what waits at once, what runs within a second
    Cancel {
        /// `exec_…`
        #[arg(value_name = "ID")]
        id: String,
        /// Makes a repeat of this command recognisable for 24 hours
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// Waits until what runs has stopped; exit code 0 if it was cancelled, 1 if it ended otherwise
        #[arg(long)]
        wait: bool,
    },
    /// Waits until an execution is over; exit code 0 if it completed, 1 if not
    Wait {
        /// `exec_…`
        #[arg(value_name = "ID")]
        id: String,
        /// Give up after so long, with exit code 1
        #[arg(long, value_name = "DURATION")]
        timeout: Option<String>,
    },
}
