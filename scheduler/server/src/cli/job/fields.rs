//! From the flags that `job create` and `job update` share to the fields of a request.

use std::collections::BTreeMap;

use compline_core::schedule::{Fold, Gap, ScheduleKind};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::api::dto::{ExponentialBody, LimitsBody, MisfireBody, RetryBody};
use crate::cli::args::{JobCreateArgs, JobFieldArgs};
use crate::cli::{CliError, input};
use crate::refusal::{Refusal, quoted};

/// Fields under the API's names, with their JSON texts: what a user gave as JSON keeps its digits.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

/// What flags say of a schedule.
#[derive(Serialize)]
struct ScheduleFields {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<ScheduleKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<Gap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fold: Option<Fold>,
}

/// What flags say of the task that is told of failures.
#[derive(Serialize)]
struct OnFailureFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Box<RawValue>>,
}

/// The body that creates a job.
pub(super) fn of_new(args: JobCreateArgs) -> Result<Fields, CliError> {
    let mut fields = of(args.fields)?;
    put(&mut fields, "task", Some(args.task))?;
    let labels = labels(&args.labels)?;
    put(&mut fields, "labels", (!labels.is_empty()).then_some(labels))?;
    put(&mut fields, "paused", args.paused.then_some(true))?;
    Ok(fields)
}

/// The fields that the flags name. What no flag names is left out.
pub(super) fn of(args: JobFieldArgs) -> Result<Fields, CliError> {
    let json = |flag: &str, text: Option<String>| text.map(|text| input::read_json(flag, &text)).transpose();
    let schedule = schedule(&args);
    let memory_bytes = args.memory.map(|text| input::read_size("--memory", &text)).transpose()?;
    let limits = LimitsBody { fuel: args.fuel, memory_bytes, timeout: args.timeout };
    let misfire = MisfireBody { policy: args.misfire, deadline: args.misfire_deadline, cap: args.misfire_cap };
    let retry = retry(args.retry_delays.as_deref(), args.retry_exponential.as_deref(), args.max_attempts)?;
    let on_failure =
        OnFailureFields { task: args.on_failure, parameters: json("--on-failure-params", args.on_failure_params)? };
    let names_on_failure = on_failure.task.is_some() || on_failure.parameters.is_some();
    let mut fields = Fields::new();
    put(&mut fields, "schedule", schedule)?;
    put(&mut fields, "parameters", json("--params", args.params)?)?;
    put(&mut fields, "name", args.name)?;
    put(&mut fields, "lane", args.lane)?;
    put(&mut fields, "misfire", (misfire != MisfireBody::default()).then_some(misfire))?;
    put(&mut fields, "overlap", args.overlap)?;
    put(&mut fields, "max_concurrent", args.max_concurrent)?;
    put(&mut fields, "splay", args.splay)?;
    put(&mut fields, "starts_at", args.start)?;
    put(&mut fields, "ends_at", args.end)?;
    put(&mut fields, "max_runs", args.max_runs)?;
    put(&mut fields, "retry", (retry != RetryBody::default()).then_some(retry))?;
    put(&mut fields, "limits", (limits != LimitsBody::default()).then_some(limits))?;
    put(&mut fields, "on_failure", names_on_failure.then_some(on_failure))?;
    Ok(fields)
}

fn schedule(args: &JobFieldArgs) -> Option<ScheduleFields> {
    let JobFieldArgs { now, at, cron, tz, gap, fold, .. } = args;
    let (kind, value) = match (at, cron) {
        (Some(at), _) => (Some(ScheduleKind::Once), Some(at)),
        (None, Some(cron)) => (Some(ScheduleKind::Cron), Some(cron)),
        (None, None) => (now.then_some(ScheduleKind::Now), None),
    };
    let is_named = kind.is_some() || tz.is_some() || gap.is_some() || fold.is_some();
    is_named.then(|| ScheduleFields {
        kind,
        value: value.cloned(),
        time_zone: tz.clone(),
        gap: gap.map(Into::into),
        fold: fold.map(Into::into),
    })
}

/// Names a field, if it has a value.
pub(super) fn put(fields: &mut Fields, name: &str, value: Option<impl Serialize>) -> Result<(), CliError> {
    let Some(value) = value else { return Ok(()) };
    let text = to_raw_value(&value).map_err(|error| CliError::failed(format!("`{name}` has no JSON form: {error}")))?;
    fields.insert(name.to_owned(), text);
    Ok(())
}

