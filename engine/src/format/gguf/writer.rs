//! Writes GGUF files: the repository's fixture, and the files that tests take apart.

use crate::format::DType;

/// Builds a GGUF file in memory, version 3, little-endian, alignment 32.
///
/// ```
/// use bitwalk::format::gguf::{GgufFile, GgufWriter};
/// use bitwalk::format::{DType, TensorSource};
///
/// let mut writer = GgufWriter::new();
/// writer.str("general.architecture", "llama");
/// writer.tensor("token_embd.weight", &[2, 1], DType::F32, &[0; 8]);
/// let file = GgufFile::from_bytes("memory.gguf", writer.finish())?;
/// assert_eq!(file.find("token_embd.weight").unwrap().shape, [2, 1]);
/// # Ok::<(), bitwalk::format::FormatError>(())
/// ```
#[derive(Debug, Default)]
pub struct GgufWriter {
    pairs: Vec<u8>,
    pair_count: u64,
    table: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
}

const ALIGNMENT: usize = 32;

impl GgufWriter {
    /// An empty file.
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// Adds a `u32`.
    pub fn u32(&mut self, key: &str, value: u32) {
        self.pair(key, 4, &value.to_le_bytes());
    }

    /// Adds an `f32`.
    pub fn f32(&mut self, key: &str, value: f32) {
        self.pair(key, 6, &value.to_le_bytes());
    }

    /// Adds a boolean.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.pair(key, 7, &[value.into()]);
    }

    /// Adds a string.
    pub fn str(&mut self, key: &str, value: &str) {
        let mut bytes = Vec::new();
        push_str(&mut bytes, value);
        self.pair(key, 8, &bytes);
    }

    /// Adds an array of strings.
    pub fn strings<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        self.array(key, 8, values, |bytes, value| push_str(bytes, value.as_ref()));
    }

    /// Adds an array of `i32`.
    pub fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, 5, values, |bytes, value| bytes.extend(value.to_le_bytes()));
    }

    /// Adds an array of `f32`.
    pub fn f32s(&mut self, key: &str, values: &[f32]) {
        self.array(key, 6, values, |bytes, value| bytes.extend(value.to_le_bytes()));
    }

    /// Adds a tensor of row-major `shape` (rows first) with `data` in the layout of `dtype`.
    ///
    /// # Panics
    /// If `data` has not the size that shape and type imply, or the type is none of ggml's.
    pub fn tensor(&mut self, name: &str, shape: &[u64], dtype: DType, data: &[u8]) {
        let (cols, outer) = shape.split_last().map_or((1, &[][..]), |(cols, outer)| (*cols, outer));
        let bytes = dtype.row_bytes(cols).expect("rows are whole blocks") * outer.iter().product::<u64>();
        assert_eq!(data.len() as u64, bytes, "bytes of tensor `{name}`");
        push_str(&mut self.table, name);
        self.table.extend((shape.len() as u32).to_le_bytes());
        for extent in shape.iter().rev() {
            self.table.extend(extent.to_le_bytes());
        }
        self.table.extend(dtype.ggml().expect("a type of ggml's").to_le_bytes());
        self.table.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(data);
        pad(&mut self.data);
        self.tensor_count += 1;
    }

    /// The bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(self.tensor_count.to_le_bytes());
        file.extend(self.pair_count.to_le_bytes());
        file.extend(self.pairs);
        file.extend(self.table);
        pad(&mut file);
        file.extend(self.data);
        file
    }

    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) {
        push_str(&mut self.pairs, key);
        self.pairs.extend(kind.to_le_bytes());
        self.pairs.extend(value);
        self.pair_count += 1;
    }

    fn array<T>(&mut self, key: &str, kind: u32, values: &[T], push: impl Fn(&mut Vec<u8>, &T)) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        for value in values {
            push(&mut bytes, value);
        }
        self.pair(key, 9, &bytes);
    }
}

fn push_str(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}
