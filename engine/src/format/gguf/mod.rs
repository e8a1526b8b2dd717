//! GGUF, versions 2 and 3, little-endian: a header, metadata pairs, a tensor table, aligned tensor data.
//!
//! The format: `docs/gguf.md` of the ggml project. Nothing of a file is copied when it is opened but keys,
//! strings and the tensor table, so opening costs milliseconds whatever the file's size.

mod metadata;
mod part;
mod reader;
mod split;
mod writer;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use metadata::{Array, Metadata, Value};
pub use writer::GgufWriter;

use super::mmap::FileMap;
use super::{FormatError, Stored, TensorInfo, TensorSource};
use crate::config::ModelConfig;
use part::Part;

/// An open GGUF model: one file, or all the parts of a split one.
#[derive(Debug)]
pub struct GgufFile {
    /// The file given, or the first part.
    path: PathBuf,
    version: u32,
    metadata: Metadata,
    maps: Vec<Arc<FileMap>>,
    tensors: Vec<TensorInfo>,
    places: Vec<Place>,
    index: HashMap<String, usize>,
}

/// Where a tensor's data is: in which part, and at which byte of it.
#[derive(Debug, Clone, Copy)]
struct Place {
    part: usize,
    start: usize,
    len: usize,
}

impl GgufFile {
    /// Opens a file. Of a model split into `…-00001-of-000NN.gguf` any part may be given: all are opened.
    ///
    /// # Errors
    /// [`FormatError`], with the place in the file and the reason; an absent part is named.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile, FormatError> {
        let path = path.as_ref();
        let part = Part::parse(path, Arc::new(FileMap::open(path)?))?;
        Self::from_parts(split::gather(part)?)
    }

    /// Reads a GGUF file that is in memory; `path` stands for it in messages. It must not be a split one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(path: impl AsRef<Path>, bytes: Vec<u8>) -> Result<GgufFile, FormatError> {
        let part = Part::parse(path.as_ref(), Arc::new(FileMap::from_vec(bytes)))?;
        if let Some(count) = split::count(&part.metadata)? {
            let reason =
                format!("one of {count} parts, which cannot be found from memory; open it from its file");
            return Err(FormatError::Split { path: part.path, reason });
        }
        Self::from_parts(vec![part])
    }

    fn from_parts(parts: Vec<Part>) -> Result<GgufFile, FormatError> {
        let mut parts = parts.into_iter();
        let first = parts.next().expect("a model has at least the part that was opened");
        let mut file = GgufFile {
            path: first.path.clone(),
            version: first.version,
            metadata: first.metadata,
            maps: Vec::new(),
            tensors: Vec::new(),
            places: Vec::new(),
            index: HashMap::new(),
        };
        file.add(&first.path, first.map, first.tensors)?;
        for part in parts {
            file.add(&part.path, part.map, part.tensors)?;
        }
        Ok(file)
    }

    fn add(
        &mut self,
        path: &Path,
        map: Arc<FileMap>,
        tensors: Vec<(TensorInfo, usize)>,
    ) -> Result<(), FormatError> {
        let part = self.maps.len();
        self.maps.push(map);
        for (info, start) in tensors {
            if self.index.insert(info.name.clone(), self.tensors.len()).is_some() {
                let reason = "appears a second time".into();
                return Err(FormatError::Tensor { path: path.into(), tensor: info.name, reason });
            }
            self.places.push(Place { part, start, len: info.bytes() as usize });
            self.tensors.push(info);
        }
        Ok(())
    }

    /// The version of the container, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The metadata (of a split model, that of its first part).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Number of files.
    pub fn parts(&self) -> usize {
        self.maps.len()
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.maps.iter().map(|map| map.len() as u64).sum()
    }

    /// A tensor's bytes, in place.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if there is no tensor of this name.
    pub fn bytes(&self, name: &str) -> Result<&[u8], FormatError> {
        let Place { part, start, len } = self.place(name)?;
        Ok(&self.maps[part][start..start + len])
    }

    fn place(&self, name: &str) -> Result<Place, FormatError> {
        let Some(&i) = self.index.get(name) else {
            let reason = "is missing".into();
            return Err(FormatError::Tensor { path: self.path.clone(), tensor: name.into(), reason });
        };
        Ok(self.places[i])
    }
}

impl TensorSource for GgufFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    fn data(&self, name: &str) -> Result<Cow<'_, [u8]>, FormatError> {
        self.bytes(name).map(Cow::Borrowed)
    }

    fn stored(&self, name: &str) -> Result<Stored<'_>, FormatError> {
        let Place { part, start, len } = self.place(name)?;
        let map = &self.maps[part];
        Ok(Stored::in_file(map, start, len, map.path().unwrap_or(&self.path), name))
    }

    fn config(&self) -> Result<ModelConfig, FormatError> {
        ModelConfig::from_gguf(self, &self.metadata)
    }

    fn metadata(&self) -> Option<&Metadata> {
        Some(&self.metadata)
    }
}
