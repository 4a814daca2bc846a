//! Strict reading of JSON: no unknown field, no duplicate key, and every fault with the path of its field.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use crate::refusal::{Refusal, near, quoted};

/// Why text is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// It is not JSON.
    Broken(String),
    /// It is JSON, but a field is wrong.
    Unfit(Refusal),
}

/// A body that is an object of objects. A list in the place of one would be taken for its fields in order, so lists are named.
pub trait Body: DeserializeOwned {
    /// The paths at which, and below which, there may be lists.
    const LISTS: &'static [&'static str];
}

/// Reads JSON into `T`.
///
/// A key that appears twice in one object is refused: readers disagree about which one counts. So are nesting past 127 levels and numbers
/// that no `f64` holds.
pub fn from_slice<T: Body>(bytes: &[u8]) -> Result<T, JsonError> {
    check(bytes, Some(T::LISTS))?;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| unfit(&error.path().to_string(), error.inner()))?;
    Ok(value)
}

/// Reads JSON of any shape, with the same strictness.
pub fn check_keys(bytes: &[u8]) -> Result<(), JsonError> {
    check(bytes, None)
}

fn check(bytes: &[u8], lists: Option<&'static [&'static str]>) -> Result<(), JsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let mut walk = Walk { path: Vec::new(), lists, fault: None };
    let walked = Strict(&mut walk).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    // Text that is no JSON at all is called that, whatever else is wrong with it.
    walked.map_err(|error| JsonError::Broken(error.to_string()))?;
    walk.fault.map_or(Ok(()), |fault| Err(JsonError::Unfit(fault)))
}

/// The name of the body as a whole.
const WHOLE: &str = "(body)";

/// A walk over any JSON, which keeps the first fault that it meets.
struct Walk {
    path: Vec<String>,
    lists: Option<&'static [&'static str]>,
    fault: Option<Refusal>,
}

impl Walk {
    fn fault(&mut self, detail: &str, hint: &str) {
        let field = if self.path.is_empty() { WHOLE.to_owned() } else { self.path.join(".") };
        self.fault.get_or_insert_with(|| Refusal::new(field, detail).hint(hint));
    }

    fn may_be_list(&self) -> bool {
        let Some(lists) = self.lists else { return true };
        let path = self.path.join(".");
        lists.iter().any(|list| path.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }
}

struct Strict<'w>(&'w mut Walk);

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
        if self.0.fault.is_none() && !self.0.may_be_list() {
            self.0.fault("a list is not expected here", "write an object");
        }
        let mut index = 0;
        loop {
            self.0.path.push(index.to_string());
            let item = items.next_element_seed(Strict(self.0))?;
            self.0.path.pop();
            if item.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.0.path.push(key.clone());
            if !seen.insert(key) {
                self.0.fault("this key appears twice in one object", "keep one of them");
            }
            entries.next_value_seed(Strict(self.0))?;
            self.0.path.pop();
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
    // The names of our types are nothing to users.
    let message = match message.split_once("expected struct ") {
        Some((found, _)) => format!("{found}expected an object"),
        None => message.to_owned(),
    };
    JsonError::Unfit(Refusal::new(if path.is_empty() { WHOLE } else { path }, message))
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

    impl Body for Outer {
        const LISTS: &'static [&'static str] = &["inner.delays", "raw"];
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
        let text = r#" {"task":"a","inner":{"policy":"run_all","delays":["1s"]},"raw":{"b":1.0,"c":[[]],"a":12345678901234567890123}} "#;
        let outer: Outer = from_slice(text.as_bytes()).unwrap();
        assert_eq!(outer.raw.unwrap().get(), r#"{"b":1.0,"c":[[]],"a":12345678901234567890123}"#);
        let inner = outer.inner.unwrap();
        assert!(matches!(inner.policy, Some(Policy::RunAll)) && inner.delays == ["1s"] && outer.task == "a");
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
            (
                r#"{"task":"a","inner":{"delays":["1s",2]}}"#,
                "inner.delays[1]",
                "invalid type: integer `2`, expected a string",
            ),
            (r#"["a"]"#, "(body)", "a list is not expected here"),
            (r#"{"task":"a","inner":[null,["1s"]]}"#, "inner", "a list is not expected here"),
            ("5", "(body)", "invalid type: integer `5`, expected an object"),
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
        for text in
            ["", "{", "{\"task\":\"a\"} x", "{\"task\":1e400}", "{'task':1}", "\u{feff}{}", "NaN", &deep, &deep_objects]
        {
            let error = from_slice::<Outer>(text.as_bytes()).unwrap_err();
            assert!(matches!(error, JsonError::Broken(_)), "{error:?}");
        }
        assert!(matches!(from_slice::<Outer>(b"{\"task\":\"\xff\"}"), Err(JsonError::Broken(_))));
    }
}
