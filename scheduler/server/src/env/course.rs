//! What of the wall clock is believed.
//!
//! Wall time is checked against boot time, which nobody sets. While both go on together the wall is taken at its word, and corrections of up to
//! [`STEP_MAX`] are followed at once. A wall that leaves the course by more is not believed for [`DISBELIEF`]: until then time goes on by boot
//! time from the last moment that was believed. A wall that comes back meanwhile did no harm; one that stays is accepted. It is better to be a
//! minute late than hours early.
//!
//! What this cannot know: whether the first reading of a process is right.

use std::time::Duration;

use chrono::TimeDelta;
use compline_core::Timestamp;

/// The wall may leave the course by so much at a time.
pub const STEP_MAX: Duration = Duration::from_secs(2);
/// For how long a wall that left the course is not believed.
pub const DISBELIEF: Duration = Duration::from_secs(60);

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// What the wall clock shows.
    pub wall: Timestamp,
    /// How long the machine has been up, suspended times included.
    pub boot: Duration,
}

/// What became of the belief with a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The wall is on its course, as before.
    OnCourse,
    /// It left the course just now, by so much.
    Left(TimeDelta),
    /// It is off the course still.
    Disbelieved,
    /// It came back before it was believed.
    CameBack,
    /// It stayed where it is for long enough: the course goes on from there.
    Accepted(TimeDelta),
}

/// The course of believed time.
#[derive(Debug, Default)]
pub struct Course {
    /// The last moment whose wall was believed.
    believed: Option<Reading>,
    /// The first and the last reading off the course, while the wall is not believed.
    doubted: Option<(Reading, Reading)>,
}

impl Course {
    /// The believed time at a reading, and what became of the belief.
    pub fn at(&mut self, reading: Reading) -> (Timestamp, Verdict) {
        let Some(believed) = self.believed else {
            self.believed = Some(reading);
            return (reading.wall, Verdict::OnCourse);
        };
        let expected = continued(believed, reading.boot);
        if is_near(reading.wall, expected) {
            self.believed = Some(reading);
            let verdict = if self.doubted.take().is_some() { Verdict::CameBack } else { Verdict::OnCourse };
            return (reading.wall, verdict);
        }
        let off = reading.wall.to_utc() - expected.to_utc();
        match self.doubted {
            // Off the course, and on one of its own: for long enough it is believed.
            Some((first, last)) if is_near(reading.wall, continued(last, reading.boot)) => {
                if reading.boot.saturating_sub(first.boot) >= DISBELIEF {
                    *self = Self { believed: Some(reading), doubted: None };
                    return (reading.wall, Verdict::Accepted(off));
                }
                self.doubted = Some((first, reading));
                (expected, Verdict::Disbelieved)
            }
            // Another step: what it is now has not been for long.
            _ => {
                self.doubted = Some((reading, reading));
                (expected, Verdict::Left(off))
            }
        }
    }

    /// By how much the wall is off the course now, if it is not believed.
    pub fn doubt(&self) -> Option<TimeDelta> {
        let (believed, (_, last)) = (self.believed?, self.doubted?);
        Some(last.wall.to_utc() - continued(believed, last.boot).to_utc())
    }
}

/// What the wall would show at an instant of boot time if it went on evenly.
fn continued(from: Reading, boot: Duration) -> Timestamp {
    from.wall + boot.saturating_sub(from.boot)
}

