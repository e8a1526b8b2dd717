//! The header of one safetensors file: 8 bytes of length, then JSON of names, types, shapes and byte ranges.
//!
//! The safetensors crate reads it, and accepts it or not; what it accepts is what this module hands out. Before that the
//! header is gone through without building anything from it, so that what is wrong can be named (the crate's errors leave
//! out the tensor), and so that a header of a few megabytes cannot make the crate allocate gigabytes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::format::{DType, FormatError, TensorInfo};

/// Longest header. That of 65 536 tensors with long names has this many bytes.
const MAX_HEADER: u64 = 16 << 20;
/// Most tensors in one file.
const MAX_TENSORS: usize = 1 << 16;
/// Longest name of a tensor.
const MAX_NAME: usize = 255;
/// Most dimensions.
const MAX_DIMS: usize = 8;
/// Most bytes of all keys and values of the file's own metadata.
const MAX_METADATA: usize = 1 << 20;

/// What a header says, checked: every range lies in the file and has the size that type and shape imply, and together they
/// cover it without a gap.
pub(super) struct Header {
    /// Tensors in the order of their data, with the offset of it from the start of the file.
    pub tensors: Vec<(TensorInfo, usize)>,
    /// The file's own metadata.
    pub metadata: HashMap<String, String>,
}

impl Header {
    pub fn parse(path: &Path, file: &[u8]) -> Result<Header, FormatError> {
        let malformed = |offset, reason: String| FormatError::Malformed { path: path.into(), offset, reason };
        let Some(length) = file.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
            let reason = format!("the file ends after {} bytes, inside the header's length", file.len());
            return Err(malformed(0, reason));
        };
        let left = file.len() as u64 - 8;
        if length > left {
            let reason = format!(
                "the header is announced with {length} bytes, but {left} are left: cut short, or no safetensors file"
            );
            return Err(malformed(0, reason));
        }
        if length > MAX_HEADER {
            let reason =
                format!("the header is announced with {length} bytes; at most {MAX_HEADER} are allowed");
            return Err(malformed(0, reason));
        }
        let start = 8 + length as usize;
        let text = std::str::from_utf8(&file[8..start]).map_err(|error| {
            malformed(8 + error.valid_up_to() as u64, "the header is no UTF-8 text".into())
        })?;
        let entries: Entries<'_> = serde_json::from_str(text).map_err(|error| {
            malformed(8 + offset(text, &error), format!("the header is no valid list of tensors: {error}"))
        })?;
        check(path, entries.0, file.len() - start)?;

        let (_, metadata) = SafeTensors::read_metadata(file)
            .map_err(|error| malformed(8, format!("the header is refused: {error}")))?;
        let mut tensors = Vec::new();
        for name in metadata.offset_keys() {
            let error =
                |reason: String| FormatError::Tensor { path: path.into(), tensor: name.clone(), reason };
            let info = metadata.info(&name).ok_or_else(|| error("has no entry".into()))?;
            let dtype = dtype(info.dtype)
                .ok_or_else(|| error(format!("is {}, a type that bitwalk does not read", info.dtype)))?;
            let shape = info.shape.iter().map(|&extent| extent as u64).collect();
            tensors.push((TensorInfo { name, shape, dtype }, start + info.data_offsets.0));
        }
        Ok(Header { tensors, metadata: metadata.metadata().clone().unwrap_or_default() })
    }
}

/// The byte of the text at which parsing failed.
fn offset(text: &str, error: &serde_json::Error) -> u64 {
    let before = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    (before + error.column().saturating_sub(1)) as u64
}

/// The name here of a type of the format's.
fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F64 => DType::F64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::F8_E4M3 => DType::F8_E4M3,
        _ => return None,
    })
}

