//! Why a cron text was refused: which field, what is wrong, what to write instead.

use std::fmt;

/// The part of a cron text that a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CronField {
    /// Seconds, the first of six or seven fields.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
    /// Days of the month.
    DayOfMonth,
    /// Months.
    Month,
    /// Days of the week.
    DayOfWeek,
    /// Years, the last of seven fields.
    Year,
    /// The text as a whole: its length, its number of fields, a macro.
    Expression,
}

impl CronField {
    /// The name as a user knows it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
            Self::Year => "year",
            Self::Expression => "expression",
        }
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the text could not be read, or was read and has no instant to fire at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CronErrorKind {
    /// The text is not in the dialect.
    Malformed,
    /// The text is well formed, but no instant matches it.
    NeverFires,
}

/// A refused cron text. `Display` names the field and shows the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}; {hint}")]
pub struct CronError {
    /// Malformed, or never firing.
    pub kind: CronErrorKind,
    /// The field at fault.
    pub field: CronField,
    /// What is wrong, without the field's name.
    pub detail: String,
    /// What to write instead.
    pub hint: String,
}

impl CronError {
    pub(super) fn malformed(field: CronField, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: CronErrorKind::Malformed, field, detail: detail.into(), hint: hint.into() }
    }

    pub(super) fn never(field: CronField, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: CronErrorKind::NeverFires, field, detail: detail.into(), hint: hint.into() }
    }
}

/// A piece of the user's text for use in a message: quoted, with nothing in it that a terminal would act on.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", text.escape_debug())
}
