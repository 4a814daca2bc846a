//! From what the store holds to what answers show.

use compline_core::Timestamp;
use compline_core::execution::{Attempt, Cost, Execution, Outcome, Owed, State};
use compline_core::job::{Job, JobState, Misfire, MisfirePolicy, Overlap, TaskRef};
use compline_core::schedule::retry::RetryRule;
use compline_core::time::duration;
use compline_runtime::ComponentInfo;
use compline_store::tables::execution::LogLine;
use data_encoding::BASE64;
use serde_json::value::RawValue;

use super::dto::{
    AttemptView, CostView, DeadLetterView, ExecutionView, ExponentialBody, JobDefinition, JobListItem, JobRequest,
    JobView, LimitsBody, LogLineView, MisfireBody, OnFailureBody, OnFailureView, OutcomeView, RetryBody, ScheduleBody,
    TaskOfExecution, TaskOfJob, TaskVersionView, TaskView, instant,
};
use crate::ops::dead::Letter;
use crate::ops::query::{ExecutionSeen, JobSeen};
use crate::ops::tasks::{Found, LatePush};

/// An execution.
pub fn execution(seen: &ExecutionSeen) -> ExecutionView {
    let execution = &seen.execution;
    let task = match (&execution.instead, &seen.job) {
        (Some(instead), _) => Some(&instead.task),
        (None, Some(parsed)) => Some(&parsed.job.task),
        (None, None) => None,
    };
    let task = task.map(|task| TaskOfExecution { name: task.name.clone(), digest: task.digest.to_string() });
    let mut attempts: Vec<AttemptView> = execution.attempts.iter().map(attempt).collect();
    attempts.extend(running_attempt(execution));
    ExecutionView {
        execution_id: execution.id.to_string(),
        job_id: execution.job.to_string(),
        task,
        slot: instant(execution.slot),
        status: execution.state.name().to_owned(),
        due_at: due(&execution.state).map(instant),
        cancel_requested_at: match &execution.state {
            State::Running(running) => running.stop.as_ref().map(|stop| instant(stop.at)),
            _ => None,
        },
        attempts,
        output: execution.output.as_deref().and_then(bytes_as_json),
        reason: reason(&execution.state),
    }
}

fn due(state: &State) -> Option<Timestamp> {
    match state {
        State::Pending { due }
        | State::Owed(Owed { due, .. })
        | State::Waiting { due, .. }
        | State::Retrying { due } => Some(*due),
        _ => None,
    }
}

fn reason(state: &State) -> Option<String> {
    match state {
        State::Failed { reason, .. } | State::Cancelled { reason, .. } | State::Skipped { detail: reason, .. } => {
            Some(reason.clone())
        }
        State::Pending { .. }
        | State::Owed(_)
        | State::Waiting { .. }
        | State::Queued(_)
        | State::Running(_)
        | State::Retrying { .. }
        | State::Completed { .. } => None,
    }
}

fn attempt(attempt: &Attempt) -> AttemptView {
    AttemptView {
        number: attempt.number,
        node: attempt.node.clone(),
        fence: attempt.fence.to_string(),
        queued_at: instant(attempt.queued_at),
        started_at: attempt.started_at.map(instant),
        finished_at: Some(instant(attempt.finished_at)),
        start_lag_ms: attempt.started_at.map(|started| millis(started.saturating_since(attempt.due))),
        outcome: Some(outcome(&attempt.outcome)),
        cost: Some(cost(attempt.cost)),
    }
}

