//! The command line: every command, flag and default.

mod admin;
mod retention;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use compline_core::schedule::{Fold, Gap};

pub use admin::{AdminCommand, QuietArgs, TransferArgs};
pub use retention::RetentionArgs;

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

/// Jobs.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Creates a job
    Create(Box<JobCreateArgs>),
    /// Lists the jobs, newest first
    List {
        /// Only jobs in this state: ACTIVE, FINISHED, PAUSED or DELETED
        #[arg(long, value_name = "STATE")]
        status: Option<String>,
        /// Only jobs with this label; may be repeated
        #[arg(long = "label", value_name = "K=V")]
        labels: Vec<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Shows a job
    Show {
        /// `job_…`
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Says why each slot ran, was late, or did not run
    Explain {
        /// `job_…`
        #[arg(value_name = "ID")]
        id: String,
        /// From this instant on [default: a day before the end]
        #[arg(long, value_name = "T")]
        from: Option<String>,
        /// Up to this instant [default: now]
        #[arg(long, value_name = "T")]
        to: Option<String>,
    },
    /// Edits a job: what is not named stays as it is
    Update(Box<JobUpdateArgs>),
    /// Lets a job's schedule rest until it is resumed; what is queued or runs goes on
    Pause(JobActionArgs),
    /// Lets a paused job's schedule go on with the first slot to come
    Resume(JobActionArgs),
    /// Runs a job once, now, paused or not
    Trigger {
        #[command(flatten)]
        action: JobActionArgs,
        /// Waits until the run is over, and fails if it does
        #[arg(long)]
        wait: bool,
    },
    /// Runs the slots of a stretch of the past, whether they ran before or not
    Backfill {
        #[command(flatten)]
        action: JobActionArgs,
        /// Slots from this instant on
        #[arg(long, value_name = "T")]
        from: String,
        /// Slots before this instant
        #[arg(long, value_name = "T")]
        to: String,
    },
    /// Deletes a job: what waits is cancelled, what runs goes on, its history stays
    Delete {
        /// `job_…`
        #[arg(value_name = "ID")]
        id: String,
        /// Stops what runs, too
        #[arg(long)]
        stop_running: bool,
    },
}

/// A job, and the key of what is asked of it.
#[derive(Debug, Args)]
pub struct JobActionArgs {
    /// `job_…`
    #[arg(value_name = "ID")]
    pub id: String,
    /// Makes a repeat of this command safe for 24 hours
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

/// An edit of a job.
#[derive(Debug, Args)]
pub struct JobUpdateArgs {
    /// `job_…`
    #[arg(value_name = "ID")]
    pub id: String,
    /// What it runs: `name`, `name@tag` or `sha256:…`; its version is looked up anew
    #[arg(long, value_name = "REF")]
    pub task: Option<String>,
    /// It runs once, at this instant (RFC 3339; a local time with --tz)
    #[arg(long, value_name = "T", conflicts_with = "cron")]
    pub at: Option<String>,
    /// It runs by a cron expression
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// The IANA zone that --cron or --at is read in
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// What it hands to the task: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub params: Option<String>,
    /// What you call it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The queue that its runs wait in
    #[arg(long, value_name = "LANE")]
    pub lane: Option<String>,
    /// Slots later than this do not run
    #[arg(long, value_name = "DURATION")]
    pub misfire_deadline: Option<String>,
    /// The delays before each retry, such as 10s,1m,10m; none for no retry
    #[arg(long, value_name = "DURATIONS")]
    pub retry_delays: Option<String>,
    /// How long an attempt may take
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Units of work that an attempt may use
    #[arg(long, value_name = "N")]
    pub fuel: Option<u64>,
    /// Memory that an attempt may use
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Sets a label, or removes it if there is no value (`--label team=`); may be repeated
    #[arg(long = "label", value_name = "K=V")]
    pub labels: Vec<String>,
    /// Gives a field its default again, such as `misfire` or `limits.fuel`; may be repeated
    #[arg(long = "reset", value_name = "FIELD")]
    pub resets: Vec<String>,
    /// Any fields, as the API takes them: JSON, @FILE, or - for stdin; the other flags go on top
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub edit: Option<String>,
    /// Only if the job still has this revision
    #[arg(long, value_name = "N")]
    pub if_revision: Option<u64>,
}

/// A job to create.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["now", "at", "cron"]))]
pub struct JobCreateArgs {
    /// What it runs: `name`, `name@tag` or `sha256:…`
    #[arg(long, value_name = "REF")]
    pub task: String,
    /// It runs at once
    #[arg(long)]
    pub now: bool,
    /// It runs once, at this instant (RFC 3339; a local time with --tz)
    #[arg(long, value_name = "T")]
    pub at: Option<String>,
    /// It runs by a cron expression
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// The IANA zone that --cron or --at is read in
    #[arg(long, value_name = "ZONE", conflicts_with = "now")]
    pub tz: Option<String>,
    /// What becomes of times that the clock skips
    #[arg(long, value_enum, conflicts_with_all = ["now", "at"])]
    pub gap: Option<GapArg>,
    /// In which pass times run that the clock shows twice
    #[arg(long, value_enum, conflicts_with_all = ["now", "at"])]
    pub fold: Option<FoldArg>,
    /// What it hands to the task: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub params: Option<String>,
    /// What you call it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The queue that its runs wait in
    #[arg(long, value_name = "LANE")]
    pub lane: Option<String>,
    /// Which late slots run: run_all, run_latest or skip [default: run_all]
    #[arg(long, value_name = "POLICY")]
    pub misfire: Option<String>,
    /// Slots later than this do not run [default: 1h]
    #[arg(long, value_name = "DURATION")]
    pub misfire_deadline: Option<String>,
    /// With run_all: how many late slots run at most, the newest ones [default: 1000]
    #[arg(long, value_name = "N")]
    pub misfire_cap: Option<u32>,
    /// What a slot does while an earlier run is live: allow, skip, buffer_one, buffer_all, cancel_other or terminate_other [default: allow]
    #[arg(long, value_name = "RULE")]
    pub overlap: Option<String>,
    /// With allow: how many runs may be live at once; slots beyond that wait
    #[arg(long, value_name = "N")]
    pub max_concurrent: Option<u32>,
    /// A window over which starts are spread, such as 2m [default: 0s]
    #[arg(long, value_name = "DURATION", conflicts_with = "now")]
    pub splay: Option<String>,
    /// No slot before this instant
    #[arg(long, value_name = "T", conflicts_with_all = ["now", "at"])]
    pub start: Option<String>,
    /// No slot after this instant
    #[arg(long, value_name = "T", conflicts_with_all = ["now", "at"])]
    pub end: Option<String>,
    /// How many slots run at the most; those that are skipped don't count
    #[arg(long, value_name = "N", conflicts_with_all = ["now", "at"])]
    pub max_runs: Option<u64>,
    /// The delays before each retry, such as 10s,1m,10m (the default); none for no retry
    #[arg(long, value_name = "DURATIONS")]
    pub retry_delays: Option<String>,
    /// Delays that double from the first to the longest, drawn evenly below that, in place of --retry-delays
    #[arg(long, value_name = "FIRST,MAX", conflicts_with = "retry_delays")]
    pub retry_exponential: Option<String>,
    /// How many attempts there are in all; a shorter list of delays repeats its last one
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<u32>,
    /// A task that runs once for each run that has failed for good, with the failure as its input
    #[arg(long, value_name = "REF")]
    pub on_failure: Option<String>,
    /// What that task is handed beside the failure: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", requires = "on_failure")]
    pub on_failure_params: Option<String>,
    /// How long an attempt may take [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Units of work that an attempt may use [default: 1000000000]
    #[arg(long, value_name = "N")]
    pub fuel: Option<u64>,
    /// Memory that an attempt may use [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// A label; may be repeated
    #[arg(long = "label", value_name = "K=V")]
    pub labels: Vec<String>,
    /// Makes a repeat of this command safe for 24 hours
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Its schedule rests until it is resumed
    #[arg(long, conflicts_with_all = ["now", "wait"])]
    pub paused: bool,
    /// Waits until the first run is over, and fails if it does
    #[arg(long)]
    pub wait: bool,
}

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

/// Schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Shows the next fires of a cron expression; needs no server
    Preview {
        /// The cron expression
        #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
        cron: String,
        /// The IANA zone that it is read in
        #[arg(long, value_name = "ZONE")]
        tz: Option<String>,
        /// Fires strictly after this instant [default: now]
        #[arg(long, value_name = "T")]
        after: Option<String>,
        /// How many fires
        #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 10)]
        count: u32,
        /// What becomes of times that the clock skips
        #[arg(long, value_enum)]
        gap: Option<GapArg>,
        /// In which pass times run that the clock shows twice
        #[arg(long, value_enum)]
        fold: Option<FoldArg>,
    },
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

/// What becomes of times that the clock skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GapArg {
    /// One run right after the jump
    Shift,
    /// No run
    Skip,
}

/// In which pass times run that the clock shows twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FoldArg {
    /// The first pass only
    First,
    /// The last pass only
    Last,
    /// Both passes
    Both,
}

impl From<GapArg> for Gap {
    fn from(arg: GapArg) -> Self {
        match arg {
            GapArg::Shift => Self::Shift,
            GapArg::Skip => Self::Skip,
        }
    }
}

impl From<FoldArg> for Fold {
    fn from(arg: FoldArg) -> Self {
        match arg {
            FoldArg::First => Self::First,
            FoldArg::Last => Self::Last,
            FoldArg::Both => Self::Both,
        }
    }
}

#[cfg(test)]
mod tests;
