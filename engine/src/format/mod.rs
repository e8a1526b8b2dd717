//! Where tensors come from.
//!
//! A [`TensorSource`] lists named tensors, hands out their bytes in the layout they have on disk, and
//! answers for the model's configuration. [`gguf::GgufFile`] is one: a GGUF file (or a set of split files)
//! mapped into memory, of which nothing is copied until a tensor is asked for.
//!
//! Files are not trusted. Every count, length, offset and name is checked against the size of the file
//! before it is used, so that a file that lies costs neither memory nor time, and the error says which
//! file, which place in it (byte offset, metadata key or tensor) and what is wrong.

mod dtype;
mod error;
pub mod gguf;
pub mod mmap;
mod plane_reader;
pub mod safetensors;
mod source;
mod stored;
pub mod synthetic;
mod weight;

pub use dtype::DType;
pub use error::FormatError;
pub use plane_reader::PlaneReader;
pub use source::{TensorInfo, TensorSource};
pub use stored::Stored;
pub use weight::{F8_BLOCK, LinearWeight, WeightEncoding, device_format};
