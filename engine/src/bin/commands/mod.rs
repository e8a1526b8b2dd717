//! The subcommands, one a module.

pub mod inspect;
pub mod logits;
