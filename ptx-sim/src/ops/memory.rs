//! State spaces: where an access goes, and what is wrong with those that go nowhere. Copies from global to shared memory.

use super::lanes::{Lane, all};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::fault::FaultKind;
use crate::memory::{Foreign, OFFSET_BITS, window};
use std::marker::PhantomData;

/// An address as registers hold it.
pub(crate) trait Address: Lane {
    /// The sum, wrapping in the register's width.
    fn plus(self, offset: u64) -> Self;
    /// What `self` lacks to `limit`, wrapping.
    fn below(self, limit: u64) -> Self;
    fn or(self, other: Self) -> Self;
    fn wide(self) -> u64;
    /// Whether the top bit is set.
    fn negative(self) -> bool;
    const ZERO: Self;
}

macro_rules! address {
    ($t:ty) => {
        impl Address for $t {
            #[inline(always)]
            fn plus(self, offset: u64) -> $t {
                self.wrapping_add(offset as $t)
            }
            #[inline(always)]
            fn below(self, limit: u64) -> $t {
                (limit as $t).wrapping_sub(self)
            }
            #[inline(always)]
            fn or(self, other: $t) -> $t {
                self | other
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn negative(self) -> bool {
                self >> (<$t>::BITS - 1) != 0
            }
            const ZERO: $t = 0;
        }
    };
}
address!(u32);
address!(u64);

/// Memory that the accesses of a whole warp fall into, if the first does.
pub(crate) struct Region {
    /// The first byte.
    pub(crate) base: *mut u8,
    /// Bytes, less than 2^31 where addresses have 32 bits.
    pub(crate) size: u64,
    /// Address of the first byte.
    pub(crate) start: u64,
}

/// Why one lane's access is refused: the kind, filled in with the access's size and direction by the caller.
pub(crate) enum Bad {
    /// Outside; the size of what it is outside of, and the allocation's name.
    Outside(u64, Option<String>),
    /// In a freed allocation.
    Freed(String),
    /// In the memory of another device, which this one does not reach.
    Foreign(Foreign, String),
}

/// A state space as the ops see it.
pub(crate) trait Space {
    /// Name for messages.
    const NAME: &'static str;
    /// The registers that hold this space's addresses.
    type Addr: Address;
    /// The region for a whole warp whose first lane accesses `first`.
    fn region(warp: &Warp, first: u64) -> Option<Region>;
    /// Where one lane's access goes.
    fn lane(warp: &Warp, lane: u32, address: u64, bytes: u32) -> Result<*mut u8, Bad>;
    /// Which memory an address is of, and its offset there (for global memory the address itself).
    fn window(address: u64) -> (Window, u64);
}

/// Which memory an address is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Window {
    Global,
    Shared,
    Local,
    Param,
}

fn within(base: *mut u8, size: u64, offset: u64, bytes: u32) -> Option<*mut u8> {
    (offset < size && u64::from(bytes) <= size - offset).then(|| base.wrapping_add(offset as usize))
}

/// Global memory: allocations. Constant memory too, whose variables are allocations.
pub(crate) struct Global;
/// Shared memory, addressed by 32-bit registers.
pub(crate) struct Shared;
/// Shared memory, addressed by 64-bit registers.
pub(crate) struct SharedWide;
/// Local memory, addressed by 32-bit registers.
pub(crate) struct Local;
/// Local memory, addressed by 64-bit registers.
pub(crate) struct LocalWide;
/// The generic address space.
pub(crate) struct Generic;
/// The kernel's parameters, addressed by 64-bit registers.
pub(crate) struct ParamWide;

/// The lowest 40 bits: an address within its slot.
const OFFSET: u64 = (1 << OFFSET_BITS) - 1;

impl Space for Global {
    const NAME: &'static str = "global";
    type Addr = u64;

    #[inline(always)]
    fn region(warp: &Warp, first: u64) -> Option<Region> {
        let slot = ((first >> OFFSET_BITS) as usize).wrapping_sub(1);
        if slot >= warp.block.slot_count {
            return None;
        }
        // SAFETY: below the count, and the launch holds the slots.
        let slot = unsafe { &*warp.block.slots.add(slot) };
        Some(Region { base: slot.base, size: slot.size, start: first & !OFFSET })
    }

