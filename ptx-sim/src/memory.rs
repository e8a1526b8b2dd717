//! The memory of a simulated machine: allocations of every device in one address space.
//!
//! A device address is `(slot + 1) << 40 | offset`. Every allocation gets a slot of its own, and a slot is never
//! used again, so an address that runs past its allocation, one that was freed and one that was never given out
//! are all told apart from a good one, always and at no cost beyond the bounds check itself. The lowest
//! 2^40 addresses hold no allocation: address 0 is null, and the windows of the generic address space (shared and
//! local memory, see [`window`]) lie there.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::check::History;
use crate::known::Known;
use crate::module::Variables;
use crate::ptx::ast::Space;

/// Bits of an address that count bytes within an allocation.
pub const OFFSET_BITS: u32 = 40;
/// The largest allocation, in bytes.
pub const MAX_ALLOCATION: u64 = 1 << OFFSET_BITS;
/// Every allocation's base has at least this alignment, as `cuMemAlloc` promises.
pub const ALLOCATION_ALIGN: usize = 256;
const MAX_SLOTS: usize = (1 << (64 - OFFSET_BITS)) - 2;

/// Where the generic address space shows memory that is not an allocation.
pub mod window {
    /// First generic address of the executing block's shared memory.
    pub const SHARED: u64 = 0x01_0000_0000;
    /// First generic address of the executing thread's local memory.
    pub const LOCAL: u64 = 0x02_0000_0000;
    /// First generic address of the kernel's parameters.
    pub const PARAM: u64 = 0x03_0000_0000;
    /// Bytes in each of the windows.
    pub const SIZE: u64 = 0x01_0000_0000;
}

/// Why an operation on [`Memory`] was refused. Nothing was read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The host has no room for the allocation, or it exceeds what an address can name.
    #[error(
        "out of memory on simulated device {device}: asked for {asked} bytes for `{name}`, {in_use} bytes are in use"
    )]
    OutOfMemory {
        /// The device asked.
        device: u32,
        /// Bytes asked for.
        asked: u64,
        /// Bytes in use on that device.
        in_use: u64,
        /// The name the allocation would have had.
        name: String,
    },
    /// An allocation of no bytes.
    #[error("allocation `{name}` on simulated device {device} asks for 0 bytes")]
    Empty {
        /// The device asked.
        device: u32,
        /// The name the allocation would have had.
        name: String,
    },
    /// The address was never given out.
    #[error("address {address:#x} belongs to no allocation")]
    Unknown {
        /// The address.
        address: u64,
    },
    /// The address belongs to an allocation that was freed.
    #[error("address {address:#x} is in `{name}`, which was freed (use after free)")]
    Freed {
        /// The address.
        address: u64,
        /// The freed allocation.
        name: String,
    },
    /// A device's access to the memory of another device, to which it has no access.
    #[error(
        "address {address:#x} is in `{name}`, in the memory of device {owner}, to which device {device} has no peer access"
    )]
    NoPeerAccess {
        /// The address.
        address: u64,
        /// The allocation.
        name: String,
        /// The device that accesses it.
        device: u32,
        /// The device whose memory it is.
        owner: u32,
    },
    /// The range leaves the allocation.
    #[error("{bytes} bytes at {address:#x} leave `{name}`: offset {offset} of {size} bytes")]
    OutOfBounds {
        /// First address of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The allocation.
        name: String,
        /// Offset of the range within the allocation.
        offset: u64,
        /// Size of the allocation in bytes.
        size: u64,
    },
    /// `free` was given an address inside an allocation.
    #[error("cannot free {address:#x}: it is {offset} bytes into `{name}`, not its start")]
    NotABase {
        /// The address.
        address: u64,
        /// The allocation.
        name: String,
        /// Offset of the address within it.
        offset: u64,
    },
    /// A fill of 32-bit words at an address that is no multiple of 4.
    #[error("address {address:#x} is not aligned to {align} bytes")]
    Misaligned {
        /// The address.
        address: u64,
        /// The alignment needed.
        align: u64,
    },
}

