//! Loads and stores.
//!
//! Each has a fast path for a full warp whose lanes stay in one allocation (or in shared memory): one bounds and
//! alignment check for all, then a contiguous, a uniform or a scattered copy. Everything else, faults included, goes
//! lane by lane.

use super::lanes::{all, put_all};
use super::memory::{Address, Space, resolve};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// An unsigned value as it lies in memory and, zero-extended, in a lane.
pub(crate) trait Element {
    /// As in memory.
    type Mem: Copy;
    /// As in a lane.
    type Reg: super::lanes::Lane;
    fn load(value: Self::Mem) -> Self::Reg;
    fn store(value: Self::Reg) -> Self::Mem;
}

macro_rules! elements {
    ($($(#[$meta:meta])* $name:ident: $mem:ty, $reg:ty;)+) => { $(
        $(#[$meta])*
        pub(crate) struct $name;
        impl Element for $name {
            type Mem = $mem;
            type Reg = $reg;
            #[inline(always)]
            fn load(value: $mem) -> $reg {
                value.into()
            }
            #[inline(always)]
            fn store(value: $reg) -> $mem {
                value as $mem
            }
        }
    )+ };
}
elements! {
    /// 8 bits.
    E8: u8, u32;
    /// 16 bits.
    E16: u16, u32;
    /// 32 bits.
    E32: u32, u32;
    /// 64 bits.
    E64: u64, u64;
}

/// The frame offsets of a load's or store's registers.
#[inline(always)]
fn registers<const V: usize>(op: &Op) -> [u32; V] {
    let list = [op.d, op.b, op.c, op.e];
    std::array::from_fn(|i| list[i])
}

/// What a full warp's accesses look like.
enum Shape {
    /// Lane `i` is at `i` times the access's size from this.
    Contiguous(*mut u8),
    /// All lanes are at this.
    Uniform(*mut u8),
    /// Lane `i` is at this plus its own offset.
    Scattered(*mut u8),
    /// To be taken lane by lane.
    Other,
}

/// Nothing but zeros where each address is as many times `stride` beyond the first as its lane's number.
#[inline(always)]
fn lacks<A: Address>(addresses: &[A; 32], stride: u64) -> A {
    let mut all = A::ZERO;
    for (i, address) in addresses.iter().enumerate() {
        all = all.or(address.below(addresses[0].plus(stride * i as u64).wide()));
    }
    all
}

/// Looks at the addresses of a full warp. Where they are scattered, each lane's offset goes to `places`.
///
/// # Safety
/// `op.a` must be a register of `S::Addr`.
#[inline(always)]
unsafe fn shape<S: Space>(
    warp: &Warp,
    op: &Op,
    bytes: u64,
    places: &mut MaybeUninit<[S::Addr; 32]>,
) -> Shape {
    if warp.mask != u32::MAX {
        return Shape::Other;
    }
    // SAFETY: the caller's promise.
    let addresses = unsafe { &*warp.frame.add(op.a as usize).cast::<[S::Addr; 32]>() };
    let offset = i64::from(op.imm) as u64;
    let first = addresses[0].plus(offset).wide();
    let Some(region) = S::region(warp, first) else { return Shape::Other };
    let at = first.wrapping_sub(region.start);
    let step = addresses[1].wide().wrapping_sub(addresses[0].wide());
    let fits = |count: u64| at & (bytes - 1) == 0 && at < region.size && region.size - at >= count * bytes;
    // The strides are constants here, so that the compiler makes vectors of the expected addresses.
    if step == bytes && lacks(addresses, bytes).wide() == 0 {
        return if fits(32) {
            Shape::Contiguous(region.base.wrapping_add(at as usize))
        } else {
            Shape::Other
        };
    }
    if step == 0 && lacks(addresses, 0).wide() == 0 {
        return if fits(1) { Shape::Uniform(region.base.wrapping_add(at as usize)) } else { Shape::Other };
    }
    if region.size < bytes {
        return Shape::Other;
    }
    let (shift, limit) = (offset.wrapping_sub(region.start), region.size - bytes);
    let places = places.as_mut_ptr().cast::<S::Addr>();
    let (mut bits, mut bound) = (S::Addr::ZERO, S::Addr::ZERO);
    for (i, address) in addresses.iter().enumerate() {
        let p = address.plus(shift);
        bits = bits.or(p);
        // A place is within the region when neither it nor what it lacks to the limit is negative.
        bound = bound.or(p.below(limit));
        // SAFETY: one of the 32 places.
        unsafe { places.add(i).write(p) };
    }
    if bits.or(bound).negative() || bits.wide() & (bytes - 1) != 0 {
        return Shape::Other;
    }
    Shape::Scattered(region.base)
}

/// Reads `V` values at `place(lane)` for each lane into the op's registers.
///
/// # Safety
/// The places must hold that many values and the registers must be of `E::Reg`; the CPU must have `I`.
#[inline(always)]
unsafe fn gather<I: Isa, E: Element, const V: usize>(
    warp: &mut Warp,
    op: &Op,
    place: impl Fn(usize) -> *const u8,
) {
    let frame = warp.frame;
    // SAFETY: the caller's promise; the registers of a vector are distinct places of the frame.
    unsafe {
        let to: [*mut E::Reg; V] = registers::<V>(op).map(|r| frame.add(r as usize).cast());
        if size_of::<E::Mem>() == 4 && V == 4 {
            I::gather4(place, std::array::from_fn(|v| to[v].cast()));
            return;
        }
        for chunk in 0..4 {
            for (v, to) in to.iter().enumerate() {
                let values: [E::Reg; 8] = std::array::from_fn(|i| {
                    E::load(place(8 * chunk + i).cast::<E::Mem>().add(v).read_unaligned())
                });
                to.add(8 * chunk).cast::<[E::Reg; 8]>().write(values);
            }
        }
    }
}

/// Writes `V` values of each lane, from the op's registers, to `place(lane)`.
///
/// # Safety
/// As [`gather`].
#[inline(always)]
unsafe fn scatter<I: Isa, E: Element, const V: usize>(
    warp: &Warp,
    op: &Op,
    place: impl Fn(usize) -> *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let from: [*const E::Reg; V] =
            registers::<V>(op).map(|r| warp.frame.add(r as usize).cast_const().cast());
        if size_of::<E::Mem>() == 4 && V == 4 {
            I::scatter4(place, std::array::from_fn(|v| from[v].cast()));
            return;
        }
        for lane in 0..32 {
            let values: [E::Mem; V] = std::array::from_fn(|v| E::store(from[v].add(lane).read()));
            place(lane).cast::<[E::Mem; V]>().write_unaligned(values);
        }
    }
}

/// A load of `V` consecutive values a lane into the registers `d`, `b`, `c`, `e`; address in `a`, offset in `imm`.
pub(crate) struct Load<S, E, const V: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Element, const V: usize> Handle for Load<S, E, V> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let bytes = size_of::<E::Mem>() * V;
        // SAFETY: the decoder gave the op registers of these kinds; `shape` checked bounds and alignment of what it
        // describes.
        unsafe {
            let mut places = MaybeUninit::uninit();
            let shape = if I::WIDE { shape::<S>(warp, op, bytes as u64, &mut places) } else { Shape::Other };
            match shape {
                Shape::Contiguous(first) if V == 1 => {
                    let values = first.cast::<[E::Mem; 32]>();
                    let to = warp.frame.add(op.d as usize).cast::<E::Reg>();
                    for i in 0..32 {
                        to.add(i).write(E::load((&raw const (*values)[i]).read_unaligned()));
                    }
                }
                Shape::Contiguous(first) => gather::<I, E, V>(warp, op, |lane| first.add(bytes * lane)),
                Shape::Uniform(place) => {
                    for (v, register) in registers::<V>(op).into_iter().enumerate() {
                        put_all(warp, register, &[E::load(place.cast::<E::Mem>().add(v).read()); 32]);
                    }
                }
                Shape::Scattered(base) => {
                    let places = places.as_ptr().cast::<S::Addr>();
                    gather::<I, E, V>(warp, op, |lane| base.add((*places.add(lane)).wide() as usize));
                }
                Shape::Other => return load_lanes::<S, E>(warp, op, &registers::<V>(op), op.imm),
            }
        }
        op.next()
    }
}

