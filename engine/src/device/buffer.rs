//! Device memory: allocations, buffers that can be re-seated, and page-locked host memory.

use super::capture::Violation;
use super::element::Element;
use super::error::{DeviceError, Result};
use super::{Device, stream};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ids of allocations and slots, unique in the process and never reused.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// One allocation of device memory: 256-byte aligned, freed when dropped.
///
/// It frees its memory exactly once, since it cannot be cloned; share it as `Arc<Allocation>`.
pub struct Allocation {
    device: Device,
    address: u64,
    bytes: usize,
    name: String,
    id: u64,
}

impl Allocation {
    /// Wraps memory that `device`'s backend has just allocated.
    pub(super) fn new(device: Device, address: u64, bytes: usize, name: &str) -> Self {
        Self { device, address, bytes, name: name.to_owned(), id: next_id() }
    }

    /// The device that it lies on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it is for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number that no other allocation of this process has or had.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Allocation(`{}`, {} bytes at {:#x} on {})",
            self.name, self.bytes, self.address, self.device
        )
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Freeing inside a capture would break the capture, and what was recorded may point here: the capture
        // is refused, and the memory is freed when it has ended.
        if !stream::defer_free(&self.device, self.address, self.bytes, &self.name) {
            self.device.release(self.address, self.bytes);
        }
    }
}

/// What a slot holds now.
struct Seat {
    allocation: Arc<Allocation>,
    generation: u64,
}

/// A place for one allocation, shared by all clones and slices of a buffer.
///
/// The allocation can be exchanged ([`Buffer::reseat`]); the slot's id stays and its generation rises, so
/// whoever baked the old address (a captured graph) can tell.
struct BufferSlot {
    id: u64,
    device: Device,
    bytes: usize,
    name: String,
    seat: Mutex<Seat>,
    /// The seat's address, to be read without the lock where nothing else is needed.
    address: AtomicU64,
}

impl BufferSlot {
    fn seat(&self) -> std::sync::MutexGuard<'_, Seat> {
        // A seat is always consistent: it is replaced in one assignment.
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The identity and place of a buffer at one moment, all of one seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferPlace {
    /// The slot's id: the same for all clones and slices, and across re-seats.
    pub id: u64,
    /// How often the slot was re-seated.
    pub generation: u64,
    /// The address of the buffer's first element.
    pub address: u64,
}

/// A range of device memory of no type: what a [`Buffer`] is underneath, and what argument tables hold.
#[derive(Clone)]
pub struct RawBuffer {
    slot: Arc<BufferSlot>,
    offset: usize,
    bytes: usize,
}

impl RawBuffer {
    fn whole(allocation: Arc<Allocation>) -> Self {
        let bytes = allocation.bytes();
        let slot = BufferSlot {
            id: next_id(),
            device: allocation.device().clone(),
            bytes,
            name: allocation.name().to_owned(),
            address: AtomicU64::new(allocation.address()),
            seat: Mutex::new(Seat { allocation, generation: 0 }),
        };
        Self { slot: Arc::new(slot), offset: 0, bytes }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes from the slot's start to the first byte.
    pub fn byte_offset(&self) -> usize {
        self.offset
    }

    /// The device that it lies on.
    pub fn device(&self) -> &Device {
        &self.slot.device
    }

    /// What it is for.
    pub fn name(&self) -> &str {
        &self.slot.name
    }

    /// The slot's id: the same for all clones and slices, and across re-seats.
    pub fn id(&self) -> u64 {
        self.slot.id
    }

    /// How often the slot was re-seated.
    pub fn generation(&self) -> u64 {
        self.slot.seat().generation
    }

    /// The address of the first byte, in the allocation that the slot holds now.
    pub fn address(&self) -> u64 {
        self.slot.address.load(Ordering::Acquire) + self.offset as u64
    }

    /// Id, generation and address, all of one seat.
    pub fn place(&self) -> BufferPlace {
        let seat = self.slot.seat();
        let address = seat.allocation.address() + self.offset as u64;
        BufferPlace { id: self.slot.id, generation: seat.generation, address }
    }

    /// The allocation in the slot now; holding it keeps that memory alive through a re-seat.
    pub fn allocation(&self) -> Arc<Allocation> {
        self.slot.seat().allocation.clone()
    }

    /// Puts `new` in the slot and gives back what was there. Every clone and slice sees it: the id stays, the
    /// generation rises by one. Contents are not copied.
    ///
    /// # Errors
    /// [`DeviceError::WrongDevice`] and [`DeviceError::BadReseat`] (another size); the slot is unchanged.
    pub fn reseat(&self, new: Arc<Allocation>) -> Result<Arc<Allocation>> {
        self.slot.device.expect_same(new.device(), "allocation", new.name())?;
        if new.bytes() != self.slot.bytes {
            let name = self.slot.name.clone();
            return Err(DeviceError::BadReseat { name, have: self.slot.bytes, given: new.bytes() });
        }
        let mut seat = self.slot.seat();
        self.slot.address.store(new.address(), Ordering::Release);
        seat.generation += 1;
        Ok(std::mem::replace(&mut seat.allocation, new))
    }
}

impl fmt::Debug for RawBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes, offset) = (&self.slot.name, self.bytes, self.offset);
        let BufferPlace { id, generation, address } = self.place();
        write!(
            f,
            "`{name}`[{offset}..{} bytes] slot {id} generation {generation} at {address:#x}",
            offset + bytes
        )?;
        write!(f, " on {}", self.slot.device)
    }
}

