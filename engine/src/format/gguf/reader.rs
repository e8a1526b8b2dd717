//! A cursor over the bytes of a GGUF header that never reads past their end.

use std::fmt::Display;
use std::path::Path;

use crate::format::FormatError;

/// Reads little-endian fields one after another and knows at which byte it stands.
pub(super) struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a Path, bytes: &'a [u8]) -> Reader<'a> {
        Reader { path, bytes, at: 0 }
    }

    /// The file's path, for errors of other kinds than [`FormatError::Malformed`].
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// Byte offset of the next field.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not yet read.
    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// An error about the field at `offset`.
    pub(super) fn error(&self, offset: usize, reason: impl Into<String>) -> FormatError {
        FormatError::Malformed { path: self.path.into(), offset: offset as u64, reason: reason.into() }
    }

    /// The next `count` bytes; `what` names them in the error if the file ends before.
    pub(super) fn take(&mut self, count: u64, what: impl Display) -> Result<&'a [u8], FormatError> {
        if count > self.left() {
            let left = self.left();
            return Err(self.error(
                self.at,
                format!(
                    "the file ends inside {what}: {count} bytes are announced or needed, {left} are left"
                ),
            ));
        }
        let start = self.at;
        self.at += count as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn array<const N: usize>(&mut self, what: impl Display) -> Result<[u8; N], FormatError> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("take returns the number of bytes asked for"))
    }

    pub(super) fn u32(&mut self, what: impl Display) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: impl Display) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: its length in 8 bytes, then UTF-8 text of at most `limit` bytes.
    pub(super) fn string(&mut self, limit: u64, what: impl Display) -> Result<&'a str, FormatError> {
        let start = self.at;
        let len = self.u64(format_args!("the length of {what}"))?;
        if len > limit && len <= self.left() {
            return Err(self.error(start, format!("{what} is {len} bytes long; at most {limit} are allowed")));
        }
        let text = self.take(len, &what)?;
        std::str::from_utf8(text).map_err(|e| {
            self.error(
                start + 8 + e.valid_up_to(),
                format!("{what} is not valid UTF-8 at its byte {}", e.valid_up_to()),
            )
        })
    }

    /// A name that ends up in messages and tables: a string that is not empty and has no control characters.
    pub(super) fn name(&mut self, limit: u64, what: impl Display) -> Result<&'a str, FormatError> {
        let start = self.at;
        let name = self.string(limit, &what)?;
        if name.is_empty() {
            return Err(self.error(start, format!("{what} is empty")));
        }
        if name.chars().any(char::is_control) {
            return Err(self.error(start, format!("{what} has a control character in it: {name:?}")));
        }
        Ok(name)
    }
}
