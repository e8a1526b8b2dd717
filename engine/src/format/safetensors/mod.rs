//! safetensors checkpoints: one file, or shards with an index, and the JSON files beside them.

mod header;
mod index;
mod quantisation;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use self::header::Header;
use self::index::{INDEX, Index};
use super::mmap::FileMap;
use super::{FormatError, Stored, TensorInfo, TensorSource};
use crate::config::{Family, ModelConfig, glm5::Glm5Config};

/// The name of a checkpoint in one file.
const SINGLE: &str = "model.safetensors";
/// Longest JSON file that is read whole.
const MAX_JSON: usize = 1 << 20;

/// Where a tensor's data lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    part: usize,
    start: usize,
    len: usize,
}

/// A checkpoint in safetensors, mapped into memory, with its `config.json`.
#[derive(Debug)]
pub struct SafetensorsSource {
    path: PathBuf,
    config_path: PathBuf,
    config: Value,
    maps: Vec<Arc<FileMap>>,
    tensors: Vec<TensorInfo>,
    places: Vec<Place>,
    index: HashMap<String, usize>,
}

impl SafetensorsSource {
    /// Opens a checkpoint: a folder, a safetensors file, or an index of shards. `config.json` lies beside the weights.
    ///
    /// # Errors
    /// [`FormatError`] naming the file and the place in it: a file that is absent, cut short or malformed, a shard that the
    /// index names and that is not there, a tensor in another shard than the index says, a quantisation that is declared
    /// and cannot run.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsSource, FormatError> {
        let path = path.as_ref();
        let file = if path.is_dir() { in_folder(path)? } else { path.to_path_buf() };
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        let config_path = folder.join("config.json");
        let config = read_json(&config_path)?;
        check_quantisation(&folder, &config_path, &config)?;

