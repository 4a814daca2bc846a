//! What `#[task]` expands to, as far as it needs no macro. Not part of the public surface.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::TaskError;

/// Reads the parameters. A job without any is `null`, or `{}` to a type that knows no `null`.
pub fn parameters<P: DeserializeOwned + JsonSchema>(input: &[u8]) -> Result<P, TaskError> {
    let input = input.trim_ascii();
    if !input.is_empty() && input != b"null" {
        return read(input);
    }
    read(b"null").or_else(|_| read(b"{}"))
}

/// Writes the output.
pub fn output(output: &impl Serialize) -> Result<Vec<u8>, TaskError> {
    serde_json::to_vec(output).map_err(|error| TaskError::permanent(format_args!("the output is not JSON: {error}")))
}

/// The JSON Schema of a task's parameters. It allows `null`, which is a job without any, wherever [`parameters`] does.
pub fn schema<P: DeserializeOwned + JsonSchema>() -> String {
    let mut schema = schemars::schema_for!(P);
    if parameters::<P>(b"null").is_ok()
        && let Some(kind) = schema.get_mut("type").filter(|kind| *kind == "object")
    {
        *kind = serde_json::json!(["object", "null"]);
    }
    schema.to_value().to_string()
}

/// The parameters of a task that takes none. A job may still say so with `{}`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

fn read<P: DeserializeOwned>(json: &[u8]) -> Result<P, TaskError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let parameters = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let fault = error.into_inner();
        match (fault.is_data(), path.as_str()) {
            (false, _) => TaskError::permanent(format_args!("the parameters are not JSON: {fault}")),
            (true, ".") => TaskError::permanent(format_args!("parameters: {fault}")),
            (true, path) => TaskError::permanent(format_args!("parameter `{path}`: {fault}")),
        }
    })?;
    reader.end().map_err(|fault| TaskError::permanent(format_args!("the parameters are not JSON: {fault}")))?;
    Ok(parameters)
}

/// The generated half: what the component imports and exports.
#[cfg(target_family = "wasm")]
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "compline:task/described-task",
        pub_export_macro: true,
        export_macro_name: "export_task",
        default_bindings_module: "compline_sdk::__glue::bindings",
    });

    use crate::ErrorKind as Kind;
    use compline::task::types::ErrorKind;

    impl From<crate::TaskError> for TaskError {
        fn from(error: crate::TaskError) -> Self {
            let kind = match error.kind() {
                Kind::Retryable => ErrorKind::Retryable,
                Kind::Permanent => ErrorKind::Permanent,
            };
            Self { kind, message: error.message().to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Order {
        items: Vec<Item>,
        #[serde(default)]
        note: String,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Item {
        price: u32,
    }

    fn refusal<P: DeserializeOwned + JsonSchema + std::fmt::Debug>(input: &str) -> String {
        let error = parameters::<P>(input.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permanent);
        error.message().to_owned()
    }

    #[test]
    fn a_refusal_names_the_field_by_its_path() {
        let nested = refusal::<Order>(r#"{"items":[{"price":1},{"price":"2"}]}"#);
        assert!(nested.starts_with("parameter `items[1].price`: invalid type: string \"2\", expected u32"), "{nested}");
        assert!(refusal::<Order>(r#"{"items":[{}]}"#).starts_with("parameter `items[0]`: missing field `price`"));
        assert!(refusal::<Order>("").starts_with("parameters: missing field `items`"));
        assert!(refusal::<Order>("{").starts_with("the parameters are not JSON: "));
        assert!(refusal::<Order>(r#"{"items":[]} x"#).starts_with("the parameters are not JSON: trailing characters"));
    }

    #[test]
    fn a_job_without_parameters_is_null_or_an_empty_object() {
        #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
        #[serde(default)]
        struct Defaults {
            rows: u32,
        }
        impl Default for Defaults {
            fn default() -> Self {
                Self { rows: 7 }
            }
        }
        for input in ["", " \n", "null"] {
            assert_eq!(parameters::<()>(input.as_bytes()), Ok(()));
            assert_eq!(parameters::<Option<u8>>(input.as_bytes()), Ok(None));
            assert_eq!(parameters::<Defaults>(input.as_bytes()), Ok(Defaults { rows: 7 }));
        }
    }

    #[test]
    fn a_task_without_parameters_takes_nothing_else() {
        for input in ["", "null", "{}"] {
            parameters::<NoParameters>(input.as_bytes()).unwrap();
        }
        assert!(refusal::<NoParameters>(r#"{"rows":1}"#).contains("unknown field `rows`"));
    }

    #[test]
    fn an_output_that_json_cannot_say_is_refused_for_good() {
        assert_eq!(output(&Some(1)).unwrap(), b"1");
        let keys = std::collections::BTreeMap::from([(vec![1], 2)]);
        assert_eq!(output(&keys).unwrap_err().message(), "the output is not JSON: key must be a string");
    }

    #[test]
    fn the_schema_is_of_the_edition_the_host_reads() {
        let schema: serde_json::Value = serde_json::from_str(&schema::<Order>()).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["required"], serde_json::json!(["items"]));
        assert_eq!(schema["type"], "object");
    }

    #[test]
    fn the_schema_allows_a_job_without_parameters_where_the_task_does() {
        let schema: serde_json::Value = serde_json::from_str(&schema::<NoParameters>()).unwrap();
        assert_eq!(schema["type"], serde_json::json!(["object", "null"]));
        assert_eq!(schema["additionalProperties"], false);
    }
}
