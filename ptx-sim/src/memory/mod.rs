//! The memory of a simulated machine: allocations of every device in one address space.
//!
//! A device address is `(slot + 1) << 40 | offset`. Every allocation gets a slot of its own, and a slot is never
//! used again, so an address that runs past its allocation, one that was freed and one that was never given out
//! are all told apart from a good one, always and at no cost beyond the bounds check itself. The lowest
//! 2^40 addresses hold no allocation: address 0 is null, and the windows of the generic address space (shared and
//! local memory, see [`window`]) lie there.

mod error;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::check::History;
use crate::module::Variables;
use crate::ptx::ast::Space;
pub use error::MemoryError;
use slot::Allocation;
pub(crate) use slot::{Foreign, Slot};

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
