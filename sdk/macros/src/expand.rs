//! From the author's function to the component's exports.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, Result, ReturnType, Type};

/// What a task looks like, for every message that has to say it.
const SHAPE: &str = "fn name(ctx: &Context, params: Params) -> Result<Output, TaskError>";

/// The expansion. After a refusal the author's own code is kept, so that the refusal is the only error shown.
pub fn task(attribute: TokenStream, item: TokenStream) -> TokenStream {
    match exports(attribute, &item) {
        Ok(exports) => quote! { #item #exports },
        Err(error) => {
            let error = error.into_compile_error();
            quote! { #item #error }
        }
    }
}

fn exports(attribute: TokenStream, item: &TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(attribute, "#[task] takes no arguments"));
    }
    let function: ItemFn = syn::parse2(item.clone())
        .map_err(|error| Error::new(error.span(), format!("#[task] goes on a function like `{SHAPE}` ({error})")))?;
    check_signature(&function)?;
    let name = &function.sig.ident;
    let Arguments { context, parameters } = arguments(&function)?;
    let (parameters, passed) = match parameters {
        Some(parameters) => (parameters.to_token_stream(), Some(quote! { , parameters })),
        None => (quote! { ::compline_sdk::__glue::NoParameters }, None),
    };
    // Each part carries the place of the author's code that it stands on: that is where a missing derive or a wrong type is reported.
    let read = quote_spanned! {parameters.span()=> ::compline_sdk::__glue::parameters::<#parameters>(input) };
    let ctx = quote_spanned! {context.span()=> ctx };
    let output = function.sig.output.span();
    let call = quote_spanned! {output=> #name(#ctx #passed) };
    let write = quote_spanned! {output=> ::compline_sdk::__glue::output(&output?) };
    Ok(quote! {
        const _: () = {
            // Compiled for every target, so that the author's mistakes show in a plain `cargo check`.
            #[cfg_attr(not(target_family = "wasm"), allow(dead_code))]
            fn run(
                ctx: &::compline_sdk::Context,
                input: &[u8],
            ) -> ::core::result::Result<::std::vec::Vec<u8>, ::compline_sdk::TaskError> {
                #[allow(unused_variables)]
                let parameters = #read?;
                let output: ::core::result::Result<_, ::compline_sdk::TaskError> = #call;
                #write
            }

            #[cfg(not(target_family = "wasm"))]
            const _: fn(
                &::compline_sdk::Context,
                &[u8],
            ) -> ::core::result::Result<::std::vec::Vec<u8>, ::compline_sdk::TaskError> = run;

            #[cfg(target_family = "wasm")]
            #[allow(unsafe_code)]
            const _: () = {
                use ::compline_sdk::__glue::bindings;

                struct Component;

                impl bindings::Guest for Component {
                    fn run(input: ::std::vec::Vec<u8>) -> ::core::result::Result<::std::vec::Vec<u8>, bindings::TaskError> {
                        run(&::compline_sdk::Context::current(), &input).map_err(::core::convert::Into::into)
                    }

                    fn parameters_schema() -> ::std::string::String {
                        ::compline_sdk::__glue::schema::<#parameters>()
                    }
                }

                bindings::export_task!(Component with_types_in ::compline_sdk::__glue::bindings);
            };
        };
    })
}

/// Refuses what the host could not call, in the words of someone who wants a task.
fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(
            token,
            "a task is a plain function: leave out `async`, the host runs many at a time",
        ));
    }
    if let Some(token) = &signature.unsafety {
        return Err(Error::new_spanned(token, "a task is a plain function: leave out `unsafe`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a task has no generics: the host reads JSON into one type, so name it",
        ));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(Error::new_spanned(
            &signature.ident,
            format!("a task returns a `Result`: `{SHAPE}`; with nothing to return, `Result<(), TaskError>`"),
        ));
    }
    Ok(())
}

/// The types of a task's arguments.
struct Arguments<'f> {
    context: &'f Type,
    parameters: Option<&'f Type>,
}

