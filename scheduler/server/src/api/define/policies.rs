//! The rules of a job about its slots: late ones, overlapping ones, spread ones, and those outside its bounds.

use std::num::NonZeroU32;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::job::{Bounds, LATE_GRACE, Misfire, MisfirePolicy, Overlap};
use compline_core::schedule::Schedule;
use compline_core::schedule::zone::Zone;
use compline_core::time::{duration, instant};
use compline_core::timetable::Timetable;

use super::{cron_refusal, instant_refusal, one_of, read_duration};
use crate::api::dto::{JobRequest, MisfireBody};
use crate::passes::overlap::LIVE_MAX;
use crate::refusal::Refusal;

/// The most late slots of one job that may run after an outage.
const MISFIRE_CAP_MAX: u32 = 100_000;

/// A job's rules about its slots.
#[derive(Debug, Clone, Copy)]
pub struct Policies {
    /// What happens to late ones.
    pub misfire: Misfire,
    /// What happens to a slot while earlier executions are live.
    pub overlap: Overlap,
    /// The window over which starts are spread.
    pub splay: Duration,
    /// From when, until when and how often it runs.
    pub bounds: Bounds,
}

/// What a request says about them, before its schedule is known.
pub(super) struct Asked {
    misfire: Misfire,
    overlap: Overlap,
    splay: Duration,
    starts_at: Option<String>,
    ends_at: Option<String>,
    max_runs: Option<u64>,
}

/// Reads what needs no schedule.
pub(super) fn read(request: &JobRequest) -> Result<Asked, Refusal> {
    let splay = request.splay.as_deref().map(|text| read_duration("splay", text)).transpose()?;
    Ok(Asked {
        misfire: read_misfire(request.misfire.as_ref())?,
        overlap: read_overlap(request.overlap.as_deref(), request.max_concurrent)?,
        splay: splay.unwrap_or_default(),
        starts_at: request.starts_at.clone(),
        ends_at: request.ends_at.clone(),
        max_runs: request.max_runs,
    })
}

impl Asked {
    /// Reads the rest. Local times are read in the zone of the schedule if that names one.
    pub(super) fn for_schedule(self, schedule: &Schedule, names_zone: bool) -> Result<Policies, Refusal> {
        let Self { misfire, overlap, splay, starts_at, ends_at, max_runs } = self;
        if matches!(schedule, Schedule::Now) && !splay.is_zero() {
            return Err(Refusal::new("splay", "a `NOW` job runs at once, and nothing can be spread")
                .hint("leave it out, or use `ONCE` or `CRON`"));
        }
        let Schedule::Cron { zone, .. } = schedule else {
            let given =
                [("starts_at", starts_at.is_some()), ("ends_at", ends_at.is_some()), ("max_runs", max_runs.is_some())];
            return match given.iter().find(|(_, given)| *given) {
                Some((field, _)) => {
                    Err(Refusal::new(*field, "only a `CRON` schedule has more than one slot to choose from")
                        .hint("leave it out (in an edit: `null`)"))
                }
                None => Ok(Policies { misfire, overlap, splay, bounds: Bounds::default() }),
            };
        };
        let zone = names_zone.then_some(*zone);
        let read = |field: &str, text: Option<String>| text.map(|text| read_instant(field, &text, zone)).transpose();
        let bounds = Bounds { starts_at: read("starts_at", starts_at)?, ends_at: read("ends_at", ends_at)?, max_runs };
        if max_runs == Some(0) {
            return Err(Refusal::new("max_runs", "0 runs are no job").hint("leave it out for no limit"));
        }
        if let (Some(start), Some(end)) = (bounds.starts_at, bounds.ends_at)
            && end < start
        {
            let detail = format!("{} is before `starts_at`, {}", instant::format(*end), instant::format(*start));
            return Err(
                Refusal::new("ends_at", detail).hint("give an instant after the start, or leave one of them out")
            );
        }
        Ok(Policies { misfire, overlap, splay, bounds })
    }
}

impl Policies {
    /// Refuses a job that would have nothing to do: a `ONCE` so far in the past that its misfire rule drops it, a cron expression whose last
    /// instant is over, and one without a slot within its bounds. A `ONCE` in the past within that rule runs at once.
    pub(super) fn check_first(&self, job: JobId, schedule: &Schedule, now: Timestamp) -> Result<(), Refusal> {
        let table = Timetable { job, schedule, bounds: self.bounds, splay: self.splay, taken: &[] };
        match (schedule, table.first(now)) {
            (Schedule::Cron { expr, .. }, None) => {
                let unbounded = Timetable { bounds: Bounds::default(), ..table };
                Err(match unbounded.first(now) {
                    None => cron_refusal("schedule.value", &expr.never_again()),
                    Some(_) => self.nothing_within(now),
                })
            }
            (Schedule::Once(at), _) => self.check_once(*at, now.saturating_since(table.due((*at).into()))),
            (Schedule::Now | Schedule::Cron { .. }, _) => Ok(()),
        }
    }

