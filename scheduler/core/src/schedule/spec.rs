//! A schedule as plain words: what users write, what is stored, what answers show.

use serde::{Deserialize, Serialize};

use super::cron::{CronError, CronExpr};
use super::zone::{UnknownZone, Zone, ZoneData};
use super::{Fold, Gap, Schedule};
use crate::time::instant::{self, InstantError};

/// What kind of schedule it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ScheduleKind {
    /// At once.
    Now,
    /// At one instant.
    Once,
    /// By a cron expression.
    Cron,
}

impl ScheduleKind {
    /// The word for it in requests and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Now => "NOW",
            Self::Once => "ONCE",
            Self::Cron => "CRON",
        }
    }
}

/// A schedule in words. `value` is the cron text as the user gave it, or the instant; `time_zone` the name as the user gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// `NOW`, `ONCE` or `CRON`.
    #[serde(rename = "type")]
    pub kind: ScheduleKind,
    /// The instant of `ONCE`, the expression of `CRON`.
    #[serde(default)]
    pub value: Option<String>,
    /// The zone that `CRON` runs by (UTC unless given), or that a `ONCE` without an offset is read in.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// What becomes of times that the clock skips.
    #[serde(default)]
    pub gap: Option<Gap>,
    /// In which pass times run that the clock shows twice.
    #[serde(default)]
    pub fold: Option<Fold>,
}

impl ScheduleSpec {
    /// At once.
    pub fn now() -> Self {
        Self { kind: ScheduleKind::Now, value: None, time_zone: None, gap: None, fold: None }
    }

    /// At one instant.
    pub fn once(instant: impl Into<String>) -> Self {
        Self { kind: ScheduleKind::Once, value: Some(instant.into()), ..Self::now() }
    }

    /// By a cron expression, in UTC.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self { kind: ScheduleKind::Cron, value: Some(expression.into()), ..Self::now() }
    }

    /// The schedule that the words mean.
    ///
    /// # Errors
    /// [`ScheduleError`], which knows the field at fault and the fix.
    pub fn parse(&self) -> Result<Schedule, ScheduleError> {
        self.parse_by(&ZoneData::default())
    }

    /// The schedule that the words mean by this zone data.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub fn parse_by(&self, zones: &ZoneData) -> Result<Schedule, ScheduleError> {
        match self.kind {
            ScheduleKind::Now => {
                self.refuse("value", self.value.is_some())?;
                self.refuse("time_zone", self.time_zone.is_some())?;
                self.refuse_policies()?;
                Ok(Schedule::Now)
            }
            ScheduleKind::Once => {
                self.refuse_policies()?;
                Ok(Schedule::Once(instant::parse_in(self.value()?, self.zone(zones)?)?))
            }
            ScheduleKind::Cron => Ok(Schedule::Cron {
                expr: CronExpr::parse(self.value()?)?,
                zone: self.zone(zones)?.unwrap_or_else(Zone::utc),
                gap: self.gap,
                fold: self.fold,
            }),
        }
    }

    fn value(&self) -> Result<&str, ScheduleError> {
        self.value.as_deref().ok_or(ScheduleError::Missing { kind: self.kind })
    }

    fn zone(&self, zones: &ZoneData) -> Result<Option<Zone>, ScheduleError> {
        Ok(self.time_zone.as_deref().map(|name| zones.zone(name)).transpose()?)
    }

    fn refuse_policies(&self) -> Result<(), ScheduleError> {
        self.refuse("gap", self.gap.is_some())?;
        self.refuse("fold", self.fold.is_some())
    }

    /// A field that would have no effect is an error, so that nobody relies on it.
    fn refuse(&self, field: &'static str, given: bool) -> Result<(), ScheduleError> {
        if given { Err(ScheduleError::Unused { field, kind: self.kind }) } else { Ok(()) }
    }
}

impl TryFrom<ScheduleSpec> for Schedule {
    type Error = ScheduleError;

    fn try_from(spec: ScheduleSpec) -> Result<Self, ScheduleError> {
        spec.parse()
    }
}

impl From<Schedule> for ScheduleSpec {
    fn from(schedule: Schedule) -> Self {
        Self::from(&schedule)
    }
}

impl From<&Schedule> for ScheduleSpec {
    fn from(schedule: &Schedule) -> Self {
        match schedule {
            Schedule::Now => Self::now(),
            Schedule::Once(at) => Self::once(instant::format(*at)),
            Schedule::Cron { expr, zone, gap, fold } => {
                Self { time_zone: Some(zone.name().to_owned()), gap: *gap, fold: *fold, ..Self::cron(expr.as_str()) }
            }
        }
    }
}

/// Why the words of a schedule mean nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The cron text was refused.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The instant was refused.
    #[error(transparent)]
    Instant(#[from] InstantError),
    /// The zone is not known.
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    /// `ONCE` and `CRON` need a value.
    #[error("a {} schedule needs a `value`; {}", kind.name(), value_hint(*kind))]
    Missing {
        /// The kind of schedule.
        kind: ScheduleKind,
    },
    /// The field has no meaning for this kind.
    #[error("`{field}` has no effect on a {} schedule; leave it out", kind.name())]
    Unused {
        /// The field that was given.
        field: &'static str,
        /// The kind of schedule.
        kind: ScheduleKind,
    },
}