/// One live allocation: bytes on the host, zeroed at birth so that runs repeat.
pub(crate) struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
    size: u64,
    device: u32,
    address: u64,
    name: Arc<str>,
    /// Which bytes hold a value, where that is followed.
    known: Option<Known>,
}

// SAFETY: the bytes are only touched through raw pointers, never through references that outlive a copy. Kernels
// that race on them race as they would on a GPU: the interpreter's accesses are plain machine loads and stores
// (or atomics) of the PTX access size, as the hardware's are.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn new(size: u64, device: u32, address: u64, name: &str, track: bool) -> Option<Allocation> {
        // Rounded up so that a whole vector register can be read at any valid offset's cache line.
        let bytes = usize::try_from(size).ok()?.checked_next_multiple_of(ALLOCATION_ALIGN)?;
        let layout = Layout::from_size_align(bytes, ALLOCATION_ALIGN).ok()?;
        // SAFETY: `layout` has a size above zero (`size` is, and it was rounded up).
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let known = track.then(|| Known::new(size));
        Some(Allocation { base, layout, size, device, address, name: name.into(), known })
    }

    fn mark(&self, offset: usize, bytes: u64) {
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
    allocation: Option<Arc<Allocation>>,
    name: Arc<str>,
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
    fn new(allocation: Allocation) -> Slot {
        Slot {
            base: allocation.base.as_ptr(),
            size: allocation.size,
            name: allocation.name.clone(),
            allocation: Some(Arc::new(allocation)),
            foreign: None,
        }
    }

    /// The slot as `device` sees it, which may reach the memory of the devices that `reach` says yes to.
    fn seen_by(&self, device: u32, reach: impl Fn(u32) -> bool) -> Slot {
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

    fn known(&self) -> Option<&Known> {
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

    fn release(&mut self) {
        *self = Slot {
            base: NonNull::dangling().as_ptr(),
            size: 0,
            allocation: None,
            name: self.name.clone(),
            foreign: None,
        };
    }
}

/// The slots as they were when a launch began. Holding it keeps every allocation's bytes mapped.
pub(crate) type Slots = Arc<Vec<Slot>>;

#[derive(Default)]
struct Table {
    slots: Slots,
    in_use: HashMap<u32, u64>,
    /// The devices that have or had an allocation.
    devices: HashSet<u32>,
    /// Which device reaches which other's memory.
    peers: HashSet<(u32, u32)>,
    /// The slots as devices see them that do not reach all memory. Empty after every change.
    views: HashMap<u32, Slots>,
}

impl Table {
    fn reaches(&self, device: u32, owner: u32) -> bool {
        device == owner || self.peers.contains(&(device, owner))
    }

    /// What `device` sees without a view of its own: everything, if it reaches all memory that there is.
    fn view(&self, device: u32) -> Option<Slots> {
        if self.devices.iter().all(|&owner| self.reaches(device, owner)) {
            Some(self.slots.clone())
        } else {
            self.views.get(&device).cloned()
        }
    }
}

/// A module's variables on one device: the module, kept so that its address is not given to another, and the variables'
/// addresses.
type Loaded = (Arc<Variables>, u32, Arc<Vec<u64>>);

/// The memory of all devices of one simulated machine.
///
/// Addresses are unique across devices (unified addressing), so an address alone says which allocation and
/// which device it belongs to. All operations take `&self` and may come from several threads.
#[derive(Default)]
pub struct Memory {
    table: RwLock<Table>,
    modules: Mutex<Vec<Loaded>>,
    /// Whether allocations follow which of their bytes hold a value.
    track: AtomicBool,
    history: Mutex<History>,
}

impl Memory {
    /// An empty memory.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// From here on allocations follow which of their bytes were given a value, for
    /// [`Checks::UNINITIALISED`](crate::Checks::UNINITIALISED). Those made before count as holding values throughout, and
    /// so do all that exist when a launch runs without checks.
    pub fn track_values(&self) {
        self.track.store(true, Ordering::Relaxed);
    }

    /// Takes every allocation's bytes to hold values.
    pub(crate) fn assume_values(&self) {
        if self.track.load(Ordering::Relaxed) {
            for slot in self.slots().iter() {
                if let Some(known) = slot.known() {
                    known.mark(0, slot.size);
                }
            }
        }
    }

    /// What launches with checks leave for the next.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes` zeroed bytes on `device` and returns their address, a multiple of [`ALLOCATION_ALIGN`].
    /// `name` is used in messages only.
    ///
    /// # Errors
    /// [`MemoryError::Empty`] for 0 bytes, [`MemoryError::OutOfMemory`] when the host cannot provide them or they
    /// exceed [`MAX_ALLOCATION`].
    pub fn allocate(&self, device: u32, bytes: u64, name: &str) -> Result<u64, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Empty { device, name: name.into() });
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let in_use = table.in_use.get(&device).copied().unwrap_or(0);
        let refused = || MemoryError::OutOfMemory { device, asked: bytes, in_use, name: name.into() };
        let slot = table.slots.len();
        if bytes > MAX_ALLOCATION || slot >= MAX_SLOTS {
            return Err(refused());
        }
        let address = (slot as u64 + 1) << OFFSET_BITS;
        let track = self.track.load(Ordering::Relaxed);
        let allocation = Allocation::new(bytes, device, address, name, track).ok_or_else(refused)?;
        Arc::make_mut(&mut table.slots).push(Slot::new(allocation));
        table.in_use.insert(device, in_use + bytes);
        table.devices.insert(device);
        table.views.clear();
        Ok(address)
    }

    /// Frees the allocation that starts at `address`. The address never becomes valid again.
    ///
    /// # Errors
    /// When `address` is no live allocation's start: [`MemoryError::Unknown`], [`MemoryError::Freed`] (a double
    /// free) or [`MemoryError::NotABase`].
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let allocation = self.find(address)?;
        if allocation.address != address {
            return Err(MemoryError::NotABase {
                address,
                name: allocation.name.to_string(),
                offset: address - allocation.address,
            });
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let slots = Arc::make_mut(&mut table.slots);
        let slot = &mut slots[slot_of(address).expect("found above")];
        if slot.freed() {
            // Another thread freed it between the look-up and the lock.
            return Err(MemoryError::Freed { address, name: allocation.name.to_string() });
        }
        slot.release();
        table.views.clear();
        if let Some(in_use) = table.in_use.get_mut(&allocation.device) {
            *in_use -= allocation.size;
        }
        Ok(())
    }

    /// Copies `out.len()` bytes from `address` to the host.
    ///
    /// # Errors
    /// When the range is not inside one live allocation.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let (allocation, offset) = self.range(address, out.len() as u64)?;
        // SAFETY: `range` proved offset + len inside the allocation; `out` is host memory, so they do not overlap.
        unsafe { allocation.base().add(offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `data` from the host to `address`.
    ///
    /// # Errors
    /// When the range is not inside one live allocation.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let (allocation, offset) = self.range(address, data.len() as u64)?;
        // SAFETY: as in `read`.
        unsafe { allocation.base().add(offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        allocation.mark(offset, data.len() as u64);
        Ok(())
    }

    /// Copies `bytes` bytes from `src` to `dst`, between any two allocations of any devices. Overlapping ranges
    /// are copied as if through a buffer.
    ///
    /// # Errors
    /// When one of the ranges is not inside one live allocation.
    pub fn copy(&self, dst: u64, src: u64, bytes: u64) -> Result<(), MemoryError> {
        let (from, from_offset) = self.range(src, bytes)?;
        let (to, to_offset) = self.range(dst, bytes)?;
        // SAFETY: `range` proved both ranges; `copy_to` allows them to overlap.
        unsafe { from.base().add(from_offset).copy_to(to.base().add(to_offset), bytes as usize) };
        match (&from.known, &to.known) {
            // What had no value does not get one by being copied.
            (Some(source), Some(_)) if !source.covers(from_offset as u64, bytes) => {
                for i in (0..bytes).filter(|i| source.covers(from_offset as u64 + i, 1)) {
                    to.mark(to_offset + i as usize, 1);
                }
            }
            _ => to.mark(to_offset, bytes),
        }
        Ok(())
    }

    /// Sets `bytes` bytes at `address` to `byte`.
    ///
    /// # Errors
    /// When the range is not inside one live allocation.
    pub fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<(), MemoryError> {
        let (allocation, offset) = self.range(address, bytes)?;
        // SAFETY: `range` proved the range.
        unsafe { allocation.base().add(offset).write_bytes(byte, bytes as usize) };
        allocation.mark(offset, bytes);
        Ok(())
    }

    /// Sets `count` 32-bit words at `address` to `value`.
    ///
    /// # Errors
    /// When the address is no multiple of 4 or the range is not inside one live allocation.
    pub fn fill_u32(&self, address: u64, value: u32, count: u64) -> Result<(), MemoryError> {
        if !address.is_multiple_of(4) {
            return Err(MemoryError::Misaligned { address, align: 4 });
        }
        let (allocation, offset) = self.range(address, count.saturating_mul(4))?;
        // SAFETY: `range` proved the range; base is 256-byte aligned and the offset a multiple of 4.
        unsafe {
            let first = allocation.base().add(offset).cast::<u32>();
            for i in 0..count as usize {
                first.add(i).write(value);
            }
        }
        allocation.mark(offset, 4 * count);
        Ok(())
    }

    /// Bytes of live allocations on `device`.
    pub fn bytes_in_use(&self, device: u32) -> u64 {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.in_use.get(&device).copied().unwrap_or(0)
    }

    /// The device that the allocation at `address` lives on.
    ///
    /// # Errors
    /// When the address is in no live allocation.
    pub fn device_of(&self, address: u64) -> Result<u32, MemoryError> {
        Ok(self.find(address)?.device)
    }

    /// Start and size in bytes of the allocation that `address` is in.
    ///
    /// # Errors
    /// When the address is in no live allocation.
    pub fn allocation_of(&self, address: u64) -> Result<(u64, u64), MemoryError> {
        let allocation = self.find(address)?;
        Ok((allocation.address, allocation.size))
    }

    /// The addresses of a module's variables on `device`, which are created and initialised when first asked for. They
    /// live as long as this memory and do not count as in use.
    pub(crate) fn module_symbols(
        &self,
        variables: &Arc<Variables>,
        device: u32,
    ) -> Result<Arc<Vec<u64>>, MemoryError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, symbols)) =
            modules.iter().find(|(v, d, _)| Arc::ptr_eq(v, variables) && *d == device)
        {
            return Ok(symbols.clone());
        }
        let mut symbols = Vec::with_capacity(variables.list.len());
        for variable in &variables.list {
            let global = matches!(variable.space, Space::Global | Space::Const);
            let Some(size) = variable.size.filter(|&size| global && size > 0) else {
                symbols.push(0); // shared, or without a size: never used as a global address
                continue;
            };
            let name = format!("{}::{}", variables.module, variable.name);
            let address = self.allocate(device, size, &name)?;
            self.fill(address, 0, size)?;
            self.write(address, &variable.init)?;
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(in_use) = table.in_use.get_mut(&device) {
                *in_use -= size;
            }
            symbols.push(address);
        }
        let symbols = Arc::new(symbols);
        modules.push((variables.clone(), device, symbols.clone()));
        Ok(symbols)
    }

    /// Lets kernels and copies of `device` reach the memory of `owner`. A device always reaches its own; kernels that run
    /// on another device's memory without this fault.
    pub fn enable_peer_access(&self, device: u32, owner: u32) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.peers.insert((device, owner));
        table.views.clear();
    }

    /// Whether kernels and copies of `device` reach the memory of `owner`.
    pub fn reaches(&self, device: u32, owner: u32) -> bool {
        self.table.read().unwrap_or_else(PoisonError::into_inner).reaches(device, owner)
    }

    /// Checks that `device` reaches the memory at `address`.
    ///
    /// # Errors
    /// [`MemoryError::NoPeerAccess`], or when the address is in no live allocation.
    pub fn check_reach(&self, device: u32, address: u64) -> Result<(), MemoryError> {
        let allocation = self.find(address)?;
        let owner = allocation.device;
        if self.reaches(device, owner) {
            return Ok(());
        }
        Err(MemoryError::NoPeerAccess { address, name: allocation.name.to_string(), device, owner })
    }

    /// All slots as they are now.
    fn slots(&self) -> Slots {
        self.table.read().unwrap_or_else(PoisonError::into_inner).slots.clone()
    }

    /// The slots as they are now, for a launch on `device` to resolve addresses in.
    pub(crate) fn slots_for(&self, device: u32) -> Slots {
        if let Some(view) = self.table.read().unwrap_or_else(PoisonError::into_inner).view(device) {
            return view;
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made it meanwhile.
        table.view(device).unwrap_or_else(|| {
            let view =
                table.slots.iter().map(|slot| slot.seen_by(device, |owner| table.reaches(device, owner)));
            let view: Slots = Arc::new(view.collect());
            table.views.insert(device, view.clone());
            view
        })
    }

    fn find(&self, address: u64) -> Result<Arc<Allocation>, MemoryError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        match slot_of(address).and_then(|slot| table.slots.get(slot)) {
            Some(Slot { allocation: Some(allocation), .. }) => Ok(allocation.clone()),
            Some(Slot { name, .. }) => Err(MemoryError::Freed { address, name: name.to_string() }),
            None => Err(MemoryError::Unknown { address }),
        }
    }

    fn range(&self, address: u64, bytes: u64) -> Result<(Arc<Allocation>, usize), MemoryError> {
        let allocation = self.find(address)?;
        let offset = address - allocation.address;
        if offset > allocation.size || bytes > allocation.size - offset {
            return Err(MemoryError::OutOfBounds {
                address,
                bytes,
                name: allocation.name.to_string(),
                offset,
                size: allocation.size,
            });
        }
        Ok((allocation, offset as usize))
    }
}

