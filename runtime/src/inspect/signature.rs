//! Types of exports: whether they are what the contract asks for, and how to name them when they are not.

use wasmparser::PrimitiveValType;
use wasmparser::component_types::{ComponentDefinedType, ComponentEntityType, ComponentFuncType, ComponentValType};
use wasmparser::types::TypesRef;

/// How deep a type is spelled out; a refusal has to stay readable.
const DEPTH_MAX: u32 = 4;

/// `func(list<u8>) -> result<list<u8>, task-error>`, whatever the parameter is called.
pub(super) fn is_run(types: &TypesRef<'_>, export: &ComponentEntityType) -> bool {
    let Some(func) = function(types, export) else { return false };
    let [(_, input)] = &*func.params else { return false };
    let Some(ComponentDefinedType::Result { ok: Some(ok), err: Some(err), .. }) =
        func.result.and_then(|ty| defined(types, ty))
    else {
        return false;
    };
    !func.async_ && is_bytes(types, *input) && is_bytes(types, *ok) && is_task_error(types, *err)
}

/// `func() -> string`.
pub(super) fn is_parameters_schema(types: &TypesRef<'_>, export: &ComponentEntityType) -> bool {
    let Some(func) = function(types, export) else { return false };
    !func.async_
        && func.params.is_empty()
        && func.result.is_some_and(|ty| is_primitive(types, ty, PrimitiveValType::String))
}

/// How an export looks, as in a WIT file.
pub(super) fn describe(types: &TypesRef<'_>, export: &ComponentEntityType) -> String {
    let Some(func) = function(types, export) else {
        return match export {
            ComponentEntityType::Instance(_) => "an interface",
            ComponentEntityType::Component(_) => "a component",
            ComponentEntityType::Module(_) => "a core module",
            ComponentEntityType::Type { .. } => "a type",
            ComponentEntityType::Value(_) | ComponentEntityType::Func(_) => "a value",
        }
        .to_owned();
    };
    let params: Vec<_> = func.params.iter().map(|(name, ty)| format!("{name}: {}", name_of(types, *ty, 0))).collect();
    let result = func.result.map_or_else(String::new, |ty| format!(" -> {}", name_of(types, ty, 0)));
    format!("{}func({}){result}", if func.async_ { "async " } else { "" }, params.join(", "))
}

fn function<'a>(types: &'a TypesRef<'a>, export: &ComponentEntityType) -> Option<&'a ComponentFuncType> {
    match export {
        ComponentEntityType::Func(id) => Some(&types[*id]),
        _ => None,
    }
}

fn defined<'a>(types: &'a TypesRef<'a>, ty: ComponentValType) -> Option<&'a ComponentDefinedType> {
    match ty {
        ComponentValType::Type(id) => Some(&types[id]),
        ComponentValType::Primitive(_) => None,
    }
}

fn is_primitive(types: &TypesRef<'_>, ty: ComponentValType, wanted: PrimitiveValType) -> bool {
    match ty {
        ComponentValType::Primitive(found) => found == wanted,
        ComponentValType::Type(id) => matches!(types[id], ComponentDefinedType::Primitive(found) if found == wanted),
    }
}

fn is_bytes(types: &TypesRef<'_>, ty: ComponentValType) -> bool {
    matches!(defined(types, ty), Some(ComponentDefinedType::List { element, .. }) if is_primitive(types, *element, PrimitiveValType::U8))
}

fn is_task_error(types: &TypesRef<'_>, ty: ComponentValType) -> bool {
    let Some(ComponentDefinedType::Record(record)) = defined(types, ty) else { return false };
    let mut fields = record.fields.iter();
    let (Some((kind, kind_type)), Some((message, message_type)), None) = (fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    let Some(ComponentDefinedType::Enum(cases)) = defined(types, *kind_type) else { return false };
    kind.as_str() == "kind"
        && message.as_str() == "message"
        && cases.iter().map(|case| case.as_str()).eq(["retryable", "permanent"])
        && is_primitive(types, *message_type, PrimitiveValType::String)
}

fn name_of(types: &TypesRef<'_>, ty: ComponentValType, depth: u32) -> String {
    let inner = |ty: &ComponentValType| name_of(types, *ty, depth + 1);
    let maybe = |ty: &Option<ComponentValType>| ty.as_ref().map_or_else(|| "_".to_owned(), inner);
    let Some(defined) = defined(types, ty) else {
        return match ty {
            ComponentValType::Primitive(primitive) => primitive.to_string(),
            ComponentValType::Type(_) => "…".to_owned(),
        };
    };
    if depth >= DEPTH_MAX {
        return "…".to_owned();
    }
    match defined {
        ComponentDefinedType::Primitive(primitive) => primitive.to_string(),
        ComponentDefinedType::List { element, .. } => format!("list<{}>", inner(element)),
        ComponentDefinedType::Option { ty, .. } => format!("option<{}>", inner(ty)),
        ComponentDefinedType::Result { ok, err: None, .. } => match ok {
            None => "result".to_owned(),
            Some(ok) => format!("result<{}>", inner(ok)),
        },
        ComponentDefinedType::Result { ok, err, .. } => format!("result<{}, {}>", maybe(ok), maybe(err)),
        ComponentDefinedType::Tuple(tuple) => {
            format!("tuple<{}>", tuple.types.iter().map(inner).collect::<Vec<_>>().join(", "))
        }
        ComponentDefinedType::Record(record) => {
            let fields: Vec<_> =
                record.fields.iter().take(8).map(|(name, ty)| format!("{name}: {}", inner(ty))).collect();
            format!("record {{ {} }}", fields.join(", "))
        }
        ComponentDefinedType::Enum(_) => "enum".to_owned(),
        ComponentDefinedType::Flags(_) => "flags".to_owned(),
        ComponentDefinedType::Variant(_) => "variant".to_owned(),
        ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_) => "resource".to_owned(),
        ComponentDefinedType::Map { .. } => "map".to_owned(),
        ComponentDefinedType::FixedLengthList { .. } => "fixed-length list".to_owned(),
        ComponentDefinedType::Future { .. } => "future".to_owned(),
        ComponentDefinedType::Stream { .. } => "stream".to_owned(),
    }
}
