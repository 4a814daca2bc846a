//! The command line: every command, flag and default.

mod admin;
mod dead;
mod job;
mod retention;
mod run;
mod schedule;
mod serve;
mod task;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use admin::{AdminCommand, QuietArgs, TransferArgs};
pub use dead::{DeadCommand, DeadSelectionArgs};
pub use job::{JobActionArgs, JobCommand, JobCreateArgs, JobFieldArgs, JobUpdateArgs};
pub use retention::RetentionArgs;
pub use run::RunCommand;
pub use schedule::ScheduleCommand;
#[cfg(test)]
pub use serve::NodeArgs;
pub use serve::ServeArgs;
pub use task::{TaskCommand, TaskRunArgs};

/// Schedules WebAssembly tasks, and runs them on time.
///
/// Exit codes: 0 done; 1 the run or the operation failed; 2 usage; 3 not found; 4 refused by the server; 5 server unreachable or failing.
#[derive(Debug, Parser)]
#[command(name = "compline", version, max_term_width = 120, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub struct Globals {
    /// The server's address
    #[arg(
        long,
        global = true,
        env = "COMPLINE_SERVER",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:7878",
        help_heading = "Global options"
    )]
    pub server: String,
    /// The token that the server knows you by
    #[arg(
        long,
        global = true,
        env = "COMPLINE_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    pub token: Option<String>,
    /// How results are printed
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value_t = OutputFormat::Table,
        help_heading = "Global options"
    )]
    pub output: OutputFormat,
    /// Say nothing but results and errors
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// Say more; twice: what the server's libraries do, too
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,
    /// When to use colours; NO_COLOR is honoured
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t = ColorChoice::Auto,
        help_heading = "Global options"
    )]
    pub color: ColorChoice,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Table,
    /// One JSON document, as the server gives it
    Json,
    /// One JSON document per line and row
    Jsonl,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a server: API, scheduler and executor in one process
    Serve(Box<ServeArgs>),
    /// Pushes tasks, shows them, and runs them without a server
    #[command(subcommand)]
    Task(TaskCommand),
    /// Creates jobs, changes them and shows them
    #[command(subcommand)]
    Job(JobCommand),
    /// Shows executions, waits for them and cancels them
    #[command(subcommand)]
    Run(RunCommand),
    /// Shows executions that failed for good, runs them again, or drops them
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Shows what a schedule will do
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Shows the nodes of the fleet
    #[command(subcommand)]
    Node(NodeCommand),
    /// Shows the lanes
    #[command(subcommand)]
    Lane(LaneCommand),
    /// Works on a store itself, without a server
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Shows the versions of this program and of what it stands on
    Version,
    /// Prints a shell's completion script
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Compiles one component; started by the server itself
    #[command(name = "__compile", hide = true)]
    Compile,
    /// Writes the reference documents into a directory
    #[command(name = "__docs", hide = true)]
    Docs {
        /// The directory
        directory: PathBuf,
    },
}

/// The part of a listing that is wanted.
#[derive(Debug, Args)]
pub struct Paging {
    /// How many rows at the most
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// Nodes.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Lists the nodes: who lives, what each does, and how far its clock is off
    List,
}

/// Lanes.
#[derive(Debug, Subcommand)]
pub enum LaneCommand {
    /// Lists the lanes: what waits in each, what runs, and how many workers serve it
    List,
}

#[cfg(test)]
mod tests;
