//! `compline task`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Paging;

/// Tasks.
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Pushes a component; the same bytes again are the same version
    Push {
        /// The component (.wasm)
        file: PathBuf,
        /// The task that it is a version of
        #[arg(long, value_name = "NAME")]
        name: String,
        /// A tag that points at it from now on; may be repeated
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Lists the tasks
    List(Paging),
    /// Shows a task
    Show {
        /// `name`, `name@tag` or `sha256:…`
        #[arg(value_name = "REF")]
        reference: String,
    },
    /// Runs a component once in the local sandbox, without a server
    Run(Box<TaskRunArgs>),
}

/// One local run.
#[derive(Debug, Args)]
pub struct TaskRunArgs {
    /// A component (.wasm), or the REF of a pushed task (which needs the server)
    #[arg(value_name = "FILE|REF")]
    pub task: OsString,
    /// What the task is handed: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub input: Option<String>,
    /// The execution id that the task sees
    #[arg(long, value_name = "ID", default_value = "exec_local")]
    pub execution_id: String,
    /// Units of work that it may use
    #[arg(long, value_name = "N")]
    pub fuel: Option<u64>,
    /// How long it may take, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Memory that it may use, such as 64MiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}
