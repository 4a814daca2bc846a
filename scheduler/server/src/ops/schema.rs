//! JSON Schemas of parameters: read once per task version, and asked for every job.

use std::collections::HashMap;
use std::sync::Arc;

use compline_core::ids::TaskDigest;
use compline_store::tables::task::TaskVersion;
use parking_lot::Mutex;

use crate::refusal::Refusal;

/// Schemas that are kept parsed.
const CACHED_MAX: usize = 1_000;

/// A parsed schema of a task's parameters.
#[derive(Debug)]
pub struct ParametersSchema(jsonschema::Validator);

impl ParametersSchema {
    /// Reads a schema. Patterns are matched in linear time, whatever the task says; nothing is fetched.
    pub fn parse(text: &str) -> Result<Self, String> {
        let schema: serde_json::Value = serde_json::from_str(text).map_err(|error| {
            format!("`parameters-schema` did not return JSON: {error}. Return a JSON Schema (2020-12)")
        })?;
        jsonschema::options()
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&schema)
            .map(Self)
            .map_err(|error| format!("`parameters-schema` did not return a usable JSON Schema: {error}"))
    }

    /// Whether parameters fit. The refusal names the place and what is wanted there.
    pub fn check(&self, parameters: &serde_json::Value) -> Result<(), Refusal> {
        let Some(error) = self.0.iter_errors(parameters).next() else { return Ok(()) };
        let place = error.instance_path().to_string();
        let field = format!("parameters{}", place.replace('/', "."));
        Err(Refusal::new(field, error.to_string())
            .hint("`compline task show` prints the schema that the task gives for its parameters"))
    }
}

impl ParametersSchema {
    /// Whether parameters (JSON text; empty for none) fit.
    pub fn check_text(&self, parameters: &[u8]) -> Result<(), Refusal> {
        if parameters.is_empty() {
            // A task without parameters is handed nothing, which it reads as null, or as an object without fields where it wants one.
            let object = serde_json::Value::Object(serde_json::Map::new());
            return self.check(&serde_json::Value::Null).or_else(|_| self.check(&object)).map_err(|refusal| {
                Refusal::new("parameters", "this task takes parameters, and there are none").hint(refusal.detail)
            });
        }
        let value = serde_json::from_slice(parameters)
            .map_err(|error| Refusal::new("parameters", format!("they are not JSON: {error}")))?;
        self.check(&value)
    }
}

/// Parsed schemas by task version.
#[derive(Debug, Default)]
pub struct SchemaCache(Mutex<HashMap<TaskDigest, Arc<ParametersSchema>>>);

impl SchemaCache {
    /// Whether a job's parameters (JSON text; empty for none) fit the task.
    pub fn check(&self, version: &TaskVersion, parameters: &[u8]) -> Result<(), Refusal> {
        let Some(text) = &version.parameters_schema else { return Ok(()) };
        let schema = self.parsed(version.digest, text)?;
        schema.check_text(parameters)
    }

    fn parsed(&self, digest: TaskDigest, text: &str) -> Result<Arc<ParametersSchema>, Refusal> {
        if let Some(known) = self.0.lock().get(&digest) {
            return Ok(known.clone());
        }
        let parsed = ParametersSchema::parse(text).map_err(|detail| Refusal::new("task", detail))?;
        let parsed = Arc::new(parsed);
        let mut cache = self.0.lock();
        if cache.len() >= CACHED_MAX {
            cache.clear();
        }
        cache.insert(digest, parsed.clone());
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compline_core::Timestamp;

    fn version(schema: &str) -> TaskVersion {
        TaskVersion {
            digest: TaskDigest::of(schema.as_bytes()),
            size_bytes: 1,
            is_command: false,
            imports: Vec::new(),
            exports: Vec::new(),
            grants: Vec::new(),
            parameters_schema: Some(schema.to_owned()),
            pushed_at: Timestamp::EPOCH,
        }
    }

    #[test]
    fn parameters_that_do_not_fit_are_refused_with_their_place() {
        let cache = SchemaCache::default();
        let task = version(
            r#"{"type":"object","required":["region"],"properties":{"region":{"type":"string"},
                "items":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}}}}"#,
        );
        assert_eq!(cache.check(&task, br#"{"region":"eu","items":[{"n":1}]}"#), Ok(()));
        for (parameters, field) in [
            (r#"{"region":5}"#, "parameters.region"),
            (r#"{"region":"eu","items":[{"n":1},{"n":"x"}]}"#, "parameters.items.1.n"),
            (r#"{}"#, "parameters"),
            ("[]", "parameters"),
            ("", "parameters"),
        ] {
            assert_eq!(cache.check(&task, parameters.as_bytes()).unwrap_err().field, field, "{parameters}");
        }
    }

    #[test]
    fn no_parameters_are_null_or_an_empty_object() {
        let cache = SchemaCache::default();
        for fits in [r#"{"type":"null"}"#, r#"{"type":"object"}"#, r#"{"properties":{"a":{"type":"string"}}}"#, "true"]
        {
            assert_eq!(cache.check(&version(fits), b""), Ok(()), "{fits}");
        }
        for wants_more in [r#"{"type":"object","required":["a"]}"#, r#"{"type":"string"}"#, "false"] {
            assert_eq!(cache.check(&version(wants_more), b"").unwrap_err().field, "parameters", "{wants_more}");
        }
    }

    #[test]
    fn a_hostile_schema_neither_fetches_nor_hangs() {
        assert!(ParametersSchema::parse("{").is_err());
        assert!(ParametersSchema::parse(r#"{"type":5}"#).is_err());
        assert!(ParametersSchema::parse(r#"{"$ref":"http://127.0.0.1:1/x"}"#).is_err());
        assert!(ParametersSchema::parse(r#"{"$ref":"file:///etc/passwd"}"#).is_err());
        let slow = ParametersSchema::parse(r#"{"type":"string","pattern":"^(a+)+$"}"#).unwrap();
        assert!(slow.check(&serde_json::Value::String(format!("{}b", "a".repeat(50_000)))).is_err());
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        for text in [
            r##"{"$ref":"#"}"##,
            r##"{"allOf":[{"$ref":"#"}]}"##,
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
            r##"{"not":{"$ref":"#"}}"##,
        ] {
            if let Ok(schema) = ParametersSchema::parse(text) {
                // Either answer is right; what counts is that there is one.
                let _ = schema.check(&serde_json::json!({"a": 1}));
            }
        }
    }
}