fn is_near(one: Timestamp, other: Timestamp) -> bool {
    one.saturating_since(other).max(other.saturating_since(one)) <= STEP_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_796_040_000;

    /// A reading so many milliseconds after noon, with the wall off by so many.
    fn reading(at: u64, off: i64) -> Reading {
        let noon = Timestamp::from_unix_seconds(NOON);
        let wall = noon.to_utc() + TimeDelta::milliseconds(at as i64 + off);
        Reading { wall: wall.into(), boot: Duration::from_secs(5_000) + Duration::from_millis(at) }
    }

    /// Milliseconds after noon.
    fn millis(time: Timestamp) -> i64 {
        time.timestamp_millis() - NOON * 1_000
    }

    #[test]
    fn corrections_of_two_seconds_are_followed_and_a_millisecond_more_is_not() {
        for (off, shown) in [(2_000, 3_000), (2_001, 1_000), (-2_000, -1_000), (-2_001, 1_000)] {
            let mut course = Course::default();
            course.at(reading(0, 0));
            assert_eq!(millis(course.at(reading(1_000, off)).0), shown, "{off} ms off");
        }
    }

    #[test]
    fn a_step_is_disbelieved_for_a_minute_then_accepted() {
        let mut course = Course::default();
        let hours = 2 * 3_600_000;
        course.at(reading(0, 0));
        assert_eq!(course.at(reading(500, hours)).1, Verdict::Left(TimeDelta::hours(2)));
        assert_eq!(course.doubt(), Some(TimeDelta::hours(2)));
        for at in (1_000..60_500).step_by(250) {
            let (now, verdict) = course.at(reading(at, hours));
            assert_eq!((millis(now), verdict), (at as i64, Verdict::Disbelieved));
        }
        assert_eq!(course.at(reading(60_500, hours)).1, Verdict::Accepted(TimeDelta::hours(2)));
        assert_eq!((course.at(reading(60_501, hours)).1, course.doubt()), (Verdict::OnCourse, None));
        // And back.
        assert_eq!(course.at(reading(70_000, 0)).1, Verdict::Left(TimeDelta::hours(-2)));
        assert_eq!(millis(course.at(reading(129_999, 0)).0), 129_999 + hours);
        assert_eq!(course.at(reading(130_000, 0)).1, Verdict::Accepted(TimeDelta::hours(-2)));
        assert_eq!(millis(course.at(reading(130_001, 0)).0), 130_001);
    }

    #[test]
    fn a_wall_that_comes_back_was_never_followed() {
        let mut course = Course::default();
        course.at(reading(0, 0));
        course.at(reading(1_000, -3_600_000));
        assert_eq!(course.at(reading(59_000, 0)), (reading(59_000, 0).wall, Verdict::CameBack));
    }

    #[test]
    fn a_wall_that_steps_again_is_disbelieved_anew() {
        let mut course = Course::default();
        course.at(reading(0, 0));
        course.at(reading(1_000, 3_600_000));
        assert!(matches!(course.at(reading(50_000, 7_200_000)).1, Verdict::Left(_)));
        assert_eq!(millis(course.at(reading(109_999, 7_200_000)).0), 109_999);
        assert!(matches!(course.at(reading(110_000, 7_200_000)).1, Verdict::Accepted(_)));
    }

    #[test]
    fn a_suspended_machine_did_not_step() {
        let mut course = Course::default();
        course.at(reading(0, 0));
        // Boot time goes on while it sleeps.
        assert_eq!(course.at(reading(8 * 3_600_000, 0)).1, Verdict::OnCourse);
    }

    /// However the wall behaves, believed time keeps step with boot time, but for steps that are short or were accepted.
    #[test]
    fn believed_time_moves_with_boot_time() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut accepted = 0;
        for _ in 0..200 {
            let mut course = Course::default();
            let (mut at, mut off) = (0, 0);
            let (mut before, _) = course.at(reading(0, 0));
            for _ in 0..200 {
                let pause = rng.u64(1..5_000);
                at += pause;
                // Most readings go on evenly.
                if rng.u8(0..20) == 0 {
                    off += rng.i64(-9_000..9_000);
                }
                let (now, verdict) = course.at(reading(at, off));
                if let Verdict::Accepted(_) = verdict {
                    accepted += 1;
                } else {
                    let moved = millis(now) - millis(before) - pause as i64;
                    assert!(moved.abs() <= STEP_MAX.as_millis() as i64, "{moved} ms at once");
                }
                before = now;
            }
        }
        assert!(accepted > 100, "only {accepted} steps were accepted");
    }
}