/// Checks types, shapes and ranges, naming the tensor. `len` is that of the data behind the header.
fn check(path: &Path, mut entries: Vec<Entry<'_>>, len: usize) -> Result<(), FormatError> {
    let error = |name: &str, reason: String| FormatError::Tensor {
        path: path.into(),
        tensor: name.chars().take(MAX_NAME).collect(),
        reason,
    };
    let mut names = HashSet::with_capacity(entries.len());
    for entry in &entries {
        let name: &str = &entry.name;
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let reason =
                format!("is no name: at most {MAX_NAME} bytes without control characters are allowed");
            return Err(error(name, reason));
        }
        if !names.insert(name) {
            return Err(error(name, "appears a second time".into()));
        }
        let Info { dtype: type_name, shape, data_offsets: [begin, end] } = &entry.info;
        let element: Dtype = serde_json::from_value(serde_json::Value::String(type_name.to_string()))
            .map_err(|_| error(name, format!("has type {type_name:?}, which safetensors does not define")))?;
        let bits = dtype(element).map(|_| element.bitsize() as u64);
        let bits =
            bits.ok_or_else(|| error(name, format!("is {element}, a type that bitwalk does not read")))?;
        let Some(shape) = shape.extents() else {
            return Err(error(name, format!("has more than {MAX_DIMS} dimensions")));
        };
        if let Some(d) = shape.iter().position(|&extent| extent == 0) {
            return Err(error(name, format!("dimension {d} is 0")));
        }
        let bytes = shape.iter().try_fold(bits / 8, |bytes, &extent| bytes.checked_mul(extent));
        let bytes = bytes.filter(|&bytes| bytes <= u64::MAX / 64);
        let bytes =
            bytes.ok_or_else(|| error(name, format!("its size overflows: shape {shape:?} of {element}")))?;
        if end < begin || *end > len as u64 {
            let reason = format!(
                "its data is announced from byte {begin} to {end} of {len} bytes of data; is the file cut short?"
            );
            return Err(error(name, reason));
        }
        if end - begin != bytes {
            let found = end - begin;
            let reason = format!("has {found} bytes, but its shape {shape:?} of {element} takes {bytes}");
            return Err(error(name, reason));
        }
    }
    drop(names);
    entries.sort_by_key(|entry| entry.info.data_offsets);
    let mut covered = 0;
    let mut before = "the header";
    for entry in &entries {
        let [begin, end] = entry.info.data_offsets;
        if begin < covered {
            let reason =
                format!("its data at byte {begin} overlaps that of `{before}`, which ends at {covered}");
            return Err(error(&entry.name, reason));
        }
        if begin > covered {
            let reason =
                format!("its data begins at byte {begin}, {} bytes behind `{before}`", begin - covered);
            return Err(error(&entry.name, reason));
        }
        (covered, before) = (end, &entry.name);
    }
    if covered != len as u64 {
        let reason = format!("{} bytes behind the last tensor belong to none", len as u64 - covered);
        let offset = 8 + covered;
        return Err(FormatError::Malformed { path: path.into(), offset, reason });
    }
    Ok(())
}

/// The header's entries, in its order.
struct Entries<'a>(Vec<Entry<'a>>);

struct Entry<'a> {
    name: Cow<'a, str>,
    info: Info<'a>,
}

#[derive(serde::Deserialize)]
struct Info<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: [u64; 2],
}

/// Extents, as many as are allowed and one more.
struct Shape {
    extents: [u64; MAX_DIMS],
    len: usize,
}

impl Shape {
    fn extents(&self) -> Option<&[u64]> {
        self.extents.get(..self.len)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                use serde::de::Error;
                let mut entries = Vec::new();
                let mut metadata = false;
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    if name.0 == "__metadata__" {
                        if std::mem::replace(&mut metadata, true) {
                            return Err(A::Error::custom("__metadata__ appears a second time"));
                        }
                        map.next_value::<OwnMetadata>()?;
                        continue;
                    }
                    if entries.len() == MAX_TENSORS {
                        return Err(A::Error::custom(format_args!("more than {MAX_TENSORS} tensors")));
                    }
                    entries.push(Entry { name: name.0, info: map.next_value()? });
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// A string, borrowed where it holds no escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Strings by strings, whose size alone matters here.
struct OwnMetadata;

impl<'de> Deserialize<'de> for OwnMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OwnVisitor;
        impl<'de> Visitor<'de> for OwnVisitor {
            type Value = OwnMetadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnMetadata, A::Error> {
                let mut bytes = 0;
                while let Some((key, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
                    // Each takes two strings and a place in a table besides.
                    bytes += key.0.len() + value.0.len() + 64;
                    if bytes > MAX_METADATA {
                        let reason = format_args!("__metadata__ of more than {MAX_METADATA} bytes");
                        return Err(serde::de::Error::custom(reason));
                    }
                }
                Ok(OwnMetadata)
            }

            fn visit_unit<E>(self) -> Result<OwnMetadata, E> {
                Ok(OwnMetadata)
            }
        }
        deserializer.deserialize_any(OwnVisitor)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;
        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Shape { extents: [0; MAX_DIMS], len: 0 };
                while let Some(extent) = seq.next_element()? {
                    match shape.extents.get_mut(shape.len) {
                        Some(slot) => *slot = extent,
                        None => {
                            while seq.next_element::<IgnoredAny>()?.is_some() {}
                            shape.len = MAX_DIMS + 1;
                            break;
                        }
                    }
                    shape.len += 1;
                }
                Ok(shape)
            }
        }
        deserializer.deserialize_seq(ShapeVisitor)
    }
}
