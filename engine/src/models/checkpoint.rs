//! A model's files, whatever they are.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use thiserror::Error;

use crate::format::gguf::GgufFile;
use crate::format::safetensors::SafetensorsSource;
use crate::format::synthetic::{Recipe, SyntheticError, SyntheticSource};
use crate::format::{FormatError, TensorSource};

/// An opened checkpoint.
#[derive(Debug)]
pub enum Checkpoint {
    /// A GGUF file, or the parts of one.
    Gguf(Box<GgufFile>),
    /// safetensors with a `config.json`.
    Safetensors(Box<SafetensorsSource>),
    /// No file: weights from a hash.
    Synthetic(Box<SyntheticSource>),
}

/// Why a checkpoint could not be opened.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file is at fault.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The recipe is at fault.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
}

/// What a synthetic checkpoint's name begins with.
const SYNTHETIC: &str = "synthetic:";

impl Checkpoint {
    /// Opens `path`: a GGUF file; a folder, file or index of safetensors; or `synthetic:NAME` with options, as [`Recipe`] reads
    /// them.
    ///
    /// # Errors
    /// Those of the format that the path has; one that is neither is reported as a GGUF file that is none.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        if let Some(recipe) = path.to_str().and_then(|text| text.strip_prefix(SYNTHETIC)) {
            return Ok(Checkpoint::Synthetic(Box::new(SyntheticSource::new(recipe.parse::<Recipe>()?)?)));
        }
        let named = |extension: &str| path.extension().is_some_and(|found| found == extension);
        if path.is_dir() || named("safetensors") || named("json") {
            return Ok(Checkpoint::Safetensors(Box::new(SafetensorsSource::open(path)?)));
        }
        // A safetensors file by another name begins with the length of a JSON object, and then the object.
        let mut head = [0; 9];
        let begins_with_json = File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
            && !head.starts_with(b"GGUF")
            && head[8] == b'{';
        if begins_with_json {
            return Ok(Checkpoint::Safetensors(Box::new(SafetensorsSource::open(path)?)));
        }
        Ok(Checkpoint::Gguf(Box::new(GgufFile::open(path)?)))
    }

    /// Its tensors.
    pub fn source(&self) -> &dyn TensorSource {
        match self {
            Checkpoint::Gguf(file) => &**file,
            Checkpoint::Safetensors(source) => &**source,
            Checkpoint::Synthetic(source) => &**source,
        }
    }

    /// The GGUF file, if it is one: it carries a tokenizer.
    pub fn gguf(&self) -> Option<&GgufFile> {
        match self {
            Checkpoint::Gguf(file) => Some(file),
            Checkpoint::Safetensors(_) | Checkpoint::Synthetic(_) => None,
        }
    }
}
