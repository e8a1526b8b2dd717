//! Data on its way to a device in pieces: while one piece is copied the next is made.

use super::buffer::{Buffer, PinnedMemory};
use super::capture::Violation;
use super::stream::{Stream, forbid_in_capture};
use super::{Device, DeviceCounters, DeviceError, Event, Result};
use std::time::{Duration, Instant};

/// Pieces in page-locked memory begin at multiples of this, as allocations of device memory do.
const ALIGNMENT: usize = 256;

/// Page-locked memory, and when the last copy out of it is done.
struct Staging {
    memory: PinnedMemory,
    copied: Event,
}

impl Staging {
    /// Memory of `bytes` bytes at least.
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let memory = PinnedMemory::new(device, bytes.next_power_of_two())?;
        Ok(Self { memory, copied: Event::new(device)? })
    }

    /// The memory, of which no copy is under way any more.
    fn bytes(&mut self) -> Result<&mut [u8]> {
        self.copied.synchronize()?;
        let (start, bytes) = (self.memory.start, self.memory.bytes());
        // SAFETY: the memory holds `bytes` initialised bytes and is this value's alone, so that the borrow of `self` keeps all
        // others on the host away; the device only reads it, in copies before `copied`, which have just been waited for.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }
}

/// A stream of copies to one device through page-locked memory of its own. A thread that makes data has one to itself.
///
/// There are two buffers: what is written to one is copied while the other is written to. They are allocated when they are
/// first needed and grow to the next power of two above the largest piece.
pub struct Uploader {
    stream: Stream,
    staging: [Option<Staging>; 2],
    turn: usize,
    waited: Duration,
}

impl Uploader {
    /// An uploader to `device`, without memory so far.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn new(device: &Device) -> Result<Self> {
        Ok(Self { stream: device.stream()?, staging: [None, None], turn: 0, waited: Duration::ZERO })
    }

    /// Has `fill` write the contents of the buffers `to`, a slice for each as long as it is, and queues the copies. What the
    /// slices hold before is undefined. The buffers hold the data after [`Uploader::finish`]; nothing else may use them
    /// until then.
    ///
    /// # Errors
    /// What `fill` fails with, and nothing is copied then; a buffer of another device, no page-locked memory, a failed copy;
    /// in a capture, [`CaptureError::Forbidden`](super::CaptureError::Forbidden).
    pub fn upload<E: From<DeviceError>>(
        &mut self,
        to: &[Buffer<u8>],
        fill: impl FnOnce(&mut [&mut [u8]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let device = self.stream.device().clone();
        for buffer in to {
            device.expect_same(buffer.device(), "buffer", buffer.name())?;
            forbid_in_capture(|| Violation::PageableCopy(buffer.name().to_owned()))
                .map_err(DeviceError::from)?;
        }
        let bytes: usize = to.iter().map(|buffer| buffer.len().next_multiple_of(ALIGNMENT)).sum();
        if bytes == 0 {
            return fill(&mut []);
        }
        let start = Instant::now();
        let place = &mut self.staging[self.turn];
        let staging = match place {
            Some(staging) if staging.memory.bytes() >= bytes => staging,
            small => {
                // Not freed before the copy out of it is done.
                if let Some(small) = small {
                    small.copied.synchronize()?;
                }
                *small = None;
                small.insert(Staging::new(&device, bytes)?)
            }
        };
        let mut rest = staging.bytes()?;
        self.waited += start.elapsed();
        let mut slices = Vec::with_capacity(to.len());
        for buffer in to {
            let (slice, behind) = rest.split_at_mut(buffer.len().next_multiple_of(ALIGNMENT));
            slices.push(&mut slice[..buffer.len()]);
            rest = behind;
        }
        fill(&mut slices)?;
        let queued = queue(&self.stream, staging, to);
        if queued.is_err() {
            // A part may be on its way, with no event behind it. What failed is told, not what follows from it.
            let _ = self.stream.synchronize();
        }
        self.turn = 1 - self.turn;
        Ok(queued?)
    }

    /// Waits until everything is on the device.
    ///
    /// # Errors
    /// A copy that failed.
    pub fn finish(&mut self) -> Result<()> {
        let start = Instant::now();
        let done = self.stream.synchronize();
        self.waited += start.elapsed();
        done
    }

    /// Time that was spent waiting for copies and for page-locked memory.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Bytes of page-locked memory now.
    pub fn pinned_bytes(&self) -> usize {
        self.staging.iter().flatten().map(|staging| staging.memory.bytes()).sum()
    }
}

/// Queues the copies of all buffers, and the event behind them.
fn queue(stream: &Stream, staging: &Staging, to: &[Buffer<u8>]) -> Result<()> {
    let backend = stream.device().backend();
    let mut offset = 0;
    for buffer in to {
        backend.upload_pinned(
            stream.handle(),
            buffer.address(),
            staging.memory.start,
            offset,
            buffer.len(),
        )?;
        stream.device().count(DeviceCounters::to_device(buffer.len()));
        offset += buffer.len().next_multiple_of(ALIGNMENT);
    }
    stream.record(&staging.copied)
}

impl Drop for Uploader {
    fn drop(&mut self) {
        // The page-locked memory goes with it. An error has been told by `finish`, or another one is on its way.
        let _ = self.stream.synchronize();
    }
}

impl std::fmt::Debug for Uploader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Uploader({} bytes of page-locked memory, to {})",
            self.pinned_bytes(),
            self.stream.device()
        )
    }
}
