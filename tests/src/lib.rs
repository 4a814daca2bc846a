//! Tests that cross crates. This library is the simulator; `tests/` holds what runs it, and what runs the real program.

pub mod by_hand;
pub mod sim;
