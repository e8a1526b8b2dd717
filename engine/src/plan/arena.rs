//! Scratch memory reused by lifetime.

use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Allocation, Buffer, Device, DeviceError, Element};

/// Hands out scratch buffers; memory that a dropped [`Scratch`] held serves the next one that fits.
///
/// Plans run their launches in order on one stream, so two scratch buffers may share memory when the first was dropped
/// before the second was taken while the plan was built.
#[derive(Debug, Clone)]
pub struct Arena {
    device: Device,
    free: Arc<Mutex<Vec<Arc<Allocation>>>>,
}

/// A scratch buffer: give it back by dropping it, once the last launch that uses it has been pushed.
#[derive(Debug)]
pub struct Scratch<T: Element> {
    buffer: Buffer<T>,
    memory: Option<Arc<Allocation>>,
    free: Arc<Mutex<Vec<Arc<Allocation>>>>,
}

impl Arena {
    /// An empty arena.
    pub fn new(device: &Device) -> Self {
        Arena { device: device.clone(), free: Arc::default() }
    }

    /// `len` elements of undefined content.
    ///
    /// # Errors
    /// Out of memory.
    pub fn take<T: Element>(&self, len: usize, name: &str) -> Result<Scratch<T>, DeviceError> {
        let bytes = len * size_of::<T>();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = free
            .iter()
            .enumerate()
            .filter(|(_, memory)| memory.bytes() >= bytes && memory.bytes() <= bytes.max(256) * 2)
            .min_by_key(|(_, memory)| memory.bytes())
            .map(|(index, _)| index);
        let memory = match fit {
            Some(index) => free.swap_remove(index),
            // Rounded, so that buffers of nearly the same size can share.
            None => self.device.alloc(bytes.next_multiple_of(256), name)?,
        };
        drop(free);
        let buffer = Buffer::from_allocation(memory.clone())?.slice(..len)?;
        Ok(Scratch { buffer, memory: Some(memory), free: self.free.clone() })
    }
}

impl<T: Element> std::ops::Deref for Scratch<T> {
    type Target = Buffer<T>;
    fn deref(&self) -> &Buffer<T> {
        &self.buffer
    }
}

impl<T: Element> Drop for Scratch<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }
}
