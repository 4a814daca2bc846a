//! Why a command failed, and the exit code that says so.

use crate::api::Problem;
use crate::refusal::Refusal;

/// The exit codes that scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The run or the operation failed.
    Failed = 1,
    /// The command was given wrongly.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// The server refused.
    Refused = 4,
    /// The server can't be reached, or failed.
    Server = 5,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    exit: Exit,
    kind: String,
    detail: String,
    field: Option<String>,
    hint: Option<String>,
    result_printed: bool,
}

impl CliError {
    fn new(exit: Exit, kind: &str, detail: impl Into<String>) -> Self {
        let kind = format!("urn:compline:problem:{kind}");
        Self { exit, kind, detail: detail.into(), field: None, hint: None, result_printed: false }
    }

    /// The run or the operation failed.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "failed", detail)
    }

    /// The command was given wrongly.
    pub fn usage(refusal: Refusal) -> Self {
        let Refusal { field, detail, hint } = refusal;
        Self { field: Some(field), hint, ..Self::new(Exit::Usage, "invalid-field", detail) }
    }

    /// The server can't be reached.
    pub fn unreachable(detail: impl Into<String>) -> Self {
        Self::new(Exit::Server, "unreachable", detail)
    }

    /// The server answered with a problem.
    pub fn problem(problem: Problem) -> Self {
        let exit = match problem.status {
            404 => Exit::NotFound,
            400..=499 => Exit::Refused,
            _ => Exit::Server,
        };
        let Problem { kind, detail, field, hint, .. } = problem;
        Self { exit, kind, detail, field, hint, result_printed: false }
    }

    /// Says what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The result, which tells of the failure, is printed already: stdout needs no second document.
    #[must_use]
    pub fn after_result(mut self) -> Self {
        self.result_printed = true;
        self
    }

    /// Whether stdout has the result already.
    pub fn is_after_result(&self) -> bool {
        self.result_printed
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// What went wrong, with the field where there is one.
    pub fn text(&self) -> String {
        match &self.field {
            Some(field) => format!("{field}: {}", self.detail),
            None => self.detail.clone(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The same for programs.
    pub fn document(&self) -> serde_json::Value {
        serde_json::json!({ "type": self.kind, "detail": self.detail, "field": self.field, "hint": self.hint })
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        Self::usage(refusal)
    }
}
