//! What a task can ask about its run, and its log.

use std::fmt::Display;
use std::time::Duration;

/// The run that a task is in: which execution it serves, and its log. All of it is fixed before the task starts.
#[derive(Debug)]
pub struct Context {
    execution_id: String,
    attempt: u32,
    slot: String,
    job_id: String,
    tenant: String,
    lag: Duration,
    #[cfg(not(target_family = "wasm"))]
    logged: std::cell::RefCell<Vec<(Level, String)>>,
}

impl Context {
    /// The execution's id: the same for every attempt, and no other execution has it. Use it as the key by which a repeated attempt
    /// is recognised.
    pub fn execution_id(&self) -> &str {
        &self.execution_id
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The planned instant that this execution is for, RFC 3339 in UTC. It is the same for every attempt, so "yesterday" should be
    /// counted from here and not from the clock.
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// The job that this execution belongs to.
    pub fn job_id(&self) -> &str {
        &self.job_id
    }

    /// Who owns the job.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// How long after its promised start this attempt began.
    pub fn lag(&self) -> Duration {
        self.lag
    }

    /// Adds a line to the run's log, for someone who is looking for a fault.
    pub fn debug(&self, message: impl Display) {
        self.log(Level::Debug, &message);
    }

    /// Adds a line to the run's log.
    pub fn info(&self, message: impl Display) {
        self.log(Level::Info, &message);
    }

    /// Adds a line to the run's log about something that is odd, but did not stop the task.
    pub fn warn(&self, message: impl Display) {
        self.log(Level::Warn, &message);
    }

    /// Adds a line to the run's log about something that went wrong. It does not fail the task: an `Err` does.
    pub fn error(&self, message: impl Display) {
        self.log(Level::Error, &message);
    }
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For someone who is looking for a fault.
    Debug,
    /// What happened.
    Info,
    /// Odd, but the task goes on.
    Warn,
    /// Something went wrong.
    Error,
}

#[cfg(target_family = "wasm")]
mod in_component {
    use super::*;
    use crate::__glue::bindings::compline::task::{execution, log};

    impl Context {
        /// The run that this component was started for.
        #[doc(hidden)]
        pub fn current() -> Self {
            let info = execution::get();
            Self {
                execution_id: info.id,
                attempt: info.attempt,
                slot: info.slot,
                job_id: info.job_id,
                tenant: info.tenant,
                lag: Duration::from_millis(info.lag_ms),
            }
        }

        pub(super) fn log(&self, level: Level, message: &dyn Display) {
            let level = match level {
                Level::Debug => log::Level::Debug,
                Level::Info => log::Level::Info,
                Level::Warn => log::Level::Warn,
                Level::Error => log::Level::Error,
            };
            log::write(level, &message.to_string());
        }
    }
}

/// For a task's own tests, on a developer's machine. None of it exists in a component.
#[cfg(not(target_family = "wasm"))]
impl Context {
    /// The first attempt of a made-up execution. Change what matters to the test with the `with_…` methods.
    pub fn for_test() -> Self {
        Self {
            execution_id: "exec_test".to_owned(),
            attempt: 1,
            slot: "2026-01-01T00:00:00Z".to_owned(),
            job_id: "job_test".to_owned(),
            tenant: "test".to_owned(),
            lag: Duration::ZERO,
            logged: std::cell::RefCell::default(),
        }
    }

    /// Another execution id.
    pub fn with_execution_id(mut self, id: impl Into<String>) -> Self {
        self.execution_id = id.into();
        self
    }

    /// Another attempt, from 1.
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// Another planned instant, RFC 3339 in UTC.
    pub fn with_slot(mut self, slot: impl Into<String>) -> Self {
        self.slot = slot.into();
        self
    }

    /// Another job id.
    pub fn with_job_id(mut self, id: impl Into<String>) -> Self {
        self.job_id = id.into();
        self
    }

    /// Another tenant.
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// Another lag.
    pub fn with_lag(mut self, lag: Duration) -> Self {
        self.lag = lag;
        self
    }

    /// The lines that the task has logged so far.
    pub fn logged(&self) -> Vec<(Level, String)> {
        self.logged.borrow().clone()
    }

    fn log(&self, level: Level, message: &dyn Display) {
        self.logged.borrow_mut().push((level, message.to_string()));
    }
}
