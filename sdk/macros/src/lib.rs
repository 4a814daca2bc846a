//! The attribute behind `compline_sdk::task`.

mod expand;

use proc_macro::TokenStream;

/// Makes a function the task of this crate.
///
/// ```ignore
/// #[compline_sdk::task]
/// fn welcome(ctx: &Context, params: Params) -> Result<Receipt, TaskError> { /* … */ }
/// ```
///
/// The function stays what it is, so that tests can call it; for wasm targets the component's exports are added. `Params` is
/// `Deserialize` and `JsonSchema`, and may be left out; `Receipt` is `Serialize`. One crate has one task.
#[proc_macro_attribute]
pub fn task(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::task(attribute.into(), item.into()).into()
}
