//! Compline's rules, and nothing else: schedules, slots, the state machine of an execution, retries, policies, plans.
//!
//! Architecture invariant: no IO, no clock, no randomness and no async in this crate. Time and random bits are arguments; what is decided
//! here is written by `compline-store` and carried out by `compline`.

pub mod execution;
pub mod explain;
pub mod ids;
pub mod job;
pub mod ledger;
pub mod schedule;
pub mod tick;
pub mod time;
mod timestamp;
pub mod timetable;

pub use timestamp::Timestamp;
