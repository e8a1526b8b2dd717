//! The subcommands, one a module.

pub mod bench;
pub mod chat;
pub mod documents;
pub mod generate;
pub mod inspect;
pub mod interrupt;
pub mod logits;
mod model;
pub mod plan;

use thiserror::Error;

/// Wrong usage that clap cannot see. The exit code is 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Usage(String);

/// Wrong usage, as an error.
fn usage(words: String) -> anyhow::Error {
    Usage(words).into()
}