/// A load lane by lane.
///
/// # Safety
/// `op.a` must be a register of `S::Addr`, `registers` of `E::Reg`.
#[inline(never)]
unsafe fn load_lanes<S: Space, E: Element>(
    warp: &mut Warp,
    op: &Op,
    registers: &[u32],
    offset: i32,
) -> *const Op {
    let bytes = (size_of::<E::Mem>() * registers.len()) as u32;
    // SAFETY: the caller's promise.
    let addresses = unsafe { all::<S::Addr>(warp, op.a) };
    let mut left = warp.mask;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let address = addresses[lane as usize].plus(i64::from(offset) as u64).wide();
        let place = match resolve::<S>(warp, op, lane, address, bytes, false) {
            Ok(place) => place.cast::<E::Mem>(),
            Err(leave) => return leave,
        };
        for (v, &register) in registers.iter().enumerate() {
            // SAFETY: `resolve` checked the place; the register is the caller's.
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
        let bytes = size_of::<E::Mem>() * V;
        // SAFETY: as in `Load`.
        unsafe {
            let mut places = MaybeUninit::uninit();
            let shape = if I::WIDE { shape::<S>(warp, op, bytes as u64, &mut places) } else { Shape::Other };
            match shape {
                Shape::Contiguous(first) => scatter::<I, E, V>(warp, op, |lane| first.add(bytes * lane)),
                Shape::Scattered(base) => {
                    let places = places.as_ptr().cast::<S::Addr>();
                    scatter::<I, E, V>(warp, op, |lane| base.add((*places.add(lane)).wide() as usize));
                }
                Shape::Uniform(_) | Shape::Other => {
                    return store_lanes::<S, E>(warp, op, &registers::<V>(op), op.imm);
                }
            }
        }
        op.next()
    }
}

