//! Tasks and their versions.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A version of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// The task's name; absent if it was asked for by its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version.
    pub digest: String,
    /// `ready`; `compiling` or `refused` for a version that was just uploaded.
    pub status: String,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The tags that point at this version.
    pub tags: Vec<String>,
    /// The component's size.
    pub size_bytes: u64,
    /// `task`, or `command` for a `wasi:cli/run` program.
    pub kind: String,
    /// What it imports.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// The capabilities beyond the default that it needs.
    pub grants: Vec<String>,
    /// When it was first pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub pushed_at: Option<String>,
    /// The JSON Schema of its parameters, if it says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters_schema: Option<Box<RawValue>>,
    /// All versions under this name, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<TaskVersionView>,
}

/// A version among those of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskVersionView {
    /// The version.
    pub digest: String,
    /// The tags that point at it.
    pub tags: Vec<String>,
    /// When it was last pushed under this name.
    #[schema(format = DateTime)]
    pub pushed_at: String,
}
