//! What follows when an execution has failed for good: it is listed as failed, laid down as a dead letter of its lane, and the task that its
//! job names for this is planned. All in the transaction that ends it, so that each happens once per failure.

use bytes::Bytes;
use compline_core::execution::{Cause, Execution, Instead, Outcome, State};
use compline_core::ids::{ExecutionId, RequestId};
use compline_core::job::OnFailure;
use compline_store::tables::bell::Bell;
use compline_store::tables::dead::{self, DeadKind, DeadLetter, Place};
use compline_store::tables::execution::{self, LogLine};
use compline_store::tables::history;
use compline_store::tables::queue::{self, ByTime, Due};
use compline_store::{StoreError, Tx};
use serde_json::json;
use serde_json::value::RawValue;

use crate::ctx::ParsedJob;

/// How many of the last lines of a failed attempt are kept with its dead letter.
const LOG_TAIL_LINES: usize = 20;
/// How much of each of them.
const LOG_TAIL_LINE_BYTES: usize = 1_000;

/// Writes all that follows from the failure of `failed`, which is in state `FAILED` and written by the caller. `log` is what its last attempt
/// said; empty if its worker was lost.
pub(super) fn record_failure(
    tx: &Tx,
    parsed: &ParsedJob,
    failed: &Execution,
    log: &[LogLine],
) -> Result<(), StoreError> {
    let State::Failed { at, .. } = &failed.state else { return Ok(()) };
    let job = &parsed.job;
    history::add_failed(tx, &job.tenant, failed);
    let letter = DeadLetter {
        tenant: job.tenant.clone(),
        job_name: job.name.clone(),
        task: failed.task(job).clone(),
        kind: kind(failed),
        execution: failed.clone(),
        log_tail: tail(log),
    };
    dead::put(tx, &Place { lane: job.lane.clone(), at: *at }, &letter)?;
    match &job.on_failure {
        // What was itself run because of a failure tells nobody: one failure must not set off another without end.
        Some(handler) if !matches!(failed.cause, Cause::Failure { .. }) => plan_handler(tx, parsed, handler, &letter),
        Some(_) | None => Ok(()),
    }
}

/// Why this execution failed for good.
fn kind(failed: &Execution) -> DeadKind {
    match failed.attempts.last().map(|attempt| &attempt.outcome) {
        Some(Outcome::WorkerLost) => DeadKind::Poison,
        Some(outcome) if !outcome.may_retry() => DeadKind::Permanent,
        Some(_) | None => DeadKind::Exhausted,
    }
}

fn tail(log: &[LogLine]) -> Vec<LogLine> {
    let skipped = log.len().saturating_sub(LOG_TAIL_LINES);
    let cut = |line: &LogLine| {
        let end = line.message.floor_char_boundary(LOG_TAIL_LINE_BYTES);
        LogLine { level: line.level.clone(), message: line.message[..end].to_owned() }
    };
    log[skipped..].iter().map(cut).collect()
}

fn plan_handler(tx: &Tx, parsed: &ParsedJob, handler: &OnFailure, letter: &DeadLetter) -> Result<(), StoreError> {
    let failed = &letter.execution;
    let State::Failed { at, .. } = failed.state else { return Ok(()) };
    let request = RequestId::of_failure(failed.id, failed.attempts.len() as u32);
    let id = ExecutionId::of_request(failed.job, failed.slot, failed.id.shard(), request, at);
    let mut planned = Execution::planned(id, failed.job, failed.slot, at, Cause::Failure { of: failed.id });
    planned.instead = Some(Box::new(Instead { task: handler.task.clone(), input: input(handler, letter) }));
    execution::put(tx, &planned)?;
    execution::add_open(tx, id.shard(), id.bucket_hour(), 1);
    history::add(tx, &parsed.job.tenant, &planned);
    ByTime::Due.put(tx, &Due { at: queue::due_instant(at), execution: id, job: failed.job })?;
    Bell::Shard(id.shard()).ring(tx);
    Ok(())
}

/// What the task is handed: the failure, and what the job says beside it.
fn input(handler: &OnFailure, letter: &DeadLetter) -> Bytes {
    let failed = &letter.execution;
    let (failed_at, reason) = match &failed.state {
        State::Failed { at, reason } => (Some(at.to_string()), Some(reason.as_str())),
        _ => (None, None),
    };
    let outcome = failed.attempts.last().map(|attempt| {
        let (message, code) = match &attempt.outcome {
            Outcome::Error { message, .. } | Outcome::Trap { message, .. } | Outcome::HostError { message } => {
                (Some(message.as_str()), None)
            }
            Outcome::Exit { code } => (None, Some(*code)),
            _ => (None, None),
        };
        json!({ "kind": attempt.outcome.kind(), "message": message, "code": code })
    });
    let log_tail: Vec<_> =
        letter.log_tail.iter().map(|line| json!({ "level": line.level, "message": line.message })).collect();
    let failure = json!({
        "execution_id": failed.id.to_string(),
        "job_id": failed.job.to_string(),
        "job_name": letter.job_name,
        "task": { "name": letter.task.name, "digest": letter.task.digest.to_string() },
        "slot": failed.slot.to_string(),
        "failed_at": failed_at,
        "kind": letter.kind.as_str(),
        "reason": reason,
        "attempts": failed.attempts.len(),
        "outcome": outcome,
        "log_tail": log_tail,
    });
    // The parameters are JSON text that was checked when the job was created; they go through as they are, big numbers too.
    let parameters: Option<&RawValue> = serde_json::from_slice(&handler.parameters).ok();
    let parameters = parameters.map_or("null", RawValue::get);
    Bytes::from(format!("{{\"failure\":{failure},\"parameters\":{parameters}}}"))
}
