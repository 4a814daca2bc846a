//! `compline job`.

use clap::{Args, Subcommand};

use super::Paging;
use super::schedule::{FoldArg, GapArg};

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

/// What a job is made of, beside its task and its labels: of a new job, or what an edit changes of another.
#[derive(Debug, Args)]
pub struct JobFieldArgs {
    /// It runs at once
    #[arg(long, conflicts_with_all = ["at", "cron"])]
    pub now: bool,
    /// It runs once, at this instant (RFC 3339; a local time with --tz)
    #[arg(long, value_name = "T", conflicts_with = "cron")]
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
    /// Which late slots run: run_all, run_latest or skip [new job: run_all]
    #[arg(long, value_name = "POLICY")]
    pub misfire: Option<String>,
    /// Slots later than this do not run [new job: 1h]
    #[arg(long, value_name = "DURATION")]
    pub misfire_deadline: Option<String>,
    /// With run_all: how many late slots run at most, the newest ones [new job: 1000]
    #[arg(long, value_name = "N")]
    pub misfire_cap: Option<u32>,
    /// What a slot does while an earlier run is live: allow, skip, buffer_one, buffer_all, cancel_other or terminate_other [new job: allow]
    #[arg(long, value_name = "RULE")]
    pub overlap: Option<String>,
    /// With allow: how many runs may be live at once; slots beyond that wait
    #[arg(long, value_name = "N")]
    pub max_concurrent: Option<u32>,
    /// A window over which starts are spread, such as 2m [new job: 0s]
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
    /// The delays before each retry, such as 10s,1m,10m; none for no retry [new job: 10s,1m,10m]
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
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub on_failure_params: Option<String>,
    /// How long an attempt may take [new job: 30s]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Units of work that an attempt may use [new job: 1000000000]
    #[arg(long, value_name = "N")]
    pub fuel: Option<u64>,
    /// Memory that an attempt may use [new job: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

/// A job to create.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("when").required(true).args(["now", "at", "cron"]),
    mut_arg("on_failure_params", |arg| arg.requires("on_failure"))
)]
pub struct JobCreateArgs {
    /// What it runs: `name`, `name@tag` or `sha256:…`
    #[arg(long, value_name = "REF")]
    pub task: String,
    /// What it is made of.
    #[command(flatten)]
    pub fields: JobFieldArgs,
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

/// An edit of a job.
#[derive(Debug, Args)]
pub struct JobUpdateArgs {
    /// `job_…`
    #[arg(value_name = "ID")]
    pub id: String,
    /// What it runs: `name`, `name@tag` or `sha256:…`; its version is looked up anew
    #[arg(long, value_name = "REF")]
    pub task: Option<String>,
    /// What changes.
    #[command(flatten)]
    pub fields: JobFieldArgs,
    /// Sets a label, or removes it if there is no value (`--label team=`); may be repeated
    #[arg(long = "label", value_name = "K=V")]
    pub labels: Vec<String>,
    /// Gives a field of the API its default again, or takes it away if it has none: `misfire`, `limits.fuel`, `on_failure`, `ends_at`; may be
    /// repeated
    #[arg(long = "reset", value_name = "FIELD")]
    pub resets: Vec<String>,
    /// Any fields, as the API takes them: JSON, @FILE, or - for stdin; the other flags go on top
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub edit: Option<String>,
    /// Only if the job still has this revision
    #[arg(long, value_name = "N")]
    pub if_revision: Option<u64>,
    /// Makes a repeat of this command recognisable for 24 hours
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}
