//! `compline run`.

use std::time::Duration;

use super::args::{OutputFormat, RunCommand};
use super::out::{Out, printable};
use super::{CliError, listing};
use crate::api::dto::{AttemptView, ExecutionView, LogLineView, Nothing, Page};
use crate::api::read_duration;
use crate::client::{Client, Reply};

/// The first pause between two looks at a run that is waited for; each one is longer, up to the second.
const POLL_FIRST: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);

/// The columns of a listing of executions.
pub const HEADER: [&str; 7] = ["EXECUTION", "TASK", "SLOT", "STATUS", "ATTEMPTS", "LAG", "REASON"];

/// Runs the command.
pub async fn command(command: RunCommand, client: &Client, out: &Out) -> Result<(), CliError> {
    match command {
        RunCommand::List { job, status, from, to, paging } => {
            let mut query = paging.query();
            query.extend(
                [("status", status), ("from", from), ("to", to)]
                    .into_iter()
                    .filter_map(|(name, value)| value.map(|value| (name, value))),
            );
            let reply: Reply<Page<ExecutionView>> = match &job {
                Some(job) => client.get(&["v1", "jobs", job, "executions"], &query).await?,
                None => client.get(&["v1", "executions"], &query).await?,
            };
            listing(out, &reply, &HEADER, row, "there are no executions")
        }
        RunCommand::Show { id } => print(&client.get(&["v1", "executions", &id], &[]).await?, out),
        RunCommand::Logs { id, follow: true } => follow(&id, client, out).await,
        RunCommand::Logs { id, follow: false } => {
            logs(&client.get(&["v1", "executions", &id, "logs"], &[]).await?, out)
        }
        RunCommand::Redrive { id } => {
            let reply: Reply<ExecutionView> =
                client.post(&["v1", "executions", &id, "redrive"], &serde_json::json!({}), None).await?;
            print(&reply, out)
        }
        RunCommand::Cancel { id, idempotency_key, wait } => {
            cancel(&id, idempotency_key.as_deref(), wait, client, out).await
        }
        RunCommand::Wait { id, timeout } => {
            let timeout = timeout.as_deref().map(|text| read_duration("--timeout", text)).transpose()?;
            let ended = wait(&id, timeout, client, out).await?;
            print(&ended, out)?;
            verdict(&ended.value)
        }
    }
}

async fn cancel(id: &str, key: Option<&str>, waits: bool, client: &Client, out: &Out) -> Result<(), CliError> {
    let mut reply: Reply<ExecutionView> = client.post(&["v1", "executions", id, "cancel"], &Nothing {}, key).await?;
    if waits {
        reply = wait(id, None, client, out).await?;
    }
    print(&reply, out)?;
    match reply.value.status.as_str() {
        "CANCELLED" => Ok(()),
        status if is_over(status) => {
            Err(CliError::failed(format!("{id} was {status} before it stopped")).after_result())
        }
        _ => {
            out.say(&format!("{id} still runs and is told to stop; `compline run wait {id}` tells how it ends"));
            Ok(())
        }
    }
}

/// One line of a listing.
pub fn row(execution: &ExecutionView) -> Vec<String> {
    let last = execution.attempts.last();
    vec![
        execution.execution_id.clone(),
        execution.task.as_ref().map(|task| task.name.clone()).unwrap_or_default(),
        execution.slot.clone(),
        execution.status.clone(),
        execution.attempts.len().to_string(),
        last.and_then(|attempt| attempt.start_lag_ms).map(|lag| format!("{lag}ms")).unwrap_or_default(),
        execution.reason.clone().unwrap_or_default(),
    ]
}

/// Prints an execution with its attempts.
pub fn print(reply: &Reply<ExecutionView>, out: &Out) -> Result<(), CliError> {
    if out.format() != OutputFormat::Table {
        return out.line(&reply.text);
    }
    let execution = &reply.value;
    let task = execution.task.as_ref().map(|task| format!("{} {}", task.name, task.digest));
    out.fields(&[
        ("execution", execution.execution_id.clone()),
        ("job", execution.job_id.clone()),
        ("task", task.unwrap_or_default()),
        ("slot", execution.slot.clone()),
        ("status", execution.status.clone()),
        ("due", execution.due_at.clone().unwrap_or_default()),
        ("reason", execution.reason.as_deref().map(printable).unwrap_or_default()),
        ("output", execution.output.as_ref().map(|output| output.get().to_owned()).unwrap_or_default()),
    ])?;
    if execution.attempts.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let header = ["ATTEMPT", "NODE", "STARTED", "LAG", "OUTCOME", "WALL", "FUEL", "MEMORY"];
    out.table(&header, execution.attempts.iter().map(attempt_row).collect(), "")?;
    for attempt in &execution.attempts {
        let Some(outcome) = &attempt.outcome else { continue };
        if !outcome.backtrace.is_empty() {
            out.line(&format!("\nattempt {} broke at", attempt.number))?;
            outcome.backtrace.iter().try_for_each(|frame| out.line(&format!("  {}", printable(frame))))?;
        }
    }
    Ok(())
}

