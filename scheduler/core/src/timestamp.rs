//! A UTC instant that is stored compactly.

use std::fmt;
use std::ops::{Add, Deref};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A UTC instant with nanoseconds. In rows it is two small integers; to people it is RFC 3339 with `Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(DateTime::UNIX_EPOCH);

    /// The instant so many seconds after the epoch; the nearest one that exists if that is out of range.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        Self(DateTime::from_timestamp(seconds, 0).unwrap_or(if seconds < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        }))
    }

    /// Microseconds since the epoch, rounded up, so that nothing planned by them is early.
    pub fn unix_micros_ceil(self) -> i64 {
        let whole = self.0.timestamp_micros();
        if self.0.timestamp_subsec_nanos().is_multiple_of(1_000) { whole } else { whole.saturating_add(1) }
    }

    /// The instant so many microseconds after the epoch, if there is such a one.
    pub fn from_unix_micros(micros: i64) -> Option<Self> {
        DateTime::from_timestamp_micros(micros).map(Self)
    }

    /// How long after `earlier` this is; zero if it is not after.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        (self.0 - earlier.0).to_std().unwrap_or(Duration::ZERO)
    }

    /// This instant less a duration, or the earliest instant.
    pub fn saturating_sub(self, duration: Duration) -> Self {
        TimeDelta::from_std(duration)
            .ok()
            .and_then(|delta| self.0.checked_sub_signed(delta))
            .map_or(Self(DateTime::<Utc>::MIN_UTC), Self)
    }

    /// The instant as `chrono` has it.
    pub fn to_utc(self) -> DateTime<Utc> {
        self.0
    }
}

/// Saturates at the last instant that can be represented.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        TimeDelta::from_std(duration)
            .ok()
            .and_then(|delta| self.0.checked_add_signed(delta))
            .map_or(Self(DateTime::<Utc>::MAX_UTC), Self)
    }
}

impl Deref for Timestamp {
    type Target = DateTime<Utc>;

    fn deref(&self) -> &DateTime<Utc> {
        &self.0
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(instant: DateTime<Utc>) -> Self {
        Self(instant)
    }
}

impl From<Timestamp> for DateTime<Utc> {
    fn from(instant: Timestamp) -> Self {
        instant.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0.timestamp(), self.0.timestamp_subsec_nanos()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seconds, nanos) = <(i64, u32)>::deserialize(deserializer)?;
        DateTime::from_timestamp(seconds, nanos)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("instant out of range"))
    }
}
