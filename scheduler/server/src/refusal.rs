//! What a user asked for and can't have: the field, what is wrong, and the fix.

use std::fmt;

/// One thing that is wrong with what a user asked for. The API answers it as 422, the command line as exit code 2 or 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The path of the field at fault, such as `schedule.value`.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal without advice.
    pub fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into(), hint: None }
    }

    /// With advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for Refusal {}

/// The known word that `word` was probably meant to be.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, candidate)| candidate)
}

/// A user's text for use in a message: quoted, cut, and with nothing in it that a terminal would act on.
pub fn quoted(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let mut shown: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_neighbour_and_nonsense_finds_none() {
        let known = ["name", "task", "schedule", "misfire"];
        assert_eq!(near("schedul", known), Some("schedule"));
        assert_eq!(near("Schedule", known), Some("schedule"));
        assert_eq!(near("misfire_polcy", known), Some("misfire"));
        assert_eq!(near("zzz", known), None);
    }

    #[test]
    fn quoted_text_is_short_and_harmless() {
        assert_eq!(quoted("a\u{1b}[2J`"), "`a\\u{1b}[2J``");
        assert_eq!(quoted(&"x".repeat(500)).chars().count(), 83);
    }
}
