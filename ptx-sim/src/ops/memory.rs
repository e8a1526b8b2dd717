//! Loads and stores.
//!
//! Each has a fast path for a full warp whose lanes stay in one allocation (or in shared memory): one bounds and
//! alignment check for all, then a contiguous, a uniform or a scattered copy. Everything else, faults included, goes
//! lane by lane.

use super::lanes::{Lane, all, put_all};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::fault::FaultKind;
use crate::memory::{OFFSET_BITS, window};
use std::marker::PhantomData;

/// How a value lies in memory and in a lane.
pub(crate) trait Element {
    /// As in memory.
    type Mem: Copy;
    /// As in a lane.
    type Reg: Lane;
    fn load(value: Self::Mem) -> Self::Reg;
    fn store(value: Self::Reg) -> Self::Mem;
}

macro_rules! elements {
    ($($(#[$meta:meta])* $name:ident: $mem:ty, $reg:ty, |$x:ident| $load:expr;)+) => { $(
        $(#[$meta])*
        pub(crate) struct $name;
        impl Element for $name {
            type Mem = $mem;
            type Reg = $reg;
            #[inline(always)]
            fn load($x: $mem) -> $reg {
                $load
            }
            #[inline(always)]
            fn store(value: $reg) -> $mem {
                value as $mem
            }
        }
    )+ };
}
elements! {
    /// 8 bits, zero-extended.
    E8: u8, u32, |x| x.into();
    /// 8 bits, sign-extended to a 32-bit register.
    S8: i8, u32, |x| i32::from(x) as u32;
    /// 8 bits, sign-extended to a 16-bit register.
    S8To16: i8, u32, |x| i32::from(x) as u32 & 0xffff;
    /// 16 bits, zero-extended.
    E16: u16, u32, |x| x.into();
    /// 16 bits, sign-extended to a 32-bit register.
    S16: i16, u32, |x| i32::from(x) as u32;
    /// 32 bits.
    E32: u32, u32, |x| x;
    /// 64 bits.
    E64: u64, u64, |x| x;
}

/// A state space as the ops see it.
pub(crate) trait Space {
    /// Name for messages.
    const NAME: &'static str;
    /// Each lane's address, before the immediate offset.
    ///
    /// # Safety
    /// `offset` must be a register of the width this space's addresses have.
    unsafe fn addresses(warp: &Warp, offset: u32) -> [u64; 32];
    /// An address plus an offset, in the width of this space's addresses.
    #[inline(always)]
    fn plus(address: u64, offset: u64) -> u64 {
        address.wrapping_add(offset)
    }
    /// Start and size in bytes of the memory that a whole warp's accesses fall into if `first` does, and the address
    /// of its start.
    fn region(warp: &Warp, first: u64) -> Option<(*mut u8, u64, u64)>;
    /// Where one lane's access goes.
    fn lane(warp: &Warp, lane: u32, address: u64, bytes: u32) -> Result<*mut u8, Bad>;
}

/// Why one lane's access is refused: the kind, filled in with the access's size and direction by the caller.
pub(crate) enum Bad {
    /// Outside; the size of what it is outside of, and the allocation's name.
    Outside(u64, Option<String>),
    /// In a freed allocation.
    Freed(String),
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

    #[inline(always)]
    unsafe fn addresses(warp: &Warp, offset: u32) -> [u64; 32] {
        // SAFETY: the caller's promise.
        unsafe { all(warp, offset) }
    }

    #[inline(always)]
    fn region(warp: &Warp, first: u64) -> Option<(*mut u8, u64, u64)> {
        let slot = ((first >> OFFSET_BITS) as usize).wrapping_sub(1);
        if slot >= warp.block.slot_count {
            return None;
        }
        // SAFETY: below the count, and the launch holds the slots.
        let slot = unsafe { &*warp.block.slots.add(slot) };
        Some((slot.base, slot.size, first & !OFFSET))
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
        within(slot.base, slot.size, address & OFFSET, bytes)
            .ok_or_else(|| Bad::Outside(slot.size, Some(slot.name().to_string())))
    }
}

macro_rules! small_space {
    ($name:ident, $text:literal, $reg:ty, |$warp:ident, $lane:ident| $place:expr, $region:expr) => {
        impl Space for $name {
            const NAME: &'static str = $text;

            #[inline(always)]
            unsafe fn addresses(warp: &Warp, offset: u32) -> [u64; 32] {
                // SAFETY: the caller's promise.
                let lanes = unsafe { all::<$reg>(warp, offset) };
                lanes.map(u64::from)
            }

            #[inline(always)]
            fn plus(address: u64, offset: u64) -> u64 {
                (address as $reg).wrapping_add(offset as $reg).into()
            }

            #[inline(always)]
            fn region($warp: &Warp, _first: u64) -> Option<(*mut u8, u64, u64)> {
                $region
            }

            fn lane($warp: &Warp, $lane: u32, address: u64, bytes: u32) -> Result<*mut u8, Bad> {
                let (base, size): (*mut u8, u64) = $place;
                within(base, size, address, bytes).ok_or(Bad::Outside(size, None))
            }
        }
    };
}

fn local_of(warp: &Warp, lane: u32) -> (*mut u8, u64) {
    let bytes = warp.block.local_bytes;
    (warp.local.wrapping_add(lane as usize * bytes as usize), bytes.into())
}

small_space!(Shared, "shared", u32, |warp, _lane| (warp.block.shared, warp.block.shared_bytes.into()), {
    Some((warp.block.shared, warp.block.shared_bytes.into(), 0))
});
small_space!(SharedWide, "shared", u64, |warp, _lane| (warp.block.shared, warp.block.shared_bytes.into()), {
    Some((warp.block.shared, warp.block.shared_bytes.into(), 0))
});
small_space!(Local, "local", u32, |warp, lane| local_of(warp, lane), {
    let _ = warp;
    None
});
small_space!(LocalWide, "local", u64, |warp, lane| local_of(warp, lane), {
    let _ = warp;
    None
});
small_space!(
    ParamWide,
    "parameter",
    u64,
    |warp, _lane| (warp.block.params.cast_mut(), warp.block.param_bytes.into()),
    {
        let _ = warp;
        None
    }
);

impl Space for Generic {
    const NAME: &'static str = "generic";

    #[inline(always)]
    unsafe fn addresses(warp: &Warp, offset: u32) -> [u64; 32] {
        // SAFETY: the caller's promise.
        unsafe { all(warp, offset) }
    }

    #[inline(always)]
    fn region(warp: &Warp, first: u64) -> Option<(*mut u8, u64, u64)> {
        if first.wrapping_sub(window::SHARED) < window::SIZE {
            return Some((warp.block.shared, warp.block.shared_bytes.into(), window::SHARED));
        }
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
    };
    Err(warp.fail(op, lane, kind, Some(address), name))
}

/// What a full warp's accesses look like.
#[allow(clippy::large_enum_variant)] // it lives on the stack for one instruction; boxing would allocate in each
enum Shape {
    /// Lane `i` is at `i` times the access's size from this.
    Contiguous(*mut u8),
    /// All lanes are at this.
    Uniform(*mut u8),
    /// Lane `i` is at this plus its own offset.
    Scattered(*mut u8, [u64; 32]),
    /// To be taken lane by lane.
    Other,
}

#[inline(always)]
fn shape<S: Space>(warp: &Warp, addresses: &[u64; 32], offset: u64, bytes: u64) -> Shape {
    if warp.mask != u32::MAX {
        return Shape::Other;
    }
    let first = S::plus(addresses[0], offset);
    let Some((base, size, start)) = S::region(warp, first) else { return Shape::Other };
    let (mut stride, mut uniform) = (0, 0);
    for (i, &address) in addresses.iter().enumerate() {
        uniform |= address ^ addresses[0];
        stride |= address ^ addresses[0].wrapping_add(i as u64 * bytes);
    }
    let at = first.wrapping_sub(start);
    if stride == 0 {
        if at & (bytes - 1) == 0 && at < size && size - at >= 32 * bytes {
            return Shape::Contiguous(base.wrapping_add(at as usize));
        }
        return Shape::Other;
    }
    if uniform == 0 {
        if at & (bytes - 1) == 0 && at < size && size - at >= bytes {
            return Shape::Uniform(base.wrapping_add(at as usize));
        }
        return Shape::Other;
    }
    let shift = offset.wrapping_sub(start);
    let (mut bits, mut highest) = (0, 0);
    let mut places = [0; 32];
    for (place, &address) in places.iter_mut().zip(addresses) {
        *place = S::plus(address, shift);
        bits |= *place;
        highest = highest.max(*place);
    }
    if bits & (bytes - 1) == 0 && size >= bytes && highest <= size - bytes {
        return Shape::Scattered(base, places);
    }
    Shape::Other
}

/// The frame offsets of a load's or store's registers.
#[inline(always)]
fn registers<const V: usize>(op: &Op) -> [u32; V] {
    let list = [op.d, op.b, op.c, op.e];
    std::array::from_fn(|i| list[i])
}

/// Splits `32 * V` values, in memory order, into `V` registers.
///
/// # Safety
/// `source` must hold that many values, and the registers must be of `E::Reg`.
#[inline(always)]
unsafe fn scatter_to_registers<E: Element, const V: usize>(warp: &mut Warp, op: &Op, source: *const E::Mem) {
    let registers = registers::<V>(op);
    // SAFETY: the caller's promise; registers of a vector load are distinct places of the frame.
    unsafe {
        let frame = warp.frame;
        let to: [*mut E::Reg; V] = registers.map(|r| frame.add(r as usize).cast());
        for chunk in 0..4 {
            let mut values = [[E::load(source.read_unaligned()); 8]; V];
            for i in 0..8 {
                for (v, values) in values.iter_mut().enumerate() {
                    values[i] = E::load(source.add((chunk * 8 + i) * V + v).read_unaligned());
                }
            }
            for v in 0..V {
                to[v].add(chunk * 8).cast::<[E::Reg; 8]>().write(values[v]);
            }
        }
    }
}

/// A load of `V` consecutive values a lane into the registers `d`, `b`, `c`, `e`; address in `a`, offset in `imm`.
pub(crate) struct Load<S, E, const V: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Element, const V: usize> Handle for Load<S, E, V> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let bytes = (size_of::<E::Mem>() * V) as u64;
        let offset = i64::from(op.imm) as u64;
        // SAFETY: the decoder gave the op registers of these kinds; `shape` checked bounds and alignment of what it
        // describes.
        unsafe {
            let addresses = S::addresses(warp, op.a);
            match shape::<S>(warp, &addresses, offset, bytes) {
                Shape::Contiguous(place) => scatter_to_registers::<E, V>(warp, op, place.cast()),
                Shape::Uniform(place) => {
                    let place = place.cast::<E::Mem>();
                    for (v, &register) in registers::<V>(op).iter().enumerate() {
                        put_all(warp, register, &[E::load(place.add(v).read()); 32]);
                    }
                }
                Shape::Scattered(base, places) => {
                    let values: [[E::Mem; V]; 32] = std::array::from_fn(|i| {
                        base.add(places[i] as usize).cast::<[E::Mem; V]>().read_unaligned()
                    });
                    scatter_to_registers::<E, V>(warp, op, values.as_ptr().cast());
                }
                Shape::Other => return load_lanes::<S, E, V>(warp, op, &addresses),
            }
        }
        op.next()
    }
}

