//! What an export takes along of each table, and why the rest stays behind.

use crate::keys::Table;

/// How the rows of a table go from one store to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Travels {
    /// Byte by byte.
    AsTheyAre,
    /// What holds for the whole store is read into the file's header; the other rows go byte by byte.
    Meta,
    /// Without the stamps of what waits; what runs is handed back first.
    Executions,
    /// As places in a queue: their keys hold stamps of the old store, so they are stamped anew, in their order.
    Queue,
    /// Not at all, and why nothing is lost by it.
    StayBehind(&'static str),
}

impl Table {
    /// How its rows travel. No catch-all: whoever adds a table says here what becomes of it.
    pub fn travels(self) -> Travels {
        match self {
            Self::Meta => Travels::Meta,
            Self::Task
            | Self::Version
            | Self::Blob
            | Self::Manifest
            | Self::Job
            | Self::JobRun
            | Self::TenantJob
            | Self::Finished
            | Self::Zones
            | Self::Log
            | Self::Bucket
            | Self::Dropping
            | Self::Trim
            | Self::Due
            | Self::Live
            | Self::Owed
            | Self::History
            | Self::AllRuns
            | Self::Failed
            | Self::JobFailed
            | Self::Ledger
            | Self::Request
            | Self::RequestTime
            | Self::Dead
            | Self::DeadPlace => Travels::AsTheyAre,
            Self::Execution => Travels::Executions,
            Self::Ready => Travels::Queue,
            Self::Running => Travels::StayBehind("no node runs: what ran is handed back to its lane"),
            Self::Session => Travels::StayBehind("no node runs"),
            Self::Beat => Travels::StayBehind("no node beats"),
            Self::Lease => Travels::StayBehind("no node ticks, and the first one to start is granted anew"),
            Self::Cancel => Travels::StayBehind("no node runs: what was to stop is cancelled"),
            Self::Bell => Travels::StayBehind("nobody waits to be woken"),
        }
    }

    /// Whether rows of it are in an export.
    pub fn is_carried(self) -> bool {
        !matches!(self.travels(), Travels::StayBehind(_))
    }
}
