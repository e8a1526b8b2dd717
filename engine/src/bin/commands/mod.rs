//! The subcommands, one a module.

pub mod bench;
pub mod chat;
pub mod documents;
mod dump;
pub mod generate;
pub mod inspect;
pub mod interrupt;
pub mod logits;
mod model;
pub mod plan;
mod synthetic;
pub mod trace;

use std::fmt::Display;
use std::io::{self, Write};

use thiserror::Error;

/// Wrong usage that clap cannot see. The exit code is 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Usage(String);

/// Wrong usage, as an error.
fn usage(words: String) -> anyhow::Error {
    Usage(words).into()
}

/// Writes a line to standard error. Unlike `eprintln!` it does not panic where nobody reads any more, as in
/// `bitwalk plan 2>&1 | head -1`.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
