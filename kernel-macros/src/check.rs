//! Makes sense of a declaration, or says everything that is wrong with it.

use proc_macro2::{Span, TokenStream};
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, ExprPath, FnArg, Ident, Lit, LitStr, Meta, Pat, ReturnType, Visibility};

use crate::ast::{Item, Keys};
use crate::errors::Errors;
use crate::names::{self, Sees};
use crate::param::{self, Class, Extent, Param, Role};

/// A declaration without mistakes.
pub struct Kernel {
    /// Lints and deprecation, for the constructor.
    pub attrs: Vec<Attribute>,
    /// The lines of the doc comment.
    pub docs: Vec<Expr>,
    /// Visibility of everything generated.
    pub vis: Visibility,
    /// The Rust name.
    pub name: Ident,
    /// The PTX module.
    pub module: LitStr,
    /// The PTX entry.
    pub entry: LitStr,
    /// The CPU reference.
    pub reference: ExprPath,
    /// The function that gives the cases.
    pub cases: ExprPath,
    /// The worst error accepted.
    pub tolerance: f64,
    /// Blocks, by dimension.
    pub grid: [Expr; 3],
    /// Threads a block, by dimension.
    pub block: [Expr; 3],
    /// Where the block is given.
    pub block_span: Span,
    /// Whether the threads a block are the same for every launch.
    pub constant_block: bool,
    /// Dynamic shared memory, bytes.
    pub shared: Option<Expr>,
    /// All blocks must be resident.
    pub cooperative: bool,
    /// Programmatic dependent launch.
    pub dependent: bool,
    /// Bytes read, bytes written, operations.
    pub cost: [Expr; 3],
    /// The parameters in order.
    pub params: Vec<Param>,
}

impl Kernel {
    /// Whether a captured plan cannot hold it.
    pub fn eager_only(&self) -> bool {
        self.params.iter().any(|param| matches!(param.role, Role::Scalar { class: Class::Step, .. }))
    }
}

/// What is wrong with a declaration, and what it names all the same.
pub struct Mistakes {
    /// Every mistake.
    pub errors: syn::Error,
    /// The functions it names, which are in use.
    pub functions: Vec<ExprPath>,
}

/// Checks the arguments of `#[kernel]` and the item under it.
///
/// # Errors
/// Every mistake found.
pub fn check(arguments: TokenStream, item: &Item) -> Result<Kernel, Mistakes> {
    let errors = Errors::default();
    signature(&errors, item);
    let params: Vec<Option<Param>> =
        item.sig.inputs.iter().map(|input| param::check(&errors, input)).collect();
    let all_params = params.iter().all(Option::is_some);
    let params: Vec<Param> = params.into_iter().flatten().collect();
    let declared = declared(item);
    let head = head(&errors, arguments, item.sig.ident.span());
    let functions: Vec<ExprPath> = head.reference.iter().chain(&head.cases).cloned().collect();
    let below = Below::parse(&errors, item);
    let sees = |what: &str, expr: &Expr, sees| names::check(&errors, what, expr, sees, &params, &declared);
    for param in &params {
        match &param.extent {
            Extent::None => {}
            Extent::Len(length) => sees("len", length, Sees::Geometry),
            Extent::Shape(rows, cols) => {
                sees("shape", rows, Sees::Geometry);
                sees("shape", cols, Sees::Geometry);
            }
        }
    }
    let launch = below.launch.and_then(|mut keys| {
        let shared = keys.optional(&errors, "shared");
        let grid = keys
            .required(&errors, "grid", "(x, y, z)")
            .and_then(|expr| triple(&errors, "grid", expr).map(|(grid, _)| grid));
        let block =
            keys.required(&errors, "block", "(x, y, z)").and_then(|expr| triple(&errors, "block", expr));
        let (block, block_span) = block.unzip();
        for (what, exprs) in [("grid", grid.as_ref()), ("block", block.as_ref())] {
            exprs.into_iter().flatten().for_each(|expr| sees(what, expr, Sees::Geometry));
        }
        shared.iter().for_each(|expr| sees("shared", expr, Sees::Shared));
        if let Some((block, span)) = block.as_ref().zip(block_span) {
            block_size(&errors, block, span);
        }
        let (cooperative, dependent) = (keys.flag(&errors, "cooperative"), keys.flag(&errors, "dependent"));
        let (grid, block) = (grid?, block?);
        let constant_block = block.iter().all(|expr| names::is_constant(expr, &declared));
        Some((grid, block, block_span?, constant_block, shared, cooperative, dependent))
    });
    let cost = below.cost.and_then(|mut keys| {
        let parts = [("read", "bytes"), ("write", "bytes"), ("flops", "operations")];
        let parts = parts
            .map(|(key, hint)| keys.required(&errors, key, hint).inspect(|expr| sees(key, expr, Sees::Cost)));
        let [read, write, flops] = parts;
        Some([read?, write?, flops?])
    });
    if let Some(errors) = errors.finish() {
        return Err(Mistakes { errors, functions });
    }
    let complete = (|| {
        let Head { module, entry, reference, cases, tolerance } = head;
        let (grid, block, block_span, constant_block, shared, cooperative, dependent) = launch?;
        Some(Kernel {
            attrs: below.attrs,
            docs: below.docs,
            vis: item.vis.clone(),
            name: item.sig.ident.clone(),
            module: module?,
            entry: entry?,
            reference: reference?,
            cases: cases?,
            tolerance: tolerance?,
            grid,
            block,
            block_span,
            constant_block,
            shared,
            cooperative,
            dependent,
            cost: cost?,
            params: all_params.then_some(params)?,
        })
    })();
    complete.ok_or_else(|| {
        let errors = syn::Error::new_spanned(&item.sig.ident, "this declaration is incomplete");
        Mistakes { errors, functions }
    })
}