/// The slot an address points into, or `None` below the first one.
pub(crate) fn slot_of(address: u64) -> Option<usize> {
    ((address >> OFFSET_BITS) as usize).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_sees_its_own_memory_and_that_of_its_peers() {
        let memory = Memory::new();
        let theirs = memory.allocate(1, 5, "theirs").unwrap();
        let sizes = |device| memory.slots_for(device).iter().map(|slot| slot.size).collect::<Vec<_>>();
        assert_eq!((sizes(0), sizes(1)), (vec![0], vec![5]));
        let mine = memory.allocate(0, 3, "mine").unwrap();
        assert_eq!((sizes(0), sizes(1)), (vec![0, 3], vec![5, 0]));
        let refused = memory.check_reach(0, theirs + 4);
        let name = "theirs".to_owned();
        assert_eq!(
            refused,
            Err(MemoryError::NoPeerAccess { address: theirs + 4, name, device: 0, owner: 1 })
        );
        assert_eq!(memory.check_reach(0, mine), Ok(()));
        memory.enable_peer_access(0, 1);
        assert_eq!((sizes(0), sizes(1)), (vec![5, 3], vec![5, 0]));
        assert_eq!((memory.reaches(0, 1), memory.reaches(1, 0), memory.reaches(2, 2)), (true, false, true));
        assert_eq!((memory.check_reach(0, theirs), memory.check_reach(1, mine).is_err()), (Ok(()), true));
        memory.free(mine).unwrap();
        assert_eq!((sizes(0), sizes(1)), (vec![5, 0], vec![5, 0]));
        assert!(memory.slots_for(1)[1].freed() && memory.slots_for(1)[1].foreign().is_none());
    }

    #[test]
    fn addresses_are_aligned_unique_and_never_reused() {
        let memory = Memory::new();
        let a = memory.allocate(0, 3, "a").unwrap();
        let b = memory.allocate(1, 5, "b").unwrap();
        assert!(a.is_multiple_of(256) && b.is_multiple_of(256) && a != b && a != 0);
        assert_eq!((memory.bytes_in_use(0), memory.bytes_in_use(1)), (3, 5));
        assert_eq!((memory.device_of(a), memory.device_of(b + 4)), (Ok(0), Ok(1)));
        memory.free(a).unwrap();
        assert_eq!(memory.bytes_in_use(0), 0);
        let c = memory.allocate(0, 3, "c").unwrap();
        assert_ne!(a, c);
        assert_eq!(memory.free(a), Err(MemoryError::Freed { address: a, name: "a".into() }));
        assert_eq!(memory.read(a, &mut [0]), Err(MemoryError::Freed { address: a, name: "a".into() }));
    }

    #[test]
    fn bytes_come_back_and_start_as_zero() {
        let memory = Memory::new();
        let a = memory.allocate(0, 16, "a").unwrap();
        let mut out = [9u8; 16];
        memory.read(a, &mut out).unwrap();
        assert_eq!(out, [0; 16]);
        memory.write(a + 4, &[1, 2, 3, 4]).unwrap();
        memory.fill(a + 8, 7, 2).unwrap();
        memory.fill_u32(a + 12, 0x0403_0201, 1).unwrap();
        memory.read(a, &mut out).unwrap();
        assert_eq!(out, [0, 0, 0, 0, 1, 2, 3, 4, 7, 7, 0, 0, 1, 2, 3, 4]);
        let b = memory.allocate(3, 8, "b").unwrap();
        memory.copy(b, a + 4, 8).unwrap();
        memory.copy(b + 1, b, 4).unwrap(); // overlapping, as through a buffer
        let mut out = [0u8; 8];
        memory.read(b, &mut out).unwrap();
        assert_eq!(out, [1, 1, 2, 3, 4, 7, 0, 0]);
    }

    #[test]
    fn ranges_are_checked() {
        let memory = Memory::new();
        let a = memory.allocate(0, 10, "weights").unwrap();
        assert!(memory.read(a + 10, &mut []).is_ok(), "an empty range at the end is a range");
        let error = memory.write(a + 8, &[0; 3]).unwrap_err();
        assert_eq!(
            error,
            MemoryError::OutOfBounds {
                address: a + 8,
                bytes: 3,
                name: "weights".into(),
                offset: 8,
                size: 10
            }
        );
        assert!(error.to_string().contains("`weights`"));
        assert!(matches!(memory.fill(a, 0, u64::MAX), Err(MemoryError::OutOfBounds { .. })));
        assert!(matches!(memory.fill_u32(a, 0, u64::MAX), Err(MemoryError::OutOfBounds { .. })));
        assert!(matches!(memory.copy(a, a + 5, 6), Err(MemoryError::OutOfBounds { .. })));
        assert!(matches!(memory.copy(a + 5, a, 6), Err(MemoryError::OutOfBounds { .. })));
        assert!(matches!(memory.fill_u32(a + 2, 0, 1), Err(MemoryError::Misaligned { .. })));
        assert!(matches!(memory.free(a + 1), Err(MemoryError::NotABase { offset: 1, .. })));
    }

    #[test]
    fn wild_addresses_and_bad_sizes_are_refused() {
        let memory = Memory::new();
        for address in [0, 1, window::SHARED, 1 << 40, 7 << 40, u64::MAX] {
            assert_eq!(memory.read(address, &mut [0]), Err(MemoryError::Unknown { address }));
        }
        assert!(matches!(memory.allocate(0, 0, "x"), Err(MemoryError::Empty { .. })));
        for bytes in [MAX_ALLOCATION + 1, u64::MAX, u64::MAX - 100] {
            assert!(matches!(
                memory.allocate(2, bytes, "x"),
                Err(MemoryError::OutOfMemory { device: 2, .. })
            ));
        }
        assert_eq!(memory.bytes_in_use(2), 0);
    }

    #[test]
    fn a_snapshot_keeps_freed_bytes_mapped() {
        let memory = Memory::new();
        let a = memory.allocate(0, 4, "a").unwrap();
        memory.write(a, &[5; 4]).unwrap();
        let slots = memory.slots_for(0);
        memory.free(a).unwrap();
        let slot = &slots[slot_of(a).unwrap()];
        // SAFETY: the snapshot holds the allocation.
        assert_eq!((slot.freed(), unsafe { slot.base.read() }), (false, 5));
        assert!(memory.slots()[slot_of(a).unwrap()].freed());
    }
}