/// # Safety
/// As [`Handle::run`] of [`Load`].
#[inline(never)]
unsafe fn load_lanes<S: Space, E: Element, const V: usize>(
    warp: &mut Warp,
    op: &Op,
    addresses: &[u64; 32],
) -> *const Op {
    let bytes = (size_of::<E::Mem>() * V) as u32;
    let registers = registers::<V>(op);
    let mut left = warp.mask;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let address = S::plus(addresses[lane as usize], i64::from(op.imm) as u64);
        let place = match resolve::<S>(warp, op, lane, address, bytes, false) {
            Ok(place) => place.cast::<E::Mem>(),
            Err(leave) => return leave,
        };
        for (v, &register) in registers.iter().enumerate() {
            // SAFETY: `resolve` checked the place; the register is the decoder's.
            unsafe {
                let value = E::load(place.add(v).read_unaligned());
                warp.frame.add(register as usize).cast::<E::Reg>().add(lane as usize).write(value);
            }
        }
    }
    op.next()
}

/// A store of `V` consecutive values a lane from the registers `d`, `b`, `c`, `e`; address in `a`, offset in `imm`.
/// Lanes that store to one address do so in their order: the highest wins.
pub(crate) struct Store<S, E, const V: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Element, const V: usize> Handle for Store<S, E, V> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let bytes = (size_of::<E::Mem>() * V) as u64;
        let offset = i64::from(op.imm) as u64;
        // SAFETY: as in `Load`.
        unsafe {
            let addresses = S::addresses(warp, op.a);
            let shape = shape::<S>(warp, &addresses, offset, bytes);
            if matches!(shape, Shape::Other) {
                return store_lanes::<S, E, V>(warp, op, &addresses);
            }
            let lanes = registers::<V>(op).map(|r| all::<E::Reg>(warp, r));
            let value = |i: usize| -> [E::Mem; V] { std::array::from_fn(|v| E::store(lanes[v][i])) };
            match shape {
                Shape::Contiguous(place) => {
                    let place = place.cast::<[E::Mem; V]>();
                    for i in 0..32 {
                        place.add(i).write_unaligned(value(i));
                    }
                }
                Shape::Uniform(place) => place.cast::<[E::Mem; V]>().write_unaligned(value(31)),
                Shape::Scattered(base, places) => {
                    for (i, place) in places.into_iter().enumerate() {
                        base.add(place as usize).cast::<[E::Mem; V]>().write_unaligned(value(i));
                    }
                }
                Shape::Other => {}
            }
        }
        op.next()
    }
}

