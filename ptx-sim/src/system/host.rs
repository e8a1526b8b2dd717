//! Page-locked host memory of the simulated machine.

use super::{Result, SystemError};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes that share one alignment unit, as page-locked memory of a GPU is aligned generously.
const LINE: usize = 256;

#[repr(align(256))]
struct Line([AtomicU8; LINE]);

/// Host memory that queued and captured copies read and write, zeroed at first, 256-byte aligned.
///
/// Each byte is atomic, so that a host thread may look while a copy runs, as it may with a real device.
pub struct HostMemory {
    lines: Box<[Line]>,
    bytes: usize,
}

impl HostMemory {
    /// Memory of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let lines = (0..bytes.div_ceil(LINE)).map(|_| Line([const { AtomicU8::new(0) }; LINE])).collect();
        Self { lines, bytes }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of its first byte on the host.
    pub fn as_ptr(&self) -> *const AtomicU8 {
        self.lines.as_ptr().cast()
    }

    fn range(&self, offset: usize, bytes: usize) -> Result<impl Iterator<Item = &AtomicU8>> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(SystemError::HostRange { offset, bytes, size: self.bytes });
        }
        Ok((offset..offset + bytes).map(|at| &self.lines[at / LINE].0[at % LINE]))
    }

    /// Copies from the memory.
    ///
    /// # Errors
    /// [`SystemError::HostRange`].
    pub fn load(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let from = self.range(offset, out.len())?;
        for (byte, from) in out.iter_mut().zip(from) {
            *byte = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies to the memory.
    ///
    /// # Errors
    /// [`SystemError::HostRange`].
    pub fn store(&self, offset: usize, data: &[u8]) -> Result<()> {
        for (byte, to) in data.iter().zip(self.range(offset, data.len())?) {
            to.store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl std::fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostMemory({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_loaded_and_ranges_checked() {
        let memory = HostMemory::new(600);
        memory.store(250, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).unwrap();
        let mut out = [0; 12];
        memory.load(249, &mut out).unwrap();
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0]);
        assert_eq!(memory.as_ptr() as usize % 256, 0);
        assert!(memory.load(589, &mut out).is_err());
        assert!(memory.store(usize::MAX, &[1]).is_err());
    }
}
