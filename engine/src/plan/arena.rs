//! Scratch memory reused by lifetime.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{Allocation, Buffer, Device, DeviceError, Element};

/// Hands out scratch buffers; memory that a dropped [`Scratch`] held serves the next one that fits.
///
/// Plans run their launches in order on one stream, so two scratch buffers may share memory when the first was dropped
/// before the second was taken while the plan was built.
#[derive(Debug, Clone)]
pub struct Arena {
    device: Device,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Arc<Allocation>>,
    /// Whether each scratch buffer, by its id, is still held.
    held: HashMap<u64, bool>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Each change is one push, removal or insertion: a panic between two leaves memory unused at worst.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A scratch buffer: give it back by dropping it, once the last launch that uses it has been pushed.
#[derive(Debug)]
pub struct Scratch<T: Element> {
    buffer: Buffer<T>,
    memory: Arc<Allocation>,
    state: Arc<Mutex<State>>,
}

impl Arena {
    /// An empty arena.
    pub fn new(device: &Device) -> Self {
        Arena { device: device.clone(), state: Arc::default() }
    }

    /// `len` elements of undefined content.
    ///
    /// # Errors
    /// Out of memory.
    pub fn take<T: Element>(&self, len: usize, name: &str) -> Result<Scratch<T>, DeviceError> {
        let bytes = len * size_of::<T>();
        let mut state = lock(&self.state);
        let free = state.free.iter().enumerate();
        let fit = free
            .filter(|(_, memory)| memory.bytes() >= bytes && memory.bytes() <= bytes.max(256) * 2)
            .min_by_key(|(_, memory)| memory.bytes())
            .map(|(index, _)| index);
        let memory = match fit {
            Some(index) => state.free.swap_remove(index),
            // Rounded to powers of two, so that walks of about as many tokens share, and memory is bounded by the largest
            // of each size whatever the lengths of prompts are.
            None => self.device.alloc(bytes.max(256).checked_next_power_of_two().unwrap_or(bytes), name)?,
        };
        let buffer = Buffer::from_allocation(memory.clone())?.slice(..len)?;
        state.held.insert(buffer.id(), true);
        Ok(Scratch { buffer, memory, state: self.state.clone() })
    }

    /// Whether the buffer of this id came from here.
    pub fn is_scratch(&self, id: u64) -> bool {
        lock(&self.state).held.contains_key(&id)
    }

    /// Whether the buffer of this id came from here and was given back.
    pub fn is_dead(&self, id: u64) -> bool {
        lock(&self.state).held.get(&id) == Some(&false)
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
        let mut state = lock(&self.state);
        state.held.insert(self.buffer.id(), false);
        state.free.push(self.memory.clone());
    }
}
