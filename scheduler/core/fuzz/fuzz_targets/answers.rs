//! What holds of any text, whether the fuzzer finds it or the corpus has it.

use chrono::DateTime;
use compline_core::schedule::cron::CronExpr;
use compline_core::schedule::zone::Zone;
use compline_core::time::{duration, instant};

/// A cron expression, an instant and a duration: what is accepted fires later than it was asked from, and what is said of it can be read again.
pub fn answered(text: &str) {
    if let Ok(expr) = CronExpr::parse(text) {
        for (seconds, zone) in [(0, "UTC"), (1_796_040_007, "America/New_York"), (253_402_300_700, "Africa/Casablanca")]
        {
            let (after, zone) = (DateTime::from_timestamp(seconds, 0).unwrap(), Zone::parse(zone).unwrap());
            if let Some(fire) = expr.next_after(after, zone) {
                assert!(fire > after && fire.timestamp_subsec_nanos() == 0, "{text:?} after {after}: {fire}");
            }
        }
    }
    if let Ok(at) = instant::parse(text) {
        assert_eq!(instant::parse(&instant::format(at)), Ok(at), "{text:?}");
    }
    if let Ok(length) = duration::parse(text) {
        assert_eq!(duration::parse(&duration::format(length)), Ok(length), "{text:?}");
    }
}
