//! When a job is due: now, once, or by a cron expression in a zone.

pub(crate) mod civil;
mod clock_change;
pub mod cron;
mod preview;
pub mod retry;
mod spec;
pub mod zone;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use clock_change::Walk;
pub use clock_change::{Fold, Gap};
use cron::CronExpr;
pub use preview::Fire;
pub use spec::{ScheduleError, ScheduleKind, ScheduleSpec};
use zone::Zone;

/// When a job is due. Parsed once and cheap to clone; stored and sent as its [`ScheduleSpec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "ScheduleSpec", try_from = "ScheduleSpec")]
pub enum Schedule {
    /// One slot, at the instant of creation.
    Now,
    /// One slot, at this instant.
    Once(DateTime<Utc>),
    /// A slot at every instant that the expression matches.
    Cron {
        /// The parsed text.
        expr: CronExpr,
        /// Whose wall clock the expression reads.
        zone: Zone,
        /// What becomes of skipped times; `None` is the default of the expression's kind (see [`Gap`]).
        gap: Option<Gap>,
        /// In which pass repeated times run; `None` is the default of the expression's kind (see [`Fold`]).
        fold: Option<Fold>,
    },
}

impl Schedule {
    /// A cron schedule with the default behaviour at clock changes.
    pub fn cron(expr: CronExpr, zone: Zone) -> Self {
        Self::Cron { expr, zone, gap: None, fold: None }
    }

    /// The first slot of a job created at `created`. `NOW` is due at once and `ONCE` at its instant, even if that is over: whether a late
    /// slot still runs is decided by the misfire policy. `None` is a cron schedule that never fires again.
    pub fn first_after(&self, created: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Now => Some(created),
            Self::Once(at) => Some(*at),
            Self::Cron { .. } => self.next_after(created),
        }
    }

    /// Whether its slots depend on zone data: it runs by the wall clock of a zone other than UTC.
    pub fn follows_zone_data(&self) -> bool {
        matches!(self, Self::Cron { zone, .. } if zone.name() != Zone::utc().name())
    }

    /// The slot that follows `slot`: strictly later, a whole second. `NOW` and `ONCE` have no second slot.
    pub fn next_after(&self, slot: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Now | Self::Once(_) => None,
            Self::Cron { expr, zone, gap, fold } => expr.next_after_with(slot, *zone, *gap, *fold),
        }
    }
}

impl CronExpr {
    /// The first fire strictly after `after`, a whole second, with the default behaviour at clock changes. `None`: it never fires again.
    pub fn next_after(&self, after: DateTime<Utc>, zone: Zone) -> Option<DateTime<Utc>> {
        self.next_after_with(after, zone, None, None)
    }

    /// The same with policies for skipped and repeated times; a policy that is given counts for every kind of expression.
    pub fn next_after_with(
        &self,
        after: DateTime<Utc>,
        zone: Zone,
        gap: Option<Gap>,
        fold: Option<Fold>,
    ) -> Option<DateTime<Utc>> {
        // `timestamp` rounds down, so the next whole second is strictly later, whatever the fraction.
        let fire = Walk::new(self, zone, gap, fold).at_or_after(after.timestamp() + 1)?;
        DateTime::from_timestamp(fire, 0)
    }
}
