//! `compline job`.

mod update;

use std::collections::BTreeMap;

use compline_core::schedule::ScheduleKind;
use serde::Serialize;

use super::args::{JobActionArgs, JobCommand, JobCreateArgs, OutputFormat};
use super::out::Out;
use super::{CliError, input, listing, run};
use crate::api::dto::{
    BackfillRequest, BackfillView, ExecutionView, ExponentialBody, JobCreated, JobDefinition, JobDeleted, JobListItem,
    JobRequest, JobView, LedgerItem, LimitsBody, MisfireBody, Nothing, OnFailureBody, Page, RetryBody, ScheduleBody,
};
use crate::client::{Client, Reply};
use crate::refusal::{Refusal, quoted};

/// What `job create --wait` prints.
#[derive(Serialize)]
struct Waited<'a> {
    job_id: &'a str,
    next_fires: &'a [String],
    execution: &'a ExecutionView,
}

/// Runs the command.
pub async fn command(command: JobCommand, client: &Client, out: &Out) -> Result<(), CliError> {
    match command {
        JobCommand::Create(args) => create(*args, client, out).await,
        JobCommand::Show { id } => {
            let reply: Reply<JobView> = client.get(&["v1", "jobs", &id], &[]).await?;
            print(&reply, out)
        }
        JobCommand::Explain { id, from, to } => explain(&id, from, to, client, out).await,
        JobCommand::Update(args) => {
            let (id, revision) = (args.id.clone(), args.if_revision);
            let edit = update::edit(*args)?;
            let reply: Reply<JobView> = client.patch(&["v1", "jobs", &id], &edit, revision).await?;
            print(&reply, out)
        }
        JobCommand::Pause(action) => act(&action, "pause", client, out).await,
        JobCommand::Resume(action) => act(&action, "resume", client, out).await,
        JobCommand::Trigger { action, wait } => trigger(&action, wait, client, out).await,
        JobCommand::Backfill { action, from, to } => backfill(&action, from, to, client, out).await,
        JobCommand::Delete { id, stop_running } => {
            let query = stop_running.then(|| ("running", "stop".to_owned()));
            let reply: Reply<JobDeleted> = client.delete(&["v1", "jobs", &id], query.as_slice()).await?;
            let deleted = &reply.value;
            fields(
                out,
                &reply.text,
                &[
                    ("job", deleted.job_id.clone()),
                    ("state", deleted.state.clone()),
                    ("cancelled", deleted.cancelled.to_string()),
                    ("stopping", deleted.stopping.to_string()),
                ],
            )
        }
        JobCommand::List { status, labels, paging } => {
            let mut query = paging.query();
            query.extend(status.map(|status| ("status", status)));
            query.extend(labels.into_iter().map(|label| ("label", label)));
            let reply: Reply<Page<JobListItem>> = client.get(&["v1", "jobs"], &query).await?;
            let row = |job: &JobListItem| {
                vec![
                    job.job_id.clone(),
                    job.name.clone().unwrap_or_default(),
                    task_name(&job.task.reference, &job.task.digest),
                    schedule(&job.schedule),
                    job.state.clone(),
                    job.next_fire.clone().unwrap_or_default(),
                ]
            };
            listing(out, &reply, &["JOB", "NAME", "TASK", "SCHEDULE", "STATE", "NEXT"], row, "there are no jobs")
        }
    }
}

