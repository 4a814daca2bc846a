//! From a request to a job: every field checked, every default filled in.

mod after;
mod policies;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{JobId, TenantId};
use compline_core::job::{Job, OnFailure, RunLimits, TaskRef};
use compline_core::schedule::cron::CronError;
use compline_core::schedule::retry::RetryRule;
use compline_core::schedule::{Schedule, ScheduleError, ScheduleKind, ScheduleSpec};
use compline_core::time::duration;
use compline_core::time::instant::{self, InstantError};
use serde_json::value::RawValue;

use self::after::{OnFailureChecked, read_on_failure, read_retry};
pub use self::policies::Policies;
use super::dto::{JobRequest, LimitsBody, ScheduleBody};
use crate::config::{Ceilings, LANE_DEFAULT};
use crate::refusal::{Refusal, near, quoted};
use crate::words::{self, LABEL_VALUE_CHARS_MAX, LABELS_MAX, TITLE_CHARS_MAX, TaskName};

/// The least memory that an attempt can be given: one page.
const MEMORY_BYTES_MIN: u64 = 64 << 10;

/// A request whose fields are all sound.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The task as its owner named it.
    pub task: TaskName,
    /// The parameters' JSON text; empty if there are none.
    pub parameters: Bytes,
    /// What runs when an execution has failed for good.
    pub on_failure: Option<OnFailureChecked>,
    reference: String,
    name: Option<String>,
    spec: ScheduleSpec,
    schedule: Schedule,
    lane: String,
    policies: Policies,
    retry: RetryRule,
    limits: RunLimits,
    labels: BTreeMap<String, String>,
    paused: bool,
}

/// What only the server knows about a job to be.
#[derive(Debug, Clone)]
pub struct Birth {
    /// Its identifier.
    pub id: JobId,
    /// Its owner.
    pub tenant: TenantId,
    /// The version that its task means.
    pub task: TaskRef,
    /// The version that its `on_failure.task` means.
    pub on_failure: Option<TaskRef>,
    /// The instant of its creation.
    pub now: Timestamp,
}

impl Checked {
    /// Checks everything that needs neither the store nor the time.
    pub fn read(request: JobRequest, ceilings: &Ceilings) -> Result<Self, Refusal> {
        let rules = policies::read(&request)?;
        let JobRequest { name, task, schedule, parameters, lane, retry, limits, on_failure, labels, paused, .. } =
            request;
        let name = name.filter(|name| !name.is_empty());
        if let Some(name) = &name {
            words::title("name", name, TITLE_CHARS_MAX)?;
        }
        let lane = lane.unwrap_or_else(|| LANE_DEFAULT.to_owned());
        words::lane("lane", &lane)?;
        let (spec, schedule) = read_schedule(schedule)?;
        let policies = rules.for_schedule(&schedule, spec.time_zone.is_some())?;
        let checked = Self {
            task: TaskName::parse("task", &task)?,
            reference: task,
            name,
            spec,
            schedule,
            parameters: read_parameters("parameters", parameters, ceilings)?,
            lane,
            policies,
            retry: read_retry(retry.unwrap_or_default())?,
            limits: read_limits(limits.unwrap_or_default(), ceilings)?,
            on_failure: on_failure.map(|body| read_on_failure(body, ceilings)).transpose()?,
            labels: read_labels(labels.unwrap_or_default())?,
            paused: paused.unwrap_or_default(),
        };
        checked.check_lifetime(ceilings)?;
        if checked.paused && checked.spec.kind == ScheduleKind::Now {
            return Err(Refusal::new(
                "paused",
                "a job that runs at once can't begin paused: a resume fires nothing that is over",
            )
            .hint("give it a schedule to come, and trigger it when you want a run"));
        }
        Ok(checked)
    }

    /// Whether its schedule rests until it is resumed.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// The schedule, as a row keeps it.
    pub fn spec(&self) -> &ScheduleSpec {
        &self.spec
    }

    /// The task's name as its owner wrote it.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Refuses a schedule that is over: an edit runs no slot of the past.
    pub fn check_to_come(&self, job: JobId, now: Timestamp) -> Result<(), Refusal> {
        match &self.schedule {
            Schedule::Once(at) if Timestamp::from(*at) <= now => Err(Refusal::new(
                "schedule.value",
                format!("{} is over, and an edit runs no slot that is", instant::format(*at)),
            )
            .hint("give an instant to come, or trigger the job")),
            Schedule::Now | Schedule::Once(_) | Schedule::Cron { .. } => self.check_ahead(job, now),
        }
    }

    /// Refuses a job that would have nothing to do, see [`Policies::check_first`].
    pub fn check_ahead(&self, job: JobId, now: Timestamp) -> Result<(), Refusal> {
        self.policies.check_first(job, &self.schedule, now)
    }

    /// The job.
    pub fn into_job(self, birth: Birth) -> Job {
        let Policies { misfire, overlap, splay, bounds } = self.policies;
        Job {
            id: birth.id,
            tenant: birth.tenant,
            name: self.name,
            task: birth.task,
            schedule: self.spec,
            parameters: self.parameters,
            lane: self.lane,
            misfire,
            overlap,
            splay,
            bounds,
            retry: self.retry,
            limits: self.limits,
            on_failure: birth.on_failure.map(|task| OnFailure {
                task,
                parameters: self.on_failure.map(|checked| checked.parameters).unwrap_or_default(),
            }),
            labels: self.labels,
            created_at: birth.now,
        }
    }

