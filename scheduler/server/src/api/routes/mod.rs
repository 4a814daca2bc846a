//! The handlers, one file per kind of thing.

pub mod change;
pub mod dead;
pub mod executions;
pub mod jobs;
pub mod ledger;
pub mod schedules;
pub mod server;
pub mod tasks;

use axum::Json;
use axum::http::StatusCode;

/// A JSON answer with its status.
type Answer<T> = (StatusCode, Json<T>);
