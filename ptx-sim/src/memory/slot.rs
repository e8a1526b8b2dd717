//! Allocations, and the slots of the address space that hold them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::ALLOCATION_ALIGN;
use crate::known::Known;

/// One live allocation: bytes on the host, zeroed at birth so that runs repeat.
pub(crate) struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
    pub(super) size: u64,
    pub(super) device: u32,
    pub(super) address: u64,
    pub(super) name: Arc<str>,
    /// Which bytes hold a value, where that is followed.
    pub(super) known: Option<Known>,
}

// SAFETY: the bytes are only touched through raw pointers, never through references that outlive a copy. Kernels
// that race on them race as they would on a GPU: the interpreter's accesses are plain machine loads and stores
// (or atomics) of the PTX access size, as the hardware's are.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(super) fn new(size: u64, device: u32, address: u64, name: &str, track: bool) -> Option<Allocation> {
        // Rounded up so that a whole vector register can be read at any valid offset's cache line.
        let bytes = usize::try_from(size).ok()?.checked_next_multiple_of(ALLOCATION_ALIGN)?;
        let layout = Layout::from_size_align(bytes, ALLOCATION_ALIGN).ok()?;
        // SAFETY: `layout` has a size above zero (`size` is, and it was rounded up).
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let known = track.then(|| Known::new(size));
        Some(Allocation { base, layout, size, device, address, name: name.into(), known })
    }

    pub(super) fn mark(&self, offset: usize, bytes: u64) {
        if let Some(known) = &self.known {
            known.mark(offset as u64, bytes);
        }
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this very layout and is released once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// What a slot of the address space holds. The interpreter reads `base` and `size` for every access.
#[derive(Clone)]
pub(crate) struct Slot {
    /// The first byte; dangling once freed.
    pub(crate) base: *mut u8,
    /// Bytes that may be addressed: 0 once freed.
    pub(crate) size: u64,
    /// Keeps the bytes; `None` once freed.
    pub(super) allocation: Option<Arc<Allocation>>,
    pub(super) name: Arc<str>,
    /// Where a device sees memory of another one that it has no access to (`size` is 0 then): both.
    foreign: Option<Foreign>,
}

/// A device and the owner of memory that it does not reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foreign {
    pub(crate) device: u32,
    pub(crate) owner: u32,
}

// SAFETY: `base` points into `allocation`, for which the same is promised above.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(super) fn new(allocation: Allocation) -> Slot {
        Slot {
            base: allocation.base.as_ptr(),
            size: allocation.size,
            name: allocation.name.clone(),
            allocation: Some(Arc::new(allocation)),
            foreign: None,
        }
    }

    /// The slot as `device` sees it, which may reach the memory of the devices that `reach` says yes to.
    pub(super) fn seen_by(&self, device: u32, reach: impl Fn(u32) -> bool) -> Slot {
        match self.allocation.as_ref().map(|allocation| allocation.device) {
            Some(owner) if !reach(owner) => Slot {
                base: NonNull::dangling().as_ptr(),
                size: 0,
                foreign: Some(Foreign { device, owner }),
                ..self.clone()
            },
            _ => self.clone(),
        }
    }

    /// The device that looks at it and the owner, where the one does not reach the other's memory.
    pub(crate) fn foreign(&self) -> Option<Foreign> {
        self.foreign
    }

    /// The name of the allocation that is or was here.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn known(&self) -> Option<&Known> {
        self.allocation.as_ref().and_then(|allocation| allocation.known.as_ref())
    }

    /// Whether the bytes at `offset` hold values, as far as that is followed.
    pub(crate) fn initialised(&self, offset: u64, bytes: u64) -> bool {
        self.known().is_none_or(|known| known.covers(offset, bytes))
    }

    /// The bytes at `offset` hold values now.
    pub(crate) fn mark(&self, offset: u64, bytes: u32) {
        if let Some(known) = self.known() {
            known.mark(offset, bytes.into());
        }
    }

    /// Whether the allocation was freed.
    pub(crate) fn freed(&self) -> bool {
        self.allocation.is_none()
    }

    pub(super) fn release(&mut self) {
        *self = Slot {
            base: NonNull::dangling().as_ptr(),
            size: 0,
            allocation: None,
            name: self.name.clone(),
            foreign: None,
        };
    }
}