fn attempt_row(attempt: &AttemptView) -> Vec<String> {
    let outcome = attempt.outcome.as_ref().map(|outcome| match (&outcome.message, outcome.code) {
        (Some(message), _) => format!("{}: {message}", outcome.kind),
        (None, Some(code)) => format!("{} {code}", outcome.kind),
        (None, None) => outcome.kind.clone(),
    });
    let cost = attempt.cost.as_ref();
    vec![
        attempt.number.to_string(),
        attempt.node.clone(),
        attempt.started_at.clone().unwrap_or_default(),
        attempt.start_lag_ms.map(|lag| format!("{lag}ms")).unwrap_or_default(),
        outcome.unwrap_or_default(),
        cost.map(|cost| format!("{}ms", cost.wall_ms)).unwrap_or_default(),
        cost.map(|cost| cost.fuel.to_string()).unwrap_or_default(),
        cost.map(|cost| cost.memory_peak_bytes.to_string()).unwrap_or_default(),
    ]
}

fn logs(reply: &Reply<Page<LogLineView>>, out: &Out) -> Result<(), CliError> {
    match out.format() {
        OutputFormat::Json => out.line(&reply.text),
        OutputFormat::Jsonl | OutputFormat::Table => reply.value.items.iter().try_for_each(|line| log_line(line, out)),
    }
}

fn log_line(line: &LogLineView, out: &Out) -> Result<(), CliError> {
    match out.format() {
        OutputFormat::Json | OutputFormat::Jsonl => out.json(line),
        OutputFormat::Table => out.line(&format!("{} {:5} {}", line.attempt, line.level, printable(&line.message))),
    }
}

/// Prints lines as they come, one JSON document each if JSON is asked for, until the execution is over.
async fn follow(id: &str, client: &Client, out: &Out) -> Result<(), CliError> {
    let (mut printed, mut pause) = (0, POLL_FIRST);
    loop {
        // Asked before the lines are read, so that none of the last is missed.
        let execution: Reply<ExecutionView> = client.get(&["v1", "executions", id], &[]).await?;
        let lines: Reply<Page<LogLineView>> = client.get(&["v1", "executions", id, "logs"], &[]).await?;
        lines.value.items.iter().skip(printed).try_for_each(|line| log_line(line, out))?;
        printed = printed.max(lines.value.items.len());
        if is_over(&execution.value.status) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Waits until an execution is over.
pub async fn wait(
    id: &str,
    timeout: Option<Duration>,
    client: &Client,
    out: &Out,
) -> Result<Reply<ExecutionView>, CliError> {
    let spinner = out.spinner(id);
    let ended = async {
        let mut pause = POLL_FIRST;
        loop {
            let reply: Reply<ExecutionView> = client.get(&["v1", "executions", id], &[]).await?;
            if is_over(&reply.value.status) {
                return Ok(reply);
            }
            spinner.set_message(format!("{id} {}", reply.value.status));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    };
    let waited = match timeout {
        None => Ok(ended.await),
        Some(timeout) => tokio::time::timeout(timeout, ended).await,
    };
    spinner.finish_and_clear();
    waited.unwrap_or_else(|_| {
        Err(CliError::failed(format!("{id} was not over in time"))
            .with_hint("it goes on; `compline run show` tells how it stands"))
    })
}

fn is_over(status: &str) -> bool {
    matches!(status, "COMPLETED" | "FAILED" | "CANCELLED" | "SKIPPED")
}

/// A run that did not complete makes its command fail, once it is printed.
pub fn verdict(execution: &ExecutionView) -> Result<(), CliError> {
    if execution.status == "COMPLETED" {
        return Ok(());
    }
    let reason = execution.reason.as_deref().map(printable).unwrap_or_default();
    let kind =
        execution.attempts.last().and_then(|attempt| attempt.outcome.as_ref()).map(|outcome| outcome.kind.as_str());
    let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
    let detail = format!("{} is {}{kind}: {reason}", execution.execution_id, execution.status);
    Err(CliError::failed(detail).after_result())
}
