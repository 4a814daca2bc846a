//! The passes and loops that connect rules and store, the HTTP API, and the command line.
//!
//! Architecture invariants: only `api` knows HTTP; the command line speaks HTTP to a server and never opens a store (`serve` and `admin`
//! excepted); passes take no input but what is in the store, so a wake-up carries no data.

pub mod env;
