//! How far others' wall clocks are from this node's, and whose is wrong.
//!
//! Nothing is asked and nothing is answered: a beat carries its writer's wall clock, and every node reads every beat. Of a beat seen first by
//! this look, two things are certain. It was written before the look ended, so the writer's clock is ahead by at least what it said less what
//! this clock said then. And its commit was answered after the look before began, so the writer read its clock after that moment less the time
//! that the beat took, which the writer's next beat tells. Each beat thus gives an interval, about as wide as a beat is long; those of many beats
//! are all true at once, so what they have in common is narrow. Clocks that were set meanwhile leave nothing in common: older ones are forgotten.

use std::collections::VecDeque;
use std::time::Duration;

use compline_core::Timestamp;
use compline_store::tables::session::Beat;

/// How many beats are remembered: a minute's worth, in which clocks drift by a few milliseconds.
const KEPT_MAX: usize = 64;

/// How far a clock is ahead of another, in microseconds: somewhere between these two, which may be the ends of the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// At least so much.
    pub low: i64,
    /// At most so much.
    pub high: i64,
}

impl Offset {
    /// Of a clock from itself.
    pub const NONE: Self = Self { low: 0, high: 0 };

    /// The best guess, in milliseconds.
    pub fn millis(self) -> f64 {
        (self.low as f64 + self.high as f64) / 2_000.0
    }

    /// By how much the best guess may be wrong, in milliseconds.
    pub fn error_millis(self) -> f64 {
        (self.high as f64 - self.low as f64) / 2_000.0
    }

    /// What the clock is off by for certain, in either direction.
    pub fn certain(self) -> Duration {
        Duration::from_micros(self.low.max(self.high.saturating_neg()).max(0).unsigned_abs())
    }

    /// The offset of this clock from another that is itself off by `other`.
    pub fn from(self, other: Self) -> Self {
        Self { low: self.low.saturating_sub(other.high), high: self.high.saturating_sub(other.low) }
    }

    fn and(self, other: Self) -> Option<Self> {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        (both.low <= both.high).then_some(both)
    }
}

/// One look at all beats, by the observer's wall clock.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// When the look before this one began; `None`: this is the first.
    pub before_began: Option<Timestamp>,
    /// When this one ended.
    pub ended: Timestamp,
}

/// What the beats of one session said.
#[derive(Debug, Default)]
pub struct Samples {
    kept: VecDeque<Offset>,
    /// The last beat seen, and what its upper bound still lacks: how long it took.
    open: Option<(u64, Option<i64>)>,
}

impl Samples {
    /// Takes in a beat that no earlier look has seen.
    pub fn saw(&mut self, beat: &Beat, look: Look) {
        if let (Some((counter, Some(high))), Some(took)) = (self.open, beat.before_took_micros)
            && counter + 1 == beat.counter
            && let Some(last) = self.kept.back_mut()
        {
            last.high = high.saturating_add_unsigned(took);
        }
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        let wall = beat.wall.unix_micros_ceil();
        self.kept.push_back(Offset { low: wall - look.ended.unix_micros_ceil(), high: i64::MAX });
        self.open = Some((beat.counter, look.before_began.map(|began| wall - began.unix_micros_ceil())));
    }

    /// What all of them have in common, from the newest backwards; `None` until there are both bounds.
    pub fn estimate(&self) -> Option<Offset> {
        let mut all: Option<Offset> = None;
        for sample in self.kept.iter().rev() {
            match all.map_or(Some(*sample), |all| all.and(*sample)) {
                Some(both) => all = Some(both),
                None => break,
            }
        }
        all.filter(|all| all.high != i64::MAX)
    }
}

