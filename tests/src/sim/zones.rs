//! Zone data that gets newer while a run lasts: nodes that begin after a moment have it, and some clients have it from the beginning. The clocks of one
//! zone are put elsewhere by it.

use compline_core::schedule::zone::{ZoneData, ZoneVersion};

/// The zone that jobs follow, as the older data has it in line with UTC.
pub const ZONE: &str = "Africa/Abidjan";
/// By the newer data its clocks show what those here do.
const MOVED_TO: &str = "Asia/Kathmandu";

/// Which zone data somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// What all have at first.
    Old,
    /// What follows.
    New,
}

impl Data {
    /// The data itself.
    pub fn zones(self) -> ZoneData {
        let data = ZoneData::default().called(self.name());
        match self {
            Self::Old => data,
            Self::New => data.moving(ZONE, MOVED_TO),
        }
    }

    /// The version that it has.
    pub fn version(self) -> ZoneVersion {
        ZoneVersion::new(self.name())
    }

    /// The data of a version.
    pub fn of(version: &ZoneVersion) -> Option<Self> {
        [Self::Old, Self::New].into_iter().find(|data| data.version() == *version)
    }

    /// By how many seconds the zone's clocks are ahead of UTC.
    pub fn ahead(self) -> i64 {
        match self {
            Self::Old => 0,
            Self::New => 5 * 3_600 + 45 * 60,
        }
    }

    /// By how many minutes they are, hours left out.
    pub fn minutes_ahead(self) -> u32 {
        (self.ahead() / 60 % 60) as u32
    }

    fn name(self) -> &'static str {
        match self {
            Self::Old => "2030a",
            Self::New => "2030b",
        }
    }
}
