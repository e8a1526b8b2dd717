//! The parameters of a declaration: what each lowers to, and the attributes it carries.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, FnArg, GenericArgument, Ident, Pat, PathArguments, Token, Type};

use crate::ast::ungrouped;
use crate::errors::Errors;

/// A parameter that makes sense.
pub struct Param {
    /// Its name.
    pub name: Ident,
    /// What it is.
    pub role: Role,
    /// How large the scalars say it is.
    pub extent: Extent,
    /// Whether it may lie on another device.
    pub peer: bool,
}

/// What a parameter is.
pub enum Role {
    /// `&[T]`, `&mut [T]` or `#[out] &mut [T]`.
    Slice {
        /// `T`.
        element: Type,
        /// How it is used.
        access: Access,
    },
    /// `Option<&[T]>`.
    Optional {
        /// `T`.
        element: Type,
    },
    /// `&QTensor<Q>`.
    Tensor {
        /// `QTensor<Q>`, as written.
        tensor: Box<Type>,
        /// `Q`.
        format: Box<Type>,
    },
    /// `&Counter` or `&mut Counter`.
    Counter {
        /// `Counter`, as written.
        counter: Type,
        /// Written as well.
        mutable: bool,
    },
    /// A scalar by value.
    Scalar {
        /// As written.
        ty: Type,
        /// Whether lengths and geometry can be computed from it.
        integer: bool,
        /// When its value may change.
        class: Class,
    },
}

/// How a kernel uses a slice.
#[derive(Clone, Copy, PartialEq)]
pub enum Access {
    /// It reads.
    Read,
    /// It reads and writes.
    ReadWrite,
    /// It writes.
    Write,
}

/// When a scalar may change.
#[derive(Clone, Copy, PartialEq)]
pub enum Class {
    /// Never, once captured.
    Baked,
    /// By name, in an instantiated graph.
    Node,
    /// Every step.
    Step,
}

/// How large an argument is.
pub enum Extent {
    /// Not said: a scalar or a counter.
    None,
    /// `#[len(e)]`.
    Len(Expr),
    /// `#[shape(rows, cols)]`.
    Shape(Expr, Expr),
}

const SUPPORTED: &str = "a parameter is `&[T]`, `&mut [T]`, `Option<&[T]>`, `&QTensor<Q>`, `&Counter`, `&mut Counter`, \
                         `u32`, `i32`, `f32` or `u64`";

impl Role {
    /// What a type as written is, without regard to attributes. `None` for a type that no parameter can have.
    pub fn of(ty: &Type) -> Option<Role> {
        match ty {
            Type::Group(group) => Role::of(&group.elem),
            Type::Paren(paren) => Role::of(&paren.elem),
            Type::Reference(reference) => {
                let mutable = reference.mutability.is_some();
                match plain(&reference.elem) {
                    Type::Slice(slice) => {
                        let access = if mutable { Access::ReadWrite } else { Access::Read };
                        Some(Role::Slice { element: (*slice.elem).clone(), access })
                    }
                    tensor if last_segment(tensor)? == "QTensor" && !mutable => {
                        let format = Box::new(argument(tensor)?.clone());
                        Some(Role::Tensor { tensor: Box::new(tensor.clone()), format })
                    }
                    counter if last_segment(counter)? == "Counter" => {
                        Some(Role::Counter { counter: counter.clone(), mutable })
                    }
                    _ => None,
                }
            }
            Type::Path(_) if last_segment(ty)? == "Option" => match Role::of(argument(ty)?)? {
                Role::Slice { element, access: Access::Read } => Some(Role::Optional { element }),
                _ => None,
            },
            Type::Path(_) => {
                let name = last_segment(ty)?;
                let integer = name == "u32" || name == "i32" || name == "u64";
                (integer || name == "f32").then(|| Role::Scalar {
                    ty: ty.clone(),
                    integer,
                    class: Class::Baked,
                })
            }
            _ => None,
        }
    }

    /// The element type, if no buffer can have it as far as can be told from how it is written.
    pub fn wrong_element(&self) -> Option<&Type> {
        let (Role::Slice { element, .. } | Role::Optional { element }) = self else { return None };
        let wrong = ["char", "bool", "str", "usize", "isize", "u128", "i128"];
        let path = matches!(plain(element), Type::Path(_) | Type::Macro(_));
        let known = last_segment(plain(element)).is_some_and(|name| wrong.iter().any(|wrong| name == wrong));
        (!path || known).then_some(element)
    }

