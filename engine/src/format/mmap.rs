//! A read-only view of a file: the one place outside the device layer where memory comes from elsewhere.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::FormatError;

/// The bytes of a file, mapped into memory or held in it.
///
/// A mapped file must not be shortened by another program while it is in use: the operating system then
/// ends the process when the lost part is read (SIGBUS). Replacing a model file by renaming a new one
/// over it is safe. Bytes that another program *changes* cannot break this program's memory safety beyond
/// what the parsers check each time they read, since all views are plain bytes that are validated on use.
pub struct FileMap(Bytes);

enum Bytes {
    Mapped { map: memmap2::Mmap, file: File, path: PathBuf },
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
        Ok(FileMap(Bytes::Mapped { map, file, path: path.into() }))
    }

    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Bytes::Mapped { path, .. } => Some(path),
            Bytes::Owned(_) => None,
        }
    }

    /// Reads the bytes from `at` on to `out`, from the file itself where it is one.
    ///
    /// # Errors
    /// The operating system's; [`io::ErrorKind::UnexpectedEof`] where the file, or the memory, ends before.
    pub fn read_at(&self, at: usize, out: &mut [u8]) -> io::Result<()> {
        #[cfg(unix)]
        if let Bytes::Mapped { file, .. } = &self.0 {
            return std::os::unix::fs::FileExt::read_exact_at(file, out, at as u64);
        }
        let bytes = at.checked_add(out.len()).and_then(|end| self.get(at..end));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
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
            Bytes::Mapped { map, .. } => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
