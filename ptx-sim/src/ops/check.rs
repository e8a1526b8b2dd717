//! The ops that code decoded for checks has before each access, fence, wait and exit.

use super::lanes::{all, predicate};
use super::memory::{Address, Space, Window};
use super::{Handle, Isa, Op};
use crate::check::{Access, BlockChecker};
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
/// Address in `a`; the extra operands at `imm` hold its bytes, offset, number in [`Access::ALL`] and the lanes it is for.
pub(crate) struct CheckAccess<S>(PhantomData<S>);

impl<S: Space> Handle for CheckAccess<S> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op four extra operands, an address register, and a following op.
        unsafe {
            if let Err(leave) = check::<S>(warp, op) {
                return leave;
            }
            let next = &*op.next();
            (next.run)(warp, next)
        }
    }
}

/// # Safety
/// As [`Handle::run`] of [`CheckAccess`].
unsafe fn check<S: Space>(warp: &mut Warp, op: &Op) -> Result<(), *const Op> {
    // SAFETY: the caller's promise.
    let (checker, addresses, [bytes, offset, access, lanes]) = unsafe {
        let extra = warp.block.extra.add(op.imm as usize).cast::<[u32; 4]>().read_unaligned();
        (checker(warp), all::<S::Addr>(warp, op.a), extra)
    };
    let access = Access::ALL[access as usize % Access::ALL.len()];
    let place = |lane: usize| addresses[lane].plus(i64::from(offset as i32) as u64).wide();
    if access == Access::Load && S::window(place(warp.first_lane() as usize)).0 == Window::Global {
        let slot = |lane: usize| place(lane) >> crate::memory::OFFSET_BITS;
        let first = slot(warp.first_lane() as usize);
        let together = (0..32).all(|lane| warp.mask >> lane & 1 == 0 || slot(lane) == first);
        if together && checker.quiet((first as usize).wrapping_sub(1)) {
            return Ok(());
        }
    }
    let mut left = warp.mask & lanes;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let address = place(lane as usize);
        // What is out of bounds or misaligned is the access's own fault to find.
        if !address.is_multiple_of(bytes.into()) || S::lane(warp, lane, address, bytes).is_err() {
            continue;
        }
        let waited = warp.waited >> lane & 1 != 0;
        let (window, within) = S::window(address);
        if let Err(finding) = checker.access(warp.index, lane, window, within, bytes, access, waited) {
            return Err(warp.fail(op, lane, finding.kind, Some(address), finding.allocation));
        }
    }
    Ok(())
}

/// A fence of at least the device's scope.
pub(crate) struct CheckFence;

impl Handle for CheckFence {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: this is checked code.
        unsafe { checker(warp) }.fence();
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
