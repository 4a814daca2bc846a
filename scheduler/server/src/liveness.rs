//! How a node proves that it lives, and when others stop believing it: read from what the user says, and checked against one another.

use std::time::Duration;

use compline_core::time::duration;

use crate::fleet::clocks::ClockLimits;
use crate::refusal::Refusal;

const BEAT_DEFAULT: Duration = Duration::from_secs(1);
const LEASE_TTL_DEFAULT: Duration = Duration::from_secs(5);
const SESSION_TTL_DEFAULT: Duration = Duration::from_secs(15);
const DRAIN_DEFAULT: Duration = Duration::from_secs(30);

const BEAT_MIN: Duration = Duration::from_millis(50);
/// The shortest time after which a node is given up.
pub const SESSION_TTL_MIN: Duration = Duration::from_secs(2);
const TTL_MAX: Duration = Duration::from_secs(600);
const DRAIN_MAX: Duration = Duration::from_secs(86_400);
/// A TTL has room for at least so many beats: one that is late must not be taken for death.
const BEATS_PER_TTL: u32 = 4;

/// What a node promises others, and expects of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// How often it beats.
    pub beat: Duration,
    /// A scheduler that was silent for so long has lost its shards.
    pub lease_ttl: Duration,
    /// A node that was silent for so long is dead: what it ran is started elsewhere.
    pub session_ttl: Duration,
    /// How long a node that is told to end waits for what it runs.
    pub drain: Duration,
    /// How far clocks may be off.
    pub clock: ClockLimits,
}

/// What the user said, as text.
#[derive(Debug, Default)]
pub struct LivenessWords {
    /// `node.beat`
    pub beat: Option<String>,
    /// `node.lease_ttl`
    pub lease_ttl: Option<String>,
    /// `node.session_ttl`
    pub session_ttl: Option<String>,
    /// `node.drain`
    pub drain: Option<String>,
    /// `node.clock_warn`
    pub clock_warn: Option<String>,
    /// `node.clock_limit`
    pub clock_limit: Option<String>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            beat: BEAT_DEFAULT,
            lease_ttl: LEASE_TTL_DEFAULT,
            session_ttl: SESSION_TTL_DEFAULT,
            drain: DRAIN_DEFAULT,
            clock: ClockLimits::default(),
        }
    }
}

impl Liveness {
    /// Reads what the user said. What was left out follows from what was not: a short `session-ttl` shortens the others' defaults.
    ///
    /// # Errors
    /// If a value is out of range, or does not go with the others; the refusal names the field.
    pub fn read(words: &LivenessWords) -> Result<Self, Refusal> {
        let session_ttl =
            read("session-ttl", words.session_ttl.as_deref(), SESSION_TTL_DEFAULT, SESSION_TTL_MIN..=TTL_MAX)?;
        let lease_default = LEASE_TTL_DEFAULT.min(session_ttl);
        let lease_ttl = read("lease-ttl", words.lease_ttl.as_deref(), lease_default, Duration::from_secs(1)..=TTL_MAX)?;
        let beat_default = BEAT_DEFAULT.min(lease_ttl / 5);
        let beat = read("beat", words.beat.as_deref(), beat_default, BEAT_MIN..=TTL_MAX)?;
        if lease_ttl > session_ttl {
            let detail = format!("{} is longer than session-ttl, which is {}", show(lease_ttl), show(session_ttl));
            return Err(Refusal::new("lease-ttl", detail)
                .hint("a scheduler's shards are taken over before its runs: make it shorter"));
        }
        if beat * BEATS_PER_TTL > lease_ttl {
            let detail = format!(
                "{} is too long for a lease-ttl of {}: one late beat would be taken for death",
                show(beat),
                show(lease_ttl)
            );
            let hint =
                format!("beat at least {BEATS_PER_TTL} times within it: {} or less", show(lease_ttl / BEATS_PER_TTL));
            return Err(Refusal::new("beat", detail).hint(hint));
        }
        let defaults = ClockLimits::default();
        let milli = Duration::from_millis(10);
        let aside = read("clock-limit", words.clock_limit.as_deref(), defaults.aside, milli * 10..=TTL_MAX)?;
        let warn = read("clock-warn", words.clock_warn.as_deref(), defaults.warn.min(aside), milli..=TTL_MAX)?;
        if warn > aside {
            let detail = format!("{} is more than clock-limit, which is {}", show(warn), show(aside));
            return Err(Refusal::new("clock-warn", detail).hint("a clock is warned about before its node stands aside"));
        }
        let drain = read("drain", words.drain.as_deref(), DRAIN_DEFAULT, Duration::ZERO..=DRAIN_MAX)?;
        Ok(Self { beat, lease_ttl, session_ttl, drain, clock: ClockLimits { warn, aside } })
    }
}

fn read(
    field: &'static str,
    text: Option<&str>,
    default: Duration,
    allowed: std::ops::RangeInclusive<Duration>,
) -> Result<Duration, Refusal> {
    let Some(text) = text else { return Ok(default) };
    let read = crate::api::read_duration(field, text)?;
    if allowed.contains(&read) {
        return Ok(read);
    }
    let detail = format!("{} is not from {} to {}", show(read), show(*allowed.start()), show(*allowed.end()));
    Err(Refusal::new(field, detail).hint(format!("the default is {}", show(default))))
}

fn show(length: Duration) -> String {
    duration::format(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(session_ttl: Option<&str>, lease_ttl: Option<&str>, beat: Option<&str>) -> LivenessWords {
        let own = |text: Option<&str>| text.map(str::to_owned);
        LivenessWords {
            session_ttl: own(session_ttl),
            lease_ttl: own(lease_ttl),
            beat: own(beat),
            ..LivenessWords::default()
        }
    }

    #[test]
    fn defaults_follow_a_short_session() {
        assert_eq!(Liveness::read(&LivenessWords::default()), Ok(Liveness::default()));
        let short = Liveness::read(&words(Some("2s"), None, None)).unwrap();
        assert_eq!((short.lease_ttl, short.beat), (Duration::from_secs(2), Duration::from_millis(400)));
        let long = Liveness::read(&words(Some("1m"), None, None)).unwrap();
        assert_eq!((long.lease_ttl, long.beat), (LEASE_TTL_DEFAULT, BEAT_DEFAULT));
    }

    #[test]
    fn what_does_not_go_together_is_refused_by_its_name() {
        for (words, field) in [
            (words(Some("1999ms"), None, None), "session-ttl"),
            (words(Some("601s"), None, None), "session-ttl"),
            (words(Some("ten"), None, None), "session-ttl"),
            (words(None, Some("16s"), None), "lease-ttl"),
            (words(None, Some("500ms"), None), "lease-ttl"),
            (words(None, None, Some("1300ms")), "beat"),
            (words(Some("2s"), None, Some("501ms")), "beat"),
            (words(None, None, Some("49ms")), "beat"),
            (LivenessWords { clock_warn: Some("2s".to_owned()), ..LivenessWords::default() }, "clock-warn"),
            (LivenessWords { clock_limit: Some("99ms".to_owned()), ..LivenessWords::default() }, "clock-limit"),
            (LivenessWords { drain: Some("25h".to_owned()), ..LivenessWords::default() }, "drain"),
        ] {
            let refused = Liveness::read(&words).expect_err(field);
            assert_eq!(refused.field, field, "{refused:?}");
        }
        assert!(Liveness::read(&words(None, None, Some("1250ms"))).is_ok());
        assert!(Liveness::read(&words(Some("2s"), Some("2s"), Some("500ms"))).is_ok());
    }
}