    /// For messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Role::Slice { .. } | Role::Optional { .. } => "a buffer",
            Role::Tensor { .. } => "a tensor",
            Role::Counter { .. } => "a counter, whose value is on the device",
            Role::Scalar { integer: true, .. } => "an integer",
            Role::Scalar { .. } => "a float",
        }
    }

    /// What the constructor takes.
    pub fn bound(&self) -> TokenStream {
        match self {
            Role::Slice { element, .. } => {
                quote_spanned!(element.span()=> &::bitwalk::device::Buffer<#element>)
            }
            Role::Optional { element } => quote_spanned! {element.span()=>
                ::core::option::Option<&::bitwalk::device::Buffer<#element>>
            },
            Role::Tensor { tensor, .. } => quote!(&#tensor),
            Role::Counter { counter, .. } => quote!(&#counter),
            Role::Scalar { ty, .. } => quote!(#ty),
        }
    }

    /// The type whose `KernelParam` says how it lowers.
    pub fn lowering(&self) -> TokenStream {
        let kernel = quote!(::bitwalk::kernel);
        match self {
            Role::Slice { element, access } => {
                let name = match access {
                    Access::Read => quote!(In),
                    Access::ReadWrite => quote!(InOut),
                    Access::Write => quote!(Out),
                };
                quote!(#kernel::#name<#element>)
            }
            Role::Optional { element } => quote!(#kernel::OptionalIn<#element>),
            Role::Tensor { format, .. } => quote!(#kernel::Quantised<#format>),
            Role::Counter { mutable: false, .. } => quote!(#kernel::CounterIn),
            Role::Counter { mutable: true, .. } => quote!(#kernel::CounterInOut),
            Role::Scalar { ty, class, .. } => match class {
                Class::Baked => quote!(#ty),
                Class::Node => quote!(#kernel::Classed<#ty, true>),
                Class::Step => quote!(#kernel::Classed<#ty, false>),
            },
        }
    }
}

/// A parameter of the signature, as far as it makes sense.
pub fn check(errors: &Errors, argument: &FnArg) -> Option<Param> {
    let typed = match argument {
        FnArg::Typed(typed) => typed,
        FnArg::Receiver(receiver) => {
            errors.at(receiver, "a kernel has no `self`");
            return None;
        }
    };
    let name = match &*typed.pat {
        Pat::Ident(pat) if pat.by_ref.is_none() && pat.mutability.is_none() && pat.subpat.is_none() => {
            Some(pat.ident.clone())
        }
        pat => {
            errors.at(pat, "a parameter is a plain name");
            None
        }
    };
    let role = Role::of(&typed.ty);
    if role.is_none() {
        errors.at(&typed.ty, format!("unsupported parameter type: {SUPPORTED}"));
    }
    if let Some(element) = role.as_ref().and_then(Role::wrong_element) {
        errors.at(element, "unsupported element type: a buffer holds integers of 8 to 64 bits, `f32`, `f64`, `f16`, `bf16` or `F8E4M3`");
    }
    let marks = Marks::parse(errors, &typed.attrs);
    // Without a role, whether an attribute fits or is missing is anybody's guess: the type is the mistake.
    let peer = marks.peer.is_some();
    let (role, extent) = marks.apply(errors, typed, role?);
    Some(Param { name: name?, role, extent, peer })
}

/// The attributes of one parameter.
#[derive(Default)]
struct Marks<'a> {
    out: Option<&'a Attribute>,
    node: Option<&'a Attribute>,
    step: Option<&'a Attribute>,
    peer: Option<&'a Attribute>,
    len: Option<(&'a Attribute, Option<Expr>)>,
    shape: Option<(&'a Attribute, Option<(Expr, Expr)>)>,
}

impl<'a> Marks<'a> {
    fn parse(errors: &Errors, attrs: &'a [Attribute]) -> Marks<'a> {
        let mut marks = Marks::default();
        for attr in attrs {
            let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
            let twice = match name.as_str() {
                "out" => replace_flag(errors, &mut marks.out, attr),
                "node" => replace_flag(errors, &mut marks.node, attr),
                "step" => replace_flag(errors, &mut marks.step, attr),
                "peer" => replace_flag(errors, &mut marks.peer, attr),
                "len" => {
                    let length = errors.note(attr.parse_args::<Expr>()).map(ungrouped);
                    marks.len.replace((attr, length)).is_some()
                }
                "shape" => {
                    let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
                    let shape = errors.note(attr.parse_args_with(parser)).and_then(|list| {
                        let [rows, cols] =
                            list.iter().cloned().map(ungrouped).collect::<Vec<_>>().try_into().ok().or_else(
                                || {
                                    errors.at(&attr.meta, "a shape is two lengths: `#[shape(rows, cols)]`");
                                    None
                                },
                            )?;
                        Some((rows, cols))
                    });
                    marks.shape.replace((attr, shape)).is_some()
                }
                _ => {
                    let message = "unknown attribute on a parameter: expected `#[out]`, `#[len(…)]`, `#[shape(…, …)]`, \
                                   `#[peer]`, `#[node]` or `#[step]`";
                    errors.at(attr.path(), message);
                    false
                }
            };
            if twice {
                errors.at(attr, format!("`#[{name}]` is given twice"));
            }
        }
        marks
    }

    fn apply(self, errors: &Errors, typed: &syn::PatType, mut role: Role) -> (Role, Extent) {
        let Marks { out, node, step, peer, len, shape } = self;
        if let Some(attr) = out {
            match &mut role {
                Role::Slice { access, .. } if *access == Access::ReadWrite => *access = Access::Write,
                Role::Slice { .. } => {
                    errors.at(
                        attr,
                        "`#[out]` is for `&mut [T]`, but this slice is `&`, which a kernel only reads",
                    );
                }
                _ => errors.at(attr, "`#[out]` is for `&mut [T]`"),
            }
        }
        if let Some(attr) = peer
            && !matches!(role, Role::Slice { .. } | Role::Optional { .. })
        {
            errors.at(attr, format!("`#[peer]` is for slices, but this is {}", role.noun()));
        }
        for (attr, name, new) in [(node, "node", Class::Node), (step, "step", Class::Step)] {
            let Some(attr) = attr else { continue };
            match &mut role {
                Role::Scalar { class, .. } if *class == Class::Baked => *class = new,
                Role::Scalar { .. } => errors.at(attr, "an argument is `#[node]` or `#[step]`, not both"),
                role => errors.at(attr, format!("`#[{name}]` is for scalars, but this is {}", role.noun())),
            }
        }
        let extent = match &role {
            Role::Slice { .. } | Role::Optional { .. } => {
                if let Some((attr, _)) = shape {
                    errors.at(attr, "`#[shape]` is for tensors; a slice has `#[len(…)]`");
                } else if len.is_none() {
                    let message =
                        "missing `#[len(…)]`: how many elements the kernel touches, from the scalars";
                    errors.at(&typed.pat, message);
                }
                len.and_then(|(_, length)| length).map_or(Extent::None, Extent::Len)
            }
            Role::Tensor { .. } => {
                if let Some((attr, _)) = len {
                    errors.at(attr, "`#[len]` is for slices; a tensor has `#[shape(rows, cols)]`");
                } else if shape.is_none() {
                    errors.at(
                        &typed.pat,
                        "missing `#[shape(rows, cols)]`: the tensor's shape, from the scalars",
                    );
                }
                shape
                    .and_then(|(_, shape)| shape)
                    .map_or(Extent::None, |(rows, cols)| Extent::Shape(rows, cols))
            }
            Role::Counter { .. } | Role::Scalar { .. } => {
                for attr in [len.map(|(attr, _)| attr), shape.map(|(attr, _)| attr)].into_iter().flatten() {
                    errors.at(
                        attr,
                        format!("only slices and tensors have a size, but this is {}", role.noun()),
                    );
                }
                Extent::None
            }
        };
        (role, extent)
    }
}

/// Takes a flag's attribute; true when it was there before.
fn replace_flag<'a>(errors: &Errors, flag: &mut Option<&'a Attribute>, attr: &'a Attribute) -> bool {
    errors.note(attr.meta.require_path_only().map(|_| ()));
    flag.replace(attr).is_some()
}

fn plain(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => plain(&group.elem),
        Type::Paren(paren) => plain(&paren.elem),
        ty => ty,
    }
}

fn last_segment(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// The one generic argument of a path's last segment.
fn argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    match &path.path.segments.last()?.arguments {
        PathArguments::AngleBracketed(list) if list.args.len() == 1 => match list.args.first()? {
            GenericArgument::Type(ty) => Some(plain(ty)),
            _ => None,
        },
        _ => None,
    }
}