    fn lane(warp: &Warp, _lane: u32, address: u64, bytes: u32) -> Result<*mut u8, Bad> {
        let slot = ((address >> OFFSET_BITS) as usize).wrapping_sub(1);
        if slot >= warp.block.slot_count {
            return Err(Bad::Outside(0, None));
        }
        // SAFETY: as in `region`.
        let slot = unsafe { &*warp.block.slots.add(slot) };
        if slot.freed() {
            return Err(Bad::Freed(slot.name().to_string()));
        }
        if let Some(foreign) = slot.foreign() {
            return Err(Bad::Foreign(foreign, slot.name().to_string()));
        }
        within(slot.base, slot.size, address & OFFSET, bytes)
            .ok_or_else(|| Bad::Outside(slot.size, Some(slot.name().to_string())))
    }

    fn window(address: u64) -> (Window, u64) {
        (Window::Global, address)
    }
}

fn shared_region(warp: &Warp) -> Option<Region> {
    Some(Region { base: warp.block.shared, size: warp.block.shared_bytes.into(), start: 0 })
}

fn local_of(warp: &Warp, lane: u32) -> (*mut u8, u64) {
    let bytes = warp.block.local_bytes;
    (warp.local.wrapping_add(lane as usize * bytes as usize), bytes.into())
}

macro_rules! small_space {
    ($name:ident, $text:literal, $window:ident, $reg:ty, |$warp:ident, $lane:ident| $place:expr, $region:expr) => {
        impl Space for $name {
            const NAME: &'static str = $text;
            type Addr = $reg;

            #[inline(always)]
            fn region($warp: &Warp, _first: u64) -> Option<Region> {
                $region
            }

            fn lane($warp: &Warp, $lane: u32, address: u64, bytes: u32) -> Result<*mut u8, Bad> {
                let (base, size): (*mut u8, u64) = $place;
                within(base, size, address, bytes).ok_or(Bad::Outside(size, None))
            }

            fn window(address: u64) -> (Window, u64) {
                (Window::$window, address)
            }
        }
    };
}

small_space!(
    Shared,
    "shared",
    Shared,
    u32,
    |warp, _lane| (warp.block.shared, warp.block.shared_bytes.into()),
    shared_region(warp)
);
small_space!(
    SharedWide,
    "shared",
    Shared,
    u64,
    |warp, _lane| (warp.block.shared, warp.block.shared_bytes.into()),
    shared_region(warp)
);
small_space!(Local, "local", Local, u32, |warp, lane| local_of(warp, lane), {
    let _ = warp;
    None
});
small_space!(LocalWide, "local", Local, u64, |warp, lane| local_of(warp, lane), {
    let _ = warp;
    None
});
small_space!(
    ParamWide,
    "parameter",
    Param,
    u64,
    |warp, _lane| (warp.block.params.cast_mut(), warp.block.param_bytes.into()),
    {
        let _ = warp;
        None
    }
);

impl Space for Generic {
    const NAME: &'static str = "generic";
    type Addr = u64;

    #[inline(always)]
    fn region(warp: &Warp, first: u64) -> Option<Region> {
        Global::region(warp, first)
    }

    fn lane(warp: &Warp, lane: u32, address: u64, bytes: u32) -> Result<*mut u8, Bad> {
        for (start, (base, size)) in [
            (window::SHARED, (warp.block.shared, u64::from(warp.block.shared_bytes))),
            (window::LOCAL, local_of(warp, lane)),
            (window::PARAM, (warp.block.params.cast_mut(), warp.block.param_bytes.into())),
        ] {
            let offset = address.wrapping_sub(start);
            if offset < window::SIZE {
                return within(base, size, offset, bytes).ok_or(Bad::Outside(size, None));
            }
        }
        Global::lane(warp, lane, address, bytes)
    }

    fn window(address: u64) -> (Window, u64) {
        for (start, window) in
            [(window::SHARED, Window::Shared), (window::LOCAL, Window::Local), (window::PARAM, Window::Param)]
        {
            let offset = address.wrapping_sub(start);
            if offset < window::SIZE {
                return (window, offset);
            }
        }
        (Window::Global, address)
    }
}

/// Resolves one lane's access of `bytes` at `address`, or faults.
///
/// # Errors
/// The null op to leave with, the fault being recorded.
pub(crate) fn resolve<S: Space>(
    warp: &mut Warp,
    op: &Op,
    lane: u32,
    address: u64,
    bytes: u32,
    store: bool,
) -> Result<*mut u8, *const Op> {
    let (kind, name) = match S::lane(warp, lane, address, bytes) {
        Ok(place) if address.is_multiple_of(bytes.into()) => return Ok(place),
        Ok(_) => (FaultKind::Misaligned { space: S::NAME, bytes }, None),
        Err(Bad::Outside(size, name)) => {
            (FaultKind::OutOfBounds { space: S::NAME, store, bytes, size }, name)
        }
        Err(Bad::Freed(name)) => (FaultKind::UseAfterFree, Some(name)),
        Err(Bad::Foreign(Foreign { device, owner }, name)) => {
            (FaultKind::NoPeerAccess { device, owner }, Some(name))
        }
    };
    Err(warp.fail(op, lane, kind, Some(address), name))
}