/// A typed range of device memory: `len` elements of `T` in a slot that clones and slices share.
pub struct Buffer<T: Element> {
    raw: RawBuffer,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Allocates `len` elements on `device`; their contents are undefined.
    ///
    /// # Errors
    /// [`DeviceError::BadLength`] for no elements or an overflowing size, [`DeviceError::OutOfMemory`], and
    /// [`DeviceError::Capture`] during a capture.
    pub fn new(device: &Device, len: usize, name: &str) -> Result<Self> {
        let allocation = device.alloc(checked_bytes::<T>(len, name)?, name)?;
        Ok(Self { raw: RawBuffer::whole(allocation), element: PhantomData })
    }

    /// Views a whole allocation as elements of `T`, in a slot of its own.
    ///
    /// # Errors
    /// [`DeviceError::BadLength`] when its size is no multiple of the element's.
    pub fn from_allocation(allocation: Arc<Allocation>) -> Result<Self> {
        RawBuffer::whole(allocation).typed()
    }

    /// Allocates a buffer and fills it with `data`; done when it returns.
    ///
    /// # Errors
    /// Those of [`Buffer::new`] and of a copy to the device.
    pub fn from_slice(device: &Device, data: &[T], name: &str) -> Result<Self> {
        let buffer = Self::new(device, data.len(), name)?;
        device.upload(&buffer, data)?;
        Ok(buffer)
    }

    /// The elements of `range`, sharing this buffer's slot.
    ///
    /// # Errors
    /// [`DeviceError::BadSlice`] when the range is empty, inverted or outside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&n) => n.saturating_add(1),
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len(),
        };
        if start >= end || end > self.len() {
            return Err(DeviceError::BadSlice { name: self.name().to_owned(), start, end, len: self.len() });
        }
        let size = size_of::<T>();
        let offset = self.raw.offset + start * size;
        let raw = RawBuffer { slot: self.raw.slot.clone(), offset, bytes: (end - start) * size };
        Ok(Self { raw, element: PhantomData })
    }

    /// The same range without its type.
    pub fn raw(&self) -> RawBuffer {
        self.raw.clone()
    }

    /// Elements.
    #[allow(clippy::len_without_is_empty)] // a buffer has at least one element
    pub fn len(&self) -> usize {
        self.raw.bytes / size_of::<T>()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.raw.bytes
    }

    /// The device that it lies on.
    pub fn device(&self) -> &Device {
        self.raw.device()
    }

    /// What it is for.
    pub fn name(&self) -> &str {
        self.raw.name()
    }

    /// The slot's id: the same for all clones and slices, and across re-seats.
    pub fn id(&self) -> u64 {
        self.raw.id()
    }

    /// How often the slot was re-seated.
    pub fn generation(&self) -> u64 {
        self.raw.generation()
    }

    /// Bytes from the slot's start to the first element.
    pub fn byte_offset(&self) -> usize {
        self.raw.offset
    }

    /// The address of the first element, in the allocation that the slot holds now.
    pub fn address(&self) -> u64 {
        self.raw.address()
    }

    /// Id, generation and address, all of one seat.
    pub fn place(&self) -> BufferPlace {
        self.raw.place()
    }

    /// The allocation in the slot now; holding it keeps that memory alive through a re-seat.
    pub fn allocation(&self) -> Arc<Allocation> {
        self.raw.allocation()
    }

    /// Exchanges the allocation in the slot; see [`RawBuffer::reseat`].
    ///
    /// # Errors
    /// As [`RawBuffer::reseat`].
    pub fn reseat(&self, new: Arc<Allocation>) -> Result<Arc<Allocation>> {
        self.raw.reseat(new)
    }

    /// The same memory as elements of `U`.
    ///
    /// # Errors
    /// [`DeviceError::BadLength`] when start or size is no multiple of `U`'s size.
    pub fn cast<U: Element>(&self) -> Result<Buffer<U>> {
        self.raw.clone().typed()
    }

    /// Copies the elements to the host after all work of all streams of the device; done when it returns. For one
    /// stream's work [`super::Stream::read`] waits for less.
    ///
    /// # Errors
    /// Those of a copy from the device; [`DeviceError::Capture`] during a capture.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.len()];
        self.device().download(self, &mut data)?;
        Ok(data)
    }
}

