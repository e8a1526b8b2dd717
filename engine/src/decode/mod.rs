//! Decoding: one walk a token, eager or replayed.

mod graph;
mod queue;
mod sampling;
mod session;

use thiserror::Error;

pub use graph::{BucketKey, GraphCounters, GraphDecodeState};
pub use queue::{Finish, Produced, Production};
pub use sampling::{Sampler, Sampling, SamplingError, SamplingOptions};
pub use session::{Session, argmax};

use crate::cache::CacheError;
use crate::device::DeviceError;
use crate::plan::PlanError;

/// Why decoding stopped.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The cache is full, or a token is none.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A launch, capture or replay failed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The caller's callback asked to stop.
    #[error("stopped")]
    Stopped,
    /// Nothing to continue from.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
}
