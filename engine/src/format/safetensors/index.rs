//! `model.safetensors.index.json`: which shard holds which tensor.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use crate::format::FormatError;
use crate::format::mmap::FileMap;

/// The file's name.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// Most bytes, tensors and shards.
const MAX_BYTES: usize = 64 << 20;
const MAX_TENSORS: usize = 1 << 19;
const MAX_SHARDS: usize = 4096;

/// Shards by name, and for each tensor the number of its shard.
pub(super) struct Index {
    pub shards: Vec<String>,
    pub map: HashMap<String, u16>,
}

impl Index {
    pub fn read(path: &Path) -> Result<Index, FormatError> {
        let file = FileMap::open(path)?;
        let error =
            |reason: String| FormatError::Config { path: path.into(), field: "weight_map".into(), reason };
        if file.len() > MAX_BYTES {
            return Err(error(format!(
                "is in a file of {} bytes; at most {MAX_BYTES} are allowed",
                file.len()
            )));
        }
        let parsed: Whole =
            serde_json::from_slice(&file).map_err(|reason| error(format!("cannot be read: {reason}")))?;
        let index = parsed.weight_map.ok_or_else(|| error("is missing".into()))?;
        if index.shards.is_empty() {
            return Err(error("names no tensor".into()));
        }
        for shard in &index.shards {
            // A name alone: a path could lead out of the checkpoint's folder.
            let plain = Path::new(shard).file_name().is_some_and(|name| name == shard.as_str());
            if !plain || shard.len() > 255 || shard.chars().any(char::is_control) {
                let name: String = shard.chars().take(80).collect();
                return Err(error(format!(
                    "names a shard {name:?}, but a file's name without a folder is wanted"
                )));
            }
        }
        Ok(index)
    }
}

#[derive(serde::Deserialize)]
struct Whole {
    weight_map: Option<Index>,
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor)
    }
}

struct MapVisitor;

impl<'de> Visitor<'de> for MapVisitor {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of files by tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error;
        let (mut shards, mut numbers) = (Vec::<String>::new(), HashMap::<String, u16>::new());
        let mut map = HashMap::new();
        while let Some((tensor, shard)) = entries.next_entry::<String, String>()? {
            let number = match numbers.get(&shard) {
                Some(&number) => number,
                None if shards.len() == MAX_SHARDS => {
                    return Err(A::Error::custom(format_args!("more than {MAX_SHARDS} shards")));
                }
                None => {
                    let number = shards.len() as u16;
                    shards.push(shard.clone());
                    numbers.insert(shard, number);
                    number
                }
            };
            if map.len() == MAX_TENSORS {
                return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
            }
            if map.contains_key(&tensor) {
                return Err(A::Error::custom(format_args!("{tensor:?} appears a second time")));
            }
            map.insert(tensor, number);
        }
        Ok(Index { shards, map })
    }
}
