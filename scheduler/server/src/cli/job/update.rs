//! From the flags of `job update` to an edit.

use std::collections::BTreeMap;

use compline_core::schedule::ScheduleKind;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::cli::args::JobUpdateArgs;
use crate::cli::{CliError, input};
use crate::refusal::{Refusal, quoted};

/// Fields with their JSON texts.
pub(super) type Edit = BTreeMap<String, Box<RawValue>>;

/// The body of the request.
pub(super) fn edit(args: JobUpdateArgs) -> Result<Edit, CliError> {
    let mut whole = match &args.edit {
        None => Edit::new(),
        Some(text) => serde_json::from_str(input::read_json("--edit", text)?.get())
            .map_err(|_| Refusal::new("--edit", "it is not an object").hint(r#"write it like '{"lane":"batch"}'"#))?,
    };
    if let Some(text) = &args.params {
        whole.insert("parameters".to_owned(), input::read_json("--params", text)?);
    }
    let edit = flags(args)?;
    for (field, value) in edit {
        let value = match (whole.get(&field).map(|text| serde_json::from_str(text.get())), value) {
            (Some(Ok(Value::Object(mut given))), Value::Object(flags)) => {
                given.extend(flags);
                Value::Object(given)
            }
            (_, value) => value,
        };
        whole.insert(
            field,
            serde_json::value::to_raw_value(&value).map_err(|error| CliError::failed(error.to_string()))?,
        );
    }
    if whole.is_empty() {
        return Err(Refusal::new("(flags)", "nothing is to change")
            .hint("name what is, such as --cron '0 9 * * *'")
            .into());
    }
    Ok(whole)
}

/// What the flags say, apart from --edit and --params, whose text stays as it is.
fn flags(args: JobUpdateArgs) -> Result<Map<String, Value>, CliError> {
    let mut edit = Map::new();
    for field in &args.resets {
        set(&mut edit, field, Value::Null);
    }
    let memory = args.memory.as_deref().map(|text| input::read_size("--memory", text)).transpose()?;
    let retries = args.retry_delays.as_deref().map(|text| json!({ "delays": super::delay_list(text) }));
    let kind = match (&args.at, &args.cron) {
        (Some(_), _) => Some(ScheduleKind::Once),
        (_, Some(_)) => Some(ScheduleKind::Cron),
        (None, None) => None,
    };
    let named = [
        ("task", args.task.map(Value::from)),
        ("schedule.type", kind.map(|kind| Value::from(kind.name()))),
        ("schedule.value", args.at.or(args.cron).map(Value::from)),
        ("schedule.time_zone", args.tz.map(Value::from)),
        ("name", args.name.map(Value::from)),
        ("lane", args.lane.map(Value::from)),
        ("misfire.deadline", args.misfire_deadline.map(Value::from)),
        ("retry", retries),
        ("limits.timeout", args.timeout.map(Value::from)),
        ("limits.fuel", args.fuel.map(Value::from)),
        ("limits.memory_bytes", memory.map(Value::from)),
    ];
    for (field, value) in named {
        if let Some(value) = value {
            set(&mut edit, field, value);
        }
    }
    for label in &args.labels {
        let (key, text) = label.split_once('=').ok_or_else(|| {
            Refusal::new("--label", format!("{} has no `=`", quoted(label))).hint("write it like --label team=billing")
        })?;
        let value = if text.is_empty() { Value::Null } else { Value::from(text) };
        if let Value::Object(labels) = edit.entry("labels").or_insert_with(|| Value::Object(Map::new())) {
            labels.insert(key.to_owned(), value);
        }
    }
    Ok(edit)
}

/// Sets the field at a path of one or two names.
fn set(edit: &mut Map<String, Value>, path: &str, value: Value) {
    let Some((outer, inner)) = path.split_once('.') else {
        edit.insert(path.to_owned(), value);
        return;
    };
    let object = edit.entry(outer).or_insert_with(|| Value::Object(Map::new()));
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Value::Object(fields) = object {
        fields.insert(inner.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command, JobCommand};
    use clap::Parser;

    fn body(words: &[&str]) -> Result<String, CliError> {
        let line = ["compline", "job", "update", "job_x"].iter().chain(words);
        let Command::Job(JobCommand::Update(args)) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        edit(*args).map(|edit| serde_json::to_string(&edit).unwrap())
    }

    #[test]
    fn flags_become_an_edit_of_what_they_name() {
        for (words, want) in [
            (&["--cron", "0 9 * * *"][..], r#"{"schedule":{"type":"CRON","value":"0 9 * * *"}}"#),
            (&["--tz", "Europe/Paris"], r#"{"schedule":{"time_zone":"Europe/Paris"}}"#),
            (&["--reset", "limits.fuel", "--timeout", "5s"], r#"{"limits":{"fuel":null,"timeout":"5s"}}"#),
            (&["--label", "a=1", "--label", "b="], r#"{"labels":{"a":"1","b":null}}"#),
            (
                &["--edit", r#"{"overlap":"skip","limits":{"fuel":5}}"#, "--timeout", "5s"],
                r#"{"overlap":"skip","limits":{"fuel":5,"timeout":"5s"}}"#,
            ),
        ] {
            let body: Value = serde_json::from_str(&body(words).unwrap()).unwrap();
            assert_eq!(body, serde_json::from_str::<Value>(want).unwrap());
        }
        let exact = r#"{"parameters":12345678901234567890123}"#;
        assert_eq!(body(&["--params", "12345678901234567890123"]).unwrap(), exact);
        assert_eq!(body(&[]).unwrap_err().exit(), crate::cli::Exit::Usage);
        assert_eq!(body(&["--edit", "[]"]).unwrap_err().exit(), crate::cli::Exit::Usage);
    }
}