impl ScheduleError {
    /// The field of [`ScheduleSpec`] at fault.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Cron(_) | Self::Instant(_) | Self::Missing { .. } => "value",
            Self::Zone(_) => "time_zone",
            Self::Unused { field, .. } => field,
        }
    }
}

fn value_hint(kind: ScheduleKind) -> &'static str {
    match kind {
        ScheduleKind::Cron => "give a cron expression such as `0 10 * * *`",
        ScheduleKind::Now | ScheduleKind::Once => "give an instant such as `2026-12-01T10:00:00Z`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Schedule, String> {
        let spec: ScheduleSpec = serde_json::from_str(json).map_err(|error| error.to_string())?;
        spec.parse().map_err(|error| format!("{}: {error}", error.field()))
    }

    #[test]
    fn schedules_come_back_as_they_were_given() {
        for json in [
            r#"{"type":"NOW","value":null,"time_zone":null,"gap":null,"fold":null}"#,
            r#"{"type":"ONCE","value":"2026-12-01T10:00:00Z","time_zone":null,"gap":null,"fold":null}"#,
            r#"{"type":"CRON","value":" 0  10 * * mon ","time_zone":"US/Eastern","gap":"skip","fold":"both"}"#,
        ] {
            let schedule = read(json).unwrap();
            assert_eq!(serde_json::to_string(&schedule).unwrap(), json);
            assert_eq!(serde_json::from_str::<Schedule>(json).unwrap(), schedule);
        }
    }

    #[test]
    fn what_is_stored_can_be_read_again() {
        let cron = ScheduleSpec {
            time_zone: Some("US/Eastern".to_owned()),
            fold: Some(Fold::Last),
            ..ScheduleSpec::cron("@daily")
        };
        for spec in
            [ScheduleSpec::now(), ScheduleSpec::once("2026-12-01T10:00:00.5Z"), ScheduleSpec::cron("0 10 * * *"), cron]
        {
            let bytes = postcard::to_stdvec(&spec).unwrap();
            assert_eq!(postcard::from_bytes::<ScheduleSpec>(&bytes).unwrap(), spec);
            let schedule = spec.parse().unwrap();
            let bytes = postcard::to_stdvec(&schedule).unwrap();
            assert_eq!(postcard::from_bytes::<Schedule>(&bytes).unwrap(), schedule);
        }
    }

    #[test]
    fn now_and_once_have_one_slot() {
        let at = |text: &str| instant::parse(text).unwrap();
        let created = at("2026-11-30T12:00:00.25Z");
        assert_eq!(Schedule::Now.first_after(created), Some(created));
        assert_eq!(Schedule::Now.next_after(created), None);
        // A slot in the past is still the slot: the misfire policy decides about it.
        for once in [at("2020-01-01T00:00:00Z"), at("2026-12-01T10:00:00Z")] {
            assert_eq!(Schedule::Once(once).first_after(created), Some(once));
            assert_eq!(Schedule::Once(once).next_after(once), None);
        }
        let over = ScheduleSpec::cron("0 0 0 1 1 ? 2020").parse().unwrap();
        assert_eq!(over.first_after(created), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (json, error) in [
            (r#"{"type":"NOW","value":"x"}"#, "value: `value` has no effect on a NOW schedule; leave it out"),
            (
                r#"{"type":"ONCE"}"#,
                "value: a ONCE schedule needs a `value`; give an instant such as `2026-12-01T10:00:00Z`",
            ),
            (
                r#"{"type":"ONCE","value":"2026-12-01T10:00:00Z","gap":"skip"}"#,
                "gap: `gap` has no effect on a ONCE schedule; leave it out",
            ),
            (r#"{"type":"CRON","value":"* 24 * * *"}"#, "value: hour: `24` is out of range; use a number from 0 to 23"),
            (
                r#"{"type":"CRON","value":"* * * * *","time_zone":"utc"}"#,
                "time_zone: `utc` is not a time zone; did you mean `UTC`?",
            ),
        ] {
            assert_eq!(read(json).unwrap_err(), error);
        }
        assert!(read(r#"{"type":"CRON","value":"* * * * *","tz":"UTC"}"#).unwrap_err().contains("unknown field `tz`"));
    }

    #[test]
    fn a_local_time_is_read_in_its_zone() {
        let once =
            |value: &str| read(&format!(r#"{{"type":"ONCE","value":"{value}","time_zone":"America/New_York"}}"#));
        let at = |text: &str| Ok(Schedule::Once(instant::parse(text).unwrap()));
        assert_eq!(once("2026-06-15T12:30:00"), at("2026-06-15T16:30:00Z"));
        assert_eq!(once("2026-06-15T12:30:00Z"), at("2026-06-15T12:30:00Z"));
    }
}
