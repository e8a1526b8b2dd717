//! Models: configuration and weights, composed into plans.

mod attention;
mod checkpoint;
mod ends;
mod experts;
mod ffn;
mod glm5;
mod hybrid;
mod hyper;
mod kda;
mod latent;
mod linear;
mod llama;
mod load;
mod split;
mod walk;

pub use attention::{Attention, CHUNK};
pub use checkpoint::{Checkpoint, CheckpointError};
pub use experts::{HostExperts, Routed, RoutedShape};
pub use ffn::{DenseFfn, SwiGlu};
pub use hybrid::{
    Ffn, Flow, Head, HybridModel, Layer, Mixer, ModelSummary, StageLinks, StageRange, StreamShapes,
    WalkOptions,
};
pub use hyper::{HyperConnection, HyperShape};
pub use kda::{Kda, KdaShape};
pub use latent::{Indexer, LatentAttention, LatentShape, Selection};
pub use linear::{LinearInput, Stacked};
pub use load::{LoadError, LoadProgress, LoadTimings};
pub use split::split_by_bytes;
pub use walk::{Body, MixerKind, Observer, Probe, ProbeValues, Segment, Walk};
