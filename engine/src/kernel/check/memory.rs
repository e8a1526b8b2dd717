//! Device memory for a case: buffers that show what was written beside them.

use crate::device::{Buffer, Device, DeviceError, RawBuffer, Stream};

/// Bytes before and after a guarded buffer.
const GUARD: usize = 256;
/// What they hold: neither poison.
const PATTERN: u8 = 0xa5;

/// A buffer of some bytes, with guards around it or alone in its allocation.
pub(super) struct Memory {
    whole: Buffer<u8>,
    guard: usize,
    bytes: usize,
}

impl Memory {
    /// Allocates a buffer that holds `contents`. Guards show stores outside it; without them the device's own bounds
    /// check, where it has one, sees loads as well.
    pub fn new(
        device: &Device,
        stream: &Stream,
        name: &str,
        contents: &[u8],
        guarded: bool,
    ) -> Result<Memory, DeviceError> {
        let guard = if guarded { GUARD } else { 0 };
        let mut padded = vec![PATTERN; guard + contents.len().max(1) + guard];
        padded[guard..][..contents.len()].copy_from_slice(contents);
        let whole = Buffer::new(device, padded.len(), name)?;
        stream.write(&whole, &padded)?;
        Ok(Memory { whole, guard, bytes: contents.len() })
    }

    /// The buffer without its guards.
    pub fn buffer(&self) -> Result<RawBuffer, DeviceError> {
        Ok(self.whole.slice(self.guard..self.guard + self.bytes.max(1))?.raw())
    }

    /// What the buffer holds now, or the offset from its start of a guard byte that was overwritten.
    pub fn read(&self, stream: &Stream) -> Result<Result<Vec<u8>, i64>, DeviceError> {
        let mut padded = vec![0; self.whole.len()];
        stream.read(&self.whole, &mut padded)?;
        let end = self.guard + self.bytes;
        // An empty buffer has a byte of its own, which nothing may touch either.
        let touched = (0..self.guard).chain(end..padded.len()).find(|&i| padded[i] != PATTERN);
        if let Some(at) = touched {
            return Ok(Err(at as i64 - self.guard as i64));
        }
        padded.truncate(end);
        padded.drain(..self.guard);
        Ok(Ok(padded))
    }
}