/// Prints the whole story, page by page.
async fn explain(
    id: &str,
    from: Option<String>,
    to: Option<String>,
    client: &Client,
    out: &Out,
) -> Result<(), CliError> {
    let mut cursor = None;
    let mut told = false;
    loop {
        let mut query = vec![("limit", "1000".to_owned())];
        for (name, value) in [("from", &from), ("to", &to), ("cursor", &cursor)] {
            query.extend(value.clone().map(|value| (name, value)));
        }
        let reply: Reply<Page<LedgerItem>> = client.get(&["v1", "jobs", id, "ledger"], &query).await?;
        for item in &reply.value.items {
            told = true;
            match out.format() {
                OutputFormat::Table => out.line(&item.words)?,
                OutputFormat::Json | OutputFormat::Jsonl => out.json(item)?,
            }
        }
        cursor = reply.value.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !told {
        out.say("no slot of the job lies in that time; --from and --to choose another one");
    }
    Ok(())
}

/// Fields for people, the answer as it came for programs.
fn fields(out: &Out, text: &str, fields: &[(&str, String)]) -> Result<(), CliError> {
    if out.format() == OutputFormat::Table { out.fields(fields) } else { out.line(text) }
}

async fn act(action: &JobActionArgs, verb: &str, client: &Client, out: &Out) -> Result<(), CliError> {
    let path = ["v1", "jobs", action.id.as_str(), verb];
    print(&client.post(&path, &Nothing {}, action.idempotency_key.as_deref()).await?, out)
}

async fn trigger(action: &JobActionArgs, wait: bool, client: &Client, out: &Out) -> Result<(), CliError> {
    let path = ["v1", "jobs", action.id.as_str(), "trigger"];
    let reply: Reply<ExecutionView> = client.post(&path, &Nothing {}, action.idempotency_key.as_deref()).await?;
    if reply.headers.contains_key("idempotent-replayed") {
        out.say("this key triggered the job before: nothing new was made");
    }
    if !wait {
        return run::print(&reply, out);
    }
    let ended = run::wait(&reply.value.execution_id, None, client, out).await?;
    run::print(&ended, out)?;
    run::verdict(&ended.value)
}

async fn backfill(
    action: &JobActionArgs,
    from: String,
    to: String,
    client: &Client,
    out: &Out,
) -> Result<(), CliError> {
    let path = ["v1", "jobs", action.id.as_str(), "backfill"];
    let body = BackfillRequest { from, to };
    let reply: Reply<BackfillView> = client.post(&path, &body, action.idempotency_key.as_deref()).await?;
    let filled = &reply.value;
    fields(
        out,
        &reply.text,
        &[
            ("job", filled.job_id.clone()),
            ("executions", filled.executions.to_string()),
            ("first slot", filled.first_slot.clone().unwrap_or_default()),
            ("last slot", filled.last_slot.clone().unwrap_or_default()),
        ],
    )
}

async fn create(args: JobCreateArgs, client: &Client, out: &Out) -> Result<(), CliError> {
    let (wait, key) = (args.wait, args.idempotency_key.clone());
    let request = request(args)?;
    let reply: Reply<JobCreated> = client.post(&["v1", "jobs"], &request, key.as_deref()).await?;
    if reply.headers.contains_key("idempotent-replayed") {
        out.say("this key created the job before: nothing new was made");
    }
    if !wait {
        return match out.format() {
            OutputFormat::Table => created(&reply.value, out),
            OutputFormat::Json | OutputFormat::Jsonl => out.line(&reply.text),
        };
    }
    let job = &reply.value.job_id;
    out.say(&format!("created {job}"));
    let first = first_execution(&reply.value, client).await?;
    let ended = run::wait(&first, None, client, out).await?;
    match out.format() {
        OutputFormat::Table => run::print(&ended, out)?,
        OutputFormat::Json | OutputFormat::Jsonl => {
            let JobCreated { job_id, next_fires } = &reply.value;
            out.json(&Waited { job_id, next_fires, execution: &ended.value })?;
        }
    }
    run::verdict(&ended.value)
}

fn created(job: &JobCreated, out: &Out) -> Result<(), CliError> {
    let mut fields = vec![("job", job.job_id.clone())];
    fields.extend(
        job.next_fires.iter().enumerate().map(|(index, fire)| (if index == 0 { "fires" } else { "" }, fire.clone())),
    );
    out.fields(&fields)
}

/// The first execution that a new job plans.
async fn first_execution(job: &JobCreated, client: &Client) -> Result<String, CliError> {
    let from = job.next_fires.first().cloned().unwrap_or_default();
    let path = ["v1", "jobs", job.job_id.as_str(), "executions"];
    let query = [("from", from), ("limit", "1000".to_owned())];
    let reply: Reply<Page<ExecutionView>> = client.get(&path, &query).await?;
    let first = reply.value.items.into_iter().next_back();
    first
        .map(|execution| execution.execution_id)
        .ok_or_else(|| CliError::failed("the job has no execution to wait for"))
}

fn request(args: JobCreateArgs) -> Result<JobRequest, CliError> {
    let (kind, value) = match (args.at, args.cron) {
        (Some(at), _) => (ScheduleKind::Once, Some(at)),
        (None, Some(cron)) => (ScheduleKind::Cron, Some(cron)),
        (None, None) => (ScheduleKind::Now, None),
    };
    let schedule = ScheduleBody {
        kind,
        value,
        time_zone: args.tz,
        gap: args.gap.map(Into::into),
        fold: args.fold.map(Into::into),
    };
    let memory_bytes = args.memory.as_deref().map(|text| input::read_size("--memory", text)).transpose()?;
    let limits = LimitsBody { fuel: args.fuel, memory_bytes, timeout: args.timeout };
    let retry = retry(args.retry_delays.as_deref(), args.retry_exponential.as_deref(), args.max_attempts)?;
    let on_failure = match args.on_failure {
        None => None,
        Some(task) => {
            let parameters = args.on_failure_params.as_deref();
            let parameters = parameters.map(|text| input::read_json("--on-failure-params", text)).transpose()?;
            Some(OnFailureBody { task, parameters })
        }
    };
    let misfire = MisfireBody { policy: args.misfire, deadline: args.misfire_deadline, cap: args.misfire_cap };
    Ok(JobRequest {
        name: args.name,
        task: args.task,
        schedule,
        parameters: args.params.as_deref().map(|text| input::read_json("--params", text)).transpose()?,
        lane: args.lane,
        misfire: (misfire != MisfireBody::default()).then_some(misfire),
        overlap: args.overlap,
        max_concurrent: args.max_concurrent,
        splay: args.splay,
        starts_at: args.start,
        ends_at: args.end,
        max_runs: args.max_runs,
        retry,
        limits: (limits != LimitsBody::default()).then_some(limits),
        on_failure,
        labels: labels(&args.labels)?,
        paused: args.paused.then_some(true),
    })
}

fn retry(
    delays: Option<&str>,
    exponential: Option<&str>,
    max_attempts: Option<u32>,
) -> Result<Option<RetryBody>, CliError> {
    let delays = delays.map(delay_list);
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
    let body = RetryBody { delays, exponential, max_attempts };
    Ok((body != RetryBody::default()).then_some(body))
}

fn delay_list(text: &str) -> Vec<String> {
    match text.trim() {
        "none" | "" => Vec::new(),
        list => list.split(',').map(|delay| delay.trim().to_owned()).collect(),
    }
}

fn labels(texts: &[String]) -> Result<Option<BTreeMap<String, String>>, CliError> {
    let mut labels = BTreeMap::new();
    for text in texts {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            Refusal::new("--label", format!("{} has no `=`", quoted(text))).hint("write it like --label team=billing")
        })?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Refusal::new("--label", format!("{} is given twice", quoted(key))).into());
        }
    }
    Ok((!labels.is_empty()).then_some(labels))
}

