//! Instruments: what commands and benchmarks measure with. Nothing here changes what a walk computes.
//!
//! - [`Summary`]: the median of repetitions, and how far they lie apart
//! - [`read_only_rate`]: how fast the device reads its memory, measured now
//! - [`Timeline`]: one token's launches in time, as a file for a trace viewer and as a summary
//! - [`record`]: where a timeline comes from: the device's own records, events, or the host's clock

mod ceiling;
mod chrome;
pub mod record;
mod statistics;
#[cfg(test)]
mod tests;
mod timeline;

pub use ceiling::{CEILING_BYTES, read_only_rate};
pub use statistics::Summary;
pub use timeline::{Family, Gap, Span, Timeline, TraceClock};
