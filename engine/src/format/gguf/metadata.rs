//! The key-value pairs at the head of a GGUF file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::Reader;
use crate::format::FormatError;
use crate::format::mmap::FileMap;

/// Most pairs a file may have. Real files have some tens.
const MAX_PAIRS: u64 = 1 << 14;
/// Longest key, as the GGUF specification has it.
const MAX_KEY: u64 = (1 << 16) - 1;
/// Longest scalar string; the longest in real files are chat templates of some tens of KiB.
const MAX_STRING: u64 = 1 << 24;
/// Most bytes of keys and scalar strings together: they are copied out of the file, arrays are not.
const MAX_TEXT: usize = 24 << 20;
/// How deep arrays may nest.
const MAX_DEPTH: u32 = 4;

/// A metadata value. Integers of all widths are given as 64-bit, both floating-point widths as `f64`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// `u8` … `u64`.
    Unsigned(u64),
    /// `i8` … `i64`.
    Signed(i64),
    /// `f32` or `f64`.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(&'a str),
    /// An array.
    Array(Array<'a>),
}

/// An array value: lies in the file and is decoded as it is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    kind: Kind,
    count: u64,
    bytes: &'a [u8],
}

/// GGUF's value types, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

const KINDS: [Kind; 13] = [
    Kind::U8,
    Kind::I8,
    Kind::U16,
    Kind::I16,
    Kind::U32,
    Kind::I32,
    Kind::F32,
    Kind::Bool,
    Kind::String,
    Kind::Array,
    Kind::U64,
    Kind::I64,
    Kind::F64,
];

impl Kind {
    /// Bytes of a value of fixed size; for strings and arrays the least they take.
    fn min_bytes(self) -> u64 {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::String => 8,
            Kind::Array => 12,
        }
    }
}

/// What is stored of a value: scalars and strings themselves, arrays by their place in the file.
#[derive(Debug)]
enum Stored {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Str(Box<str>),
    Array { kind: Kind, count: u64, start: usize, end: usize },
}

/// All metadata of a GGUF file, in the file's order.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    map: Arc<FileMap>,
    entries: Vec<(Arc<str>, Stored)>,
    index: HashMap<Arc<str>, usize>,
}

impl Metadata {
    pub(super) fn read(
        reader: &mut Reader<'_>,
        map: &Arc<FileMap>,
        count: u64,
    ) -> Result<Metadata, FormatError> {
        if count > MAX_PAIRS {
            // The count is at byte 16, behind magic, version and the tensor count.
            return Err(reader
                .error(16, format!("{count} metadata pairs announced; at most {MAX_PAIRS} are allowed")));
        }
        let path = reader.path().to_path_buf();
        let mut metadata = Metadata { path, map: map.clone(), entries: Vec::new(), index: HashMap::new() };
        let mut text = 0;
        for i in 0..count {
            let at = reader.at();
            let key: Arc<str> = reader.name(MAX_KEY, format_args!("the key of metadata pair {i}"))?.into();
            let value = read_value(reader, &key)?;
            text += key.len() + if let Stored::Str(s) = &value { s.len() } else { 0 };
            if text > MAX_TEXT {
                return Err(
                    metadata.error(&key, format!("keys and strings up to here exceed {MAX_TEXT} bytes"))
                );
            }
            if metadata.index.insert(key.clone(), metadata.entries.len()).is_some() {
                return Err(metadata.error(&key, format!("appears a second time at byte {at}")));
            }
            metadata.entries.push((key, value));
        }
        Ok(metadata)
    }

