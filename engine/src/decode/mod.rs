//! Decoding: one walk a token, eager or replayed.

mod graph;
mod prime;
mod queue;
mod sampling;
mod session;
mod stage;
mod stages;
mod verify;

use thiserror::Error;

pub use graph::{BucketKey, GraphCounters, GraphDecodeState, GraphFault, GraphOptions, SeatPolicy};
pub use prime::{DEFAULT_CHUNK, PrimeOptions, Primed};
pub use queue::{Finish, Produced, Production};
pub use sampling::{Sampler, Sampling, SamplingError, SamplingOptions};
pub use session::{Session, argmax};
pub use stage::{CaptureMode, Refusal};
pub use stages::StageState;

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
    /// Stages that are no model.
    #[error("stages of a pipeline: {0}")]
    Stages(String),
    /// The caller's callback asked to stop.
    #[error("stopped")]
    Stopped,
    /// Nothing to continue from.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
}
