//! Memory of other devices: access to it where they are connected, copies through the host where they are not.

use super::capture::Violation;
use super::counters::{Copies, DeviceCounters};
use super::stream::{self, Stream};
use super::{Buffer, Device, Element, Event, HostBuffer, Result};
use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

impl Device {
    fn peers(&self) -> MutexGuard<'_, HashMap<u32, bool>> {
        self.inner.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether kernels and copies of this device reach the memory of `other`, which is enabled the first time that it is
    /// asked for; a device always reaches its own.
    ///
    /// A kernel that touches another device's memory without this faults on the simulated device and is undefined on
    /// CUDA. Access goes one way: for the other, ask `other`.
    ///
    /// # Errors
    /// [`super::DeviceError::WrongDevice`] for a device of another kind or machine, [`super::DeviceError::Call`]; in a
    /// capture, when it was not asked for before, [`super::CaptureError::Forbidden`].
    pub fn peer_access(&self, other: &Device) -> Result<bool> {
        self.expect_peer(other, "device", &other.to_string())?;
        if self == other {
            return Ok(true);
        }
        let mut peers = self.peers();
        if let Some(&known) = peers.get(&other.info().ordinal) {
            return Ok(known);
        }
        stream::forbid_in_capture(|| Violation::PeerAccess(other.to_string()))?;
        let access = self.backend().enable_peer_access(other.info().ordinal)?;
        peers.insert(other.info().ordinal, access);
        Ok(access)
    }

    /// Does with or without access to the memory of `other` from here on; what [`Device::peer_access`] says then. Without,
    /// copies go through the host as on a machine whose devices are not connected.
    ///
    /// # Errors
    /// Those of [`Device::peer_access`].
    pub fn set_peer_access(&self, other: &Device, wanted: bool) -> Result<bool> {
        self.expect_peer(other, "device", &other.to_string())?;
        if wanted {
            self.peers().remove(&other.info().ordinal);
            return self.peer_access(other);
        }
        self.peers().insert(other.info().ordinal, false);
        Ok(false)
    }
}

/// The most that a copy through the host has in page-locked memory at once, in bytes.
const STAGED_BYTES: usize = 16 << 20;

/// What a stream needs for copies through the host from or to one other device.
pub(super) struct Staging {
    /// A stream of the other device.
    other: Stream,
    memory: HostBuffer<u8>,
    /// On the stream's device: what comes before the copy is done; and the copy is.
    ready: Event,
    done: Event,
    /// On the other device: its part of the copy is done.
    handed_over: Event,
    /// Whether `memory` may be in use until `done`.
    busy: bool,
}

impl Staging {
    fn new(device: &Device, other: &Device, bytes: usize) -> Result<Self> {
        Ok(Self {
            other: other.stream()?,
            memory: HostBuffer::new(device, bytes.min(STAGED_BYTES), "staged copy")?,
            ready: device.event()?,
            done: device.event()?,
            handed_over: other.event()?,
            busy: false,
        })
    }

    /// One part, of at most the size of the page-locked memory.
    fn part(&mut self, stream: &Stream, dst: &Buffer<u8>, src: &Buffer<u8>) -> Result<()> {
        if std::mem::replace(&mut self.busy, true) {
            self.done.synchronize()?;
        }
        let outgoing = src.device() == stream.device();
        let (first, second) = if outgoing { (stream, &self.other) } else { (&self.other, stream) };
        if !outgoing {
            // What the stream did before may be what makes `src` ready.
            stream.record(&self.ready)?;
            first.wait(&self.ready)?;
        }
        first.download_part(src, &self.memory)?;
        let between = if outgoing { &self.ready } else { &self.handed_over };
        first.record(between)?;
        second.wait(between)?;
        second.upload_part(dst, &self.memory)?;
        if outgoing {
            second.record(&self.handed_over)?;
            stream.wait(&self.handed_over)?;
        }
        stream.record(&self.done)
    }
}

impl Stream {
    /// Copies between this stream's device and another through page-locked host memory, in order with the stream's work.
    pub(super) fn copy_staged<T: Element>(&self, dst: &Buffer<T>, src: &Buffer<T>) -> Result<()> {
        self.forbid(|| Violation::StagedCopy(src.name().to_owned()))?;
        let own = self.device();
        let other = if src.device() == own { dst.device() } else { src.device() };
        let (to, from) = (dst.cast::<u8>()?, src.cast::<u8>()?);
        let mut all = self.staging();
        let ordinal = other.info().ordinal;
        let mut staging = match all.remove(&ordinal) {
            Some(staging) if staging.memory.len() >= to.len().min(STAGED_BYTES) => staging,
            smaller => {
                if let Some(smaller) = smaller {
                    smaller.done.synchronize()?;
                }
                Staging::new(own, other, to.len())?
            }
        };
        for start in (0..to.len()).step_by(staging.memory.len()) {
            let range = start..to.len().min(start + staging.memory.len());
            let part = staging.part(self, &to.slice(range.clone())?, &from.slice(range)?);
            if let Err(error) = part {
                // Nothing may use the page-locked memory when it goes; what failed is told, not what follows from it.
                let _ = (staging.other.synchronize(), self.synchronize());
                return Err(error);
            }
        }
        all.insert(ordinal, staging);
        own.count(DeviceCounters { staged: Copies::one(to.len()), ..DeviceCounters::default() });
        Ok(())
    }

    fn download_part(&self, src: &Buffer<u8>, memory: &HostBuffer<u8>) -> Result<()> {
        self.device().backend().download_pinned(
            self.handle(),
            memory.memory.start,
            src.address(),
            src.bytes(),
        )?;
        self.device().count(DeviceCounters::to_host(src.bytes()));
        Ok(())
    }

    fn upload_part(&self, dst: &Buffer<u8>, memory: &HostBuffer<u8>) -> Result<()> {
        self.device().backend().upload_pinned(
            self.handle(),
            dst.address(),
            memory.memory.start,
            0,
            dst.bytes(),
        )?;
        self.device().count(DeviceCounters::to_device(dst.bytes()));
        Ok(())
    }
}