    /// The file it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All pairs in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries.iter().map(|(key, stored)| (&**key, self.view(stored)))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.index.get(key).map(|&i| self.view(&self.entries[i].1))
    }

    /// An error about a key of this file.
    pub fn error(&self, key: &str, reason: impl Into<String>) -> FormatError {
        FormatError::Metadata { path: self.path.clone(), key: key.into(), reason: reason.into() }
    }

    fn missing(&self, key: &str) -> FormatError {
        self.error(key, "is missing, and the model needs it")
    }

    fn mismatch(&self, key: &str, value: Value<'_>, wanted: &str) -> FormatError {
        self.error(key, format!("is {value}, but {wanted} is wanted"))
    }

    /// An integer of any width that fits in `u32`; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, FormatError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value {
            Value::Unsigned(n) => u32::try_from(n).ok(),
            Value::Signed(n) => u32::try_from(n).ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.mismatch(key, value, "an integer from 0 to 4294967295"))
    }

    /// A floating-point number, rounded to `f32`; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else or not finite.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, FormatError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(x)) if (x as f32).is_finite() => Ok(Some(x as f32)),
            Some(value) => Err(self.mismatch(key, value, "a finite number")),
        }
    }

    /// A boolean; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, FormatError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(b)),
            Some(value) => Err(self.mismatch(key, value, "a boolean")),
        }
    }

    /// A string; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn str(&self, key: &str) -> Result<Option<&str>, FormatError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Str(s)) => Ok(Some(s)),
            Some(value) => Err(self.mismatch(key, value, "a string")),
        }
    }

    fn array(&self, key: &str, wanted: &str) -> Result<Option<Array<'_>>, FormatError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(value) => Err(self.mismatch(key, value, wanted)),
        }
    }

    /// An array of strings; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, FormatError> {
        let wanted = "an array of strings";
        let Some(array) = self.array(key, wanted)? else { return Ok(None) };
        if array.kind != Kind::String {
            return Err(self.mismatch(key, Value::Array(array), wanted));
        }
        let mut strings = Vec::with_capacity(array.len());
        let mut rest = array.bytes;
        for i in 0..array.count {
            // Checked when the file was opened; checked again because the file may have changed since.
            let changed = || self.error(key, format!("entry {i} changed while the file was in use"));
            let (len, tail) = rest.split_first_chunk().ok_or_else(changed)?;
            let text = tail.get(..u64::from_le_bytes(*len) as usize).ok_or_else(changed)?;
            strings.push(std::str::from_utf8(text).map_err(|_| changed())?);
            rest = &tail[text.len()..];
        }
        Ok(Some(strings))
    }

    /// An array of integers that fit in `i64`; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, FormatError> {
        let wanted = "an array of integers";
        let Some(array) = self.array(key, wanted)? else { return Ok(None) };
        let numbers = array.scalars().map(|value| match value {
            Value::Unsigned(n) => i64::try_from(n).ok(),
            Value::Signed(n) => Some(n),
            _ => None,
        });
        let numbers: Option<Vec<i64>> = numbers.collect();
        match numbers {
            Some(numbers) if numbers.len() == array.len() => Ok(Some(numbers)),
            _ => Err(self.mismatch(key, Value::Array(array), wanted)),
        }
    }

    /// An array of floating-point numbers, rounded to `f32`; `None` if the key is absent.
    ///
    /// # Errors
    /// If the value is something else.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, FormatError> {
        let wanted = "an array of numbers";
        let Some(array) = self.array(key, wanted)? else { return Ok(None) };
        let numbers =
            array.scalars().map(|value| if let Value::Float(x) = value { Some(x as f32) } else { None });
        let numbers: Option<Vec<f32>> = numbers.collect();
        match numbers {
            Some(numbers) if numbers.len() == array.len() => Ok(Some(numbers)),
            _ => Err(self.mismatch(key, Value::Array(array), wanted)),
        }
    }

    /// Like [`u32`](Self::u32), for a key that must be there.
    ///
    /// # Errors
    /// If the key is absent or the value is something else.
    pub fn require_u32(&self, key: &str) -> Result<u32, FormatError> {
        self.u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`f32`](Self::f32), for a key that must be there.
    ///
    /// # Errors
    /// If the key is absent or the value is something else.
    pub fn require_f32(&self, key: &str) -> Result<f32, FormatError> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`str`](Self::str), for a key that must be there.
    ///
    /// # Errors
    /// If the key is absent or the value is something else.
    pub fn require_str(&self, key: &str) -> Result<&str, FormatError> {
        self.str(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`strings`](Self::strings), for a key that must be there.
    ///
    /// # Errors
    /// If the key is absent or the value is something else.
    pub fn require_strings(&self, key: &str) -> Result<Vec<&str>, FormatError> {
        self.strings(key)?.ok_or_else(|| self.missing(key))
    }

    fn view<'a>(&'a self, stored: &'a Stored) -> Value<'a> {
        match *stored {
            Stored::Unsigned(n) => Value::Unsigned(n),
            Stored::Signed(n) => Value::Signed(n),
            Stored::Float(x) => Value::Float(x),
            Stored::Bool(b) => Value::Bool(b),
            Stored::Str(ref s) => Value::Str(s),
            Stored::Array { kind, count, start, end } => {
                Value::Array(Array { kind, count, bytes: &self.map[start..end] })
            }
        }
    }
}

impl<'a> Array<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        // Each element takes at least a byte of the file, so the count fits.
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements, for an array of numbers or booleans; nothing for an array of strings or of arrays.
    pub fn scalars(self) -> impl Iterator<Item = Value<'a>> {
        let fixed = !matches!(self.kind, Kind::String | Kind::Array);
        let bytes = if fixed { self.bytes } else { &[] };
        bytes.chunks_exact(self.kind.min_bytes() as usize).map(move |bytes| scalar(self.kind, bytes))
    }
}

