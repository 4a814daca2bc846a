//! Strict reading of JSON: no unknown field, no duplicate key, and every fault with the path of its field.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use crate::refusal::{Refusal, near, quoted};

/// Why text is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// It is not JSON.
    Broken(String),
    /// It is JSON, but a field is wrong.
    Unfit(Refusal),
}

/// Reads JSON into `T`.
///
/// A key that appears twice in one object is refused: readers disagree about which one counts. So are nesting past 127 levels and numbers
/// that no `f64` holds.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, JsonError> {
    check_keys(bytes)?;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| unfit(&error.path().to_string(), error.inner()))?;
    Ok(value)
}

/// Reads JSON of any shape, with the same strictness.
pub fn check_keys(bytes: &[u8]) -> Result<(), JsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let mut path = Vec::new();
    let checked = Strict { path: &mut path }.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    checked.map_err(|error| match error.classify() {
        Category::Data => JsonError::Unfit(Refusal::new(path.join("."), "this key appears twice in one object").hint(
            "keep one of them",
        )),
        Category::Syntax | Category::Eof | Category::Io => JsonError::Broken(error.to_string()),
    })
}

/// Walks any JSON and fails at a repeated key; `path` then names it.
struct Strict<'p> {
    path: &'p mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        loop {
            self.path.push(index.to_string());
            if items.next_element_seed(Strict { path: self.path })?.is_none() {
                self.path.pop();
                return Ok(());
            }
            self.path.pop();
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.path.push(key.clone());
            if !seen.insert(key) {
                return Err(de::Error::custom("duplicate key"));
            }
            entries.next_value_seed(Strict { path: self.path })?;
            self.path.pop();
        }
        Ok(())
    }
}

/// A fault of the data in the user's words: serde's own message, taken apart.
fn unfit(path: &str, error: &serde_json::Error) -> JsonError {
    let full = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = full.strip_suffix(&position).unwrap_or(&full);
    let path = if path == "." { "" } else { path };
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return JsonError::Unfit(unknown_field(path, rest));
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        let name = ticked(rest).next().unwrap_or(rest);
        return JsonError::Unfit(Refusal::new(joined(path, name), "this field is required"));
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        let mut words = ticked(rest);
        let found = words.next().unwrap_or_default();
        let known: Vec<_> = words.collect();
        let hint = near(found, known.iter().copied())
            .map(|near| format!("did you mean `{near}`?"))
            .unwrap_or_else(|| format!("use one of {}", listed(&known)));
        return JsonError::Unfit(Refusal::new(path, format!("{} is not known here", quoted(found))).hint(hint));
    }
    JsonError::Unfit(Refusal::new(if path.is_empty() { "(body)" } else { path }, message))
}

fn unknown_field(path: &str, rest: &str) -> Refusal {
    // The unknown name comes from the user and may hold back-ticks itself, so it is cut off at what serde writes behind it.
    let (found, known) = rest.split_once("`, expected ").unwrap_or((rest, ""));
    let found = found.trim_start_matches('`');
    let known: Vec<_> = ticked(known).collect();
    let parent = path.strip_suffix(found).map_or(path, |parent| parent.trim_end_matches('.'));
    let hint = match near(found, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", listed(&known)),
    };
    let shown: String = found.chars().take(80).collect();
    Refusal::new(joined(parent, &shown), format!("there is no field {}", quoted(found))).hint(hint)
}

/// The words between back-ticks.
fn ticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::value::RawValue;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        task: String,
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        raw: Option<Box<RawValue>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[serde(default)]
        policy: Option<Policy>,
        #[serde(default)]
        delays: Vec<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Policy {
        RunAll,
        Skip,
    }

    fn refused(text: &str) -> Refusal {
        match from_slice::<Outer>(text.as_bytes()).unwrap_err() {
            JsonError::Unfit(refusal) => refusal,
            JsonError::Broken(detail) => panic!("{text}: {detail}"),
        }
    }

    #[test]
    fn what_is_right_is_read_and_raw_text_is_kept() {
        let text = r#" {"task":"a","inner":{"policy":"run_all","delays":["1s"]},"raw":{"b":1.0,"a":12345678901234567890123}} "#;
        let outer: Outer = from_slice(text.as_bytes()).unwrap();
        assert_eq!(outer.raw.unwrap().get(), r#"{"b":1.0,"a":12345678901234567890123}"#);
        assert!(matches!(outer.inner.unwrap().policy, Some(Policy::RunAll)));
    }

    #[test]
    fn faults_name_the_path_and_the_near_one() {
        for (text, field, hint) in [
            (r#"{"tsak":"a"}"#, "tsak", "did you mean `task`?"),
            (r#"{"task":"a","inner":{"polcy":1}}"#, "inner.polcy", "did you mean `policy`?"),
            (r#"{"task":"a","zzz":1}"#, "zzz", "known here: `task`, `inner`, `raw`"),
            (r#"{"task":"a","in`ner":1}"#, "in`ner", "did you mean `inner`?"),
            (r#"{"task":"a","inner":{"policy":"runall"}}"#, "inner.policy", "did you mean `run_all`?"),
            (r#"{"task":"a","inner":{"policy":"zz"}}"#, "inner.policy", "use one of `run_all`, `skip`"),
        ] {
            let refusal = refused(text);
            assert_eq!((refusal.field.as_str(), refusal.hint.as_deref()), (field, Some(hint)), "{text}");
        }
    }

    #[test]
    fn missing_mistyped_and_repeated_fields_are_named() {
        for (text, field, detail) in [
            (r#"{}"#, "task", "this field is required"),
            (r#"{"task":5}"#, "task", "invalid type: integer `5`, expected a string"),
            (r#"{"task":null}"#, "task", "invalid type: null, expected a string"),
            (r#"{"task":"a","inner":{"delays":["1s",2]}}"#, "inner.delays[1]", "invalid type: integer `2`, expected a string"),
            (r#"[1]"#, "(body)", "invalid type: integer `1`, expected a string"),
            (r#"{"task":"a","task":"b"}"#, "task", "this key appears twice in one object"),
            (r#"{"task":"a","raw":{"x":[{"y":1,"y":2}]}}"#, "raw.x.0.y", "this key appears twice in one object"),
        ] {
            let refusal = refused(text);
            assert_eq!((refusal.field.as_str(), refusal.detail.as_str()), (field, detail), "{text}");
        }
    }

    #[test]
    fn what_is_not_json_is_broken() {
        let deep = "[".repeat(100_000);
        let deep_objects = r#"{"a":"#.repeat(100_000);
        for text in ["", "{", "{\"task\":\"a\"} x", "{\"task\":1e400}", "{'task':1}", "\u{feff}{}", "NaN", &deep, &deep_objects] {
            let error = from_slice::<Outer>(text.as_bytes()).unwrap_err();
            assert!(matches!(error, JsonError::Broken(_)), "{error:?}");
        }
        assert!(matches!(from_slice::<Outer>(b"{\"task\":\"\xff\"}"), Err(JsonError::Broken(_))));
    }
}
