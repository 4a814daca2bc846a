//! Write Compline tasks in Rust: one attribute, typed parameters, typed errors.
//!
//! ```
//! use compline_sdk::{Context, TaskError};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Params {
//!     customer: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Receipt {
//!     greeting: String,
//! }
//!
//! #[compline_sdk::task]
//! fn welcome(ctx: &Context, params: Params) -> Result<Receipt, TaskError> {
//!     if params.customer.is_empty() {
//!         return Err(TaskError::permanent("`customer` is empty"));
//!     }
//!     ctx.info(format_args!("attempt {} of {}", ctx.attempt(), ctx.execution_id()));
//!     Ok(Receipt { greeting: format!("Welcome, {}!", params.customer) })
//! }
//!
//! // A task is a plain function: its tests run on your own machine.
//! let receipt = welcome(&Context::for_test(), Params { customer: "Ada".into() }).unwrap();
//! assert_eq!(receipt.greeting, "Welcome, Ada!");
//! ```
//!
//! A task is a `cdylib` crate, built with `cargo build --release --target wasm32-wasip2`; the `.wasm` file that comes out is what
//! `compline task push` takes. One crate has one task. Beside this crate it depends on `serde` (feature `derive`) and `schemars` 1,
//! whose derives name them:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! compline-sdk = { path = "…" }
//! schemars = "1"
//! serde = { version = "1", features = ["derive"] }
//! ```
//!
//! # Parameters and output
//!
//! Parameters are a type with `Deserialize` and `JsonSchema`; the schema is part of the component, so that a job whose parameters
//! don't fit is refused when it is created, not when it runs. A job without parameters gives `null`, or `{}` where the type wants an
//! object. What still doesn't fit is a permanent error that names the field. The output is any `Serialize` type, stored as JSON.
//!
//! # Failure
//!
//! [`TaskError`] says whether trying again can help. A panic writes its message to stderr, which is kept with the run, and ends the
//! attempt as a trap.
//!
//! # Running more than once
//!
//! An attempt can be repeated: its machine may die after the work and before the result is stored.
//! [`Context::execution_id`] is the same for all attempts of one execution: hand it to whoever must recognise a repeat.

#[doc(hidden)]
#[path = "glue.rs"]
pub mod __glue;
mod context;
mod error;

pub use compline_sdk_macros::task;
pub use context::Context;
#[cfg(not(target_family = "wasm"))]
pub use context::Level;
pub use error::{ErrorKind, TaskError};
pub use {schemars, serde, serde_json};
