//! Why a job's slots did or did not run, in words: executions, stretches of the ledger and changes by the job's owner, told as one story.
//!
//! Consecutive slots of one verdict are one line, so that a year of a minute job that was always on time is a line, not half a million. A slot
//! that a clock change has to do with stands alone, with its reason.

use std::time::Duration;

use crate::Timestamp;
use crate::execution::{Execution, State};
use crate::ids::JobId;
use crate::job::Bounds;
use crate::ledger::{Change, Mark, SkipReason, Stretch};
use crate::schedule::{Schedule, ScheduleError};
use crate::time::{duration, instant};
use crate::timetable::Timetable;

/// An execution that begins later than this after its promised start was late.
pub const LATE_FROM: Duration = Duration::from_secs(2);

/// Slots of stretches that are counted for one answer at the most: what bounds its cost.
pub const SLOTS_COUNTED_MAX: u64 = 100_000;

/// What became of a slot, or what happened between two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It ran when it should.
    Ran,
    /// It ran, and began late.
    Late,
    /// It ran, and failed for good.
    Failed,
    /// It waits or runs; the word is its state's.
    Open(&'static str),
    /// It was stopped.
    Cancelled,
    /// It did not run.
    Skipped(SkipReason),
    /// Not a slot: the job's owner did something.
    Change(&'static str),
}

/// Consecutive slots of one verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The first slot, or the moment of the change.
    pub first: Timestamp,
    /// The last slot.
    pub last: Timestamp,
    /// How many slots there are. 0: it is a change.
    pub slots: u64,
    /// Whether there are more of them than were counted.
    pub uncounted: bool,
    /// What became of them.
    pub verdict: Verdict,
    /// The longest that one of them began after its promised start.
    pub lag_max: Option<Duration>,
    /// More about it, in a sentence.
    pub detail: Option<String>,
    /// What a clock change has to do with it.
    pub note: Option<String>,
}

/// What is known about a stretch of a job's life, each part in order.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The job.
    pub job: JobId,
    /// Its schedule now.
    pub schedule: &'a Schedule,
    /// Executions by slot.
    pub executions: &'a [Execution],
    /// Stretches of slots without executions.
    pub stretches: &'a [Stretch],
    /// What its owner did, from the begin of the stretch of life until now.
    pub marks: &'a [Mark],
}

/// The story of `from..until`.
///
/// # Errors
/// If a schedule of an earlier time, which the ledger remembers, is no longer understood.
pub fn explain(facts: &Facts<'_>, from: Timestamp, until: Timestamp) -> Result<Vec<Line>, ScheduleError> {
    let epochs = Epochs::new(facts)?;
    let mut lines = Vec::new();
    for execution in facts.executions.iter().filter(|execution| (from..until).contains(&execution.slot)) {
        lines.push(of_execution(execution));
    }
    let mut left = SLOTS_COUNTED_MAX;
    for stretch in facts.stretches {
        lines.extend(of_stretch(facts, &epochs, stretch, (from, until), &mut left));
    }
    for mark in facts.marks.iter().filter(|mark| (from..until).contains(&mark.at)) {
        lines.push(of_mark(mark));
    }
    lines.sort_by_key(|line| (line.first, line.slots));
    let mut since = from;
    for line in lines.iter_mut().filter(|line| line.slots == 1) {
        line.note = epochs.at(line.first).fire(since.to_utc(), line.first.to_utc()).note;
        since = line.last;
    }
    Ok(merge(lines))
}

/// Joins neighbours of one verdict. Lines of two answers that follow one another can be joined the same way.
pub fn merge(lines: impl IntoIterator<Item = Line>) -> Vec<Line> {
    let mut merged: Vec<Line> = Vec::new();
    for line in lines {
        match merged.last_mut().filter(|last| is_one(last, &line)) {
            Some(last) => {
                last.last = line.last;
                last.slots += line.slots;
                last.uncounted |= line.uncounted;
                last.lag_max = last.lag_max.max(line.lag_max);
                if last.detail != line.detail {
                    last.detail = None;
                }
            }
            None => merged.push(line),
        }
    }
    merged
}

fn is_one(one: &Line, next: &Line) -> bool {
    one.verdict == next.verdict
        && one.slots > 0
        && one.note.is_none()
        && next.note.is_none()
        // Each failure has a reason of its own.
        && (one.detail == next.detail || matches!(one.verdict, Verdict::Skipped(_)))
}

/// By which schedule a time's slots are to be counted.
struct Epochs<'a> {
    now: &'a Schedule,
    /// Schedules of earlier times, with the instant at which each was replaced.
    before: Vec<(Timestamp, Schedule)>,
}

impl<'a> Epochs<'a> {
    fn new(facts: &Facts<'a>) -> Result<Self, ScheduleError> {
        let mut before = Vec::new();
        for mark in facts.marks {
            if let Change::Edited { schedule_before } = &mark.change {
                before.push((mark.at, schedule_before.parse()?));
            }
        }
        Ok(Self { now: facts.schedule, before })
    }

    fn at(&self, instant: Timestamp) -> &Schedule {
        self.before.iter().find(|(until, _)| instant < *until).map_or(self.now, |(_, schedule)| schedule)
    }
}

