//! The HTTP API.

mod body;
mod cursor;
mod define;
pub mod dto;
pub mod problem;
mod query;
