//! `compline dead`.

use super::args::{DeadCommand, DeadSelectionArgs, OutputFormat};
use super::out::{Out, printable};
use super::{CliError, listing};
use crate::api::dto::{DeadLetterView, DeadOutcome, DeadSelection, Page};
use crate::client::{Client, Reply};
use crate::refusal::Refusal;

/// Runs the command.
pub async fn command(command: DeadCommand, client: &Client, out: &Out) -> Result<(), CliError> {
    match command {
        DeadCommand::List { lane, job, paging } => {
            let mut query = paging.query();
            query.extend(lane.map(|lane| ("lane", lane)));
            query.extend(job.map(|job| ("job", job)));
            let reply: Reply<Page<DeadLetterView>> = client.get(&["v1", "dead"], &query).await?;
            listing(out, &reply, &HEADER, row, "there are no dead letters")
        }
        DeadCommand::Redrive { selection, per_second } => {
            let selection = DeadSelection { per_second, ..select(selection)? };
            let reply: Reply<DeadOutcome> = client.post(&["v1", "dead:redrive"], &selection, None).await?;
            report(&reply, "redriven", out)
        }
        DeadCommand::Drop { selection } => {
            let reply: Reply<DeadOutcome> = client.post(&["v1", "dead:drop"], &select(selection)?, None).await?;
            report(&reply, "dropped", out)
        }
    }
}

const HEADER: [&str; 8] = ["EXECUTION", "JOB", "TASK", "LANE", "FAILED AT", "KIND", "ATTEMPTS", "REASON"];

fn row(letter: &DeadLetterView) -> Vec<String> {
    vec![
        letter.execution_id.clone(),
        letter.job_name.clone().unwrap_or_else(|| letter.job_id.clone()),
        letter.task.name.clone(),
        letter.lane.clone(),
        letter.failed_at.clone(),
        letter.kind.clone(),
        letter.attempts.to_string(),
        letter.reason.clone(),
    ]
}

fn select(args: DeadSelectionArgs) -> Result<DeadSelection, CliError> {
    let DeadSelectionArgs { ids, lane, job, all, limit } = args;
    if ids.is_empty() && lane.is_none() && job.is_none() && !all {
        return Err(Refusal::new("ID", "nothing says which dead letters are meant")
            .hint("name executions, or give --lane, --job or --all")
            .into());
    }
    Ok(DeadSelection {
        executions: (!ids.is_empty()).then_some(ids),
        lane,
        job,
        all: all.then_some(true),
        limit,
        per_second: None,
    })
}

fn report(reply: &Reply<DeadOutcome>, done: &str, out: &Out) -> Result<(), CliError> {
    let outcome = &reply.value;
    if out.format() == OutputFormat::Table {
        out.line(&format!("{} {done}", outcome.done))?;
        if let Some(last) = &outcome.last_due_at
            && outcome.done > 1
        {
            out.say(&format!("the last of them is due at {last}"));
        }
        for refusal in &outcome.refused {
            out.say(&format!("{}: {}", refusal.execution_id, printable(&refusal.reason)));
        }
    } else {
        out.line(&reply.text)?;
    }
    if outcome.more {
        out.say("there are more: repeat the command for them");
    }
    match outcome.refused.len() {
        0 => Ok(()),
        refused => Err(CliError::failed(format!("{refused} could not be {done}")).after_result()),
    }
}
