//! Schedules, and what they will do.

use compline_core::schedule::{Fold, Gap, ScheduleKind, ScheduleSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::Body;

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleBody {
    /// `NOW`, `ONCE` or `CRON`.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "CRON")]
    pub kind: ScheduleKind,
    /// The instant of `ONCE` (RFC 3339), the expression of `CRON`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 10 * * *")]
    pub value: Option<String>,
    /// The IANA zone whose wall clock `CRON` follows (UTC unless given), or that a `ONCE` without an offset is read in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "UTC")]
    pub time_zone: Option<String>,
    /// What becomes of times that the clock skips: `shift` or `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub gap: Option<Gap>,
    /// In which pass times run that the clock shows twice: `first`, `last` or `both`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fold: Option<Fold>,
}

impl From<ScheduleBody> for ScheduleSpec {
    fn from(body: ScheduleBody) -> Self {
        let ScheduleBody { kind, value, time_zone, gap, fold } = body;
        Self { kind, value, time_zone, gap, fold }
    }
}

impl From<&ScheduleSpec> for ScheduleBody {
    fn from(spec: &ScheduleSpec) -> Self {
        let ScheduleSpec { kind, value, time_zone, gap, fold } = spec.clone();
        Self { kind, value, time_zone, gap, fold }
    }
}

/// A question: what would this schedule do?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewRequest {
    /// The cron expression.
    #[schema(example = "30 2 * * *")]
    pub cron: String,
    /// The IANA zone; UTC unless given.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Fires strictly after this instant; now unless given.
    #[serde(default)]
    pub after: Option<String>,
    /// How many fires, at most 1,000; 10 unless given.
    #[serde(default)]
    pub count: Option<u32>,
    /// What becomes of times that the clock skips: `shift` or `skip`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub gap: Option<Gap>,
    /// In which pass times run that the clock shows twice: `first`, `last` or `both`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub fold: Option<Fold>,
}

impl Body for PreviewRequest {
    const LISTS: &'static [&'static str] = &[];
}

/// What a schedule will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreviewView {
    /// The expression as it was given.
    pub cron: String,
    /// The zone that it was read in.
    pub time_zone: String,
    /// The version of the zone data.
    pub tzdb: String,
    /// The next fires.
    pub fires: Vec<FireView>,
}

/// One fire of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FireView {
    /// The instant, in UTC.
    #[schema(format = DateTime)]
    pub at: String,
    /// The same instant on the zone's wall clock.
    #[schema(format = DateTime)]
    pub local: String,
    /// What is odd about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
