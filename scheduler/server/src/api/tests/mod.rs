//! The routes, asked the way clients ask: over a real router, a store in memory, and real components.

mod change;
mod jobs;
mod ledger;
mod requests;
mod story;
mod support;
mod tasks;
mod zones;
