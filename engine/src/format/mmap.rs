//! A read-only view of a file: the one place outside the device layer where memory comes from elsewhere.

use std::fs::{self, File};
use std::path::Path;

use super::FormatError;

/// The bytes of a file, mapped into memory or held in it.
///
/// A mapped file must not be shortened by another program while it is in use: the operating system then
/// ends the process when the lost part is read (SIGBUS). Replacing a model file by renaming a new one
/// over it is safe. Bytes that another program *changes* cannot break this program's memory safety beyond
/// what the parsers check each time they read, since all views are plain bytes that are validated on use.
pub struct FileMap(Bytes);

enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl FileMap {
    /// Maps a file.
    ///
    /// # Errors
    /// If it cannot be opened, is not a regular file (a directory; a pipe, which would block), or is empty.
    pub fn open(path: &Path) -> Result<FileMap, FormatError> {
        let open = |source| FormatError::Open { path: path.into(), source };
        // Asked before opening: opening a pipe without a writer would block for ever.
        let meta = fs::metadata(path).map_err(open)?;
        if !meta.is_file() {
            let kind = if meta.is_dir() { "a directory" } else { "a pipe or a device" };
            return Err(FormatError::NotAFile { path: path.into(), kind });
        }
        if meta.len() == 0 {
            return Err(FormatError::Empty { path: path.into() });
        }
        let file = File::open(path).map_err(open)?;
        // SAFETY: the map is private to this process and read-only. The file may still be changed by others;
        // every reader treats the bytes as untrusted and re-validates text when it is read, so a change can
        // yield a wrong value or an error but no invalid Rust value (see the type's documentation).
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(open)?;
        Ok(FileMap(Bytes::Mapped(map)))
    }

    /// Takes bytes that are in memory already, as if they were a file's.
    pub fn from_vec(bytes: Vec<u8>) -> FileMap {
        FileMap(Bytes::Owned(bytes))
    }
}

impl std::fmt::Debug for FileMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileMap({} bytes)", self.len())
    }
}

impl std::ops::Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
