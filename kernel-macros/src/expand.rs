//! Emits what a declaration without mistakes stands for.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Type, Visibility};

use crate::check::Kernel;
use crate::names::total;
use crate::param::{Access, Class, Extent, Param, Role};

/// The whole expansion.
pub fn expand(kernel: &Kernel) -> TokenStream {
    let marker = marker_name(&kernel.name);
    let names = node_scalars(&kernel.params);
    let constructor = constructor(kernel, &marker);
    let marker_type = marker_type(&kernel.vis, &kernel.name, &marker);
    let node = node_trait(&kernel.vis, &kernel.name, &marker, &names);
    let node_impl = node_impl(&kernel.params, &marker);
    let descriptor = descriptor(kernel, &marker);
    quote! {
        #constructor
        #marker_type
        #node
        #node_impl
        #descriptor
    }
}

/// `attn_split_f16` is marked by `AttnSplitF16`; an underscore between digits stays (`q8_0` is `Q8_0`).
pub fn marker_name(name: &Ident) -> Ident {
    let text = name.to_string();
    let mut out = String::new();
    let mut last = '_';
    let mut chars = text.trim_start_matches("r#").chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if last.is_ascii_digit() && chars.peek().is_some_and(char::is_ascii_digit) => out.push('_'),
            '_' => {}
            c if last == '_' => out.extend(c.to_uppercase()),
            c => out.push(c),
        }
        last = c;
    }
    Ident::new(&out, name.span())
}

/// The type that stands for the kernel.
pub fn marker_type(vis: &Visibility, name: &Ident, marker: &Ident) -> TokenStream {
    let doc = format!("The kernel [`{name}()`] as a type.");
    quote! {
        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code)]
        #[derive(Debug, Clone, Copy)]
        #vis enum #marker {}
    }
}

/// The `#[node]` scalars.
fn node_scalars(params: &[Param]) -> Vec<(&Ident, &Type)> {
    let scalars = params.iter().filter_map(|param| match &param.role {
        Role::Scalar { ty, class: Class::Node, .. } => Some((&param.name, ty)),
        _ => None,
    });
    scalars.collect()
}

/// The trait with a setter for each `#[node]` scalar.
pub fn node_trait(
    vis: &Visibility,
    name: &Ident,
    marker: &Ident,
    scalars: &[(&Ident, &Type)],
) -> TokenStream {
    if scalars.is_empty() {
        return TokenStream::new();
    }
    let node = format_ident!("{marker}Node", span = marker.span());
    let setters = scalars.iter().map(|(name, ty)| {
        let set = format_ident!("set_{name}", span = name.span());
        let doc = format!("Sets `{name}` for the replays to come.");
        quote! {
            #[doc = #doc]
            ///
            /// # Errors
            /// The device's, or a graph that the node is not part of.
            fn #set(
                &mut self,
                exec: &mut ::bitwalk::device::GraphExec,
                #name: #ty,
            ) -> ::core::result::Result<(), ::bitwalk::device::DeviceError>;
        }
    });
    let doc = format!("What can be changed in a captured node of [`{name}()`].");
    quote_spanned! {name.span()=>
        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code)]
        #vis trait #node {
            #(#setters)*
        }
    }
}

fn node_impl(params: &[Param], marker: &Ident) -> TokenStream {
    let node = format_ident!("{marker}Node", span = marker.span());
    let setters: Vec<TokenStream> = params
        .iter()
        .enumerate()
        .filter_map(|(index, param)| {
            let Role::Scalar { ty, class: Class::Node, .. } = &param.role else { return None };
            let name = &param.name;
            let set = format_ident!("set_{name}", span = name.span());
            Some(quote! {
                fn #set(
                    &mut self,
                    exec: &mut ::bitwalk::device::GraphExec,
                    #name: #ty,
                ) -> ::core::result::Result<(), ::bitwalk::device::DeviceError> {
                    self.set_scalar(exec, #index, #name)
                }
            })
        })
        .collect();
    if setters.is_empty() {
        return TokenStream::new();
    }
    quote! {
        impl #node for ::bitwalk::kernel::Node<#marker> {
            #(#setters)*
        }
    }
}