impl std::fmt::Display for Value<'_> {
    /// Strings are quoted and escaped, arrays are described by type and length.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Unsigned(n) => n.fmt(f),
            Value::Signed(n) => n.fmt(f),
            // Shortest text that reads back as the same f32, which is how nearly all are stored.
            Value::Float(x) if f64::from(*x as f32) == *x => write!(f, "{:?}", *x as f32),
            Value::Float(x) => write!(f, "{x:?}"),
            Value::Bool(b) => b.fmt(f),
            Value::Str(s) => {
                let mut cut: String = s.chars().take(64).collect();
                if cut.len() < s.len() {
                    cut.push('…');
                }
                write!(f, "{cut:?}")
            }
            Value::Array(a) => {
                let kind = match a.kind {
                    Kind::U8
                    | Kind::U16
                    | Kind::U32
                    | Kind::U64
                    | Kind::I8
                    | Kind::I16
                    | Kind::I32
                    | Kind::I64 => "integers",
                    Kind::F32 | Kind::F64 => "numbers",
                    Kind::Bool => "booleans",
                    Kind::String => "strings",
                    Kind::Array => "arrays",
                };
                write!(f, "an array of {} {kind}", a.count)
            }
        }
    }
}

fn scalar<'a>(kind: Kind, bytes: &[u8]) -> Value<'a> {
    fn n<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("the caller passes as many bytes as the kind has")
    }
    match kind {
        Kind::U8 => Value::Unsigned(bytes[0].into()),
        Kind::I8 => Value::Signed((bytes[0] as i8).into()),
        Kind::U16 => Value::Unsigned(u16::from_le_bytes(n(bytes)).into()),
        Kind::I16 => Value::Signed(i16::from_le_bytes(n(bytes)).into()),
        Kind::U32 => Value::Unsigned(u32::from_le_bytes(n(bytes)).into()),
        Kind::I32 => Value::Signed(i32::from_le_bytes(n(bytes)).into()),
        Kind::F32 => Value::Float(f32::from_le_bytes(n(bytes)).into()),
        Kind::Bool => Value::Bool(bytes[0] != 0),
        Kind::U64 => Value::Unsigned(u64::from_le_bytes(n(bytes))),
        Kind::I64 => Value::Signed(i64::from_le_bytes(n(bytes))),
        Kind::F64 => Value::Float(f64::from_le_bytes(n(bytes))),
        Kind::String | Kind::Array => unreachable!("not a scalar"),
    }
}

fn read_kind(reader: &mut Reader<'_>, key: &str) -> Result<Kind, FormatError> {
    let at = reader.at();
    let number = reader.u32(format_args!("the type of metadata key `{key}`"))?;
    KINDS.get(number as usize).copied().ok_or_else(|| {
        reader.error(at, format!("metadata key `{key}` has type {number}, which GGUF does not define"))
    })
}

fn read_value(reader: &mut Reader<'_>, key: &str) -> Result<Stored, FormatError> {
    let kind = read_kind(reader, key)?;
    Ok(match kind {
        Kind::String => {
            Stored::Str(reader.string(MAX_STRING, format_args!("the value of metadata key `{key}`"))?.into())
        }
        Kind::Array => {
            let (kind, count) = read_array_head(reader, key)?;
            let start = reader.at();
            skip_elements(reader, key, kind, count, 1)?;
            Stored::Array { kind, count, start, end: reader.at() }
        }
        _ => {
            let bytes = reader.take(kind.min_bytes(), format_args!("the value of metadata key `{key}`"))?;
            match scalar(kind, bytes) {
                Value::Unsigned(n) => Stored::Unsigned(n),
                Value::Signed(n) => Stored::Signed(n),
                Value::Float(x) => Stored::Float(x),
                Value::Bool(b) => Stored::Bool(b),
                Value::Str(_) | Value::Array(_) => unreachable!("not a scalar"),
            }
        }
    })
}

fn read_array_head(reader: &mut Reader<'_>, key: &str) -> Result<(Kind, u64), FormatError> {
    let kind = read_kind(reader, key)?;
    let at = reader.at();
    let count = reader.u64(format_args!("the length of the array of metadata key `{key}`"))?;
    let least = count.checked_mul(kind.min_bytes());
    if least.is_none_or(|least| least > reader.left()) {
        let left = reader.left();
        return Err(reader.error(
            at,
            format!(
                "metadata key `{key}` announces an array of {count} entries, but only {left} bytes are left"
            ),
        ));
    }
    Ok((kind, count))
}

/// Walks over an array's elements, checking that they are whole and that strings are UTF-8.
fn skip_elements(
    reader: &mut Reader<'_>,
    key: &str,
    kind: Kind,
    count: u64,
    depth: u32,
) -> Result<(), FormatError> {
    match kind {
        Kind::String => {
            for i in 0..count {
                reader.string(MAX_STRING, format_args!("entry {i} of metadata key `{key}`"))?;
            }
        }
        Kind::Array => {
            if depth == MAX_DEPTH {
                return Err(reader.error(
                    reader.at(),
                    format!("metadata key `{key}` nests arrays deeper than {MAX_DEPTH}"),
                ));
            }
            for _ in 0..count {
                let (kind, count) = read_array_head(reader, key)?;
                skip_elements(reader, key, kind, count, depth + 1)?;
            }
        }
        _ => {
            reader.take(count * kind.min_bytes(), format_args!("the array of metadata key `{key}`"))?;
        }
    }
    Ok(())
}
