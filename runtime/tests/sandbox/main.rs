//! The sandbox from outside: real components through the real engine.

mod compile;
mod denied;
mod guest;
mod memory;
mod outcome;
mod refusal;
mod support;
mod time;