/// The signature of the constructor, up to its body.
pub fn constructor_signature<'a>(
    vis: &Visibility,
    name: &Ident,
    arguments: impl Iterator<Item = (&'a Ident, TokenStream)>,
    eager_only: bool,
) -> TokenStream {
    let launch = if eager_only { quote!(EagerLaunch) } else { quote!(Launch) };
    let arguments = arguments.map(|(name, ty)| quote!(#name: #ty));
    quote! {
        #vis fn #name(
            #(#arguments),*
        ) -> ::core::result::Result<::bitwalk::kernel::#launch, ::bitwalk::kernel::LaunchError>
    }
}

fn constructor(kernel: &Kernel, marker: &Ident) -> TokenStream {
    let Kernel { attrs, docs, vis, name, params, .. } = kernel;
    let arguments = params.iter().map(|param| (&param.name, param.role.bound()));
    let signature = constructor_signature(vis, name, arguments, kernel.eager_only());
    let erased = params.iter().map(|param| {
        let (name, lowering) = (&param.name, param.role.lowering());
        quote!(<#lowering as ::bitwalk::kernel::KernelParam>::erase(#name))
    });
    let wrap = kernel.eager_only().then(|| quote!(.map(::bitwalk::kernel::EagerLaunch)));
    quote! {
        #(#[doc = #docs])*
        ///
        /// # Errors
        /// The first argument that does not fit the declaration, by name.
        #(#attrs)*
        #signature {
            (<#marker as ::bitwalk::kernel::Kernel>::DECL.bind)(&[#(#erased),*])#wrap
        }
    }
}

/// The static descriptor, its registration and the functions that it holds.
fn descriptor(kernel: &Kernel, marker: &Ident) -> TokenStream {
    let Kernel { name, docs, module, entry, tolerance, cooperative, dependent, .. } = kernel;
    let k = quote!(::bitwalk::kernel);
    let name_text = name.to_string();
    let name_text = name_text.trim_start_matches("r#");
    let eager_only = kernel.eager_only();
    let params = kernel.params.iter().map(|param| {
        let (text, lowering, peer) = (param.name.to_string(), param.role.lowering(), param.peer);
        quote!(#k::ParamDecl {
            name: #text,
            kind: <#lowering as #k::KernelParam>::KIND,
            slots: <#lowering as #k::KernelParam>::SLOTS,
            peer: #peer,
        })
    });
    let mut block_check = TokenStream::new();
    let block = if kernel.constant_block {
        let sizes: Vec<Expr> = kernel.block.iter().map(total).collect();
        let span = kernel.block_span;
        block_check = quote_spanned! {span=>
            const _: () = ::core::assert!(
                ::bitwalk::kernel::macro_support::block_fits([#(#sizes),*]),
                "a device takes at most 1024 threads a block, 64 in z, and at least one",
            );
        };
        quote!(::core::option::Option::Some(#k::macro_support::constant_block([#(#sizes),*])))
    } else {
        quote!(::core::option::Option::None)
    };
    let (shapes, bind, reference) = (shapes(kernel), bind(kernel), reference(kernel));
    let cases = &kernel.cases;
    let cases_type = quote_spanned!(cases.span()=> fn() -> ::std::vec::Vec<::bitwalk::kernel::Case>);
    let symbol = format!("kernel_entry.{}.{}", module.value(), entry.value());
    let unique = quote_spanned! {entry.span()=>
        // Two declarations of one entry are a duplicate symbol.
        #[unsafe(export_name = #symbol)]
        static __UNIQUE: u8 = 0;
    };
    quote! {
        const _: () = {
            static __DECL: #k::KernelDecl = #k::KernelDecl {
                name: #name_text,
                module: #module,
                entry: #entry,
                doc: ::core::concat!(#(#docs, "\n"),*),
                file: ::core::file!(),
                line: ::core::line!(),
                params: &[#(#params),*],
                block: #block,
                tolerance: #tolerance,
                cooperative: #cooperative,
                dependent: #dependent,
                eager_only: #eager_only,
                shapes: #shapes,
                bind: #bind,
                reference: #reference,
                cases: { let cases: #cases_type = #cases; cases },
            };

            impl #k::Kernel for #marker {
                const DECL: &'static #k::KernelDecl = &__DECL;
            }

            #[#k::macro_support::linkme::distributed_slice(#k::KERNELS)]
            #[linkme(crate = #k::macro_support::linkme)]
            static __REGISTERED: &#k::KernelDecl = &__DECL;

            #unique
            #block_check
        };
    }
}

/// A local of the generated code that no name in the declaration can meet.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

fn shapes(kernel: &Kernel) -> TokenStream {
    let k = quote!(::bitwalk::kernel);
    let scalars = local("scalars");
    let lets = kernel.params.iter().enumerate().filter_map(|(index, param)| {
        let Role::Scalar { integer: true, .. } = param.role else { return None };
        let name = &param.name;
        Some(quote!(let #name: ::core::primitive::u64 = #scalars.integer(#index);))
    });
    let shapes = kernel.params.iter().map(|param| match &param.extent {
        Extent::None => quote!(#k::ParamShape::None),
        Extent::Len(length) => {
            let length = total(length);
            quote!(#k::ParamShape::Len(#length))
        }
        Extent::Shape(rows, cols) => {
            let (rows, cols) = (total(rows), total(cols));
            quote!(#k::ParamShape::Tensor { rows: #rows, cols: #cols })
        }
    });
    quote! {
        |#scalars: &#k::Scalars<'_>| {
            #(#[allow(unused_variables)] #lets)*
            ::std::vec![#(#shapes),*]
        }
    }
}

fn bind(kernel: &Kernel) -> TokenStream {
    let k = quote!(::bitwalk::kernel);
    let (args, binder) = (local("args"), local("binder"));
    let lets = kernel.params.iter().enumerate().filter_map(|(index, param)| {
        let name = &param.name;
        let value = match &param.role {
            Role::Slice { .. } | Role::Optional { .. } => quote!(#binder.buffer(#index)),
            Role::Tensor { .. } => quote!(#binder.tensor(#index)),
            Role::Scalar { integer: true, .. } => quote!(#binder.integer(#index)),
            Role::Scalar { .. } | Role::Counter { .. } => return None,
        };
        Some(quote!(#[allow(unused_variables)] let #name = #value;))
    });
    let [gx, gy, gz] = kernel.grid.each_ref().map(total);
    let [bx, by, bz] = kernel.block.each_ref().map(total);
    let shared = kernel.shared.as_ref().map_or_else(
        || quote!(0),
        |expr| {
            let expr = total(expr);
            quote!(#expr)
        },
    );
    let [read, write, flops] = kernel.cost.each_ref().map(total);
    quote! {
        |#args: &[#k::Arg<'_>]| {
            let #binder = #k::Binder::new(&__DECL, #args)?;
            #(#lets)*
            #binder.finish(
                [#gx, #gy, #gz],
                [#bx, #by, #bz],
                #shared,
                #k::Cost { read: #read, write: #write, flops: #flops },
            )
        }
    }
}

fn reference(kernel: &Kernel) -> TokenStream {
    let path = &kernel.reference;
    let span = path.span();
    let k = quote_spanned!(span=> ::bitwalk::kernel);
    let (args, reference) = (local("args"), local("reference"));
    let locals: Vec<Ident> = kernel
        .params
        .iter()
        .map(|param| {
            let mut local = param.name.clone();
            local.set_span(Span::mixed_site());
            local
        })
        .collect();
    let count = locals.len();
    let (types, values): (Vec<TokenStream>, Vec<TokenStream>) = kernel
        .params
        .iter()
        .zip(&locals)
        .map(|(param, local)| match &param.role {
            Role::Slice { element, access: Access::Read } => {
                (quote_spanned!(span=> &[#element]), quote!(#local.input::<#element>()))
            }
            Role::Slice { element, .. } => (
                quote_spanned!(span=> &mut [<#element as #k::HostElement>::Reference]),
                quote!(#local.output::<#element>()),
            ),
            Role::Optional { element } => (
                quote_spanned!(span=> ::core::option::Option<&[#element]>),
                quote!(#local.optional::<#element>()),
            ),
            Role::Tensor { .. } => (quote_spanned!(span=> &#k::HostTensor), quote!(#local.tensor())),
            Role::Counter { mutable: false, .. } => {
                (quote_spanned!(span=> ::core::primitive::u32), quote!(#local.counter()))
            }
            Role::Counter { mutable: true, .. } => {
                (quote_spanned!(span=> &mut ::core::primitive::u32), quote!(#local.counter_mut()))
            }
            Role::Scalar { ty, .. } => (quote_spanned!(span=> #ty), quote!(#local.scalar::<#ty>())),
        })
        .unzip();
    let signature = quote_spanned!(span=> fn(#(#types),*));
    quote! {
        |#args: &mut [::bitwalk::kernel::HostArg]| {
            #[allow(clippy::type_complexity)] // as long as the kernel's signature
            let #reference: #signature = #path;
            let [#(#locals),*] = #args else {
                ::core::panic!("the harness gave another number of arguments than {}", #count);
            };
            #reference(#(#values),*)
        }
    }
}
