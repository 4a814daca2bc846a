//! What a cron schedule does where a zone's clock is put forward or back.
//!
//! The default is cronie's rule. A *fixed* schedule (no `*` at the start of its second, minute or hour field) runs once for every
//! wall-clock time it names: a time inside a skipped stretch right after the jump, a time inside a repeated stretch in the first pass.
//! A *wildcard* schedule follows real time: nothing is made up, nothing is left out. A jump of three hours or more is a change of
//! calendar (the date line), and times inside it are dropped.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::civil::DAY;
use super::cron::CronExpr;
use super::zone::{Segment, Zone};

/// Two clock changes further apart than this know nothing of each other: no jump is longer than a day.
const REACH: i64 = 2 * DAY;

/// What becomes of a time that the clock skips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// It runs once, at the first instant after the jump; all times of one jump together give one run.
    Shift,
    /// It does not run.
    Skip,
}

/// In which pass of a repeated stretch a time runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// The first pass only, also when asked from between the two.
    First,
    /// The last pass only.
    Last,
    /// Both passes.
    Both,
}

/// A walk over the fires of one expression in one zone.
pub(super) struct Walk<'a> {
    expr: &'a CronExpr,
    zone: Zone,
    gap: Gap,
    fold: Fold,
}

impl<'a> Walk<'a> {
    /// A policy that is not given is the default of the expression's kind.
    pub(super) fn new(expr: &'a CronExpr, zone: Zone, gap: Option<Gap>, fold: Option<Fold>) -> Self {
        let (default_gap, default_fold) =
            if expr.is_wildcard() { (Gap::Skip, Fold::Both) } else { (Gap::Shift, Fold::First) };
        Self { expr, zone, gap: gap.unwrap_or(default_gap), fold: fold.unwrap_or(default_fold) }
    }

    /// The first fire at or after `from`, in UTC seconds since 1970.
    pub(super) fn at_or_after(&self, from: i64) -> Option<i64> {
        let mut from = from;
        loop {
            let segment = self.zone.segment(from);
            let reached = match self.in_stretches(segment, from) {
                ControlFlow::Break(fire) => return fire,
                ControlFlow::Continue(reached) => reached,
            };
            // The stretches looked through reach far enough that a later one shows no wall-clock time before this one's again. So only
            // times from here on matter, and the walk may jump to the next of them.
            let next = self.expr.local_at_or_after(from + segment.offset)?;
            from = reached.max(next - REACH);
        }
    }

    /// Looks through the stretches that begin within [`REACH`], the first of them from `from` on. Breaks with the answer, or continues
    /// with the instant up to which there is no fire.
    fn in_stretches(&self, first: Segment, from: i64) -> ControlFlow<Option<i64>, i64> {
        let horizon = from + REACH;
        let (mut segment, mut from) = (first, from);
        loop {
            if from == segment.start && self.makes_up(segment) {
                return ControlFlow::Break(Some(from));
            }
            let fire = self.in_segment(segment, from);
            if fire.is_some() || segment.end == Segment::OPEN_END {
                return ControlFlow::Break(fire);
            }
            if segment.end >= horizon {
                return ControlFlow::Continue(segment.end);
            }
            from = segment.end;
            segment = self.zone.segment(from);
        }
    }

    /// The first fire of its own (not a made-up one) from `from` on, inside the stretch.
    fn in_segment(&self, segment: Segment, from: i64) -> Option<i64> {
        let mut local = from + segment.offset;
        loop {
            local = self.expr.local_at_or_after(local)?;
            let utc = local - segment.offset;
            if utc >= segment.end {
                return None;
            }
            let passed_over = match self.fold {
                Fold::Both => None,
                Fold::First => self.seen_until(segment, local),
                Fold::Last => self.repeated_until(segment, local),
            };
            match passed_over {
                None => return Some(utc),
                Some(until) => local = until,
            }
        }
    }

    /// Whether a time inside the jump at the start of a stretch runs at the jump's end.
    fn makes_up(&self, segment: Segment) -> bool {
        let Some(skipped) = segment.made_up().filter(|_| self.gap == Gap::Shift) else { return false };
        let mut local = skipped.start;
        let before = self.zone.segment(segment.start - 1);
        while let Some(due) = self.expr.local_at_or_after(local).filter(|due| *due < skipped.end) {
            // A jump that undoes a repetition of minutes ago skips times that have already run.
            match self.seen_until(before, due) {
                None => return true,
                Some(until) => local = until,
            }
        }
        false
    }

    /// If the wall clock already showed `local` before `segment`, or jumped over it there with a made-up run: the end of that stretch.
    fn seen_until(&self, segment: Segment, local: i64) -> Option<i64> {
        let horizon = (local - segment.offset).min(segment.end) - REACH;
        let mut segment = segment;
        while segment.start > horizon {
            let earlier = self.zone.segment(segment.start - 1);
            if let Some(skipped) =
                segment.made_up().filter(|skipped| self.gap == Gap::Shift && skipped.contains(&local))
            {
                return Some(skipped.end);
            }
            let shown = earlier.start.saturating_add(earlier.offset)..earlier.end + earlier.offset;
            if shown.contains(&local) {
                return Some(shown.end);
            }
            segment = earlier;
        }
        None
    }

    /// If the wall clock will show `local` again after `segment`: the end of what will be repeated.
    fn repeated_until(&self, segment: Segment, local: i64) -> Option<i64> {
        let horizon = local - segment.offset + REACH;
        let mut end = segment.end;
        while end < horizon {
            let later = self.zone.segment(end);
            let until = later.end.saturating_add(later.offset);
            if (later.start + later.offset..until).contains(&local) {
                return Some(until.min(segment.end + segment.offset));
            }
            end = later.end;
        }
        None
    }
}
