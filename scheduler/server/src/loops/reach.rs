//! How far an executor reaches: into its own parts of each lane, or into all of them.
//!
//! An executor takes from its own parts as long as they give anything. Once they are empty it gives the owners of the others a moment, then helps
//! out wherever something still waits, until nothing does. So a part is its owner's alone while that one keeps up, which is what keeps claimers
//! apart; and what an owner does not get to, because it is busy or gone, waits only that moment longer.

use std::time::Duration;

use compline_core::ids::SessionId;

use crate::fleet::FleetView;
use crate::passes::parts::{LaneParts, own_first, own_parts};

/// What the owners of other parts have for themselves, and by how much it differs, by chance, so that helpers come one after the other.
const OWNERS_FIRST: Duration = Duration::from_millis(20);
const OWNERS_FIRST_JITTER_MICROS: u64 = 20_000;

/// What to take from next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// One's own parts.
    #[default]
    Own,
    /// All parts, one's own first.
    All,
}

/// What an executor does after a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It claims again.
    Claim(Reach),
    /// It gives the owners of other parts so much time, then claims.
    AfterOwners(Duration),
    /// It waits for work.
    Wait,
}

impl Reach {
    /// The lanes with the parts to take from, as the fleet is seen.
    pub fn lanes(self, view: &FleetView, lanes: &[String], session: SessionId, partitions: u8) -> Vec<LaneParts> {
        let parts = |lane: &String| {
            let own = own_parts(view, lane, session, partitions);
            let parts = if self == Self::Own { own } else { own_first(&own, partitions) };
            LaneParts { lane: lane.clone(), parts }
        };
        lanes.iter().map(parts).collect()
    }

    /// What follows a claim that took something, or nothing, from these.
    pub fn next(self, took: bool, reached: &[LaneParts], partitions: u8, random: u64) -> Next {
        if took {
            return Next::Claim(self);
        }
        let everything = reached.iter().all(|lane| lane.parts.len() == usize::from(partitions));
        if self == Self::All || everything {
            return Next::Wait;
        }
        Next::AfterOwners(OWNERS_FIRST + Duration::from_micros(random % OWNERS_FIRST_JITTER_MICROS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(parts: &[u8]) -> Vec<LaneParts> {
        vec![LaneParts { lane: "default".to_owned(), parts: parts.to_vec() }]
    }

    #[test]
    fn an_executor_helps_out_only_after_the_owners_had_their_time() {
        assert_eq!(Reach::Own.next(true, &lane(&[0, 1]), 4, 0), Next::Claim(Reach::Own));
        assert!(
            matches!(Reach::Own.next(false, &lane(&[0, 1]), 4, 7), Next::AfterOwners(wait) if wait >= OWNERS_FIRST)
        );
        assert_eq!(Reach::All.next(true, &lane(&[0, 1, 2, 3]), 4, 0), Next::Claim(Reach::All));
        assert_eq!(Reach::All.next(false, &lane(&[0, 1, 2, 3]), 4, 0), Next::Wait);
    }

    #[test]
    fn an_executor_alone_has_nobody_to_wait_for() {
        let alone = Reach::Own.lanes(&FleetView::default(), &["default".to_owned()], SessionId::NONE, 4);
        assert_eq!(alone, lane(&[0, 1, 2, 3]));
        assert_eq!(Reach::Own.next(false, &alone, 4, 0), Next::Wait);
    }
}