fn running_attempt(execution: &Execution) -> Option<AttemptView> {
    let State::Running(running) = &execution.state else { return None };
    Some(AttemptView {
        number: execution.attempt_number(),
        node: running.node.clone(),
        fence: running.fence.to_string(),
        queued_at: instant(running.queued_at),
        started_at: Some(instant(running.claimed_at)),
        finished_at: None,
        start_lag_ms: Some(millis(running.claimed_at.saturating_since(running.due))),
        outcome: None,
        cost: None,
    })
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A dead letter.
pub fn dead_letter(letter: &Letter) -> DeadLetterView {
    let Letter { lane, at, letter } = letter;
    let execution = &letter.execution;
    let attempts = execution.attempts.len() as u32;
    let line =
        |line: &LogLine| LogLineView { attempt: attempts, level: line.level.clone(), message: line.message.clone() };
    DeadLetterView {
        execution_id: execution.id.to_string(),
        job_id: execution.job.to_string(),
        job_name: letter.job_name.clone(),
        task: TaskOfExecution { name: letter.task.name.clone(), digest: letter.task.digest.to_string() },
        lane: lane.clone(),
        slot: instant(execution.slot),
        failed_at: instant(*at),
        kind: letter.kind.as_str().to_owned(),
        reason: reason(&execution.state).unwrap_or_default(),
        outcome: execution.attempts.last().map(|attempt| outcome(&attempt.outcome)),
        attempts,
        log_tail: letter.log_tail.iter().map(line).collect(),
    }
}

fn outcome(outcome: &Outcome) -> OutcomeView {
    let mut view = OutcomeView {
        kind: outcome.kind().to_owned(),
        retryable: None,
        message: None,
        backtrace: Vec::new(),
        code: None,
    };
    match outcome {
        Outcome::Error { retryable, message } => {
            view.retryable = Some(*retryable);
            view.message = Some(message.clone());
        }
        Outcome::Trap { message, backtrace } => {
            view.message = Some(message.clone());
            view.backtrace.clone_from(backtrace);
        }
        Outcome::HostError { message } => view.message = Some(message.clone()),
        Outcome::Exit { code } => view.code = Some(*code),
        Outcome::Ok
        | Outcome::OutOfFuel
        | Outcome::TimedOut
        | Outcome::MemoryLimit
        | Outcome::OutputLimit
        | Outcome::Cancelled
        | Outcome::WorkerLost => {}
    }
    view
}

fn cost(cost: Cost) -> CostView {
    CostView {
        fuel: cost.fuel,
        wall_ms: cost.wall_micros.div_ceil(1_000),
        memory_peak_bytes: cost.memory_peak_bytes,
        host_calls: cost.host_calls,
    }
}

/// A task's bytes in an answer: JSON as it is, other text as a string, other bytes in base 64. Nothing at all is `None`.
pub fn bytes_as_json(bytes: &[u8]) -> Option<Box<RawValue>> {
    if bytes.is_empty() {
        return None;
    }
    let json = match std::str::from_utf8(bytes) {
        Ok(text) => match serde_json::from_str::<Box<RawValue>>(text) {
            Ok(json) => return Some(json),
            Err(_) => serde_json::value::to_raw_value(text),
        },
        Err(_) => serde_json::value::to_raw_value(&serde_json::json!({ "base64": BASE64.encode(bytes) })),
    };
    json.ok()
}

/// A job with all that is known about it.
pub fn job(seen: &JobSeen, next_fires: &[Timestamp], recent: &[ExecutionSeen]) -> JobView {
    let paused = seen.state == JobState::Paused;
    JobView {
        job_id: seen.id.to_string(),
        state: seen.state_name().to_owned(),
        revision: seen.revision,
        created_at: instant(seen.parsed.job.created_at),
        definition: JobDefinition { paused, ..definition(&seen.parsed.job) },
        starts: seen.run.starts,
        finished_reason: seen.finished_reason().map(str::to_owned),
        tzdb: Some(seen.run.zones.as_str()).filter(|version| !version.is_empty()).map(str::to_owned),
        next_fires: next_fires.iter().copied().map(instant).collect(),
        recent_executions: recent.iter().map(execution).collect(),
    }
}

/// A job in a listing.
pub fn job_list_item(seen: &JobSeen) -> JobListItem {
    let job = &seen.parsed.job;
    JobListItem {
        job_id: seen.id.to_string(),
        name: job.name.clone(),
        state: seen.state_name().to_owned(),
        task: task_of_job(job),
        schedule: ScheduleBody::from(&job.schedule),
        lane: job.lane.clone(),
        labels: job.labels.clone(),
        created_at: instant(job.created_at),
        next_fire: seen.run.next.map(|next| instant(next.slot)),
    }
}

fn task_of_job(job: &Job) -> TaskOfJob {
    task_view(&job.task)
}

fn task_view(task: &TaskRef) -> TaskOfJob {
    TaskOfJob { name: task.name.clone(), reference: task.reference.clone(), digest: task.digest.to_string() }
}

/// The misfire rule: what its policy does not look at is left out.
fn misfire(misfire: &Misfire) -> MisfireBody {
    MisfireBody {
        policy: Some(misfire.policy.as_str().to_owned()),
        deadline: (misfire.policy != MisfirePolicy::Skip).then(|| duration::format(misfire.deadline)),
        cap: (misfire.policy == MisfirePolicy::RunAll).then_some(misfire.cap),
    }
}

fn definition(job: &Job) -> JobDefinition {
    let retry = match &job.retry {
        RetryRule::Delays(delays) => RetryBody {
            delays: Some(delays.iter().copied().map(duration::format).collect()),
            max_attempts: Some(job.retry.attempts_max()),
            ..RetryBody::default()
        },
        RetryRule::Exponential { first, factor, max, attempts, jitter } => RetryBody {
            exponential: Some(ExponentialBody {
                first: Some(duration::format(*first)),
                factor: Some(*factor),
                max: Some(duration::format(*max)),
                jitter: Some(*jitter),
            }),
            max_attempts: Some(*attempts),
            ..RetryBody::default()
        },
    };
    JobDefinition {
        name: job.name.clone(),
        task: task_of_job(job),
        schedule: ScheduleBody::from(&job.schedule),
        parameters: bytes_as_json(&job.parameters),
        lane: job.lane.clone(),
        misfire: misfire(&job.misfire),
        overlap: job.overlap.as_str().to_owned(),
        max_concurrent: match job.overlap {
            Overlap::AllowUpTo(max) => Some(max.get()),
            _ => None,
        },
        splay: duration::format(job.splay),
        starts_at: job.bounds.starts_at.map(instant),
        ends_at: job.bounds.ends_at.map(instant),
        max_runs: job.bounds.max_runs,
        retry,
        limits: LimitsBody {
            fuel: Some(job.limits.fuel),
            memory_bytes: Some(job.limits.memory_bytes),
            timeout: Some(duration::format(job.limits.timeout)),
        },
        on_failure: job.on_failure.as_ref().map(|handler| OnFailureView {
            task: task_view(&handler.task),
            parameters: bytes_as_json(&handler.parameters),
        }),
        labels: job.labels.clone(),
        paused: false,
    }
}

/// The request that a stored definition amounts to.
pub fn request(job: &Job) -> JobRequest {
    let JobDefinition {
        name,
        task,
        schedule,
        parameters,
        lane,
        mut misfire,
        overlap,
        max_concurrent,
        splay,
        starts_at,
        ends_at,
        max_runs,
        retry,
        limits,
        on_failure,
        labels,
        ..
    } = definition(job);
    // A default that nobody chose does not keep an edit from naming a policy that has no use for it.
    let default = Misfire::default();
    misfire.deadline = misfire.deadline.filter(|_| job.misfire.deadline != default.deadline);
    misfire.cap = misfire.cap.filter(|cap| *cap != default.cap);
    JobRequest {
        name,
        task: task.reference,
        schedule,
        parameters,
        lane: Some(lane),
        misfire: Some(misfire),
        overlap: Some(overlap),
        max_concurrent,
        splay: Some(splay),
        starts_at,
        ends_at,
        max_runs,
        retry: Some(retry),
        limits: Some(limits),
        on_failure: on_failure
            .map(|handler| OnFailureBody { task: handler.task.reference, parameters: handler.parameters }),
        labels: Some(labels),
        paused: None,
    }
}

/// A stored version of a task.
pub fn task(found: &Found) -> TaskView {
    let version = &found.version;
    TaskView {
        name: found.task.as_ref().map(|task| task.name.clone()),
        digest: version.digest.to_string(),
        status: "ready".to_owned(),
        reason: None,
        tags: found.tags(),
        size_bytes: version.size_bytes,
        kind: if version.is_command { "command" } else { "task" }.to_owned(),
        imports: version.imports.clone(),
        exports: version.exports.clone(),
        grants: version.grants.clone(),
        pushed_at: Some(instant(version.pushed_at)),
        parameters_schema: None,
        versions: Vec::new(),
    }
}

/// A stored version of a task, with its schema and its task's other versions.
pub fn task_in_full(found: &Found) -> TaskView {
    let schema = found.version.parameters_schema.as_ref();
    let tags_of = |digest| {
        let tags = found.task.iter().flat_map(|task| &task.tags);
        tags.filter(|(_, tagged)| **tagged == digest).map(|(tag, _)| tag.clone()).collect()
    };
    let versions = found.task.iter().flat_map(|task| &task.versions);
    TaskView {
        parameters_schema: schema.and_then(|text| serde_json::from_str(text).ok()),
        versions: versions
            .map(|(digest, at)| TaskVersionView {
                digest: digest.to_string(),
                tags: tags_of(*digest),
                pushed_at: instant(*at),
            })
            .collect(),
        ..task(found)
    }
}

/// A version that is not stored yet, or never will be.
pub fn pending_task(name: &str, info: &ComponentInfo, failed: Option<String>) -> TaskView {
    TaskView {
        name: Some(name.to_owned()),
        digest: info.digest.to_string(),
        status: if failed.is_some() { "refused" } else { "compiling" }.to_owned(),
        reason: failed,
        tags: Vec::new(),
        size_bytes: info.size_bytes,
        kind: match info.kind {
            compline_runtime::Kind::Task => "task",
            compline_runtime::Kind::Command => "command",
        }
        .to_owned(),
        imports: info.imports.clone(),
        exports: info.exports.clone(),
        grants: info.grants.clone(),
        pushed_at: None,
        parameters_schema: None,
        versions: Vec::new(),
    }
}

/// A push whose client was told to ask again.
pub fn late_push(push: &LatePush) -> TaskView {
    pending_task(&push.name, &push.info, push.failed.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_shown_as_what_it_is() {
        let shown = |bytes: &[u8]| bytes_as_json(bytes).map(|json| json.get().to_owned());
        assert_eq!(shown(b""), None);
        assert_eq!(shown(br#"{"b":1.0,"a":[]}"#).as_deref(), Some(r#"{"b":1.0,"a":[]}"#));
        assert_eq!(shown(b"done\n").as_deref(), Some(r#""done\n""#));
        assert_eq!(shown(b"\xff\x00").as_deref(), Some(r#"{"base64":"/wA="}"#));
    }
}
