//! Page-locked host memory of the simulated machine.

use super::{Result, SystemError};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes that share one alignment unit, as page-locked memory of a GPU is aligned generously.
const LINE: usize = 256;
/// Bytes of a word.
const WORD: usize = 8;
/// Words of a line.
const WORDS: usize = LINE / WORD;

#[repr(align(256))]
struct Line([AtomicU64; WORDS]);

/// Host memory that queued and captured copies read and write, zeroed at first, 256-byte aligned.
///
/// Each word of 8 bytes is atomic, so that a host thread may look while a copy runs, as it may with a real device.
pub struct HostMemory {
    lines: Box<[Line]>,
    bytes: usize,
}

impl HostMemory {
    /// Memory of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let lines = (0..bytes.div_ceil(LINE)).map(|_| Line([const { AtomicU64::new(0) }; WORDS])).collect();
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

    fn check(&self, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(SystemError::HostRange { offset, bytes, size: self.bytes });
        }
        Ok(())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.lines[index / WORDS].0[index % WORDS]
    }

    /// Copies from the memory.
    ///
    /// # Errors
    /// [`SystemError::HostRange`].
    pub fn load(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len())?;
        let (head, words, tail) = parts(offset, out.len());
        let (first, rest) = out.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * WORD);
        let at = offset / WORD;
        let bytes_of = |index| self.word(index).load(Ordering::Relaxed).to_ne_bytes();
        if head > 0 {
            first.copy_from_slice(&bytes_of(at)[offset % WORD..][..head]);
        }
        let from = (offset + head) / WORD;
        for (index, bytes) in middle.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
            *bytes = bytes_of(from + index);
        }
        if tail > 0 {
            last.copy_from_slice(&bytes_of(from + words)[..tail]);
        }
        Ok(())
    }

    /// Copies to the memory.
    ///
    /// # Errors
    /// [`SystemError::HostRange`].
    pub fn store(&self, offset: usize, data: &[u8]) -> Result<()> {
        self.check(offset, data.len())?;
        let (head, words, tail) = parts(offset, data.len());
        let (first, rest) = data.split_at(head);
        let (middle, last) = rest.split_at(words * WORD);
        self.store_part(offset, first);
        let from = (offset + head) / WORD;
        for (index, bytes) in middle.as_chunks::<WORD>().0.iter().enumerate() {
            self.word(from + index).store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if tail > 0 {
            self.store_part((from + words) * WORD, last);
        }
        Ok(())
    }

    /// Stores bytes of one word, and leaves its others to whoever stores them at the same time.
    fn store_part(&self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let merged = |word: u64| {
            let mut bytes = word.to_ne_bytes();
            bytes[offset % WORD..][..data.len()].copy_from_slice(data);
            u64::from_ne_bytes(bytes)
        };
        let word = self.word(offset / WORD);
        let mut seen = word.load(Ordering::Relaxed);
        while let Err(now) =
            word.compare_exchange_weak(seen, merged(seen), Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = now;
        }
    }
}

/// How many of `len` bytes from `offset` lie before the first whole word, in whole words (their number), and behind them.
fn parts(offset: usize, len: usize) -> (usize, usize, usize) {
    let head = (offset.next_multiple_of(WORD) - offset).min(len);
    (head, (len - head) / WORD, (len - head) % WORD)
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

    #[test]
    fn any_range_is_stored_and_loaded_as_plain_bytes_are() {
        let data: Vec<u8> = (1..=40).collect();
        for offset in 240..264 {
            for len in 0..data.len() {
                let (memory, mut plain) = (HostMemory::new(320), vec![0; 320]);
                memory.store(0, &[0xee; 320]).unwrap();
                plain.fill(0xee);
                memory.store(offset, &data[..len]).unwrap();
                plain[offset..][..len].copy_from_slice(&data[..len]);
                let mut out = vec![0; 320];
                memory.load(0, &mut out).unwrap();
                assert_eq!(out, plain, "{len} bytes stored at {offset}");
                let mut part = vec![0; len];
                memory.load(offset - 3, &mut part).unwrap();
                assert_eq!(part, plain[offset - 3..][..len], "{len} bytes loaded at {}", offset - 3);
            }
        }
    }
}
