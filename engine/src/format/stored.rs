//! The bytes of one tensor, wherever its source has them, to be taken in pieces.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;

use super::FormatError;
use super::mmap::FileMap;

/// A tensor's bytes, in the on-disk layout of its type.
///
/// Those of a file are *read*, not mapped: a page of a mapping that is touched for the first time costs a fault, and a file that
/// another program shortens costs the process (SIGBUS), where a read gives an error.
#[derive(Debug)]
pub struct Stored<'a> {
    place: Place<'a>,
    path: PathBuf,
    tensor: String,
}

#[derive(Debug)]
enum Place<'a> {
    Memory(Cow<'a, [u8]>),
    File { map: &'a FileMap, start: usize, len: usize },
}

impl<'a> Stored<'a> {
    /// Bytes that are in memory. `path` and `tensor` are for messages.
    pub fn in_memory(bytes: Cow<'a, [u8]>, path: impl Into<PathBuf>, tensor: impl Into<String>) -> Self {
        Stored { place: Place::Memory(bytes), path: path.into(), tensor: tensor.into() }
    }

    /// `len` bytes of a file from `start` on, a range that lies in it.
    pub fn in_file(
        map: &'a FileMap,
        start: usize,
        len: usize,
        path: impl Into<PathBuf>,
        tensor: impl Into<String>,
    ) -> Self {
        Stored { place: Place::File { map, start, len }, path: path.into(), tensor: tensor.into() }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Memory(bytes) => bytes.len(),
            Place::File { len, .. } => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on to `out`.
    ///
    /// # Errors
    /// [`FormatError::Read`] if the file cannot be read any more, [`FormatError::Tensor`] for bytes that the tensor has not.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), FormatError> {
        let range = self.range(at..at.saturating_add(out.len()))?;
        match &self.place {
            Place::Memory(bytes) => out.copy_from_slice(&bytes[range]),
            Place::File { map, start, .. } => map.read_at(start + range.start, out).map_err(|source| {
                let (path, tensor) = (self.path.clone(), self.tensor.clone());
                FormatError::Read { path, tensor, source }
            })?,
        }
        Ok(())
    }

    /// The bytes of `range`: where they lie if they are in memory, else read to `scratch`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn piece<'s>(
        &'s self,
        range: Range<usize>,
        scratch: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], FormatError> {
        let range = self.range(range)?;
        if let Place::Memory(bytes) = &self.place {
            return Ok(&bytes[range]);
        }
        if scratch.len() < range.len() {
            scratch.resize(range.len(), 0);
        }
        let piece = &mut scratch[..range.len()];
        self.read(range.start, piece)?;
        Ok(piece)
    }

    fn range(&self, range: Range<usize>) -> Result<Range<usize>, FormatError> {
        if range.start <= range.end && range.end <= self.len() {
            return Ok(range);
        }
        let reason =
            format!("has {} bytes; those from {} to {} were asked for", self.len(), range.start, range.end);
        Err(FormatError::Tensor { path: self.path.clone(), tensor: self.tensor.clone(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pieces_are_the_same_from_memory_and_from_a_file() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let map = FileMap::open(file.path()).unwrap();
        let whole = FileMap::from_vec(bytes.clone());
        let stored = [
            Stored::in_memory(Cow::Borrowed(&bytes[20..120]), "m", "t"),
            Stored::in_file(&map, 20, 100, "f", "t"),
            Stored::in_file(&whole, 20, 100, "v", "t"),
        ];
        for stored in &stored {
            assert_eq!(stored.len(), 100);
            let (mut scratch, mut out) = (Vec::new(), [0; 7]);
            assert_eq!(stored.piece(3..60, &mut scratch).unwrap(), &bytes[23..80]);
            assert_eq!(stored.piece(0..2, &mut scratch).unwrap(), &bytes[20..22]);
            stored.read(93, &mut out).unwrap();
            assert_eq!(out, bytes[113..120]);
            let error = stored.read(94, &mut out).unwrap_err().to_string();
            assert!(error.contains("`t`") && error.contains("100 bytes"), "{error}");
            assert!(stored.piece(99..101, &mut scratch).is_err());
        }
    }

    #[test]
    fn a_file_that_was_shortened_is_an_error_that_names_it() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let map = FileMap::open(file.path()).unwrap();
        let stored = Stored::in_file(&map, 50, 50, file.path(), "blk.0.attn_q.weight");
        file.as_file().set_len(60).unwrap();
        let error = stored.read(0, &mut [0; 50]).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, FormatError::Read { .. }), "{text}");
        for words in [&*file.path().display().to_string(), "`blk.0.attn_q.weight`", "cannot be read"] {
            assert!(text.contains(words), "{text}");
        }
    }
}
