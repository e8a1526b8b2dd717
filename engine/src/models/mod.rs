//! Models: configuration and weights, composed into plans.

mod attention;
mod ffn;
mod hybrid;
mod linear;
mod llama;
mod load;

pub use attention::{Attention, CHUNK};
pub use ffn::DenseFfn;
pub use hybrid::{Ffn, HybridModel, Layer, Mixer, Walk};
pub use linear::Stacked;
pub use load::{LoadError, LoadProgress};
