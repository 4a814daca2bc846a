//! From an edit to a whole request: what is not named stays, what is `null` has its default again, and the rest is read as strictly as a creation.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::body::unfit;
use super::dto::JobRequest;
use super::problem::{ApiError, Kind};
use crate::json;
use crate::refusal::Refusal;

/// Fields whose own fields are edited one by one.
const MERGED: [&str; 6] = ["schedule", "misfire", "retry", "limits", "on_failure", "labels"];

/// Fields with their JSON texts, so that what a user wrote keeps its digits.
type Fields = BTreeMap<String, Box<RawValue>>;

/// A request that is an edit of a stored definition.
pub struct Patched {
    /// The whole definition.
    pub request: JobRequest,
    /// Whether the edit names a task: its version is looked up anew then.
    pub names_task: bool,
    /// The same of the task that is told of failures.
    pub names_on_failure: bool,
}

/// Lays an edit over the request that a stored definition amounts to.
pub fn overlay(stored: &JobRequest, edit: &[u8]) -> Result<Patched, ApiError> {
    if edit.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::new(Kind::EmptyBody, "the body is empty, and a JSON object is expected"));
    }
    json::check_keys(edit).map_err(unfit)?;
    let not_an_object = |error: serde_json::Error| {
        ApiError::from(
            Refusal::new("(body)", format!("it is not an object: {error}")).hint("name the fields that change"),
        )
    };
    let edit: Fields = serde_json::from_slice(edit).map_err(not_an_object)?;
    if edit.contains_key("paused") {
        return Err(Refusal::new("paused", "an edit neither pauses a job nor resumes it")
            .hint("POST /v1/jobs/{id}/pause and /resume do")
            .into());
    }
    let whole = serde_json::to_string(stored).and_then(|text| serde_json::from_str(&text));
    let mut whole: Fields = whole.map_err(unreadable)?;
    let names_task = edit.contains_key("task");
    let names_on_failure =
        edit.get("on_failure").and_then(|text| object(text)).is_some_and(|fields| fields.contains_key("task"));
    for (name, value) in edit {
        let value = match whole.get(&name) {
            Some(before) if MERGED.contains(&name.as_str()) => merge(&name, before, value)?,
            _ => value,
        };
        whole.insert(name, value);
    }
    let text = serde_json::to_string(&whole).map_err(unreadable)?;
    let request = json::from_slice(text.as_bytes()).map_err(unfit)?;
    Ok(Patched { request, names_task, names_on_failure })
}

fn merge(name: &str, before: &RawValue, after: Box<RawValue>) -> Result<Box<RawValue>, ApiError> {
    let (Some(mut fields), Some(edited)) = (object(before), object(&after)) else { return Ok(after) };
    match name {
        // Another kind of schedule has nothing of the old one.
        "schedule" if edited.get("type").is_some_and(|kind| parsed(Some(kind)) != parsed(fields.get("type"))) => {
            return Ok(after);
        }
        "retry" => forget_other_rule(&mut fields, &edited),
        _ => {}
    }
    for (field, value) in edited {
        match fields.get(&field) {
            // A label has no default: without a value it is gone.
            _ if name == "labels" && is_null(&value) => {
                fields.remove(&field);
            }
            Some(before) if name == "retry" && field == "exponential" => {
                let value = merge(&field, before, value)?;
                fields.insert(field, value);
            }
            _ => {
                fields.insert(field, value);
            }
        }
    }
    to_raw_value(&fields).map_err(unreadable)
}

/// Takes out of the fields of `retry` what an edit puts another rule in place of. How many attempts there are belongs to the rule: a list says it
/// by its length.
fn forget_other_rule(fields: &mut Fields, edited: &Fields) {
    let names = |field: &str| edited.get(field).is_some_and(|value| !is_null(value));
    let is_exponential = fields.contains_key("exponential");
    if names("delays") || (names("exponential") && !is_exponential) {
        fields.remove("max_attempts");
    }
    if names("delays") {
        fields.remove("exponential");
    }
    if names("exponential") {
        fields.remove("delays");
    }
}

fn object(text: &RawValue) -> Option<Fields> {
    serde_json::from_str(text.get()).ok()
}

fn is_null(text: &RawValue) -> bool {
    text.get() == "null"
}

fn parsed(text: Option<impl AsRef<RawValue>>) -> Option<Value> {
    text.and_then(|text| serde_json::from_str(text.as_ref().get()).ok())
}