fn task_name(reference: &str, digest: &str) -> String {
    if reference.starts_with("sha256:") { digest.chars().take(19).collect() } else { reference.to_owned() }
}

fn schedule(schedule: &ScheduleBody) -> String {
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

fn print(reply: &Reply<JobView>, out: &Out) -> Result<(), CliError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn body(words: &[&str]) -> Result<String, CliError> {
        let line = ["compline", "job", "create", "--task", "a"].iter().chain(words);
        let Command::Job(JobCommand::Create(args)) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        request(*args).map(|request| serde_json::to_string(&request).unwrap())
    }

    #[test]
    fn flags_become_the_body_and_what_is_not_given_is_left_out() {
        assert_eq!(body(&["--now"]).unwrap(), r#"{"task":"a","schedule":{"type":"NOW"}}"#);
        assert_eq!(
            body(&[
                "--cron",
                "0 10 * * *",
                "--tz",
                "UTC",
                "--params",
                r#"{"b":1,"a":2}"#,
                "--label",
                "team=x=y",
                "--memory",
                "1MiB",
                "--retry-delays",
                "10s, 1m",
                "--misfire-deadline",
                "5m"
            ])
            .unwrap(),
            r#"{"task":"a","schedule":{"type":"CRON","value":"0 10 * * *","time_zone":"UTC"},"parameters":{"b":1,"a":2},"misfire":{"deadline":"5m"},"retry":{"delays":["10s","1m"]},"limits":{"memory_bytes":1048576},"labels":{"team":"x=y"}}"#
        );
        assert!(body(&["--now", "--retry-delays", "none"]).unwrap().contains(r#""retry":{"delays":[]}"#));
    }

    #[test]
    fn clumsy_values_are_usage_errors() {
        for words in [["--params", "{a:1}"], ["--label", "team"], ["--memory", "lots"]] {
            assert_eq!(body(&["--now", words[0], words[1]]).unwrap_err().exit(), crate::cli::Exit::Usage);
        }
        assert!(body(&["--now", "--label", "a=1", "--label", "a=2"]).is_err());
    }
}