    fn nothing_within(&self, now: Timestamp) -> Refusal {
        let from = self.bounds.starts_at.filter(|start| *start > now);
        let until = self.bounds.ends_at.map(|end| instant::format(*end)).unwrap_or_default();
        let (field, detail) = match (from, self.bounds.ends_at) {
            (None, Some(end)) if end <= now => ("ends_at", format!("{until} is over")),
            (Some(start), None) => {
                ("starts_at", format!("the schedule has no slot from {} on", instant::format(*start)))
            }
            (Some(start), Some(_)) => (
                "ends_at",
                format!("the schedule has no slot from {} (`starts_at`) to {until}", instant::format(*start)),
            ),
            (None, _) => ("ends_at", format!("the schedule has no slot from now to {until}")),
        };
        Refusal::new(field, detail).hint("`compline schedule preview` shows the slots; move the bound, or leave it out")
    }

    fn check_once(&self, at: chrono::DateTime<chrono::Utc>, late: Duration) -> Result<(), Refusal> {
        let allowed = self.misfire.lateness_max();
        if late <= allowed {
            return Ok(());
        }
        let allowed = duration::format(allowed);
        let rule = match self.misfire.policy {
            MisfirePolicy::Skip => format!("`misfire.policy` `skip` drops what is over {allowed} late"),
            MisfirePolicy::RunAll | MisfirePolicy::RunLatest => {
                format!("a slot later than the misfire deadline ({allowed}) does not run")
            }
        };
        let late = duration::format(Duration::from_secs(late.as_secs()));
        Err(Refusal::new("schedule.value", format!("{} is over by {late}, and {rule}", instant::format(at)))
            .hint("give an instant to come, use {\"type\":\"NOW\"}, or raise `misfire.deadline`"))
    }
}

fn read_misfire(body: Option<&MisfireBody>) -> Result<Misfire, Refusal> {
    let (default, body) = (Misfire::default(), body.cloned().unwrap_or_default());
    let policy = match &body.policy {
        None => default.policy,
        Some(text) => {
            let word = one_of("misfire.policy", text, &MisfirePolicy::ALL.map(MisfirePolicy::as_str))?;
            MisfirePolicy::ALL.into_iter().find(|policy| policy.as_str() == word).unwrap_or(default.policy)
        }
    };
    let unused = |field: &str, why: String| {
        Err(Refusal::new(field, why).hint("leave it out (in an edit: `null`), or use `run_all`"))
    };
    if body.deadline.is_some() && policy == MisfirePolicy::Skip {
        let grace = duration::format(LATE_GRACE);
        return unused("misfire.deadline", format!("with `skip` no late slot runs, that is one over {grace} late"));
    }
    if body.cap.is_some() && policy != MisfirePolicy::RunAll {
        return unused("misfire.cap", format!("with `{}` there is nothing to cap", policy.as_str()));
    }
    let deadline = body.deadline.as_deref().map(|text| read_duration("misfire.deadline", text)).transpose()?;
    let cap = body.cap.unwrap_or(default.cap);
    if !(1..=MISFIRE_CAP_MAX).contains(&cap) {
        let detail = format!("{cap} is not from 1 to {MISFIRE_CAP_MAX}");
        return Err(Refusal::new("misfire.cap", detail)
            .hint("it is how many late slots run at most after an outage, the newest ones"));
    }
    Ok(Misfire { policy, deadline: deadline.unwrap_or(default.deadline), cap })
}

fn read_overlap(word: Option<&str>, max_concurrent: Option<u32>) -> Result<Overlap, Refusal> {
    let overlap = match one_of("overlap", word.unwrap_or("allow"), &Overlap::WORDS)? {
        "skip" => Overlap::Skip,
        "buffer_one" => Overlap::BufferOne,
        "buffer_all" => Overlap::BufferAll,
        "cancel_other" => Overlap::CancelOther,
        "terminate_other" => Overlap::TerminateOther,
        _ => Overlap::Allow,
    };
    let Some(max) = max_concurrent else { return Ok(overlap) };
    if overlap != Overlap::Allow {
        let detail = format!("with `overlap` `{}` one execution is live at a time", overlap.as_str());
        return Err(
            Refusal::new("max_concurrent", detail).hint("leave it out (in an edit: `null`), or use `overlap` `allow`")
        );
    }
    match NonZeroU32::new(max).filter(|max| max.get() <= LIVE_MAX) {
        Some(max) => Ok(Overlap::AllowUpTo(max)),
        None => Err(Refusal::new("max_concurrent", format!("{max} is not from 1 to {LIVE_MAX}"))
            .hint("leave it out for any number")),
    }
}

fn read_instant(field: &str, text: &str, zone: Option<Zone>) -> Result<Timestamp, Refusal> {
    instant::parse_in(text, zone).map(Timestamp::from).map_err(|wrong| instant_refusal(field, &wrong))
}