fn unreadable(error: serde_json::Error) -> ApiError {
    ApiError::new(Kind::Internal, format!("the stored definition has no JSON form: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> JobRequest {
        let text = r#"{"name":"n","task":"t","schedule":{"type":"CRON","value":"0 * * * *","time_zone":"UTC"},"parameters":{"big":12345678901234567890123},
            "misfire":{"policy":"run_all","deadline":"1h","cap":7},"labels":{"a":"1","b":"2"}}"#;
        json::from_slice(text.as_bytes()).unwrap()
    }

    fn edited(edit: &str) -> JobRequest {
        overlay(&stored(), edit.as_bytes())
            .map(|patched| patched.request)
            .unwrap_or_else(|error| panic!("{edit}: {error:?}"))
    }

    #[test]
    fn c57_what_is_absent_stays_and_what_is_null_has_its_default() {
        let same = edited("{}");
        assert_eq!(serde_json::to_string(&same).unwrap(), serde_json::to_string(&stored()).unwrap());
        assert_eq!(same.parameters.unwrap().get(), r#"{"big":12345678901234567890123}"#, "numbers keep their digits");
        let reset = edited(r#"{"name":null,"misfire":null,"labels":null,"parameters":null}"#);
        assert!(
            reset.name.is_none() && reset.misfire.is_none() && reset.labels.is_none() && reset.parameters.is_none()
        );
        let inner = edited(r#"{"misfire":{"cap":null},"labels":{"a":null,"c":"3"},"schedule":{"value":"5 * * * *"}}"#);
        let misfire = inner.misfire.unwrap();
        assert_eq!((misfire.cap, misfire.deadline.as_deref()), (None, Some("1h")));
        assert_eq!(inner.labels.unwrap().into_keys().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(inner.schedule.time_zone.as_deref(), Some("UTC"));
        let same_kind = edited(r#"{"schedule":{"type":"CRON","value":"5 * * * *"}}"#);
        assert_eq!(same_kind.schedule.time_zone.as_deref(), Some("UTC"));
        assert_eq!(edited(r#"{"schedule":{"type":"NOW"}}"#).schedule.value, None);
        assert!(overlay(&stored(), br#"{"task":"t"}"#).unwrap().names_task);
    }

    #[test]
    fn c57_an_edit_of_a_part_of_the_retries_keeps_the_rest_of_their_rule() {
        let list = r#"{"delays":["1s","2s"],"max_attempts":3}"#;
        let grows = r#"{"exponential":{"first":"1s","factor":3.0,"max":"9s","jitter":false},"max_attempts":7}"#;
        for (before, edit, want) in [
            (list, r#"{"max_attempts":5}"#, r#"{"delays":["1s","2s"],"max_attempts":5}"#),
            (list, r#"{"delays":["5s"]}"#, r#"{"delays":["5s"]}"#),
            (list, r#"{"exponential":{"first":"5s"}}"#, r#"{"exponential":{"first":"5s"}}"#),
            (list, r#"{"exponential":{},"max_attempts":2}"#, r#"{"exponential":{},"max_attempts":2}"#),
            (grows, r#"{"delays":["5s"]}"#, r#"{"delays":["5s"]}"#),
            (
                grows,
                r#"{"exponential":{"max":"1m","jitter":null}}"#,
                r#"{"exponential":{"first":"1s","factor":3.0,"max":"1m"},"max_attempts":7}"#,
            ),
            (grows, r#"{"exponential":null,"delays":[]}"#, r#"{"delays":[]}"#),
        ] {
            let mut stored = stored();
            stored.retry = Some(serde_json::from_str(before).unwrap());
            let edited = overlay(&stored, format!(r#"{{"retry":{edit}}}"#).as_bytes()).map(|patched| patched.request);
            let edited = edited.unwrap_or_else(|error| panic!("{edit}: {error:?}"));
            assert_eq!(edited.retry, Some(serde_json::from_str(want).unwrap()), "{before} {edit}");
        }
    }

    #[test]
    fn c57_an_edit_of_the_handlers_parameters_keeps_the_handler() {
        let mut stored = stored();
        stored.on_failure =
            Some(serde_json::from_str(r#"{"task":"n","parameters":{"big":12345678901234567890123}}"#).unwrap());
        let patch = |edit: &str| overlay(&stored, edit.as_bytes()).unwrap_or_else(|error| panic!("{edit}: {error:?}"));
        let other = patch(r#"{"on_failure":{"parameters":[1]}}"#);
        assert!(!other.names_on_failure, "its version stays");
        let handler = other.request.on_failure.unwrap();
        assert_eq!((handler.task.as_str(), handler.parameters.unwrap().get()), ("n", "[1]"));
        let other = patch(r#"{"on_failure":{"task":"m"}}"#);
        assert!(other.names_on_failure);
        let handler = other.request.on_failure.unwrap();
        assert_eq!(
            (handler.task.as_str(), handler.parameters.unwrap().get()),
            ("m", r#"{"big":12345678901234567890123}"#)
        );
        assert!(patch(r#"{"on_failure":null}"#).request.on_failure.is_none());
        assert!(
            overlay(&super::tests::stored(), br#"{"on_failure":{"parameters":1}}"#).is_err(),
            "there is none to edit"
        );
    }

    #[test]
    fn c57_a_typo_in_an_edit_is_refused_with_the_near_one() {
        for (edit, field, hint) in [
            (r#"{"schedul":null}"#, "schedul", Some("did you mean `schedule`?")),
            (r#"{"misfire":{"polcy":"skip"}}"#, "misfire.polcy", Some("did you mean `policy`?")),
            (r#"{"paused":true}"#, "paused", Some("POST /v1/jobs/{id}/pause and /resume do")),
            (r#"{"name":"a","name":"b"}"#, "name", Some("keep one of them")),
            (r#"{"task":null}"#, "task", None),
            ("[]", "(body)", Some("name the fields that change")),
        ] {
            let problem = overlay(&stored(), edit.as_bytes()).map(|_| ()).unwrap_err().problem();
            assert_eq!(
                (problem.status, problem.field.as_deref(), problem.hint.as_deref()),
                (422, Some(field), hint),
                "{edit}"
            );
        }
        assert_eq!(overlay(&stored(), b" ").map(|_| ()).unwrap_err().kind(), Kind::EmptyBody);
        assert_eq!(overlay(&stored(), b"{").map(|_| ()).unwrap_err().kind(), Kind::BrokenJson);
    }
}
