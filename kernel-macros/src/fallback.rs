//! What a declaration with mistakes emits: the mistakes, and the items that its users name, so that they do not fail as
//! well.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{FnArg, Ident, Pat, Type};

use crate::ast::Item;
use crate::check::Mistakes;
use crate::expand::{constructor_signature, marker_name, marker_type, node_trait};
use crate::param::Role;

/// The errors and the items.
pub fn fallback(item: &Item, mistakes: &Mistakes) -> TokenStream {
    let errors = mistakes.errors.to_compile_error();
    let functions = &mistakes.functions;
    let (vis, name) = (&item.vis, &item.sig.ident);
    let marker = marker_name(name);
    let arguments: Vec<(&Ident, &Type)> = item.sig.inputs.iter().filter_map(named).collect();
    let bound = arguments.iter().map(|(name, ty)| {
        let role = Role::of(ty).filter(|role| role.wrong_element().is_none());
        (*name, role.map_or_else(|| ty.to_token_stream(), |role| role.bound()))
    });
    let signature =
        constructor_signature(vis, name, bound, item.sig.inputs.iter().any(|input| marked(input, "step")));
    let scalars: Vec<(&Ident, &Type)> =
        item.sig.inputs.iter().filter(|input| marked(input, "node")).filter_map(named).collect();
    let marker_type = marker_type(vis, name, &marker);
    let node = node_trait(vis, name, &marker, &scalars);
    let node_impl = (!scalars.is_empty()).then(|| {
        let node = Ident::new(&format!("{marker}Node"), marker.span());
        let setters = scalars.iter().map(|(name, ty)| {
            let set = Ident::new(&format!("set_{name}"), name.span());
            quote! {
                fn #set(
                    &mut self,
                    _: &mut ::bitwalk::device::GraphExec,
                    _: #ty,
                ) -> ::core::result::Result<(), ::bitwalk::device::DeviceError> {
                    ::core::unreachable!("the declaration does not compile")
                }
            }
        });
        quote!(impl #node for ::bitwalk::kernel::Node<#marker> { #(#setters)* })
    });
    // Generic parameters are a mistake, but the types may name them.
    let constructor = item.sig.generics.params.is_empty().then(|| {
        quote! {
            #[allow(unused_variables, missing_docs, dead_code)]
            #signature {
                ::core::unreachable!("the declaration does not compile")
            }
        }
    });
    quote! {
        #errors
        #constructor
        #marker_type
        #node
        #node_impl
        const _: () = {
            #(let _ = #functions;)*
        };
        impl ::bitwalk::kernel::Kernel for #marker {
            const DECL: &'static ::bitwalk::kernel::KernelDecl = ::core::panic!("the declaration does not compile");
        }
    }
}

fn named(input: &FnArg) -> Option<(&Ident, &Type)> {
    let FnArg::Typed(typed) = input else { return None };
    match &*typed.pat {
        Pat::Ident(pat) => Some((&pat.ident, &*typed.ty)),
        _ => None,
    }
}

fn marked(input: &FnArg, attribute: &str) -> bool {
    let FnArg::Typed(typed) = input else { return false };
    typed.attrs.iter().any(|attr| attr.path().is_ident(attribute))
}
