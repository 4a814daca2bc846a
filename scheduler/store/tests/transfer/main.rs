//! A whole store into a file and from there into another one: everything arrives, once, in order, also after being killed at any point; and
//! what is not whole, not empty or not at rest is refused.
#![cfg(feature = "embedded")]

mod contents;
mod damage;
#[cfg(feature = "foundationdb")]
mod foundationdb;
mod refusals;
mod resume;
mod round_trip;
