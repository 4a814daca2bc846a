//! Why a job's slots did or did not run.

use compline_core::explain::{Line, Verdict};
use compline_core::schedule::Schedule;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::instant;

/// Consecutive slots of one verdict, or a change of the job between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerItem {
    /// The first slot, or the moment of the change.
    #[schema(format = DateTime)]
    pub first: String,
    /// The last slot.
    #[schema(format = DateTime)]
    pub last: String,
    /// The first slot on the wall clock of the job's zone.
    #[schema(format = DateTime)]
    pub local: String,
    /// How many slots; 0 for a change of the job.
    pub slots: u64,
    /// Whether there are more slots than were counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// `ran`, `late`, `failed`, `open`, `cancelled` or `skipped`; of a change `paused`, `resumed`, `edited` or `deleted`, or `rezoned` when newer
    /// zone data moved the next slot.
    pub verdict: String,
    /// Of skipped ones: `misfire`, `overlap`, `paused`, `ended`, `edited`, `quota`, `error` or `zone_data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The longest that one of them began after its promised start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_lag_ms_max: Option<u64>,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What a clock change has to do with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// All of it in words.
    pub words: String,
}

impl LedgerItem {
    /// A line of the story of a job with this schedule.
    pub fn of(line: &Line, schedule: &Schedule) -> Self {
        let reason = match line.verdict {
            Verdict::Skipped(reason) => Some(reason.as_str().to_owned()),
            _ => None,
        };
        Self {
            first: instant(line.first),
            last: instant(line.last),
            local: schedule.fire(line.first.to_utc(), line.first.to_utc()).local,
            slots: line.slots,
            uncounted: line.uncounted,
            verdict: line.verdict.as_str().to_owned(),
            reason,
            start_lag_ms_max: line.lag_max.map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
            detail: line.detail.clone(),
            note: line.note.clone(),
            words: line.words(schedule),
        }
    }
}