/// # Safety
/// As [`Handle::run`] of [`Store`].
#[inline(never)]
unsafe fn store_lanes<S: Space, E: Element, const V: usize>(
    warp: &mut Warp,
    op: &Op,
    addresses: &[u64; 32],
) -> *const Op {
    let bytes = (size_of::<E::Mem>() * V) as u32;
    let registers = registers::<V>(op);
    let mut left = warp.mask;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let address = S::plus(addresses[lane as usize], i64::from(op.imm) as u64);
        let place = match resolve::<S>(warp, op, lane, address, bytes, true) {
            Ok(place) => place.cast::<E::Mem>(),
            Err(leave) => return leave,
        };
        for (v, &register) in registers.iter().enumerate() {
            // SAFETY: as in `load_lanes`.
            unsafe {
                let value = warp.frame.add(register as usize).cast::<E::Reg>().add(lane as usize).read();
                place.add(v).write_unaligned(E::store(value));
            }
        }
    }
    op.next()
}

/// The parameter at byte `imm`, which all lanes share, to the register `d`.
pub(crate) struct LoadParam<E>(PhantomData<E>);

impl<E: Element> Handle for LoadParam<E> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder checked that the parameter block holds the value.
        unsafe {
            let value = warp.block.params.add(op.imm as usize).cast::<E::Mem>().read_unaligned();
            put_all(warp, op.d, &[E::load(value); 32]);
        }
        op.next()
    }
}

/// `cp.async`: copies `imm` bytes from the global address in `b` (plus `e`) to the shared one in `a` (plus `d`), of which
/// the 32-bit lanes of `c` are read and the rest zeroed. Done at once: waiting for it is for the checkers to verify.
pub(crate) struct CopyAsync<S>(PhantomData<S>);

impl<S: Space> Handle for CopyAsync<S> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of these kinds.
        let (to, from, read) =
            unsafe { (S::addresses(warp, op.a), Global::addresses(warp, op.b), all::<u32>(warp, op.c)) };
        let bytes = op.imm as u32;
        let mask = warp.mask;
        for lane in (0..32).filter(|&lane| mask >> lane & 1 != 0) {
            let i = lane as usize;
            let to = S::plus(to[i], i64::from(op.d as i32) as u64);
            let from = from[i].wrapping_add(i64::from(op.e as i32) as u64);
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
