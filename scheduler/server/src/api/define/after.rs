//! What happens after an attempt that failed, and after the last: the fields `retry` and `on_failure` of a job.

use std::time::Duration;

use bytes::Bytes;
use compline_core::schedule::retry::RetryRule;
use compline_core::time::duration;

use super::{read_duration, read_parameters};
use crate::api::dto::{ExponentialBody, OnFailureBody, RetryBody};
use crate::config::Ceilings;
use crate::refusal::Refusal;
use crate::words::TaskName;

/// How many attempts a job may ask for.
const ATTEMPTS_MAX: u32 = 21;
/// How many attempts there are under an exponential rule that does not say.
const EXPONENTIAL_ATTEMPTS: u32 = 4;
/// The first delay, the factor and the longest delay of an exponential rule that does not say.
const EXPONENTIAL_FIRST: Duration = Duration::from_secs(10);
const EXPONENTIAL_FACTOR: f64 = 2.0;
const EXPONENTIAL_MAX: Duration = Duration::from_secs(600);
/// No factor is larger: the delays reach their cap at once.
const FACTOR_MAX: f64 = 100.0;

/// What runs when an execution has failed for good, as its owner named it.
#[derive(Debug, Clone)]
pub struct OnFailureChecked {
    /// The task.
    pub task: TaskName,
    /// What the owner wrote for it.
    pub reference: String,
    /// What it is handed beside the failure.
    pub parameters: Bytes,
}

/// Reads `on_failure`.
pub(super) fn read_on_failure(body: OnFailureBody, ceilings: &Ceilings) -> Result<OnFailureChecked, Refusal> {
    Ok(OnFailureChecked {
        task: TaskName::parse("on_failure.task", &body.task)?,
        reference: body.task,
        parameters: read_parameters("on_failure.parameters", body.parameters, ceilings)?,
    })
}

/// Reads `retry`.
pub(super) fn read_retry(body: RetryBody) -> Result<RetryRule, Refusal> {
    let RetryBody { delays, exponential, max_attempts } = body;
    if let Some(attempts) = max_attempts
        && !(1..=ATTEMPTS_MAX).contains(&attempts)
    {
        return Err(Refusal::new("retry.max_attempts", format!("{attempts} is not from 1 to {ATTEMPTS_MAX}"))
            .hint("it counts all attempts; 1 means no retry"));
    }
    match (delays, exponential) {
        (Some(_), Some(_)) => Err(Refusal::new("retry.exponential", "`retry.delays` says already how long to wait")
            .hint("keep one of the two")),
        (None, Some(body)) => read_exponential(&body, max_attempts.unwrap_or(EXPONENTIAL_ATTEMPTS)),
        (delays, None) => read_delays(delays, max_attempts),
    }
}

fn read_delays(delays: Option<Vec<String>>, max_attempts: Option<u32>) -> Result<RetryRule, Refusal> {
    let mut delays = match delays {
        None => match RetryRule::default() {
            RetryRule::Delays(delays) => delays,
            RetryRule::Exponential { .. } => Vec::new(),
        },
        Some(delays) => {
            if delays.len() >= ATTEMPTS_MAX as usize {
                let detail =
                    format!("{} retries are asked for, and at most {} are made", delays.len(), ATTEMPTS_MAX - 1);
                return Err(Refusal::new("retry.delays", detail).hint("leave some out"));
            }
            let read = |(index, text): (usize, &String)| read_duration(&format!("retry.delays[{index}]"), text);
            delays.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?
        }
    };
    if let Some(attempts) = max_attempts {
        let retries = attempts as usize - 1;
        match delays.last().copied() {
            // The last delay serves for the rest.
            Some(last) => delays.resize(retries, last),
            None if retries > 0 => {
                let detail = format!("{attempts} attempts need a delay between them, and `retry.delays` is empty");
                return Err(Refusal::new("retry.max_attempts", detail).hint("give `retry.delays`, such as [\"10s\"]"));
            }
            None => {}
        }
    }
    Ok(RetryRule::Delays(delays))
}

fn read_exponential(body: &ExponentialBody, attempts: u32) -> Result<RetryRule, Refusal> {
    let read = |field: &str, text: &Option<String>, default: Duration| match text {
        Some(text) => read_duration(field, text),
        None => Ok(default),
    };
    let first = read("retry.exponential.first", &body.first, EXPONENTIAL_FIRST)?;
    let max = read("retry.exponential.max", &body.max, EXPONENTIAL_MAX.max(first))?;
    if max < first {
        let detail = format!("{} is shorter than the first delay, {}", duration::format(max), duration::format(first));
        return Err(Refusal::new("retry.exponential.max", detail).hint("make it longer, or leave it out"));
    }
    let factor = body.factor.unwrap_or(EXPONENTIAL_FACTOR);
    if !(1.0..=FACTOR_MAX).contains(&factor) {
        return Err(Refusal::new("retry.exponential.factor", format!("{factor} is not from 1 to {FACTOR_MAX}"))
            .hint("each delay is so many times the one before; 2 doubles it"));
    }
    Ok(RetryRule::Exponential { first, factor, max, attempts, jitter: body.jitter.unwrap_or(true) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> Result<RetryRule, Refusal> {
        read_retry(serde_json::from_str(json).unwrap())
    }

    fn delays(json: &str) -> Vec<u64> {
        match rule(json).unwrap() {
            RetryRule::Delays(delays) => delays.iter().map(Duration::as_secs).collect(),
            RetryRule::Exponential { .. } => panic!("not a list"),
        }
    }

    #[test]
    fn the_number_of_attempts_cuts_the_list_or_repeats_its_end() {
        assert_eq!(delays("{}"), [10, 60, 600]);
        assert_eq!(delays(r#"{"max_attempts":1}"#), [0; 0]);
        assert_eq!(delays(r#"{"max_attempts":3}"#), [10, 60]);
        assert_eq!(delays(r#"{"delays":["1s"],"max_attempts":4}"#), [1, 1, 1]);
        assert_eq!(rule(r#"{"delays":[],"max_attempts":2}"#).unwrap_err().field, "retry.max_attempts");
        assert_eq!(rule(r#"{"max_attempts":0}"#).unwrap_err().field, "retry.max_attempts");
        assert_eq!(rule(r#"{"max_attempts":22}"#).unwrap_err().field, "retry.max_attempts");
    }

    #[test]
    fn an_exponential_rule_has_defaults_and_bounds() {
        let expected = RetryRule::Exponential {
            first: Duration::from_secs(10),
            factor: 2.0,
            max: Duration::from_secs(600),
            attempts: 4,
            jitter: true,
        };
        assert_eq!(rule(r#"{"exponential":{}}"#).unwrap(), expected);
        for (json, field) in [
            (r#"{"exponential":{},"delays":[]}"#, "retry.exponential"),
            (r#"{"exponential":{"factor":0.5}}"#, "retry.exponential.factor"),
            (r#"{"exponential":{"factor":1e9}}"#, "retry.exponential.factor"),
            (r#"{"exponential":{"first":"1m","max":"1s"}}"#, "retry.exponential.max"),
            (r#"{"exponential":{"first":"10"}}"#, "retry.exponential.first"),
        ] {
            assert_eq!(rule(json).unwrap_err().field, field, "{json}");
        }
    }
}
