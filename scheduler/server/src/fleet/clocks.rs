//! Whose clock is off, as far as anybody can tell.

use std::collections::BTreeMap;
use std::time::Duration;

use compline_core::ids::SessionId;

use super::FleetView;
use super::offset::{Offset, majority};

/// How far a clock may be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockLimits {
    /// Beyond this it is warned about.
    pub warn: Duration,
    /// Beyond this a scheduler stands aside.
    pub aside: Duration,
}

impl Default for ClockLimits {
    fn default() -> Self {
        Self { warn: Duration::from_millis(250), aside: Duration::from_secs(1) }
    }
}

/// What is known of the clocks of the nodes that live.
#[derive(Debug, Clone)]
pub struct Clocks {
    /// Whether there are enough that agree, so that offsets are from the majority's clock; otherwise they are from this node's, and nobody can
    /// tell whose is wrong.
    pub majority: bool,
    /// How far each is ahead, by node.
    pub of: BTreeMap<String, Offset>,
    /// How far this node's own is.
    pub own: Offset,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { majority: false, of: BTreeMap::new(), own: Offset::NONE }
    }
}

impl Clocks {
    /// Judges what a look saw. `own` is the session of the node that looks.
    pub fn judge(view: &FleetView, own: SessionId, limits: ClockLimits) -> Self {
        let mut of = BTreeMap::new();
        for node in &view.nodes {
            if node.is(own) {
                of.insert(node.node.clone(), Offset::NONE);
            } else if let (false, Some(offset)) = (node.is_silent(), node.offset) {
                of.insert(node.node.clone(), offset);
            }
        }
        let all: Vec<Offset> = of.values().copied().collect();
        let Some(middle) = majority(&all, limits.warn) else {
            return Self { majority: false, of, own: Offset::NONE };
        };
        of.values_mut().for_each(|offset| *offset = offset.from(middle));
        Self { majority: true, of, own: Offset::NONE.from(middle) }
    }

    /// Nodes whose clocks are off by more than `limit` for certain, or, without a majority, differ from this node's by so much.
    pub fn beyond(&self, limit: Duration) -> impl Iterator<Item = (&String, Offset)> {
        self.of.iter().map(|(node, offset)| (node, *offset)).filter(move |(_, offset)| offset.certain() > limit)
    }
}