/// [`CopyAsync`] for a full warp of which every lane reads `N` bytes or none, all of one allocation: one look at bounds and alignment
/// for all. Whether it was done; if not, nothing was.
///
/// # Safety
/// As [`Handle::run`] of [`CopyAsync`].
#[inline(always)]
unsafe fn copy_whole<S: Space, const N: usize>(
    warp: &Warp,
    op: &Op,
    to: &[S::Addr; 32],
    from: &[u64; 32],
    read: &[u32; 32],
) -> bool {
    if warp.mask != u32::MAX || !read.iter().all(|&n| n == 0 || n == N as u32) {
        return false;
    }
    // Lanes that read nothing stand where the first that does stands.
    let first = read.iter().position(|&n| n != 0).unwrap_or(0);
    let offset = i64::from(op.e as i32) as u64;
    let source = Global::region(warp, from[first].wrapping_add(offset));
    let target = S::region(warp, to[0].wide());
    let (source, reads) = match source {
        Some(source) if read[first] != 0 => (source, true),
        None if read[first] != 0 => return false,
        // Nothing is read.
        _ => (Region { base: std::ptr::null_mut(), size: 0, start: 0 }, false),
    };
    let Some(target) = target else { return false };
    if target.size < N as u64 || (reads && source.size < N as u64) {
        return false;
    }
    let inside = |at: u64, size: u64| at <= size - N as u64 && at.is_multiple_of(N as u64);
    let (to_offset, mut sound) = (i64::from(op.d as i32) as u64, true);
    let (mut targets, mut sources) = ([0u64; 32], [0u64; 32]);
    for lane in 0..32 {
        targets[lane] = to[lane].plus(to_offset).wide().wrapping_sub(target.start);
        sound &= inside(targets[lane], target.size);
        let at = if read[lane] != 0 { from[lane] } else { from[first] };
        sources[lane] = at.wrapping_add(offset).wrapping_sub(source.start);
        sound &= !reads || inside(sources[lane], source.size);
    }
    if !sound {
        return false;
    }
    for lane in 0..32 {
        // SAFETY: both places were found inside of their regions, which do not overlap.
        unsafe {
            let target = target.base.wrapping_add(targets[lane] as usize).cast::<[u8; N]>();
            let data = if read[lane] == 0 {
                [0; N]
            } else {
                source.base.wrapping_add(sources[lane] as usize).cast::<[u8; N]>().read_unaligned()
            };
            target.write_unaligned(data);
        }
    }
    true
}

/// `cp.async`: copies `imm` bytes from the global address in `b` (plus `e`) to the shared one in `a` (plus `d`), of which
/// the 32-bit lanes of `c` are read and the rest zeroed. Done at once, so a wait that is missing goes unseen.
pub(crate) struct CopyAsync<S>(PhantomData<S>);

impl<S: Space> Handle for CopyAsync<S> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of these kinds.
        let (to, from, read) =
            unsafe { (all::<S::Addr>(warp, op.a), all::<u64>(warp, op.b), all::<u32>(warp, op.c)) };
        let bytes = op.imm as u32;
        let mask = warp.mask;
        // SAFETY: the registers are of these kinds.
        let done = unsafe {
            match bytes {
                16 => copy_whole::<S, 16>(warp, op, &to, &from, &read),
                4 => copy_whole::<S, 4>(warp, op, &to, &from, &read),
                _ => false,
            }
        };
        if done {
            return op.next();
        }
        for lane in (0..32).filter(|&lane| mask >> lane & 1 != 0) {
            let i = lane as usize;
            let to = to[i].plus(i64::from(op.d as i32) as u64).wide();
            let from = from[i].plus(i64::from(op.e as i32) as u64);
            let count = read[i].min(bytes);
            let mut data = [0u8; 16];
            if count > 0 {
                match resolve::<Generic>(warp, op, lane, from, bytes, false) {
                    // SAFETY: `resolve` checked `bytes` of at most 16.
                    Ok(place) => unsafe { place.copy_to_nonoverlapping(data.as_mut_ptr(), count as usize) },
                    Err(leave) => return leave,
                }
            }
            match resolve::<S>(warp, op, lane, to, bytes, true) {
                // SAFETY: as above.
                Ok(place) => unsafe { place.copy_from_nonoverlapping(data.as_ptr(), bytes as usize) },
                Err(leave) => return leave,
            }
        }
        op.next()
    }
}
