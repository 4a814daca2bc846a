//! The passes and loops that connect rules and store, the HTTP API, and the command line.
//!
//! Architecture invariants: only `api` knows HTTP; the command line speaks HTTP to a server and never opens a store (`serve` and `admin`
//! excepted); passes take no input but what is in the store, so a wake-up carries no data.

pub mod api;
pub mod cli;
pub mod client;
pub mod config;
pub mod ctx;
pub mod env;
pub mod fleet;
pub mod json;
pub mod liveness;
pub mod loops;
pub mod metrics;
pub mod ops;
pub mod passes;
pub mod preview;
pub mod refusal;
pub mod sandbox;
pub mod serve;
pub mod stores;
pub mod words;
