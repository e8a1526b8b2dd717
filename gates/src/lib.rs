//! bitwalk's gates: two runs compared bit for bit, each proving that it ran.

pub mod oracle;
