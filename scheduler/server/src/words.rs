//! The words that users name things by: what is allowed in each, and how a refused one is explained.

use compline_core::ids::TaskDigest;

use crate::refusal::{Refusal, quoted};

/// The longest name of a task, a tag, a lane or a label.
pub const WORD_CHARS_MAX: usize = 64;
/// The longest name of a job.
pub const TITLE_CHARS_MAX: usize = 200;
/// The longest value of a label.
pub const LABEL_VALUE_CHARS_MAX: usize = 128;
/// How many labels a job may have.
pub const LABELS_MAX: usize = 32;

/// Checks the name of a task.
pub fn task_name(field: &str, text: &str) -> Result<(), Refusal> {
    word(field, text, "a task name", "billing-report", |c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c)
    })
}

/// Checks a tag.
pub fn tag(field: &str, text: &str) -> Result<(), Refusal> {
    word(field, text, "a tag", "stable", |c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Checks the name of a lane.
pub fn lane(field: &str, text: &str) -> Result<(), Refusal> {
    word(field, text, "a lane", "batch", |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
}

/// Checks the name of a node.
pub fn node(field: &str, text: &str) -> Result<(), Refusal> {
    word(field, text, "a node's name", "worker-1", |c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Checks the name of a label.
pub fn label(field: &str, text: &str) -> Result<(), Refusal> {
    word(field, text, "a label", "team", |c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

fn word(field: &str, text: &str, what: &str, example: &str, allowed: impl Fn(char) -> bool) -> Result<(), Refusal> {
    let refuse = |detail: String, hint: String| Err(Refusal::new(field, detail).hint(hint));
    if text.is_empty() {
        return refuse(format!("{what} can't be empty"), format!("use one such as `{example}`"));
    }
    let length = text.chars().count();
    if length > WORD_CHARS_MAX {
        return refuse(
            format!("{what} may have at most {WORD_CHARS_MAX} characters, and this one has {length}"),
            format!("use a shorter one such as `{example}`"),
        );
    }
    if let Some(wrong) = text.chars().find(|c| !allowed(*c)) {
        let letters = if allowed('A') { "letters" } else { "lower-case letters" };
        let signs: Vec<_> = "-_./".chars().filter(|c| allowed(*c)).map(|c| format!("`{c}`")).collect();
        return refuse(
            format!("{} has {} in it, which {what} can't have", quoted(text), quoted(&wrong.to_string())),
            format!("use ASCII {letters}, digits, {}", signs.join(", ")),
        );
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return refuse(format!("{} begins with a sign", quoted(text)), "begin with a letter or a digit".to_owned());
    }
    Ok(())
}

/// Checks text that is only shown: a job's name, a label's value.
pub fn title(field: &str, text: &str, chars_max: usize) -> Result<(), Refusal> {
    let length = text.chars().count();
    if length > chars_max {
        return Err(Refusal::new(field, format!("it has {length} characters, and at most {chars_max} are kept")));
    }
    if text.trim() != text || text.chars().any(char::is_control) {
        return Err(Refusal::new(
            field,
            format!("{} has blanks at an end, or characters that do not print", quoted(text)),
        )
        .hint("leave them out"));
    }
    Ok(())
}

/// How a user names a version of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskName {
    /// `name`: the version pushed last. `name@tag`: what the tag points at.
    Named {
        /// The task.
        name: String,
        /// The tag.
        tag: Option<String>,
    },
    /// `sha256:…`
    Digest(TaskDigest),
}

impl TaskName {
    /// Reads `name`, `name@tag` or `sha256:…`.
    pub fn parse(field: &str, text: &str) -> Result<Self, Refusal> {
        if text.starts_with("sha256:") {
            return text.parse().map(Self::Digest).map_err(|_| {
                Refusal::new(field, format!("{} is not a whole digest", quoted(text)))
                    .hint("give all 64 hexadecimal digits, or a name such as `billing` or `billing@stable`")
            });
        }
        let (name, tag_text) = match text.split_once('@') {
            Some((name, tag_text)) => (name, Some(tag_text)),
            None => (text, None),
        };
        task_name(field, name)?;
        if let Some(tag_text) = tag_text {
            tag(field, tag_text)?;
        }
        Ok(Self::Named { name: name.to_owned(), tag: tag_text.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_and_plain() {
        for right in ["a", "csv-report", "billing.v2", "0x", &"a".repeat(64)] {
            assert_eq!(task_name("name", right), Ok(()), "{right}");
        }
        for wrong in
            ["", "-a", ".a", "Billing", "a b", "a/b", "a@b", "sha256:ab", "ü", "a\0", "a\n", "..", &"a".repeat(65)]
        {
            let refusal = task_name("name", wrong).unwrap_err();
            assert!(refusal.hint.is_some() && refusal.field == "name", "{wrong}");
        }
        assert!(tag("tag", "V1.0").is_ok() && lane("lane", "a.b").is_err() && label("labels.x/y", "x/y").is_ok());
    }

    #[test]
    fn a_task_is_named_in_three_ways() {
        let named =
            |name: &str, tag: Option<&str>| Ok(TaskName::Named { name: name.to_owned(), tag: tag.map(str::to_owned) });
        assert_eq!(TaskName::parse("task", "billing"), named("billing", None));
        assert_eq!(TaskName::parse("task", "billing@stable"), named("billing", Some("stable")));
        let digest = TaskDigest::of(b"abc");
        assert_eq!(TaskName::parse("task", &digest.to_string()), Ok(TaskName::Digest(digest)));
        for wrong in ["", "@stable", "billing@", "billing@a@b", "sha256:", "sha256:abc", "sha512:abc"] {
            assert_eq!(TaskName::parse("task", wrong).unwrap_err().field, "task", "{wrong}");
        }
    }

    #[test]
    fn titles_are_printable() {
        assert_eq!(title("name", "Nightly — billing", 200), Ok(()));
        assert_eq!(title("name", "", 200), Ok(()));
        for wrong in [" a", "a\n", "a\u{1b}[2J", &"x".repeat(201)] {
            assert!(title("name", wrong, 200).is_err(), "{wrong:?}");
        }
    }
}
