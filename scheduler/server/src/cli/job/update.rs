//! From the flags of `job update` to an edit.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::value::{RawValue, to_raw_value};

use super::fields::{self, Fields};
use crate::cli::args::JobUpdateArgs;
use crate::cli::{CliError, input};
use crate::refusal::Refusal;

/// The body of the request: what --edit says, then what is reset, then what the other flags say.
pub(super) fn edit(args: JobUpdateArgs) -> Result<Fields, CliError> {
    let mut edit = match &args.edit {
        None => Fields::new(),
        Some(text) => object(&input::read_json("--edit", text)?)
            .ok_or_else(|| Refusal::new("--edit", "it is not an object").hint(r#"write it like '{"lane":"batch"}'"#))?,
    };
    for field in &args.resets {
        let (name, value) = match field.split_once('.') {
            None => (field.as_str(), to_raw_value(&())),
            Some((name, inner)) => (name, to_raw_value(&BTreeMap::from([(inner, ())]))),
        };
        lay(&mut edit, name, value.map_err(|error| CliError::failed(error.to_string()))?)?;
    }
    let mut flags = fields::of(args.fields)?;
    fields::put(&mut flags, "task", args.task)?;
    // A label without a value is taken away.
    let labels: BTreeMap<_, _> = fields::labels(&args.labels)?
        .into_iter()
        .map(|(key, value)| (key, Some(value).filter(|value| !value.is_empty())))
        .collect();
    fields::put(&mut flags, "labels", (!labels.is_empty()).then_some(labels))?;
    for (name, value) in flags {
        lay(&mut edit, &name, value)?;
    }
    if edit.is_empty() {
        return Err(Refusal::new("(flags)", "nothing is to change")
            .hint("name what is, such as --cron '0 9 * * *'")
            .into());
    }
    Ok(edit)
}

/// Lays a field over an edit. The fields of a field are laid one by one.
fn lay(edit: &mut Fields, name: &str, value: Box<RawValue>) -> Result<(), CliError> {
    let value = match edit.get(name) {
        // The user's own JSON is one value.
        Some(before) if name != "parameters" => match (object(before), object(&value)) {
            (Some(mut fields), Some(laid)) => {
                for (inner, value) in laid {
                    set(&mut fields, inner, value, |inner| format!("{name}.{inner}"))?;
                }
                to_raw_value(&fields).map_err(|error| CliError::failed(error.to_string()))?
            }
            _ => value,
        },
        _ => value,
    };
    set(edit, name.to_owned(), value, str::to_owned)
}

/// Sets a field. One that is reset has no value: neither of the two may be ignored.
fn set(fields: &mut Fields, name: String, value: Box<RawValue>, path: impl Fn(&str) -> String) -> Result<(), CliError> {
    match fields.entry(name) {
        Entry::Occupied(before) if before.get().get() == "null" && value.get() != "null" => {
            Err(Refusal::new(path(before.key()), "it is reset (`null`), and other flags say what it is to be")
                .hint("leave one of the two out, or reset its fields one by one, such as --reset limits.fuel")
                .into())
        }
        Entry::Occupied(mut before) => {
            before.insert(value);
            Ok(())
        }
        Entry::Vacant(place) => {
            place.insert(value);
            Ok(())
        }
    }
}

fn object(text: &RawValue) -> Option<Fields> {
    serde_json::from_str(text.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;
    use crate::cli::args::{Cli, Command, JobCommand};
    use clap::Parser;
    use serde_json::{Value, json};

    fn body(words: &[&str]) -> Result<Fields, CliError> {
        let line = ["compline", "job", "update", "job_x"].iter().chain(words);
        let Command::Job(JobCommand::Update(args)) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        edit(*args)
    }

    #[test]
    fn flags_become_an_edit_of_what_they_name() {
        for (words, want) in [
            (&["--cron", "0 9 * * *"][..], json!({"schedule": {"type": "CRON", "value": "0 9 * * *"}})),
            (&["--now"], json!({"schedule": {"type": "NOW"}})),
            (
                &["--tz", "Europe/Paris", "--gap", "skip"],
                json!({"schedule": {"time_zone": "Europe/Paris", "gap": "skip"}}),
            ),
            (
                &["--misfire", "run_latest", "--misfire-deadline", "2h", "--overlap", "buffer_one", "--splay", "5m"],
                json!({"misfire": {"policy": "run_latest", "deadline": "2h"}, "overlap": "buffer_one", "splay": "5m"}),
            ),
            (
                &[
                    "--max-concurrent",
                    "3",
                    "--start",
                    "2027-01-01T00:00:00Z",
                    "--end",
                    "2028-01-01T00:00:00Z",
                    "--max-runs",
                    "9",
                ],
                json!({"max_concurrent": 3, "starts_at": "2027-01-01T00:00:00Z", "ends_at": "2028-01-01T00:00:00Z", "max_runs": 9}),
            ),
            (&["--max-attempts", "5"], json!({"retry": {"max_attempts": 5}})),
            (
                &["--retry-exponential", "1s,1m", "--misfire-cap", "7"],
                json!({"retry": {"exponential": {"first": "1s", "max": "1m"}}, "misfire": {"cap": 7}}),
            ),
            (&["--on-failure-params", "[1]"], json!({"on_failure": {"parameters": [1]}})),
            (&["--reset", "limits.fuel", "--timeout", "5s"], json!({"limits": {"fuel": null, "timeout": "5s"}})),
            (&["--reset", "on_failure", "--reset", "ends_at"], json!({"on_failure": null, "ends_at": null})),
            (&["--label", "a=1", "--label", "b="], json!({"labels": {"a": "1", "b": null}})),
            (
                &["--edit", r#"{"overlap":"skip","limits":{"fuel":5}}"#, "--timeout", "5s"],
                json!({"overlap": "skip", "limits": {"fuel": 5, "timeout": "5s"}}),
            ),
            (&["--edit", r#"{"parameters":{"a":1}}"#, "--params", r#"{"b":2}"#], json!({"parameters": {"b": 2}})),
        ] {
            let body: Value = serde_json::to_value(body(words).unwrap()).unwrap();
            assert_eq!(body, want, "{words:?}");
        }
        let exact = "12345678901234567890123";
        assert_eq!(body(&["--params", exact]).unwrap()["parameters"].get(), exact);
    }

    #[test]
    fn an_edit_of_nothing_and_one_that_contradicts_itself_are_usage_errors() {
        for words in [
            &[][..],
            &["--edit", "[]"],
            &["--label", "a=1", "--label", "a="],
            &["--reset", "misfire", "--misfire-cap", "5"],
            &["--reset", "limits.fuel", "--fuel", "5"],
            &["--reset", "name", "--name", "n"],
            &["--edit", r#"{"retry":null}"#, "--max-attempts", "5"],
        ] {
            assert_eq!(body(words).unwrap_err().exit(), Exit::Usage, "{words:?}");
        }
        assert!(body(&["--reset", "misfire", "--reset", "misfire"]).is_ok());
    }
}
