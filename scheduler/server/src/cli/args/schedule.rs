//! `compline schedule`, and the flags of every schedule.

use clap::{Subcommand, ValueEnum};
use compline_core::schedule::{Fold, Gap};

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
