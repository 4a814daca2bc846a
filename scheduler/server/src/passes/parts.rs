//! Which parts of a lane an executor takes from, so that claimers rarely meet.
//!
//! The executors that serve a lane share its parts among themselves, by their workers, in the order of their sessions. Each works out its own
//! share from what it sees of the fleet; nobody is asked, and nothing is written. Two that see the fleet differently for a moment may meet, which
//! costs a conflict and nothing else. What others' parts hold is taken only when one's own are empty and its owners had their time, so that no
//! row waits for a node that is busy, or gone.

use compline_core::ids::SessionId;
use compline_store::tables::session::Standing;

use crate::fleet::FleetView;

/// A lane and the parts of it to take from, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneParts {
    /// The lane.
    pub lane: String,
    /// The parts.
    pub parts: Vec<u8>,
}

/// The share of `session` in a lane's parts: all of them, if no other executor serves the lane or this one was not seen yet. It may be empty.
pub fn own_parts(view: &FleetView, lane: &str, session: SessionId, partitions: u8) -> Vec<u8> {
    let mut servers: Vec<(SessionId, u32)> = view
        .nodes
        .iter()
        .filter(|node| !node.is_silent())
        .filter_map(|node| node.session.as_ref())
        .filter(|other| other.has_role("executor") && other.lanes.iter().any(|served| served == lane))
        .filter(|other| other.standing != Standing::Stopping)
        .map(|other| (other.id, other.workers))
        .collect();
    servers.sort_unstable();
    let workers: Vec<u32> = servers.iter().map(|(_, workers)| *workers).collect();
    match servers.iter().position(|(id, _)| *id == session) {
        Some(rank) => share(&workers, rank, partitions),
        None => (0..partitions).collect(),
    }
}

/// The share of the claimer at `rank` when the claimers have so many workers: parts side by side, as many as its workers are of all.
pub fn share(workers: &[u32], rank: usize, partitions: u8) -> Vec<u8> {
    let weight = |workers: &u32| u64::from((*workers).max(1));
    let total: u64 = workers.iter().map(weight).sum();
    let begin: u64 = workers[..rank].iter().map(weight).sum();
    let end = begin + weight(&workers[rank]);
    let scale = 2 * u64::from(partitions);
    // The middle of a part lies in exactly one claimer's stretch.
    let is_ours = |part: &u8| {
        let middle = (2 * u64::from(*part) + 1) * total;
        begin * scale <= middle && middle < end * scale
    };
    (0..partitions).filter(is_ours).collect()
}

/// One's own parts, then all others, beginning behind one's own, so that those who help out begin apart.
pub fn own_first(own: &[u8], partitions: u8) -> Vec<u8> {
    let first = own.last().map_or(0, |last| last + 1);
    let others = (0..partitions).map(|step| ((u16::from(first) + u16::from(step)) % u16::from(partitions)) as u8);
    own.iter().copied().chain(others.filter(|part| !own.contains(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_exactly_one_owner() {
        for workers in [&[4][..], &[4, 4], &[1, 1, 1], &[64, 1], &[1; 8], &[3; 12], &[0, 0], &[7, 1, 30, 2]] {
            for partitions in [1, 2, 8, 255] {
                let mut all: Vec<u8> = (0..workers.len()).flat_map(|rank| share(workers, rank, partitions)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..partitions).collect::<Vec<_>>(), "{workers:?} over {partitions}");
            }
        }
    }

    #[test]
    fn parts_go_by_workers() {
        assert_eq!(share(&[4, 4], 0, 8), [0, 1, 2, 3]);
        assert_eq!(share(&[6, 2], 0, 8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(share(&[1; 8], 5, 8), [5]);
        assert_eq!(share(&[1; 16], 5, 8).len() + share(&[1; 16], 4, 8).len(), 1, "more claimers than parts");
    }

    #[test]
    fn helpers_begin_behind_their_own() {
        assert_eq!(own_first(&[2, 3], 5), [2, 3, 4, 0, 1]);
        assert_eq!(own_first(&[4], 5), [4, 0, 1, 2, 3]);
        assert_eq!(own_first(&[], 3), [0, 1, 2]);
    }
}
