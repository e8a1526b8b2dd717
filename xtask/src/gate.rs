//! `cargo xtask gate`: the gates themselves live in a crate of their own.

pub use bitwalk_gates::cli::{Args, exit_code, run};
