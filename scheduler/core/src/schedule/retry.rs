//! When a failed attempt is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The delays before the second, third and fourth attempt, unless a job says otherwise.
pub const DEFAULT_DELAYS: [Duration; 3] = [Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(600)];

/// How many delays are summed one by one before the rest is taken at its cap.
const SUMMED_MAX: u32 = 1_000;

/// How often and how long after a failure an execution is attempted again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RetryRule {
    /// One retry per entry, that long after the failure before it.
    Delays(Vec<Duration>),
    /// Delays that grow by a constant factor.
    Exponential {
        /// The delay before the second attempt.
        first: Duration,
        /// What each delay is multiplied by to get the next one; 1 or more.
        factor: f64,
        /// No delay is longer.
        max: Duration,
        /// How many attempts there are in all, the first one included.
        attempts: u32,
        /// Full jitter: the delay is drawn evenly between nothing and what it would be without.
        jitter: bool,
    },
}

impl Default for RetryRule {
    fn default() -> Self {
        Self::Delays(DEFAULT_DELAYS.to_vec())
    }
}

impl RetryRule {
    /// How long to wait before attempt number `attempt`. The first attempt (number 1; 0 counts as it) waits for nothing. `None`: there is no
    /// such attempt any more. `random` is any random number; only a rule with jitter looks at it.
    pub fn delay_before(&self, attempt: u32, random: u64) -> Option<Duration> {
        if attempt > self.attempts_max() {
            return None;
        }
        let Some(retry) = attempt.checked_sub(2) else { return Some(Duration::ZERO) };
        match self {
            Self::Delays(delays) => delays.get(retry as usize).copied(),
            Self::Exponential { first, factor, max, jitter, .. } => {
                let delay = grown(*first, *factor, retry).min(*max);
                Some(if *jitter { fraction(delay, random) } else { delay })
            }
        }
    }

    /// How many attempts the rule allows in all; always one at least.
    pub fn attempts_max(&self) -> u32 {
        match self {
            Self::Delays(delays) => u32::try_from(delays.len()).unwrap_or(u32::MAX).saturating_add(1),
            Self::Exponential { attempts, .. } => (*attempts).max(1),
        }
    }

    /// The longest time that all delays together can take, or a little more: what history must outlast.
    pub fn span_max(&self) -> Duration {
        match self {
            Self::Delays(delays) => delays.iter().fold(Duration::ZERO, |sum, delay| sum.saturating_add(*delay)),
            Self::Exponential { first, factor, max, attempts, .. } => {
                let mut sum = Duration::ZERO;
                let retries = attempts.saturating_sub(1);
                for retry in 0..retries.min(SUMMED_MAX) {
                    let delay = grown(*first, *factor, retry);
                    // From the cap on every further delay is the same.
                    if delay >= *max {
                        return sum.saturating_add(max.saturating_mul(retries - retry));
                    }
                    sum = sum.saturating_add(delay);
                }
                sum.saturating_add(max.saturating_mul(retries.saturating_sub(SUMMED_MAX)))
            }
        }
    }
}

/// `first × factor^retry`, or the longest duration where that is too much. A factor below 1, or none, is taken for 1: delays don't shrink.
fn grown(first: Duration, factor: f64, retry: u32) -> Duration {
    let growth = if factor > 1.0 { factor.powf(f64::from(retry)) } else { 1.0 };
    let seconds = first.as_secs_f64() * growth;
    if growth == 1.0 { first } else { Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX) }
}

/// `delay × random / 2^64`, in whole nanoseconds.
fn fraction(delay: Duration, random: u64) -> Duration {
    let nanos = delay.as_nanos();
    // A duration has at most 94 bits of nanoseconds: the product is taken in two halves so that it fits 128.
    let (high, low) = (nanos >> 64, nanos & u128::from(u64::MAX));
    let part = high * u128::from(random) + ((low * u128::from(random)) >> 64);
    Duration::new((part / 1_000_000_000) as u64, (part % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exponential(factor: f64, attempts: u32, jitter: bool) -> RetryRule {
        RetryRule::Exponential { first: Duration::from_secs(2), factor, max: Duration::from_secs(60), attempts, jitter }
    }

    fn seconds(rule: &RetryRule, attempts: std::ops::RangeInclusive<u32>) -> Vec<Option<f64>> {
        attempts.map(|attempt| rule.delay_before(attempt, u64::MAX).map(|delay| delay.as_secs_f64())).collect()
    }

    #[test]
    fn the_default_retries_three_times() {
        let rule = RetryRule::default();
        assert_eq!(seconds(&rule, 0..=5), [Some(0.0), Some(0.0), Some(10.0), Some(60.0), Some(600.0), None]);
        assert_eq!(rule.attempts_max(), 4);
        assert_eq!(rule.span_max(), Duration::from_secs(670));
    }

    #[test]
    fn what_is_stored_can_be_read_again() {
        for rule in [RetryRule::default(), exponential(1.5, 7, true)] {
            let bytes = postcard::to_stdvec(&rule).unwrap();
            assert_eq!(postcard::from_bytes::<RetryRule>(&bytes).unwrap(), rule);
        }
    }

    #[test]
    fn no_delays_mean_no_retry() {
        let rule = RetryRule::Delays(Vec::new());
        assert_eq!(seconds(&rule, 1..=2), [Some(0.0), None]);
        assert_eq!(seconds(&exponential(2.0, 0, false), 1..=2), [Some(0.0), None]);
    }

    #[test]
    fn exponential_delays_grow_to_their_cap() {
        let rule = exponential(3.0, 6, false);
        assert_eq!(seconds(&rule, 1..=7), [Some(0.0), Some(2.0), Some(6.0), Some(18.0), Some(54.0), Some(60.0), None]);
        assert_eq!(rule.span_max(), Duration::from_secs(140));
        assert_eq!(exponential(0.5, 5, false).span_max(), Duration::from_secs(8));
    }

    proptest! {
        #[test]
        fn nothing_overflows(first: Duration, factor: f64, max: Duration, attempts: u32, jitter: bool, attempt: u32, random: u64) {
            let rule = RetryRule::Exponential { first, factor, max, attempts, jitter };
            match rule.delay_before(attempt, random) {
                Some(delay) => prop_assert!(delay <= max && attempt <= attempts.max(1)),
                None => prop_assert!(attempt > attempts.max(1)),
            }
            prop_assert!(rule.span_max() <= max.saturating_mul(attempts));
        }

        #[test]
        fn full_jitter_stays_in_its_range(attempt in 2_u32..40, random: u64) {
            let whole = exponential(2.0, 40, false).delay_before(attempt, 0).unwrap();
            let drawn = exponential(2.0, 40, true).delay_before(attempt, random).unwrap();
            let expected = whole.as_secs_f64() * (random as f64 / 2_f64.powi(64));
            prop_assert!(drawn < whole);
            prop_assert!((drawn.as_secs_f64() - expected).abs() < 1e-6);
        }
    }
}