fn of_execution(execution: &Execution) -> Line {
    let mut started = execution.attempts.iter().filter_map(|attempt| Some((attempt.started_at?, attempt.due)));
    let lag = started.next().map(|(at, due)| at.saturating_since(due));
    let is_late = lag.is_some_and(|lag| lag > LATE_FROM);
    let (verdict, detail) = match &execution.state {
        State::Completed { .. } if is_late => (Verdict::Late, None),
        State::Completed { .. } => (Verdict::Ran, None),
        State::Failed { reason, .. } => (Verdict::Failed, Some(reason.clone())),
        State::Cancelled { reason, .. } => (Verdict::Cancelled, Some(reason.clone())),
        State::Skipped { reason, detail, .. } => (Verdict::Skipped(*reason), Some(detail.clone())),
        open @ (State::Pending { .. }
        | State::Owed(_)
        | State::Waiting { .. }
        | State::Queued(_)
        | State::Running(_)
        | State::Retrying { .. }) => (Verdict::Open(open.name()), None),
    };
    let slot = execution.slot;
    Line { first: slot, last: slot, slots: 1, uncounted: false, verdict, lag_max: lag, detail, note: None }
}

fn of_stretch(
    facts: &Facts<'_>,
    epochs: &Epochs<'_>,
    stretch: &Stretch,
    (from, until): (Timestamp, Timestamp),
    left: &mut u64,
) -> Option<Line> {
    let (from, until) = (stretch.from.max(from), stretch.until.min(until));
    let tick = Duration::from_nanos(1);
    let schedule = epochs.at(from);
    let table = Timetable { job: facts.job, schedule, bounds: Bounds::default(), splay: Duration::ZERO, taken: &[] };
    // A slot that has an execution speaks for itself: the one that was planned when a pause began, for instance.
    let has_execution = |slot: &Timestamp| facts.executions.binary_search_by_key(slot, |found| found.slot).is_ok();
    let slots = std::iter::successors(table.at_or_after(from), |slot| table.after(*slot));
    let first = slots.take_while(|slot| *slot < until).find(|slot| !has_execution(slot))?;
    let last = table.newest(from.saturating_sub(tick), until.saturating_sub(tick)).unwrap_or(first);
    let counted = std::iter::successors(Some(first), |slot| table.after(*slot));
    let slots =
        counted.take_while(|slot| *slot <= last).take(usize::try_from(*left).unwrap_or(usize::MAX)).count() as u64;
    *left -= slots;
    Some(Line {
        first,
        last,
        slots: slots.max(1),
        uncounted: *left == 0,
        verdict: Verdict::Skipped(stretch.reason),
        lag_max: None,
        detail: stretch.detail.clone(),
        note: None,
    })
}

fn of_mark(mark: &Mark) -> Line {
    let verdict = Verdict::Change(mark.change.word());
    let detail = match &mark.change {
        Change::Edited { schedule_before } => {
            let text = schedule_before.value.as_deref().unwrap_or(schedule_before.kind.name());
            let zone = schedule_before.time_zone.as_deref().map(|zone| format!(" in {zone}")).unwrap_or_default();
            Some(format!("until then its schedule was `{text}`{zone}"))
        }
        Change::Paused | Change::Resumed | Change::Deleted => None,
        Change::Rezoned { zones, slot_before } => {
            let before = instant::format(slot_before.to_utc());
            Some(format!("zone data {zones} came, and its next slot, until then {before}, was planned anew"))
        }
    };
    Line { first: mark.at, last: mark.at, slots: 0, uncounted: false, verdict, lag_max: None, detail, note: None }
}

impl Line {
    /// The line in words, its instants by the schedule's own clock and in UTC.
    pub fn words(&self, schedule: &Schedule) -> String {
        let at = |instant: Timestamp| {
            let local = schedule.fire(instant.to_utc(), instant.to_utc()).local;
            format!("{local} ({})", instant::format(instant.to_utc()))
        };
        let mut text = at(self.first);
        if self.slots > 1 {
            let more = if self.uncounted { "more than " } else { "" };
            text += &format!(" to {}, {more}{} slots", at(self.last), self.slots);
        }
        text += ": ";
        text += &self.verdict_words();
        for more in self.detail.iter().chain(&self.note) {
            text += "; ";
            text += more;
        }
        text
    }

    fn verdict_words(&self) -> String {
        // To the millisecond: more is noise to a reader.
        let lag = self.lag_max.map(|lag| Duration::from_millis(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)));
        let lag = lag.map_or_else(|| "at an unknown time".to_owned(), duration::format);
        match &self.verdict {
            Verdict::Ran => "ran on time".to_owned(),
            Verdict::Late if self.slots > 1 => format!("ran late, by up to {lag}"),
            Verdict::Late => format!("ran {lag} late"),
            Verdict::Failed => "ran and failed".to_owned(),
            Verdict::Open(state) => format!("has not ended: {state}"),
            Verdict::Cancelled => "was cancelled".to_owned(),
            Verdict::Skipped(reason) => format!("did not run: {}", reason.sentence()),
            Verdict::Change(what) => format!("the job was {what}"),
        }
    }
}

impl Verdict {
    /// The word that answers use.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Open(_) => "open",
            Self::Cancelled => "cancelled",
            Self::Skipped(_) => "skipped",
            Self::Change(what) => what,
        }
    }
}
