//! How late slots started, and when they may.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::nodes::{BEAT, SESSION_TTL};

/// A slot starts within this time.
const LAG_MAX_MS: i64 = 2_000;
/// So many slots are judged at least; a busy machine takes long to recover, and what is excused meanwhile proves nothing.
const JUDGED_MIN: usize = 100;
/// The longest run of those that are judged.
const RUN_MAX_MS: i64 = 1_000;

#[expect(clippy::disallowed_methods, reason = "the servers' clock, to which their slots are compared")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}

/// The stretches in which slots may start late: from each fault to when it is to be over.
#[derive(Default)]
pub struct Excuses(Vec<(DateTime<Utc>, DateTime<Utc>, String)>);

impl Excuses {
    pub fn add(&mut self, why: &str, from: DateTime<Utc>, until: DateTime<Utc>) {
        // What was due just before may not have started yet.
        self.0.push((from - TimeDelta::milliseconds(LAG_MAX_MS), until, why.to_owned()));
    }

    fn covers(&self, slot: DateTime<Utc>) -> bool {
        self.0.iter().any(|(from, until, _)| (*from..=*until).contains(&slot))
    }

    /// Every slot outside these stretches started in time; one whose worker was lost within the time that this may take.
    pub fn check(&self, title: &str, executions: &[Value]) {
        let (mut judged, mut worst, mut lost, mut worst_lost) = (0, 0, 0, 0);
        for execution in executions {
            let slot = instant(&execution["slot"]);
            let attempts = execution["attempts"].as_array().expect("attempts");
            let done = attempts.iter().find(|attempt| attempt["outcome"]["kind"] == "ok").expect("checked before");
            if self.covers(slot) {
                continue;
            }
            let lag = done["start_lag_ms"].as_i64().expect("a lag");
            let losses = attempts.len() as i64 - 1;
            let allowed = LAG_MAX_MS + losses * ((SESSION_TTL + BEAT * 2).as_millis() as i64 + RUN_MAX_MS + LAG_MAX_MS);
            assert!(
                lag < allowed,
                "{lag} ms late, and {allowed} is the most; excused was only {:?}: {execution}",
                self.0
            );
            if losses == 0 {
                (judged, worst) = (judged + 1, worst.max(lag));
            } else {
                (lost, worst_lost) = (lost + 1, worst_lost.max(lag));
            }
        }
        eprintln!(
            "{title}: {judged} of {} slots were to start in time, and did, the last {worst} ms late; {lost} were lost with their workers and \
             began again, the last {worst_lost} ms late",
            executions.len()
        );
        assert!(judged >= JUDGED_MIN, "only {judged} slots were outside of the excused stretches: {:?}", self.0);
    }
}

fn instant(value: &Value) -> DateTime<Utc> {
    value.as_str().and_then(|text| text.parse().ok()).expect("an instant")
}
