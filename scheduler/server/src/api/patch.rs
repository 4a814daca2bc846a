//! From an edit to a whole request: what is not named stays, what is `null` has its default again, and the rest is read as strictly as a creation.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::body::unfit;
use super::dto::JobRequest;
use super::problem::{ApiError, Kind};
use crate::json;
use crate::refusal::Refusal;

/// Fields whose own fields are edited one by one.
const MERGED: [&str; 4] = ["schedule", "misfire", "limits", "labels"];

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
    let edit: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(edit).map_err(not_an_object)?;
    if edit.contains_key("paused") {
        return Err(Refusal::new("paused", "an edit neither pauses a job nor resumes it")
            .hint("POST /v1/jobs/{id}/pause and /resume do")
            .into());
    }
    let whole = serde_json::to_string(stored).and_then(|text| serde_json::from_str(&text));
    let mut whole: BTreeMap<String, Box<RawValue>> = whole.map_err(unreadable)?;
    let (names_task, names_on_failure) = (edit.contains_key("task"), edit.contains_key("on_failure"));
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
    let object = |text: &RawValue| match serde_json::from_str(text.get()) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    };
    let (Some(mut fields), Some(edited)) = (object(before), object(&after)) else { return Ok(after) };
    // Another kind of schedule has nothing of the old one.
    let other_kind = edited.get("type").is_some_and(|kind| Some(kind) != fields.get("type"));
    if name == "schedule" && other_kind {
        return Ok(after);
    }
    for (field, value) in edited {
        // A label has no default: without a value it is gone.
        if name == "labels" && value.is_null() {
            fields.remove(&field);
        } else {
            fields.insert(field, value);
        }
    }
    serde_json::value::to_raw_value(&fields).map_err(unreadable)
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
