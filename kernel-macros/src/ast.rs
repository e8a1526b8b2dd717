//! The syntax of a declaration, before it is known to make sense.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Ident, Signature, Token, Visibility, braced};

use crate::errors::{Errors, quoted};

/// The item under `#[kernel]`: a function's signature.
pub struct Item {
    /// Everything above the signature but `#[kernel]` itself.
    pub attrs: Vec<Attribute>,
    /// Its visibility.
    pub vis: Visibility,
    /// Its signature.
    pub sig: Signature,
    /// Where a body begins, which there should be none of.
    pub body: Option<Span>,
}

impl Parse for Item {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let mut body = None;
        if input.peek(syn::token::Brace) {
            let content;
            body = Some(braced!(content in input).span.join());
            content.parse::<TokenStream>()?;
        } else {
            input.parse::<Token![;]>()?;
        }
        Ok(Item { attrs, vis, sig, body })
    }
}

/// `key = value` or `key`.
struct Entry {
    key: Ident,
    value: Option<Expr>,
}

impl Parse for Entry {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let key = input.call(Ident::parse_any)?;
        let value = if input.parse::<Option<Token![=]>>()?.is_some() { Some(input.parse()?) } else { None };
        Ok(Entry { key, value })
    }
}

/// The comma-separated entries of one attribute.
pub struct Keys {
    attribute: &'static str,
    /// Where the attribute is, for entries that are not there.
    pub span: Span,
    /// False when the attribute could not be parsed: then what seems to be missing is not reported as well.
    whole: bool,
    /// Keys that are not known: each is likely one that seems to be missing, misspelt.
    unknown: usize,
    entries: Vec<Entry>,
}

impl Keys {
    /// Parses the arguments of `attribute`, rejecting keys that are not in `known` and keys given twice.
    pub fn parse(
        errors: &Errors,
        attribute: &'static str,
        span: Span,
        tokens: TokenStream,
        known: &[&str],
    ) -> Keys {
        let parsed = errors.note(Punctuated::<Entry, Token![,]>::parse_terminated.parse2(tokens));
        let mut keys = Keys { attribute, span, whole: parsed.is_some(), unknown: 0, entries: Vec::new() };
        for entry in parsed.into_iter().flatten() {
            if !known.contains(&entry.key.to_string().as_str()) {
                let message = format!(
                    "unknown key `{}` in `#[{attribute}]`: expected one of {}",
                    entry.key,
                    quoted(known)
                );
                errors.at(&entry.key, message);
                keys.unknown += 1;
            } else if keys.entries.iter().any(|earlier| earlier.key == entry.key) {
                errors.at(&entry.key, format!("`{}` is given twice", entry.key));
            } else {
                keys.entries.push(entry);
            }
        }
        keys
    }

    /// The value of `key`, if it is given; without a value it is a mistake.
    pub fn optional(&mut self, errors: &Errors, key: &str) -> Option<Expr> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        let entry = self.entries.swap_remove(index);
        if entry.value.is_none() {
            errors.at(&entry.key, format!("`{key}` needs a value: `{key} = …`"));
            self.whole = false;
        }
        entry.value.map(ungrouped)
    }

    /// The value of `key`, which must be given.
    pub fn required(&mut self, errors: &Errors, key: &str, hint: &str) -> Option<Expr> {
        let given = self.entries.iter().any(|entry| entry.key == key);
        if !given && self.unknown > 0 {
            self.unknown -= 1;
        } else if !given && self.whole {
            errors.at_span(self.span, format!("missing `{key} = {hint}` in `#[{}]`", self.attribute));
        }
        self.optional(errors, key)
    }

    /// Whether the flag `key` is given; with a value it is a mistake.
    pub fn flag(&mut self, errors: &Errors, key: &str) -> bool {
        let Some(index) = self.entries.iter().position(|entry| entry.key == key) else { return false };
        if let Some(value) = self.entries.swap_remove(index).value {
            errors.at(value, format!("`{key}` is a flag and takes no value"));
        }
        true
    }
}

/// An expression without the invisible groups that `macro_rules!` puts around what it substitutes.
pub fn ungrouped(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungrouped(*group.expr),
        expr => expr,
    }
}
