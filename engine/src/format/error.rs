//! What can be wrong with a model file.

use std::path::PathBuf;

/// A model file that cannot be opened, is not what it claims, or lacks what was asked of it.
///
/// Every message names the file; most also name the place: a byte offset, a metadata key or a tensor.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system refused to open, stat or map the file.
    #[error("{}: cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("{}: is {kind}, not a file; give the path of a model file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is instead: "a directory", "a pipe" …
        kind: &'static str,
    },
    /// The file has no bytes at all.
    #[error("{}: is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file's first bytes are those of another format.
    #[error("{}: at byte 0: not a GGUF file: {found}", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What was found instead of the magic number.
        found: String,
    },
    /// The container's structure is broken at a byte offset.
    #[error("{}: at byte {offset}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Byte offset of the field at fault.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A metadata value is missing, of the wrong type, or makes no sense.
    #[error("{}: metadata key `{key}`: {reason}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The metadata key at fault.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A field of a JSON file is missing, of the wrong type, or makes no sense.
    #[error("{}: field `{field}`: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The field at fault, with the objects it lies in: `text_config.layer_types[3]`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Tensors that the model needs are not there.
    #[error("{}: tensors that the model needs are missing, {count} in all: {}{}", path.display(), first.join(", "),
        if *count > first.len() as u64 { " …" } else { "" })]
    Missing {
        /// The file or folder.
        path: PathBuf,
        /// How many.
        count: u64,
        /// The names of the first few.
        first: Vec<String>,
    },
    /// A tensor is missing, or its type, shape or place in the file makes no sense.
    #[error("{}: tensor `{tensor}`: {reason}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor at fault.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor's data cannot be read, though the file was opened.
    #[error("{}: tensor `{tensor}`: cannot be read; was the file changed or taken away while it was in use?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A part of a model that is split over several files.
    #[error("{}: split model: {reason}", path.display())]
    Split {
        /// The part at fault, or the one that is absent.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
