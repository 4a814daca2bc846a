//! What a cron schedule does where a zone's clock is put forward or back.
//!
//! The default is cronie's rule. A *fixed* schedule (no `*` at the start of its second, minute or hour field) runs once for every
//! wall-clock time it names: a time inside a skipped stretch right after the jump, a time inside a repeated stretch in the first pass.
//! A *wildcard* schedule follows real time: nothing is made up, nothing is left out. A jump of three hours or more is a change of
//! calendar (the date line), and times inside it are dropped.

use serde::{Deserialize, Serialize};

use super::civil::DAY;
use super::cron::CronExpr;
use super::zone::{CYCLE, PERPETUAL_FROM, Segment, Zone};

/// No clock change reaches further than this, in wall-clock time: the longest one skipped a day. No zone has two changes within it, so
/// that each change can be looked at alone (a test of the zone data holds both).
pub(super) const REACH: i64 = 2 * DAY;

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
    pub(super) expr: &'a CronExpr,
    pub(super) zone: Zone,
    pub(super) gap: Gap,
    pub(super) fold: Fold,
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
        // What does not fire within a whole cycle of calendar and zone never fires: times that a zone always skips end here.
        let last = if self.expr.names_years() { i64::MAX } else { from.max(PERPETUAL_FROM) + CYCLE };
        let mut from = from;
        while from <= last {
            let segment = self.zone.segment(from);
            if from == segment.start && self.makes_up(segment) {
                return Some(from);
            }
            let fire = self.in_segment(segment, from);
            if fire.is_some() || segment.end == Segment::OPEN_END {
                return fire;
            }
            if segment.end - from <= REACH {
                // The change ahead may show times again that the wall clock has already passed.
                from = segment.end;
            } else {
                // It can't: only times that are still to come matter, and the walk may jump to the next of them.
                let next = self.expr.local_at_or_after(from + segment.offset)?;
                from = segment.end.max(next - REACH);
            }
        }
        None
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
                Fold::First => segment.repeats(),
                Fold::Last => self.zone.after(segment).and_then(|later| later.repeats()),
            };
            match passed_over.filter(|repeated| repeated.contains(&local)) {
                None => return Some(utc),
                Some(repeated) => local = repeated.end,
            }
        }
    }

    /// Whether a time inside the jump at the start of a stretch runs at the jump's end.
    fn makes_up(&self, segment: Segment) -> bool {
        let Some(skipped) = segment.made_up().filter(|_| self.gap == Gap::Shift) else { return false };
        self.expr.local_at_or_after(skipped.start).is_some_and(|due| due < skipped.end)
    }
}
