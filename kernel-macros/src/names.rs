//! The expressions of a declaration: which arguments they may name, and the arithmetic they are evaluated in.

use std::collections::HashSet;

use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Expr, ExprCall, ExprPath, Ident, PatIdent, parse_quote_spanned};

use crate::errors::{Errors, quoted};
use crate::param::{Class, Param, Role};

/// Which arguments an expression may name.
#[derive(Clone, Copy, PartialEq)]
pub enum Sees {
    /// Integer scalars that stay as they are in a captured node.
    Geometry,
    /// The same, and the sizes of buffers: an optional one may be absent, and need no shared memory.
    Shared,
    /// Integer scalars, buffers and tensors.
    Cost,
}

impl Sees {
    /// What `what` can use, and which of it there is.
    fn words(self, what: &str, params: &[Param]) -> String {
        let kinds = match self {
            Sees::Geometry => "integer scalars",
            Sees::Shared => "integer scalars and buffers",
            Sees::Cost => "integer scalars, buffers and tensors",
        };
        let usable = quoted(params.iter().filter(|param| self.allows(&param.role)).map(|param| &param.name));
        let usable = if usable.is_empty() { "it has none".to_owned() } else { usable };
        format!("`{what}` can use its {kinds} ({usable})")
    }

    fn allows(self, role: &Role) -> bool {
        match role {
            Role::Scalar { integer, .. } => *integer,
            Role::Slice { .. } | Role::Optional { .. } => self != Sees::Geometry,
            Role::Tensor { .. } => self == Sees::Cost,
            Role::Counter { .. } => false,
        }
    }
}

/// Notes each name in `expr` (the value of `what`) that is no argument, or none that `what` can use. `declared` are the
/// names of the whole signature, those of mistaken parameters included.
pub fn check(errors: &Errors, what: &str, expr: &Expr, sees: Sees, params: &[Param], declared: &[Ident]) {
    let mut locals = Locals::default();
    locals.visit_expr(expr);
    Names { errors, what, sees, params, declared, locals: locals.0 }.visit_expr(expr);
}

/// Whether an expression names any argument; without, it is a constant.
pub fn is_constant(expr: &Expr, declared: &[Ident]) -> bool {
    struct Any<'a>(&'a [Ident], bool);
    impl<'ast> Visit<'ast> for Any<'_> {
        fn visit_expr_path(&mut self, path: &'ast ExprPath) {
            self.1 |= path.path.get_ident().is_some_and(|name| self.0.contains(name));
        }
    }
    let mut any = Any(declared, false);
    any.visit_expr(expr);
    !any.1
}

/// Names that the expression itself binds.
#[derive(Default)]
struct Locals(HashSet<Ident>);

impl<'ast> Visit<'ast> for Locals {
    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.0.insert(pat.ident.clone());
        visit::visit_pat_ident(self, pat);
    }
}

struct Names<'a> {
    errors: &'a Errors,
    what: &'a str,
    sees: Sees,
    params: &'a [Param],
    declared: &'a [Ident],
    locals: HashSet<Ident>,
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        // A function's name is for the compiler to find.
        if !matches!(&*call.func, Expr::Path(_)) {
            self.visit_expr(&call.func);
        }
        for argument in &call.args {
            self.visit_expr(argument);
        }
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        let Some(name) = path.path.get_ident() else { return };
        let words = || self.sees.words(self.what, self.params);
        let Some(param) = self.params.iter().find(|param| param.name == *name) else {
            // Constants are upper-case, and the compiler finds them.
            let constant = name.to_string().starts_with(|c: char| c.is_ascii_uppercase());
            if !constant && !self.locals.contains(name) && !self.declared.contains(name) {
                self.errors.at(name, format!("`{name}` is not an argument of this kernel: {}", words()));
            }
            return;
        };
        if !self.sees.allows(&param.role) {
            self.errors.at(name, format!("`{name}` is {}: {}", param.role.noun(), words()));
        } else if self.sees != Sees::Cost && matches!(param.role, Role::Scalar { class: Class::Node, .. }) {
            let message = format!(
                "`{name}` is a `#[node]` argument, but `{}` is fixed when the kernel is captured",
                self.what
            );
            self.errors.at(name, message);
        }
    }
}

/// Rewrites integer arithmetic so that no value of an argument can make it panic: sums, differences and products
/// saturate, and dividing by zero gives zero.
pub fn total(expr: &Expr) -> Expr {
    let mut expr = expr.clone();
    Total.visit_expr_mut(&mut expr);
    expr
}

struct Total;

impl VisitMut for Total {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        visit_mut::visit_expr_mut(self, expr);
        let call = match expr {
            Expr::Binary(binary) => {
                let (span, left, right) = (binary.op.span(), &binary.left, &binary.right);
                let name = match binary.op {
                    BinOp::Add(_) => "saturating_add",
                    BinOp::Sub(_) => "saturating_sub",
                    BinOp::Mul(_) => "saturating_mul",
                    BinOp::Div(_) => "div",
                    BinOp::Rem(_) => "rem",
                    _ => return,
                };
                let name = Ident::new(name, span);
                quote_spanned!(span=> ::bitwalk::kernel::macro_support::#name(#left, #right))
            }
            Expr::MethodCall(call) if call.args.len() == 1 => {
                if call.method != "div_ceil" && call.method != "next_multiple_of" {
                    return;
                }
                let (name, left, right) = (&call.method, &call.receiver, &call.args[0]);
                quote_spanned!(name.span()=> ::bitwalk::kernel::macro_support::#name(#left, #right))
            }
            // `(a + b) * c` has become a call of calls, and the parentheses are in the way of lints.
            Expr::Paren(paren) if matches!(*paren.expr, Expr::Call(_)) => {
                *expr = (*paren.expr).clone();
                return;
            }
            _ => return,
        };
        *expr = parse_quote_spanned!(expr.span()=> #call);
    }
}
