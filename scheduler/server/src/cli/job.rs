//! `compline job`.

mod fields;
mod show;
mod update;

use serde::Serialize;

use self::show::{print, schedule, task_name};
use super::args::{JobActionArgs, JobCommand, JobCreateArgs, OutputFormat};
use super::out::Out;
use super::{CliError, listing, run};
use crate::api::dto::{
    BackfillRequest, BackfillView, ExecutionView, JobCreated, JobDeleted, JobListItem, JobView, LedgerItem, Nothing,
    Page,
};
use crate::client::{Client, Reply};

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
            let (id, revision, key) = (args.id.clone(), args.if_revision, args.idempotency_key.clone());
            let edit = update::edit(*args)?;
            let reply: Reply<JobView> = client.patch(&["v1", "jobs", &id], &edit, revision, key.as_deref()).await?;
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
    let request = fields::of_new(args)?;
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