fn retry(delays: Option<&str>, exponential: Option<&str>, max_attempts: Option<u32>) -> Result<RetryBody, CliError> {
    let exponential = match exponential {
        None => None,
        Some(text) => {
            let (first, max) = text.split_once(',').ok_or_else(|| {
                Refusal::new("--retry-exponential", format!("{} is not two durations", quoted(text)))
                    .hint("write the first and the longest delay like --retry-exponential 10s,10m")
            })?;
            let (first, max) = (Some(first.trim().to_owned()), Some(max.trim().to_owned()));
            Some(ExponentialBody { first, max, ..ExponentialBody::default() })
        }
    };
    Ok(RetryBody { delays: delays.map(delay_list), exponential, max_attempts })
}

fn delay_list(text: &str) -> Vec<String> {
    match text.trim() {
        "none" | "" => Vec::new(),
        list => list.split(',').map(|delay| delay.trim().to_owned()).collect(),
    }
}

/// Labels by their keys.
pub(super) fn labels(texts: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut labels = BTreeMap::new();
    for text in texts {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            Refusal::new("--label", format!("{} has no `=`", quoted(text))).hint("write it like --label team=billing")
        })?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Refusal::new("--label", format!("{} is given twice", quoted(key))).into());
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command, JobCommand};
    use clap::Parser;
    use serde_json::{Value, json};

    fn body(words: &[&str]) -> Result<Fields, CliError> {
        let line = ["compline", "job", "create", "--task", "a"].iter().chain(words);
        let Command::Job(JobCommand::Create(args)) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        of_new(*args)
    }

    #[test]
    fn flags_become_the_body_and_what_is_not_given_is_left_out() {
        let hourly = ["--cron", "0 * * * *"];
        for (words, want) in [
            (&["--now"][..], json!({"task": "a", "schedule": {"type": "NOW"}})),
            (
                &["--cron", "0 10 * * *", "--tz", "UTC", "--gap", "skip", "--fold", "both"],
                json!({"task": "a", "schedule":
                    {"type": "CRON", "value": "0 10 * * *", "time_zone": "UTC", "gap": "skip", "fold": "both"}}),
            ),
            (
                &["--now", "--retry-delays", "none"],
                json!({"task": "a", "schedule": {"type": "NOW"}, "retry": {"delays": []}}),
            ),
            (
                &[
                    "--now",
                    "--params",
                    r#"{"b":1,"a":2}"#,
                    "--label",
                    "team=x=y",
                    "--memory",
                    "1MiB",
                    "--retry-delays",
                    "10s, 1m",
                ],
                json!({"task": "a", "schedule": {"type": "NOW"}, "parameters": {"b": 1, "a": 2}, "retry": {"delays": ["10s", "1m"]},
                    "limits": {"memory_bytes": 1_048_576}, "labels": {"team": "x=y"}}),
            ),
            (
                &[
                    &hourly[..],
                    &["--misfire-deadline", "5m", "--paused", "--on-failure", "n", "--on-failure-params", "1"],
                ]
                .concat(),
                json!({"task": "a", "schedule": {"type": "CRON", "value": "0 * * * *"}, "misfire": {"deadline": "5m"},
                    "on_failure": {"task": "n", "parameters": 1}, "paused": true}),
            ),
        ] {
            assert_eq!(serde_json::to_value(body(words).unwrap()).unwrap(), want, "{words:?}");
        }
        let exact = "12345678901234567890123";
        assert_eq!(body(&["--now", "--params", exact]).unwrap()["parameters"].get(), exact);
        assert_ne!(serde_json::from_str::<Value>(exact).unwrap().to_string(), exact, "which a number does not");
    }

    #[test]
    fn clumsy_values_are_usage_errors() {
        for words in [["--params", "{a:1}"], ["--label", "team"], ["--memory", "lots"], ["--retry-exponential", "5s"]] {
            assert_eq!(body(&["--now", words[0], words[1]]).unwrap_err().exit(), crate::cli::Exit::Usage);
        }
        assert!(body(&["--now", "--label", "a=1", "--label", "a=2"]).is_err());
    }
}