/// What a signature cannot have.
fn signature(errors: &Errors, item: &Item) {
    let sig = &item.sig;
    if let Some(body) = item.body {
        errors.at_span(
            body,
            "a declaration has no body, its body is the `.cu` source: end the signature with `;`",
        );
    }
    if !sig.generics.params.is_empty() || sig.generics.where_clause.is_some() {
        errors.at(&sig.generics, "a kernel is not generic: declare one for each type");
    }
    if let ReturnType::Type(..) = &sig.output {
        errors.at(&sig.output, "a kernel returns nothing: results go to `#[out] &mut [T]`");
    }
    let qualifiers = [
        sig.constness.map(|token| token.span()),
        sig.asyncness.map(|token| token.span()),
        sig.unsafety.map(|token| token.span()),
        sig.abi.as_ref().map(Spanned::span),
        sig.variadic.as_ref().map(Spanned::span),
    ];
    for span in qualifiers.into_iter().flatten() {
        errors.at_span(span, "a declaration is a plain `fn name(…);`");
    }
}

/// The names of all parameters, those with mistakes included.
fn declared(item: &Item) -> Vec<Ident> {
    let inputs = item.sig.inputs.iter();
    let names = inputs.filter_map(|input| match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(pat) => Some(pat.ident.clone()),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    names.collect()
}

/// The arguments of `#[kernel]`.
struct Head {
    module: Option<LitStr>,
    entry: Option<LitStr>,
    reference: Option<ExprPath>,
    cases: Option<ExprPath>,
    tolerance: Option<f64>,
}

fn head(errors: &Errors, arguments: TokenStream, span: Span) -> Head {
    let known = ["module", "entry", "reference", "cases", "tol"];
    let mut keys = Keys::parse(errors, "kernel", span, arguments, &known);
    let module = keys.required(errors, "module", "\"…\"").and_then(|expr| name(errors, "module", expr));
    let entry = keys.required(errors, "entry", "\"…\"").and_then(|expr| name(errors, "entry", expr));
    let reference =
        keys.required(errors, "reference", "path").and_then(|expr| path(errors, "reference", expr));
    let cases = keys.required(errors, "cases", "path").and_then(|expr| path(errors, "cases", expr));
    let tolerance = keys.required(errors, "tol", "0.0").and_then(|expr| tolerance(errors, expr));
    Head { module, entry, reference, cases, tolerance }
}

/// A string that is a C identifier.
fn name(errors: &Errors, key: &str, expr: Expr) -> Option<LitStr> {
    if let Expr::Lit(lit) = &expr
        && let Lit::Str(text) = &lit.lit
    {
        let value = text.value();
        let word = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !word || value.is_empty() || value.starts_with(|c: char| c.is_ascii_digit()) {
            errors.at(text, format!("`{key}` is a C identifier"));
        }
        return Some(text.clone());
    }
    errors.at(expr, format!("`{key}` is a string: `{key} = \"…\"`"));
    None
}

fn path(errors: &Errors, key: &str, expr: Expr) -> Option<ExprPath> {
    if let Expr::Path(path) = expr {
        return Some(path);
    }
    errors.at(expr, format!("`{key}` is the path of a function"));
    None
}

fn tolerance(errors: &Errors, expr: Expr) -> Option<f64> {
    let value = match &expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Float(number) => number.base10_parse().ok(),
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    };
    let value = value.filter(|value: &f64| value.is_finite());
    if value.is_none() {
        errors.at(
            expr,
            "`tol` is a number: the worst error accepted, relative to an output's largest value; 0 is exact",
        );
    }
    value
}