    fn check_lifetime(&self, ceilings: &Ceilings) -> Result<(), Refusal> {
        let attempts = self.limits.timeout.saturating_mul(self.retry.attempts_max());
        let late = self.policies.misfire.lateness_max().saturating_add(self.policies.splay);
        let lifetime = late.saturating_add(self.retry.span_max()).saturating_add(attempts);
        if lifetime < ceilings.lifetime {
            return Ok(());
        }
        let detail = format!(
            "`splay`, `misfire.deadline`, `retry` and the `limits.timeout` of each attempt together may take {}, and an execution is kept for {} (the \
             server's `retention.age`)",
            duration::format(lifetime),
            duration::format(ceilings.lifetime)
        );
        let half = ceilings.lifetime / 2;
        let field = match &self.policies {
            policies if policies.splay > half => "splay",
            policies if policies.misfire.deadline > half => "misfire.deadline",
            _ => "retry.delays",
        };
        Err(Refusal::new(field, detail).hint(
            "shorten `splay`, `misfire.deadline`, `retry.delays` or `limits.timeout`, or let the server keep history for longer",
        ))
    }
}

fn read_schedule(body: ScheduleBody) -> Result<(ScheduleSpec, Schedule), Refusal> {
    let spec = ScheduleSpec::from(body);
    let schedule = spec.parse().map_err(|error| schedule_refusal("schedule.", &error))?;
    // An instant is kept in UTC: what was meant must not move when zone data changes. Cron keeps the user's words.
    let spec = if spec.kind == ScheduleKind::Once { ScheduleSpec::from(&schedule) } else { spec };
    Ok((spec, schedule))
}

/// A refused schedule, with its fields below `prefix`.
pub fn schedule_refusal(prefix: &str, error: &ScheduleError) -> Refusal {
    let field = format!("{prefix}{}", error.field());
    match error {
        ScheduleError::Cron(cron) => cron_refusal(&field, cron),
        ScheduleError::Instant(wrong) => instant_refusal(&field, wrong),
        ScheduleError::Zone(_) | ScheduleError::Missing { .. } | ScheduleError::Unused { .. } => {
            let text = error.to_string();
            match text.split_once("; ") {
                Some((detail, hint)) => Refusal::new(field, detail).hint(hint),
                None => Refusal::new(field, text),
            }
        }
    }
}

fn instant_refusal(field: &str, wrong: &InstantError) -> Refusal {
    Refusal::new(field, format!("{} is not an instant: {}", quoted(&wrong.text), wrong.detail)).hint(&wrong.hint)
}

/// A refused cron text.
pub fn cron_refusal(field: &str, error: &CronError) -> Refusal {
    Refusal::new(field, format!("{}: {}", error.field, error.detail)).hint(&error.hint)
}

fn read_parameters(field: &str, parameters: Option<Box<RawValue>>, ceilings: &Ceilings) -> Result<Bytes, Refusal> {
    let Some(parameters) = parameters else { return Ok(Bytes::new()) };
    let text = parameters.get();
    if text.len() > ceilings.parameters_bytes {
        let detail = format!("they are {} bytes, and at most {} are kept", text.len(), ceilings.parameters_bytes);
        return Err(Refusal::new(field, detail).hint("store the data elsewhere and pass a reference to it"));
    }
    Ok(Bytes::copy_from_slice(text.as_bytes()))
}

fn read_limits(body: LimitsBody, ceilings: &Ceilings) -> Result<RunLimits, Refusal> {
    let default = RunLimits::default();
    let fuel = body.fuel.unwrap_or(default.fuel);
    within("limits.fuel", fuel, 1, ceilings.fuel)?;
    let memory_bytes = read_memory("limits.memory_bytes", body.memory_bytes, ceilings.memory_bytes)?;
    let timeout = match &body.timeout {
        Some(text) => read_duration("limits.timeout", text)?,
        None => default.timeout,
    };
    if timeout < Duration::from_millis(1) || timeout > ceilings.timeout {
        let detail = format!("{} is not from 1ms to {}", duration::format(timeout), duration::format(ceilings.timeout));
        return Err(Refusal::new("limits.timeout", detail).hint("leave it out for 30s"));
    }
    Ok(RunLimits { fuel, memory_bytes, timeout })
}

/// The memory of an attempt: the default unless given.
pub fn read_memory(field: &str, given: Option<u64>, max: u64) -> Result<u64, Refusal> {
    let memory_bytes = given.unwrap_or(RunLimits::default().memory_bytes);
    within(field, memory_bytes, MEMORY_BYTES_MIN, max)?;
    Ok(memory_bytes)
}

fn within(field: &str, value: u64, min: u64, max: u64) -> Result<(), Refusal> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Refusal::new(field, format!("{value} is not from {min} to {max}")).hint("leave it out for the default"))
}

fn read_labels(labels: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    if labels.len() > LABELS_MAX {
        return Err(Refusal::new("labels", format!("there are {}, and at most {LABELS_MAX} are kept", labels.len())));
    }
    for (key, value) in &labels {
        let field = format!("labels.{}", key.chars().take(80).collect::<String>());
        words::label(&field, key)?;
        words::title(&field, value, LABEL_VALUE_CHARS_MAX)?;
    }
    Ok(labels)
}

/// Reads a duration, and names the field if it is none.
pub fn read_duration(field: &str, text: &str) -> Result<Duration, Refusal> {
    duration::parse(text).map_err(|error| {
        Refusal::new(field, format!("{} is not a duration: {}", quoted(&error.text), error.detail)).hint(error.hint)
    })
}

/// Reads one of a closed set of words.
pub fn one_of<'a>(field: &str, text: &str, known: &[&'a str]) -> Result<&'a str, Refusal> {
    known.iter().find(|word| **word == text).copied().ok_or_else(|| {
        let hint = match near(text, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("use one of {}", known.join(", ")),
        };
        Refusal::new(field, format!("{} is not known here", quoted(text))).hint(hint)
    })
}

#[cfg(test)]
mod tests;
