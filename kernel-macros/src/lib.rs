//! The `#[kernel]` attribute: a CUDA kernel declared once, as a Rust signature.
//!
//! The grammar, the lowering table and the run-time half are documented in `bitwalk::kernel`. This crate parses a
//! declaration (`ast`), checks it and collects every mistake (`check`), and emits the constructor, the marker type, the
//! descriptor and the typed node handle (`expand`). A declaration with mistakes still emits its constructor
//! (`fallback`), so that one mistake is one error.

mod ast;
mod check;
mod errors;
mod expand;
mod fallback;
mod names;
mod param;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Declares a kernel; see the documentation of `bitwalk::kernel` for the grammar.
///
/// It stands above `#[launch(…)]` and `#[cost(…)]`, on a signature that ends in a semicolon.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ast::Item);
    match check::check(arguments.into(), &item) {
        Ok(kernel) => expand::expand(&kernel),
        Err(mistakes) => fallback::fallback(&item, &mistakes),
    }
    .into()
}
