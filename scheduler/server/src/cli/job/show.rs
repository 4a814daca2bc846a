//! How a job is printed.

use crate::api::dto::{JobDefinition, JobView, MisfireBody, RetryBody, ScheduleBody};
use crate::cli::args::OutputFormat;
use crate::cli::out::Out;
use crate::cli::{CliError, run};
use crate::client::Reply;

pub(super) fn task_name(reference: &str, digest: &str) -> String {
    if reference.starts_with("sha256:") { digest.chars().take(19).collect() } else { reference.to_owned() }
}

pub(super) fn schedule(schedule: &ScheduleBody) -> String {
    let mut text = schedule.kind.name().to_owned();
    for part in [&schedule.value, &schedule.time_zone].into_iter().flatten() {
        text.push(' ');
        text.push_str(part);
    }
    text
}

fn retries(retry: &RetryBody) -> String {
    match (&retry.delays, &retry.exponential) {
        (_, Some(rule)) => format!(
            "from {} up to {}, times {}{}, {} attempts",
            rule.first.as_deref().unwrap_or_default(),
            rule.max.as_deref().unwrap_or_default(),
            rule.factor.unwrap_or_default(),
            if rule.jitter == Some(true) { ", with jitter" } else { "" },
            retry.max_attempts.unwrap_or_default()
        ),
        (Some(delays), None) if delays.is_empty() => "none".to_owned(),
        (delays, None) => delays.clone().unwrap_or_default().join(", "),
    }
}

fn state(job: &JobView) -> String {
    match &job.finished_reason {
        Some(reason) => format!("{} ({reason})", job.state),
        None => job.state.clone(),
    }
}

fn misfire(misfire: &MisfireBody) -> String {
    let mut text = misfire.policy.clone().unwrap_or_default();
    if let Some(deadline) = &misfire.deadline {
        text.push_str(&format!(", up to {deadline} late"));
    }
    if let Some(cap) = misfire.cap {
        text.push_str(&format!(", {cap} at most"));
    }
    text
}

fn overlap(definition: &JobDefinition) -> String {
    match definition.max_concurrent {
        Some(max) => format!("{}, up to {max} at once", definition.overlap),
        None => definition.overlap.clone(),
    }
}

fn bounds(definition: &JobDefinition) -> String {
    let from = definition.starts_at.as_ref().map(|at| format!("from {at}"));
    let until = definition.ends_at.as_ref().map(|at| format!("until {at}"));
    let runs = definition.max_runs.map(|max| format!("{max} runs"));
    [from, until, runs].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Prints a job.
pub(super) fn print(reply: &Reply<JobView>, out: &Out) -> Result<(), CliError> {
    if out.format() != OutputFormat::Table {
        return out.line(&reply.text);
    }
    let job = &reply.value;
    let definition = &job.definition;
    let labels: Vec<_> = definition.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let parameters = definition.parameters.as_ref().map(|json| json.get().to_owned());
    let limits = &definition.limits;
    out.fields(&[
        ("job", job.job_id.clone()),
        ("name", definition.name.clone().unwrap_or_default()),
        ("state", state(job)),
        ("task", definition.task.reference.clone()),
        ("digest", definition.task.digest.clone()),
        ("schedule", schedule(&definition.schedule)),
        ("parameters", parameters.unwrap_or_default()),
        ("lane", definition.lane.clone()),
        ("misfire", misfire(&definition.misfire)),
        ("overlap", overlap(definition)),
        ("splay", definition.splay.clone()),
        ("bounds", bounds(definition)),
        ("retries", retries(&definition.retry)),
        (
            "on failure",
            definition.on_failure.as_ref().map(|handler| handler.task.reference.clone()).unwrap_or_default(),
        ),
        (
            "limits",
            format!(
                "{} fuel, {} bytes, {}",
                limits.fuel.unwrap_or_default(),
                limits.memory_bytes.unwrap_or_default(),
                limits.timeout.clone().unwrap_or_default()
            ),
        ),
        ("labels", labels.join(", ")),
        ("created", job.created_at.clone()),
        ("starts", job.starts.to_string()),
        ("next", job.next_fires.join(", ")),
    ])?;
    if !job.recent_executions.is_empty() {
        out.line("")?;
        out.table(&run::HEADER, job.recent_executions.iter().map(run::row).collect(), "")?;
    }
    Ok(())
}
