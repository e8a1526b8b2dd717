//! PTX text to a syntax tree: [`lex`] splits it, [`parse`] builds the tree, [`resolve`] turns the names of a
//! function's body into numbered registers, labels and variables.

pub(crate) mod ast;
pub(crate) mod lex;
pub(crate) mod parse;
pub(crate) mod resolve;
