//! The loops of a node. Each drives passes by a timer or a bell; a wake-up carries no data, and a lost one costs latency only.

mod executor;
mod node;
mod overseer;
pub mod reach;
mod reports;
mod retention;
mod stops;
mod ticker;
mod zones;

use std::time::Duration;

pub use executor::{Ran, Run, Runner};
pub use node::{Node, NodeConfig, NodeError};

/// How far ahead of the clock a ticker reads. A job that is created due sooner rings its shard's bell.
pub const LOOK_AHEAD: Duration = Duration::from_secs(3);

/// How often a loop looks by itself for what a lost bell would have told it. None sleeps much longer: the wall clock may have been set
/// meanwhile.
const POLL: Duration = Duration::from_millis(250);

/// How long a loop waits after the store refused it.
const AFTER_ERROR: Duration = Duration::from_millis(250);
