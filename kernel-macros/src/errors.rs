//! Collects mistakes, so that all of a declaration's are reported at once.

use std::cell::RefCell;
use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens;

/// The mistakes found so far.
#[derive(Default)]
pub struct Errors(RefCell<Vec<syn::Error>>);

impl Errors {
    /// Notes a mistake at `tokens`.
    pub fn at(&self, tokens: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    /// Notes a mistake at `span`.
    pub fn at_span(&self, span: Span, message: impl Display) {
        self.push(syn::Error::new(span, message));
    }

    /// Notes a mistake.
    pub fn push(&self, error: syn::Error) {
        self.0.borrow_mut().push(error);
    }

    /// The value, or the mistake, noted.
    pub fn note<T>(&self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// All mistakes as one error; `None` when there were none.
    pub fn finish(self) -> Option<syn::Error> {
        self.0.into_inner().into_iter().reduce(|mut all, next| {
            all.combine(next);
            all
        })
    }
}

/// `` `a`, `b`, `c` `` for messages.
pub fn quoted<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