/// What stands between `#[kernel]` and the signature.
struct Below {
    attrs: Vec<Attribute>,
    docs: Vec<Expr>,
    launch: Option<Keys>,
    cost: Option<Keys>,
}

impl Below {
    fn parse(errors: &Errors, item: &Item) -> Below {
        let mut below = Below { attrs: Vec::new(), docs: Vec::new(), launch: None, cost: None };
        for attr in &item.attrs {
            let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
            let twice = match (name.as_str(), &attr.meta) {
                ("doc", Meta::NameValue(doc)) => {
                    below.docs.push(doc_line(&doc.value));
                    false
                }
                ("launch", _) => {
                    let known = ["grid", "block", "shared", "cooperative", "dependent"];
                    below.launch.replace(keys(errors, "launch", attr, &known)).is_some()
                }
                ("cost", _) => {
                    below.cost.replace(keys(errors, "cost", attr, &["read", "write", "flops"])).is_some()
                }
                ("doc" | "allow" | "expect" | "warn" | "deny" | "deprecated", _) => {
                    below.attrs.push(attr.clone());
                    false
                }
                _ => {
                    errors.at(
                        attr.path(),
                        "unknown attribute on a declaration: expected `#[launch(…)]` or `#[cost(…)]`",
                    );
                    false
                }
            };
            if twice {
                errors.at(attr, format!("`#[{name}]` is given twice"));
            }
        }
        let name = &item.sig.ident;
        if below.launch.is_none() {
            errors.at(
                name,
                "missing `#[launch(grid = (x, y, z), block = (x, y, z))]`: how the kernel is launched",
            );
        }
        if below.cost.is_none() {
            let message = "missing `#[cost(read = bytes, write = bytes, flops = operations)]`: what a launch moves and computes";
            errors.at(name, message);
        }
        below
    }
}

/// A line of documentation without the space that `///` leaves before it.
fn doc_line(line: &Expr) -> Expr {
    match line {
        Expr::Lit(ExprLit { lit: Lit::Str(text), attrs }) => {
            let value = text.value();
            let line = LitStr::new(value.strip_prefix(' ').unwrap_or(&value), text.span());
            Expr::Lit(ExprLit { attrs: attrs.clone(), lit: Lit::Str(line) })
        }
        line => line.clone(),
    }
}

fn keys(errors: &Errors, attribute: &'static str, attr: &Attribute, known: &[&str]) -> Keys {
    let tokens = match &attr.meta {
        Meta::List(list) => list.tokens.clone(),
        _ => TokenStream::new(),
    };
    let span = attr.path().span();
    Keys::parse(errors, attribute, span, tokens, known)
}

/// The three numbers of a grid or a block, and where they stand.
fn triple(errors: &Errors, what: &str, expr: Expr) -> Option<([Expr; 3], Span)> {
    let message = format!("`{what}` is three numbers: `{what} = (x, y, z)`");
    let Expr::Tuple(tuple) = expr else {
        errors.at(expr, message);
        return None;
    };
    let parts: Vec<Expr> = tuple.elems.iter().cloned().collect();
    let parts = parts.try_into().map_err(|_| errors.at(&tuple, message)).ok()?;
    Some((parts, tuple.paren_token.span.join()))
}

/// Rejects a block of literals that no device can launch.
fn block_size(errors: &Errors, block: &[Expr; 3], span: Span) {
    let literal = |expr: &Expr| match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(number) => number.base10_parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    let sizes = block.each_ref().map(literal);
    let limits = [("x", 1024), ("y", 1024), ("z", 64)];
    for ((size, expr), (dimension, limit)) in sizes.iter().zip(block).zip(limits) {
        match size {
            Some(0) => errors.at(expr, "a block of no threads"),
            Some(size) if *size > limit => {
                errors.at(
                    expr,
                    format!("a block of {size} threads in {dimension}: a device takes at most {limit}"),
                );
                return;
            }
            _ => {}
        }
    }
    if let [Some(x), Some(y), Some(z)] = sizes
        && x * y * z > 1024
    {
        errors.at_span(span, format!("a block of {} threads: a device takes at most 1024", x * y * z));
    }
}