fn arguments(function: &ItemFn) -> Result<Arguments<'_>> {
    let mut inputs = function.sig.inputs.iter();
    let context = match inputs.next() {
        None => {
            let name = &function.sig.ident;
            let message = format!("a task's first argument is its context: `{SHAPE}`; `params` may be left out");
            return Err(Error::new_spanned(name, message));
        }
        Some(FnArg::Receiver(receiver)) => {
            return Err(Error::new_spanned(receiver, format!("a task is a free function: `{SHAPE}`")));
        }
        Some(FnArg::Typed(argument)) => &*argument.ty,
    };
    if !matches!(context, Type::Reference(reference) if reference.mutability.is_none()) {
        return Err(Error::new_spanned(context, "a task's first argument is its context, of type `&Context`"));
    }
    let parameters = match inputs.next() {
        Some(FnArg::Typed(argument)) => Some(&*argument.ty),
        // A receiver can only come first.
        Some(FnArg::Receiver(_)) | None => None,
    };
    if let Some(third) = inputs.next() {
        let message =
            "a task takes its parameters as one value: put them in a struct with `Deserialize` and `JsonSchema`";
        return Err(Error::new_spanned(third, message));
    }
    match parameters {
        Some(Type::Reference(reference)) => {
            Err(Error::new_spanned(reference, "a task owns its parameters: take them by value, without `&`"))
        }
        Some(Type::ImplTrait(bound)) => {
            Err(Error::new_spanned(bound, "the host reads JSON into one type: name the type of the parameters"))
        }
        parameters => Ok(Arguments { context, parameters }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> String {
        let item: TokenStream = source.parse().unwrap();
        exports(TokenStream::new(), &item).map(|_| ()).expect_err(source).to_string()
    }

    #[test]
    fn both_shapes_of_a_task_are_taken() {
        for source in [
            "fn f(ctx: &Context, params: Params) -> Result<Out, TaskError> { todo(ctx, params) }",
            "pub fn f(_: &compline_sdk::Context) -> Result<(), TaskError> { Ok(()) }",
        ] {
            let item: TokenStream = source.parse().unwrap();
            let expansion = exports(TokenStream::new(), &item).unwrap();
            syn::parse2::<syn::File>(expansion).unwrap();
        }
    }

    #[test]
    fn every_refusal_says_what_is_expected() {
        for (source, expected) in [
            ("struct S;", "goes on a function like `fn name(ctx: &Context"),
            ("async fn f(ctx: &Context) -> Result<(), TaskError> {}", "leave out `async`"),
            ("unsafe fn f(ctx: &Context) -> Result<(), TaskError> {}", "leave out `unsafe`"),
            ("fn f<T>(ctx: &Context, p: T) -> Result<(), TaskError> {}", "no generics"),
            ("fn f(ctx: &Context) {}", "`Result<(), TaskError>`"),
            ("fn f() -> Result<(), TaskError> {}", "first argument is its context"),
            ("fn f(&self) -> Result<(), TaskError> {}", "free function"),
            ("fn f(p: Params) -> Result<(), TaskError> {}", "of type `&Context`"),
            ("fn f(ctx: &mut Context) -> Result<(), TaskError> {}", "of type `&Context`"),
            ("fn f(ctx: &Context, p: &Params) -> Result<(), TaskError> {}", "by value"),
            ("fn f(ctx: &Context, p: impl Copy) -> Result<(), TaskError> {}", "name the type"),
            ("fn f(ctx: &Context, a: u8, b: u8) -> Result<(), TaskError> {}", "as one value"),
        ] {
            let refusal = refusal(source);
            assert!(refusal.contains(expected), "{source}: {refusal}");
        }
    }

    #[test]
    fn the_attribute_takes_no_arguments() {
        let refusal = exports(quote! { retries = 3 }, &TokenStream::new()).unwrap_err();
        assert_eq!(refusal.to_string(), "#[task] takes no arguments");
    }
}
