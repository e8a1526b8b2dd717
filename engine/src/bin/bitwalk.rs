//! The bitwalk command.
fn main() {}
