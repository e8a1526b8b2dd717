//! The interface through which a model is loaded, whatever file (or none) its weights come from.

use std::borrow::Cow;
use std::path::Path;

use super::gguf::Metadata;
use super::synthetic::PlaneFill;
use super::{DType, FormatError, Stored};
use crate::config::{Family, ModelConfig};

/// A tensor's name, shape and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the source, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Its extents, outermost first: a matrix is `[rows, cols]` and a row lies contiguous in memory.
    /// (GGUF writes dimensions innermost first; they are reversed here.)
    pub shape: Vec<u64>,
    /// How its elements are stored.
    pub dtype: DType,
}

impl TensorInfo {
    /// Number of elements. Sources have checked that it does not overflow.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Length of a row: the innermost extent, 1 for a scalar.
    pub fn cols(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows: the product of all extents but the innermost.
    pub fn rows(&self) -> u64 {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Bytes of the whole tensor. Sources have checked that rows are whole blocks.
    pub fn bytes(&self) -> u64 {
        let row = self.dtype.row_bytes(self.cols()).expect("rows are whole blocks: checked by the source");
        self.rows() * row
    }
}

/// Named tensors, and what is known about the model they belong to.
pub trait TensorSource: Send + Sync {
    /// The file (or the recipe) that this source reads, for messages.
    fn path(&self) -> &Path;

    /// All tensors, in the order of the source.
    fn tensors(&self) -> &[TensorInfo];

    /// The tensor of this name.
    fn find(&self, name: &str) -> Option<&TensorInfo>;

    /// A tensor's bytes, row-major, in the on-disk layout of its [`DType`], little-endian.
    ///
    /// Borrowed where the source has them in memory, owned where it makes them.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if there is no tensor of this name.
    fn data(&self, name: &str) -> Result<Cow<'_, [u8]>, FormatError>;

    /// A tensor's bytes, to be taken in pieces: for tensors of which no two shall be in memory at a time.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    fn stored(&self, name: &str) -> Result<Stored<'_>, FormatError> {
        self.data(name).map(|data| Stored::in_memory(data, self.path(), name))
    }

    /// The configuration of a model of the llama family, checked.
    ///
    /// # Errors
    /// [`FormatError`] naming the key or tensor at fault; also where the model is of another family.
    fn config(&self) -> Result<ModelConfig, FormatError>;

    /// The model's family and its configuration, checked.
    ///
    /// # Errors
    /// [`FormatError`] naming the key, field or tensor at fault.
    fn family(&self) -> Result<Family, FormatError> {
        self.config().map(Family::Llama)
    }

    /// The model's metadata, if the source carries GGUF metadata.
    fn metadata(&self) -> Option<&Metadata> {
        None
    }

    /// How a synthetic tensor's planes are filled, in the order that they have on the device, so that a loader may fill them
    /// there; `None` for tensors that are read from somewhere.
    fn synthetic(&self, name: &str) -> Option<&[PlaneFill]> {
        let _ = name;
        None
    }

    /// The tensor of this name, which must have this shape.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if it is missing or has another shape.
    fn require(&self, name: &str, shape: &[u64]) -> Result<&TensorInfo, FormatError> {
        let error = |reason| FormatError::Tensor { path: self.path().into(), tensor: name.into(), reason };
        let info = self.find(name).ok_or_else(|| error("is missing, and the model needs it".into()))?;
        if info.shape != shape {
            return Err(error(format!(
                "has shape {:?}, but the model's configuration asks for {shape:?} (rows first)",
                info.shape
            )));
        }
        Ok(info)
    }
}