impl RawBuffer {
    /// The range as elements of `T`.
    ///
    /// # Errors
    /// [`DeviceError::BadLength`] when start or size is no multiple of `T`'s size.
    pub fn typed<T: Element>(self) -> Result<Buffer<T>> {
        let element_bytes = size_of::<T>();
        if !self.offset.is_multiple_of(element_bytes) || !self.bytes.is_multiple_of(element_bytes) {
            let name = self.slot.name.clone();
            return Err(DeviceError::BadLength { name, len: self.bytes / element_bytes, element_bytes });
        }
        Ok(Buffer { raw: self, element: PhantomData })
    }
}

/// The size in bytes of `len` elements, if it is one that can be allocated.
fn checked_bytes<T: Element>(len: usize, name: &str) -> Result<usize> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0 && bytes <= isize::MAX as usize);
    bytes.ok_or_else(|| DeviceError::BadLength { name: name.to_owned(), len, element_bytes: size_of::<T>() })
}

impl<T: Element> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self { raw: self.raw.clone(), element: PhantomData }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>[{}] {:?}", T::NAME, self.len(), self.raw)
    }
}

/// Page-locked host memory of `len` elements that the device copies to and from on its own, so that such a
/// copy can be queued and captured.
///
/// The device may write it at any time between the submission of a copy and the stream's next
/// synchronisation. Elements are read one at a time and whole ([`HostBuffer::get`]), so a read in that window
/// gives an old or a new element, never undefined behaviour; synchronise to know which.
pub struct HostBuffer<T: Element> {
    pub(super) memory: Arc<PinnedMemory>,
    len: usize,
    element: PhantomData<T>,
}

/// Page-locked bytes: those behind a [`HostBuffer`], shared with the graphs that copy to or from them, or an uploader's own.
pub(super) struct PinnedMemory {
    device: Device,
    pub(super) start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is plain bytes, owned by this value, and every access to it on the host goes through
// volatile reads and writes of whole elements in `HostBuffer`, or is by the one owner of an uploader's memory.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; concurrent access is what the type is for.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// `bytes` zeroed bytes, one at least.
    pub(super) fn new(device: &Device, bytes: usize) -> Result<Self> {
        let start = device.backend().pinned_allocate(bytes)?;
        Ok(Self { device: device.clone(), start, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.device.backend().pinned_free(self.start, self.bytes);
    }
}

impl<T: Element> HostBuffer<T> {
    /// Allocates `len` zeroed elements of page-locked memory for copies with `device`.
    ///
    /// # Errors
    /// [`DeviceError::BadLength`], [`DeviceError::Call`] when the host has no memory to lock, and
    /// [`DeviceError::Capture`] during a capture.
    pub fn new(device: &Device, len: usize, name: &str) -> Result<Self> {
        let bytes = checked_bytes::<T>(len, name)?;
        stream::forbid_in_capture(|| Violation::Allocation(name.to_owned()))?;
        let memory = Arc::new(PinnedMemory::new(device, bytes)?);
        Ok(Self { memory, len, element: PhantomData })
    }

    /// Elements.
    #[allow(clippy::len_without_is_empty)] // it has at least one element
    pub fn len(&self) -> usize {
        self.len
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device that it was locked for.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    fn element(&self, index: usize) -> *mut T {
        assert!(index < self.len, "element {index} of a host buffer of {}", self.len);
        // SAFETY: `index` is below `len`, and the memory holds `len` elements.
        unsafe { self.memory.start.cast::<T>().as_ptr().add(index) }
    }

    /// Element `index`.
    ///
    /// # Panics
    /// When `index` is not below [`HostBuffer::len`].
    pub fn get(&self, index: usize) -> T {
        // SAFETY: the pointer is to an element of live memory, aligned since page-locked memory is (256 bytes at
        // least); any bits are a valid `T`; volatile because the device writes it behind the compiler's back.
        unsafe { self.element(index).read_volatile() }
    }

    /// Sets element `index`.
    ///
    /// # Panics
    /// When `index` is not below [`HostBuffer::len`].
    pub fn set(&self, index: usize, value: T) {
        // SAFETY: as in `get`.
        unsafe { self.element(index).write_volatile(value) }
    }

    /// All elements.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.len).map(|index| self.get(index)).collect()
    }
}

impl<T: Element> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer<{}>[{}]", T::NAME, self.len)
    }
}
