//! The ops that code decoded for checks has before each access, fence, wait and exit.

use super::lanes::{all, predicate};
use super::memory::{Address, Space, Window};
use super::{Handle, Isa, Op};
use crate::check::{Access, Accesses, BlockChecker};
use crate::exec::warp::Warp;
use std::marker::PhantomData;

/// The checker of the block that a warp belongs to.
///
/// # Safety
/// Only ops of checked code may call this: their launches have a checker, which one thread uses.
#[inline(always)]
unsafe fn checker<'a>(warp: &Warp) -> &'a mut BlockChecker<'a> {
    // SAFETY: the runner set the pointer to its checker, which outlives the launch's ops.
    unsafe { &mut *warp.block.checker.cast::<BlockChecker<'a>>() }
}

/// Checks the access that the next op makes, and runs that op in the same step, so that no other warp comes between.
/// Address in `a`; the extra operands at `imm` hold its bytes, offset, [`Access::code`] and the lanes it is for.
pub(crate) struct CheckAccess<S>(PhantomData<S>);

impl<S: Space> Handle for CheckAccess<S> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op four extra operands, an address register, and a following op.
        unsafe {
            if let Err(leave) = check::<S>(warp, op, u32::MAX) {
                return leave;
            }
            let next = &*op.next();
            (next.run)(warp, next)
        }
    }
}

/// [`CheckAccess`] of the source of a copy, of which the 32-bit lanes of `b` are read: those of 0 read nothing.
pub(crate) struct CheckCopySource<S>(PhantomData<S>);

impl<S: Space> Handle for CheckCopySource<S> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: as above, and a register of sizes.
        unsafe {
            let sizes = all::<u32>(warp, op.b);
            let reading = (0..32).filter(|&lane| sizes[lane] != 0).fold(0, |mask, lane| mask | 1 << lane);
            if let Err(leave) = check::<S>(warp, op, reading) {
                return leave;
            }
            let next = &*op.next();
            (next.run)(warp, next)
        }
    }
}

/// # Safety
/// As [`Handle::run`] of [`CheckAccess`].
unsafe fn check<S: Space>(warp: &mut Warp, op: &Op, among: u32) -> Result<(), *const Op> {
    // SAFETY: the caller's promise.
    let (checker, registers, [bytes, offset, access, lanes]) = unsafe {
        let extra = warp.block.extra.add(op.imm as usize).cast::<[u32; 4]>().read_unaligned();
        (checker(warp), all::<S::Addr>(warp, op.a), extra)
    };
    let access = Access::of(access);
    let offset = i64::from(offset as i32) as u64;
    let addresses: [u64; 32] = std::array::from_fn(|lane| registers[lane].plus(offset).wide());
    let active = warp.mask & lanes & among;
    if access == Access::LOAD && active != 0 {
        let (mut first, mut last) = (u64::MAX, 0);
        for (lane, &address) in addresses.iter().enumerate() {
            let there = active >> lane & 1 != 0;
            first = first.min(if there { address } else { u64::MAX });
            last = last.max(if there { address } else { 0 });
        }
        if S::window(first).0 == Window::Global && checker.quiet(first, last, bytes) {
            return Ok(());
        }
    }
    let mut places = [(Window::Param, 0); 32];
    let mut sound = 0;
    let mut left = active;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let address = addresses[lane as usize];
        // What is out of bounds or misaligned is the access's own fault to find.
        if address.is_multiple_of(bytes.into()) && S::lane(warp, lane, address, bytes).is_ok() {
            places[lane as usize] = S::window(address);
            sound |= 1 << lane;
        }
    }
    let (index, waited) = (warp.index, warp.waited);
    let found =
        checker.accesses(&Accesses { warp: index, lanes: sound, places: &places, bytes, access, waited });
    found.map_err(|(lane, finding)| {
        warp.fail(op, lane, finding.kind, Some(addresses[lane as usize]), finding.allocation)
    })
}

/// A fence; `imm` 1 for a scope wider than the block's.
pub(crate) struct CheckFence;

impl Handle for CheckFence {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: this is checked code.
        unsafe { checker(warp) }.fence(warp.index, op.imm == 1);
        op.next()
    }
}

/// The lanes of a warp synchronise, by the next op.
pub(crate) struct CheckWarpSync;

impl Handle for CheckWarpSync {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: this is checked code.
        unsafe { checker(warp) }.lanes_meet(warp.index);
        op.next()
    }
}

/// `griddepcontrol.launch_dependents`.
pub(crate) struct CheckTrigger;

impl Handle for CheckTrigger {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let waited = warp.mask & !warp.waited == 0;
        // SAFETY: this is checked code.
        unsafe { checker(warp) }.trigger(waited);
        op.next()
    }
}

/// Threads leave: the active ones, or, where `imm` bit 0 is set, those for which predicate `a` holds (bit 1: does not).
pub(crate) struct CheckExit;

impl Handle for CheckExit {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let mut leaving = warp.mask;
        if op.imm & 1 != 0 {
            let inverted = if op.imm & 2 != 0 { u32::MAX } else { 0 };
            // SAFETY: `a` is a predicate.
            leaving &= unsafe { predicate(warp, op.a) } ^ inverted;
        }
        let early = leaving & !warp.waited;
        if early == 0 {
            return op.next();
        }
        // SAFETY: this is checked code.
        let allowed = unsafe { checker(warp) }.exit();
        if let Err(finding) = allowed {
            return warp.fail(op, early.trailing_zeros(), finding.kind, None, finding.allocation);
        }
        op.next()
    }
}