/// A store lane by lane.
///
/// # Safety
/// As [`load_lanes`].
#[inline(never)]
unsafe fn store_lanes<S: Space, E: Element>(
    warp: &mut Warp,
    op: &Op,
    registers: &[u32],
    offset: i32,
) -> *const Op {
    let bytes = (size_of::<E::Mem>() * registers.len()) as u32;
    // SAFETY: the caller's promise.
    let addresses = unsafe { all::<S::Addr>(warp, op.a) };
    let mut left = warp.mask;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let address = addresses[lane as usize].plus(i64::from(offset) as u64).wide();
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

/// A load or store of the rarer spaces, always lane by lane. Registers as in [`Load`]; the extra operands at `imm` hold the
/// bytes of an element, their count and the address offset.
pub(crate) struct SlowAccess<S, const STORE: bool>(PhantomData<S>);

impl<S: Space, const STORE: bool> Handle for SlowAccess<S, STORE> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op three extra operands and registers of these kinds.
        unsafe {
            let [bytes, count, offset] =
                warp.block.extra.add(op.imm as usize).cast::<[u32; 3]>().read_unaligned();
            let (list, offset) = (registers::<4>(op), offset as i32);
            let list = &list[..count as usize];
            match (STORE, bytes) {
                (false, 1) => load_lanes::<S, E8>(warp, op, list, offset),
                (false, 2) => load_lanes::<S, E16>(warp, op, list, offset),
                (false, 4) => load_lanes::<S, E32>(warp, op, list, offset),
                (false, _) => load_lanes::<S, E64>(warp, op, list, offset),
                (true, 1) => store_lanes::<S, E8>(warp, op, list, offset),
                (true, 2) => store_lanes::<S, E16>(warp, op, list, offset),
                (true, 4) => store_lanes::<S, E32>(warp, op, list, offset),
                (true, _) => store_lanes::<S, E64>(warp, op, list, offset),
            }
        }
    }
}

/// The parameter at byte `imm`, which all lanes share, to the register `d`.
pub(crate) struct LoadParam<E>(PhantomData<E>);

impl<E: Element> Handle for LoadParam<E> {
    const HOT: bool = false;

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
