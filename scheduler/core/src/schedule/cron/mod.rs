//! The cron engine: our own, because time is what this project is for (see the ADR on the cron engine).
//!
//! # Dialect
//! Five fields are the Unix crontab: minute, hour, day of month, month, day of week. Six have seconds in front, seven also a year
//! (1970 to 9999) at the end. In all three 0 and 7 are Sunday. Fields hold `*`, numbers, three-letter names of months and weekdays in any
//! case, ranges, lists, and steps: `*/15`, `10-40/10`, and `5/15`, which counts from 5 to the end of the field. Day of month adds `L`
//! (last day), `L-3` (three days before it), `LW` (last Monday-to-Friday day) and `15W` (the one nearest to the 15th in the same month;
//! none where the month has no such day). Day of week adds `5#2` (second Friday) and `5L` (last Friday). Both day fields take `?` for `*`.
//! `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight` and `@hourly` stand for what they say.
//!
//! If either day field begins with `*` or `?`, a day must match both; otherwise it must match one (cronie's rule). A range that wraps is
//! refused with the spelling to use. So is every text that can never fire.

mod day_fields;
mod days;
mod error;
mod fields;
mod list;
mod parse;

use std::fmt;
use std::sync::Arc;

pub use error::{CronError, CronErrorKind, CronField};
pub use parse::CRON_CHARS_MAX;

use fields::{Fields, Years};

/// A parsed cron text. Cloning shares it.
#[derive(Clone)]
pub struct CronExpr {
    inner: Arc<Inner>,
}

struct Inner {
    text: Box<str>,
    fields: Fields,
}

impl CronExpr {
    /// Reads a cron text of at most [`CRON_CHARS_MAX`] characters.
    ///
    /// # Errors
    /// [`CronErrorKind::Malformed`] for text outside the dialect, [`CronErrorKind::NeverFires`] for text that no instant of the years 1970
    /// to 9999 matches, whatever the zone. Both name the field.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let fields = parse::parse(text)?;
        Ok(Self { inner: Arc::new(Inner { text: text.into(), fields }) })
    }

    /// The text exactly as it was given.
    pub fn as_str(&self) -> &str {
        &self.inner.text
    }

    /// Whether the second, minute or hour field begins with `*`. Such a schedule follows real time through clock changes; every other one
    /// names fixed times of day.
    pub fn is_wildcard(&self) -> bool {
        self.inner.fields.wildcard
    }

    /// Whether the text limits the years.
    pub(crate) fn names_years(&self) -> bool {
        matches!(self.inner.fields.years, Years::Listed(_))
    }

    /// The refusal for a text that is sound but has no instant left, for the moment when a schedule is saved.
    pub fn never_again(&self) -> CronError {
        if self.names_years() {
            return CronError::never(
                CronField::Year,
                "it never fires: no instant that matches lies ahead",
                "choose a year that is not over, or leave the year out",
            );
        }
        // Every other text comes round again, so that only the zone can be in its way.
        CronError::never(
            CronField::Expression,
            "it never fires: the zone's clock skips every time that it names",
            "choose another time, or let skipped times run after the jump (`gap: shift`)",
        )
    }

    /// The first matching wall-clock second at or after `from`, both counted in local seconds since 1970-01-01T00:00:00.
    pub(crate) fn local_at_or_after(&self, from: i64) -> Option<i64> {
        self.inner.fields.at_or_after(from)
    }
}

/// Two expressions are equal when their texts are.
impl PartialEq for CronExpr {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.text == other.inner.text
    }
}

impl Eq for CronExpr {}

impl fmt::Debug for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CronExpr").field(&self.as_str()).finish()
    }
}

impl fmt::Display for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for CronExpr {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}
