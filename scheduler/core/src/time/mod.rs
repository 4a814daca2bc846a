//! Instants and durations as text: one parser and one formatter each, used by every door into the system.

pub mod duration;
pub mod instant;