        let mut source = SafetensorsSource {
            path: path.into(),
            config_path,
            config,
            maps: Vec::new(),
            tensors: Vec::new(),
            places: Vec::new(),
            index: HashMap::new(),
        };
        if file.extension().is_some_and(|extension| extension == "json") {
            source.add_shards(&folder, Index::read(&file)?)?;
        } else {
            let header = source.add(&file, FileMap::open(&file)?)?;
            quantisation::check_metadata(&file, header.iter())?;
        }
        Ok(source)
    }

    /// A checkpoint of one file whose bytes, and whose configuration, are in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(path: impl AsRef<Path>, bytes: Vec<u8>, config: Value) -> Result<Self, FormatError> {
        let path = path.as_ref();
        let config_path = path.with_file_name("config.json");
        check_quantisation(Path::new("/nonexistent"), &config_path, &config)?;
        let mut source = SafetensorsSource {
            path: path.into(),
            config_path,
            config,
            maps: Vec::new(),
            tensors: Vec::new(),
            places: Vec::new(),
            index: HashMap::new(),
        };
        let header = source.add(path, FileMap::from_vec(bytes))?;
        quantisation::check_metadata(path, header.iter())?;
        Ok(source)
    }

    fn add_shards(&mut self, folder: &Path, index: Index) -> Result<(), FormatError> {
        for (number, shard) in index.shards.iter().enumerate() {
            let path = folder.join(shard);
            if !path.exists() {
                let reason = format!("shard {shard}, which {INDEX} names, is not there");
                return Err(FormatError::Split { path, reason });
            }
            let before = self.tensors.len();
            let header = self.add(&path, FileMap::open(&path)?)?;
            quantisation::check_metadata(&path, header.iter())?;
            for info in &self.tensors[before..] {
                let reason = match index.map.get(&info.name) {
                    Some(&said) if usize::from(said) == number => continue,
                    Some(&said) => {
                        format!("is in {shard}, but {INDEX} says {}", index.shards[usize::from(said)])
                    }
                    None => format!("is in {shard}, but {INDEX} does not name it"),
                };
                return Err(FormatError::Tensor { path, tensor: info.name.clone(), reason });
            }
        }
        // Every tensor found is in the map, so one that was not found is what makes the difference.
        if let Some((name, &shard)) = index.map.iter().find(|(name, _)| !self.index.contains_key(*name)) {
            let shard = &index.shards[usize::from(shard)];
            let reason = format!("is not in {shard}, where {INDEX} says it is");
            return Err(FormatError::Tensor { path: folder.join(shard), tensor: name.clone(), reason });
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, map: FileMap) -> Result<HashMap<String, String>, FormatError> {
        let header = Header::parse(path, &map)?;
        let part = self.maps.len();
        self.maps.push(Arc::new(map));
        for (info, start) in header.tensors {
            if self.index.insert(info.name.clone(), self.tensors.len()).is_some() {
                let reason = "appears a second time".into();
                return Err(FormatError::Tensor { path: path.into(), tensor: info.name, reason });
            }
            self.places.push(Place { part, start, len: info.bytes() as usize });
            self.tensors.push(info);
        }
        Ok(header.metadata)
    }

    /// The contents of `config.json`.
    pub fn config_json(&self) -> &Value {
        &self.config
    }

    /// The path of `config.json`.
    pub fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// Number of files of weights.
    pub fn parts(&self) -> usize {
        self.maps.len()
    }

    /// Bytes of all files of weights together.
    pub fn file_bytes(&self) -> u64 {
        self.maps.iter().map(|map| map.len() as u64).sum()
    }

    /// The configuration of a `glm5_next` model.
    ///
    /// # Errors
    /// [`FormatError::Config`] naming the field of `config.json` at fault.
    pub fn glm5(&self) -> Result<Glm5Config, FormatError> {
        Glm5Config::from_json(&self.config_path, &self.config)
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

impl TensorSource for SafetensorsSource {
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
        self.glm5()?;
        let reason = "is a glm5_next model; what was asked for is one of the llama family";
        let field = "model_type".into();
        Err(FormatError::Config { path: self.config_path.clone(), field, reason: reason.into() })
    }

    fn family(&self) -> Result<Family, FormatError> {
        self.glm5().map(Family::Glm5)
    }
}

/// The file of a folder by which its checkpoint is opened.
fn in_folder(folder: &Path) -> Result<PathBuf, FormatError> {
    for name in [INDEX, SINGLE] {
        let path = folder.join(name);
        if path.exists() {
            return Ok(path);
        }
    }
    let source = std::io::Error::new(
        std::io::ErrorKind::NotFound,
        format!("the folder holds neither {SINGLE} nor {INDEX}"),
    );
    Err(FormatError::Open { path: folder.into(), source })
}

/// Refuses a declared quantisation that cannot run: in `config.json`, and in `hf_quant_config.json` if there is one.
fn check_quantisation(folder: &Path, config_path: &Path, config: &Value) -> Result<(), FormatError> {
    let field = "quantization_config";
    let declared = config.get(field).or_else(|| config.get("text_config").and_then(|text| text.get(field)));
    if let Some(declared) = declared {
        quantisation::check(config_path, field, declared)?;
    }
    let path = folder.join("hf_quant_config.json");
    if !path.exists() {
        return Ok(());
    }
    let declared = read_json(&path)?;
    let inner = declared.get("quantization").unwrap_or(&declared);
    quantisation::check(&path, "quantization", inner)
}

/// Reads a small JSON file.
fn read_json(path: &Path) -> Result<Value, FormatError> {
    let file = FileMap::open(path)?;
    let error =
        |reason: String| FormatError::Config { path: path.into(), field: "(the whole file)".into(), reason };
    if file.len() > MAX_JSON {
        return Err(error(format!("has {} bytes; at most {MAX_JSON} are read", file.len())));
    }
    serde_json::from_slice(&file).map_err(|reason| error(format!("is no valid JSON: {reason}")))
}