/// How far the majority's clock is ahead of the observer's: the middle of all offsets, the observer's own included. `None`: there are fewer than
/// three clocks, or no majority that can agree within `limit`, and nobody can tell whose is wrong.
pub fn majority(offsets: &[Offset], limit: Duration) -> Option<Offset> {
    if offsets.len() < 3 {
        return None;
    }
    let middle = |bound: fn(&Offset) -> i64| {
        let mut bounds: Vec<i64> = offsets.iter().map(bound).collect();
        bounds.sort_unstable();
        bounds[(bounds.len() - 1) / 2]
    };
    let middle = Offset { low: middle(|offset| offset.low), high: middle(|offset| offset.high) };
    let agree = offsets.iter().filter(|offset| offset.from(middle).certain() <= limit).count();
    (agree * 2 > offsets.len()).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_unix_micros(1_800_000_000_000_000 + millis * 1_000).unwrap()
    }

    /// A writer whose clock is ahead by `ahead`, beating every second, seen by looks every 0.93 seconds.
    fn observe(samples: &mut Samples, ahead: impl Fn(u64) -> i64, beats: std::ops::Range<u64>) {
        let look_at = |number: i64| number * 930;
        let mut seen = beats.start;
        for number in 1..i64::MAX {
            let (before, now) = (look_at(number - 1), look_at(number));
            // Beat k is sent at k seconds, reads its clock 2 ms later and is answered 10 ms later.
            let newest = (now / 1_000) as u64;
            if newest >= beats.end {
                return;
            }
            if newest < beats.start || newest < seen {
                continue;
            }
            let wall = at(newest as i64 * 1_000 + 2 + ahead(newest));
            let beat = Beat { counter: newest, wall, before_took_micros: Some(10_000), running: Vec::new() };
            samples.saw(&beat, Look { before_began: Some(at(before)), ended: at(now + 1) });
            seen = newest + 1;
        }
    }

    #[test]
    fn the_true_offset_is_within_the_bounds_and_they_are_narrow_after_a_while() {
        for ahead in [-5_000, -300, 0, 40, 900] {
            let mut samples = Samples::default();
            observe(&mut samples, |_| ahead, 1..40);
            let offset = samples.estimate().expect("two bounds");
            assert!(offset.low <= ahead * 1_000 && ahead * 1_000 <= offset.high, "{offset:?} for {ahead} ms");
            assert!(offset.error_millis() < 60.0, "{offset:?}");
        }
    }

    #[test]
    fn a_clock_that_was_set_is_measured_anew() {
        let mut samples = Samples::default();
        observe(&mut samples, |beat| if beat < 30 { 0 } else { 3_000 }, 1..50);
        let offset = samples.estimate().expect("two bounds");
        assert!(offset.low <= 3_000_000 && 3_000_000 <= offset.high && offset.low > 2_000_000, "{offset:?}");
    }

    #[test]
    fn one_bound_alone_is_no_measurement() {
        let mut samples = Samples::default();
        assert_eq!(samples.estimate(), None);
        let beat = Beat { counter: 1, wall: at(0), before_took_micros: None, running: Vec::new() };
        samples.saw(&beat, Look { before_began: Some(at(-900)), ended: at(5) });
        assert_eq!(samples.estimate(), None);
        // The beat after the next does not tell how long the first one took.
        let beat = Beat { counter: 3, wall: at(2_000), before_took_micros: Some(9), running: Vec::new() };
        samples.saw(&beat, Look { before_began: Some(at(1_500)), ended: at(2_005) });
        assert_eq!(samples.estimate(), None);
    }

    fn exactly(millis: i64) -> Offset {
        Offset { low: millis * 1_000, high: millis * 1_000 }
    }

    #[test]
    fn it_takes_three_and_a_majority_to_name_a_culprit() {
        let limit = Duration::from_millis(250);
        assert_eq!(majority(&[Offset::NONE, exactly(2_000)], limit), None);
        // This node is the one that is off: both others are two seconds ahead of it.
        let middle = majority(&[Offset::NONE, exactly(2_000), exactly(2_010)], limit).expect("a majority");
        assert_eq!(Offset::NONE.from(middle).certain(), Duration::from_secs(2));
        assert_eq!(exactly(2_010).from(middle).certain(), Duration::from_millis(10));
        // Three clocks, three opinions.
        assert_eq!(majority(&[Offset::NONE, exactly(5_000), exactly(10_000)], limit), None);
    }

    #[test]
    fn what_is_uncertain_accuses_nobody() {
        let wide = Offset { low: -200_000, high: 900_000 };
        assert_eq!(wide.certain(), Duration::ZERO);
        assert_eq!(Offset { low: -900_000, high: -300_000 }.certain(), Duration::from_millis(300));
        let middle = majority(&[Offset::NONE, wide, wide], Duration::from_millis(250)).expect("a majority");
        assert_eq!(Offset::NONE.from(middle).certain(), Duration::ZERO);
    }
}
