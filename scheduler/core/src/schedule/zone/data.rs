//! Which zone data schedules are read with: the one that is built in, or, so that a test can move it, one that differs from it in some zones.

use serde::{Deserialize, Serialize};

use super::{UnknownZone, Zone, tzdb_version};

/// A version of zone data, such as `2026f`: the year and a letter, and from the 27th of a year on two, so that they sort as they were published.
/// The empty one is older than every other.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ZoneVersion(String);

impl ZoneVersion {
    /// The version that is called so.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is none: what no zone has to do with carries this.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for ZoneVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Zone data.
#[derive(Debug, Clone)]
pub struct ZoneData {
    version: ZoneVersion,
    /// Zones that have another zone's rules than the built-in data gives them.
    moved: Vec<(String, String)>,
}

impl Default for ZoneData {
    fn default() -> Self {
        Self { version: ZoneVersion::new(tzdb_version()), moved: Vec::new() }
    }
}

impl ZoneData {
    /// The built-in data under another version.
    #[must_use]
    pub fn called(self, version: impl Into<String>) -> Self {
        Self { version: ZoneVersion::new(version), ..self }
    }

    /// The same, but the clocks of one zone show what those of another do.
    #[must_use]
    pub fn moving(mut self, zone: impl Into<String>, to_rules_of: impl Into<String>) -> Self {
        self.moved.push((zone.into(), to_rules_of.into()));
        self
    }

    /// Its version.
    pub fn version(&self) -> &ZoneVersion {
        &self.version
    }

    /// A zone as this data has it, see [`Zone::parse`].
    ///
    /// # Errors
    /// [`UnknownZone`] with the nearest name, if there is one.
    pub fn zone(&self, name: &str) -> Result<Zone, UnknownZone> {
        let zone = Zone::parse(name)?;
        match self.moved.iter().find(|(moved, _)| moved == name) {
            Some((_, to)) => Ok(Zone { rules: Zone::parse(to)?.rules, ..zone }),
            None => Ok(zone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_they_were_published() {
        let names = ["", "2025c", "2026a", "2026f", "2026g", "2026z", "2026za", "2027a"];
        assert!(names.map(ZoneVersion::new).is_sorted());
        assert!(ZoneVersion::default().is_none() && !ZoneData::default().version().is_none());
    }

    #[test]
    fn a_zone_that_moved_keeps_its_name_and_has_other_rules() {
        let data = ZoneData::default().called("2027a").moving("Europe/Berlin", "Asia/Kathmandu");
        let berlin = data.zone("Europe/Berlin").unwrap();
        assert_eq!((berlin.name(), berlin.offset_at(1_800_000_000)), ("Europe/Berlin", 5 * 3_600 + 45 * 60));
        assert_eq!(data.zone("Europe/Paris").unwrap().offset_at(1_800_000_000), 3_600);
        assert!(data.zone("europe/berlin").is_err());
        assert_eq!(data.version().as_str(), "2027a");
    }
}
