//! What a component is, read from its bytes without compiling it.
//!
//! Types, imports and exports are checked here, function bodies are not: that is the compiler's work, in its own bounded place.

mod imports;
mod refusal;
mod signature;

use serde::{Deserialize, Serialize};
use wasmparser::component_types::ComponentEntityType;
use wasmparser::types::TypesRef;
use wasmparser::{Parser, Payload, ValidPayload, Validator};

pub use self::refusal::Refusal;

use crate::digest::Digest;

/// The largest component that is looked at.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;

pub(crate) const RUN: &str = "run";
pub(crate) const PARAMETERS_SCHEMA: &str = "parameters-schema";
const COMMAND: &str = "wasi:cli/run@0.2.";

/// How a component is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It exports `run`, as world `compline:task/task` describes it.
    Task,
    /// It exports `wasi:cli/run`: input on standard input, output on standard output, the exit code is the outcome.
    Command,
}

/// What a component is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentInfo {
    /// Its name.
    pub digest: Digest,
    /// Its size.
    pub size_bytes: u64,
    /// How it is run.
    pub kind: Kind,
    /// The interfaces that it uses, in its own order and spelling.
    pub imports: Vec<String>,
    /// What it provides.
    pub exports: Vec<String>,
    /// The capabilities that it needs beyond what every task may do. All that is linked today is open to every task.
    pub grants: Vec<String>,
    /// Whether it says which parameters it takes.
    pub has_parameters_schema: bool,
}

/// Reads what a component is, or says why it can't be a task.
pub fn inspect(bytes: &[u8]) -> Result<ComponentInfo, Refusal> {
    if bytes.is_empty() {
        return Err(Refusal::Empty);
    }
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(Refusal::TooLarge { found: bytes.len(), limit: COMPONENT_BYTES_MAX });
    }
    if Parser::is_core_wasm(bytes) {
        return Err(core_module(bytes));
    }
    if !Parser::is_component(bytes) {
        return Err(not_wasm(bytes));
    }
    let outline = outline(bytes).map_err(|reason| Refusal::Malformed { reason })?;
    outline.info(bytes)
}

struct Outline {
    types: wasmparser::types::Types,
    /// Names with whether they are more than a type: a type needs nobody to provide it.
    imports: Vec<(String, bool)>,
    exports: Vec<String>,
}

/// Walks the whole binary, nested modules included, and remembers the outermost imports and exports.
fn outline(bytes: &[u8]) -> Result<Outline, String> {
    let text = |error: wasmparser::Error| error.to_string();
    let mut validator = Validator::new();
    let (mut imports, mut exports, mut depth) = (Vec::new(), Vec::new(), 0_u32);
    let mut types = None;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(text)?;
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section.clone() {
                    let import = import.map_err(text)?;
                    let is_type = matches!(import.ty, wasmparser::ComponentTypeRef::Type(_));
                    imports.push((import.name.name.to_owned(), !is_type));
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section.clone() {
                    exports.push(export.map_err(text)?.name.name.to_owned());
                }
            }
            _ => {}
        }
        if let ValidPayload::End(ended) = validator.payload(&payload).map_err(text)? {
            depth -= 1;
            types = Some(ended);
        }
    }
    // The parser ends every module that it began, or reports that the file was cut.
    types.map(|types| Outline { types, imports, exports }).ok_or_else(|| "it has no end".to_owned())
}

impl Outline {
    fn info(self, bytes: &[u8]) -> Result<ComponentInfo, Refusal> {
        let types = &self.types.as_ref();
        for (name, provided_by_host) in &self.imports {
            if *provided_by_host {
                imports::check(name)?;
            }
        }
        let kind = kind(types, &self.exports)?;
        let has_parameters_schema = self.exports.iter().any(|name| name == PARAMETERS_SCHEMA);
        if has_parameters_schema {
            let found = export_type(types, PARAMETERS_SCHEMA);
            if !found.as_ref().is_some_and(|ty| signature::is_parameters_schema(types, ty)) {
                let found = found.map_or_else(String::new, |ty| signature::describe(types, &ty));
                return Err(Refusal::WrongParametersSchema { found });
            }
        }
        Ok(ComponentInfo {
            digest: Digest::of(bytes),
            size_bytes: bytes.len() as u64,
            kind,
            imports: self.imports.into_iter().filter(|(_, provided)| *provided).map(|(name, _)| name).collect(),
            exports: self.exports,
            grants: Vec::new(),
            has_parameters_schema,
        })
    }
}

fn kind(types: &TypesRef<'_>, exports: &[String]) -> Result<Kind, Refusal> {
    if let Some(run) = export_type(types, RUN) {
        if signature::is_run(types, &run) {
            return Ok(Kind::Task);
        }
        return Err(Refusal::WrongRun { found: signature::describe(types, &run) });
    }
    if exports.iter().any(|name| name.starts_with(COMMAND)) {
        return Ok(Kind::Command);
    }
    Err(Refusal::NoRun { found: exports.to_vec() })
}

fn export_type(types: &TypesRef<'_>, name: &str) -> Option<ComponentEntityType> {
    types.component_item_for_export(name).map(|item| item.ty)
}

fn core_module(bytes: &[u8]) -> Refusal {
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::ImportSection(section)) => {
                let preview1 = section
                    .into_imports()
                    .filter_map(Result::ok)
                    .any(|import| matches!(import.module, "wasi_snapshot_preview1" | "wasi_unstable"));
                return if preview1 { Refusal::WasiPreview1 } else { Refusal::CoreModule };
            }
            Ok(_) => {}
            Err(error) => return Refusal::Malformed { reason: error.to_string() },
        }
    }
    Refusal::CoreModule
}

fn not_wasm(bytes: &[u8]) -> Refusal {
    if bytes.starts_with(b"\0asm") {
        return Refusal::Malformed { reason: "it begins like WebAssembly, but of a version that is not known".into() };
    }
    let start = &bytes[..bytes.len().min(4096)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // The cut may fall inside a character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => return Refusal::NotWasm,
    };
    if text.is_empty() || text.contains('\0') {
        return Refusal::NotWasm;
    }
    let code = text.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with(";;"));
    Refusal::Text { is_wat: code.is_some_and(|line| line.starts_with("(module") || line.starts_with("(component")) }
}
