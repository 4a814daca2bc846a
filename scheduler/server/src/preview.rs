//! What a cron schedule will do: the same answer with and without a server.

use chrono::{DateTime, Utc};
use compline_core::schedule::zone::tzdb_version;
use compline_core::schedule::{ScheduleKind, ScheduleSpec};
use compline_core::time::instant;

use crate::api::dto::{FireView, PreviewRequest, PreviewView};
use crate::api::{cron_refusal, schedule_refusal};
use crate::refusal::{Refusal, quoted};

/// How many fires are shown if nobody says otherwise.
pub const COUNT_DEFAULT: u32 = 10;
/// The most fires that are shown.
pub const COUNT_MAX: u32 = 1_000;

/// The next fires strictly after the request's instant, or after `now`.
pub fn preview(request: PreviewRequest, now: DateTime<Utc>) -> Result<PreviewView, Refusal> {
    let PreviewRequest { cron, time_zone, after, count, gap, fold } = request;
    let count = count.unwrap_or(COUNT_DEFAULT);
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(Refusal::new("count", format!("{count} is not from 1 to {COUNT_MAX}")));
    }
    // Without a zone's name a local time is nobody's.
    let names_zone = time_zone.is_some();
    let spec = ScheduleSpec { kind: ScheduleKind::Cron, value: Some(cron.clone()), time_zone, gap, fold };
    let schedule = spec.parse().map_err(|error| {
        let mut refusal = schedule_refusal("", &error);
        if refusal.field == "value" {
            refusal.field = "cron".to_owned();
        }
        refusal
    })?;
    let compline_core::schedule::Schedule::Cron { expr, zone, .. } = &schedule else {
        return Err(Refusal::new("cron", "this is not a cron schedule"));
    };
    let after = match after {
        None => now,
        Some(text) => instant::parse_in(&text, names_zone.then_some(*zone)).map_err(|error| {
            Refusal::new("after", format!("{} is not an instant: {}", quoted(&error.text), error.detail))
                .hint(error.hint)
        })?,
    };
    let fires: Vec<FireView> = schedule
        .preview(after, count as usize)
        .into_iter()
        .map(|fire| FireView { at: instant::format(fire.at), local: fire.local, note: fire.note })
        .collect();
    if fires.is_empty() {
        return Err(cron_refusal("cron", &expr.never_again()));
    }
    Ok(PreviewView { cron, time_zone: zone.name().to_owned(), tzdb: tzdb_version().to_owned(), fires })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cron: &str) -> PreviewRequest {
        PreviewRequest { cron: cron.to_owned(), time_zone: None, after: None, count: None, gap: None, fold: None }
    }

    fn now() -> DateTime<Utc> {
        instant::parse("2026-03-07T12:00:00Z").unwrap()
    }

    #[test]
    fn the_documented_example_is_right() {
        let request =
            PreviewRequest { time_zone: Some("America/New_York".to_owned()), count: Some(1), ..request("30 2 * * *") };
        let view = preview(request, now()).unwrap();
        assert_eq!(
            serde_json::to_string(&view.fires).unwrap(),
            r#"[{"at":"2026-03-08T07:00:00Z","local":"2026-03-08T03:00:00-04:00","note":"02:30 does not exist that day; runs right after the jump"}]"#
        );
        assert_eq!((view.cron.as_str(), view.time_zone.as_str()), ("30 2 * * *", "America/New_York"));
    }

    #[test]
    fn refusals_name_the_flag_at_fault() {
        for (request, field) in [
            (request("61 * * * *"), "cron"),
            (request("0 0 0 1 1 * 2020"), "cron"),
            (PreviewRequest { time_zone: Some("Mars".into()), ..request("* * * * *") }, "time_zone"),
            (PreviewRequest { after: Some("yesterday".into()), ..request("* * * * *") }, "after"),
            (PreviewRequest { after: Some("2026-06-15T12:30:00".into()), ..request("* * * * *") }, "after"),
            (PreviewRequest { count: Some(0), ..request("* * * * *") }, "count"),
            (PreviewRequest { count: Some(1_001), ..request("* * * * *") }, "count"),
        ] {
            assert_eq!(preview(request, now()).unwrap_err().field, field);
        }
        let local = PreviewRequest {
            after: Some("2026-06-15T12:30:00".into()),
            time_zone: Some("America/New_York".into()),
            ..request("0 * * * *")
        };
        assert_eq!(preview(local, now()).unwrap().fires[0].at, "2026-06-15T17:00:00Z", "in the zone that is named");
        assert_eq!(
            preview(PreviewRequest { count: Some(1_000), ..request("* * * * *") }, now()).unwrap().fires.len(),
            1_000
        );
    }
}
