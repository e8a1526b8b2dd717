//! Branches, reconvergence, guards, barriers and the end.
//!
//! A warp whose lanes take both sides of a branch runs one side up to the branch's immediate post-dominator, where a
//! [`Join`] op stands, then the other, and goes on with both. The stack of [`Pending`] lanes keeps what is left.

use super::lanes::{predicate, put_predicate};
use super::{Handle, Isa, Op};
use crate::exec::warp::{Arrival, BarrierRequest, Pending, State, Warp};
use crate::fault::FaultKind;

/// Unconditional jump by `imm`.
pub(crate) struct Jump;
/// Jump by `imm` where predicate `a` holds; `b` is the distance to the join, or [`NO_JOIN`].
pub(crate) struct BranchIf;
/// [`BranchIf`], where predicate `a` does not hold.
pub(crate) struct BranchUnless;
/// The join distance of a branch whose sides meet only at the kernel's end.
pub(crate) const NO_JOIN: u32 = 1 << 31;

impl Handle for Jump {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(_warp: &mut Warp, op: &Op) -> *const Op {
        op.jump(op.imm)
    }
}

impl Handle for BranchIf {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `a` is a predicate.
        let taken = unsafe { predicate(warp, op.a) } & warp.mask;
        branch(warp, op, taken)
    }
}

impl Handle for BranchUnless {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `a` is a predicate.
        let taken = !unsafe { predicate(warp, op.a) } & warp.mask;
        branch(warp, op, taken)
    }
}

#[inline(always)]
fn branch(warp: &mut Warp, op: &Op, taken: u32) -> *const Op {
    if taken == 0 {
        return op.next();
    }
    if taken == warp.mask {
        return op.jump(op.imm);
    }
    diverge(warp, op, taken)
}

fn join_of(op: &Op, distance: u32) -> *const Op {
    if distance == NO_JOIN { std::ptr::null() } else { op.jump(distance as i32) }
}

/// Lets the lanes that stay wait at the join once, however often lanes leave for it (a loop's exits).
fn wait_at(warp: &mut Warp, join: *const Op) {
    let waiting = warp.stack.last().is_some_and(|top| top.join == join && top.pc == join);
    if !join.is_null() && !waiting {
        warp.stack.push(Pending { join, pc: join, mask: warp.mask });
    }
}

#[inline(never)]
fn diverge(warp: &mut Warp, op: &Op, taken: u32) -> *const Op {
    let (target, fall) = (op.jump(op.imm), op.next());
    let join = join_of(op, op.b);
    let others = warp.mask & !taken;
    wait_at(warp, join);
    if target == join {
        warp.mask = others;
        return fall;
    }
    if fall == join {
        warp.mask = taken;
        return target;
    }
    warp.stack.push(Pending { join, pc: target, mask: taken });
    warp.mask = others;
    fall
}

/// Jumps through a table: `imm` entries from `c` in the extra operands, indexed by the 32-bit lanes of `a`; `b` is the
/// join as in [`BranchIf`].
pub(crate) struct BranchIndexed;

impl Handle for BranchIndexed {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `a` has 32-bit lanes, and the extra operands hold `imm` distances from `c`.
        unsafe {
            let index = super::lanes::all::<u32>(warp, op.a);
            let table = std::slice::from_raw_parts(warp.block.extra.add(op.c as usize), op.imm as usize);
            let join = join_of(op, op.b);
            let mut left = warp.mask;
            let mut groups: Vec<Pending> = Vec::new();
            while left != 0 {
                let lane = left.trailing_zeros();
                let Some(&distance) = table.get(index[lane as usize] as usize) else {
                    let what = format!("branch index {} of a table of {}", index[lane as usize], table.len());
                    return warp.fail(op, lane, FaultKind::Undefined(what), None, None);
                };
                let mut mask = 0;
                for (i, &n) in index.iter().enumerate() {
                    let same = table.get(n as usize) == Some(&distance);
                    mask |= u32::from(same) << i;
                }
                groups.push(Pending { join, pc: op.jump(distance as i32), mask: mask & left });
                left &= !mask;
            }
            let last = groups.pop().expect("an active lane");
            if !groups.is_empty() {
                wait_at(warp, join);
                groups.retain(|group| group.pc != join);
                warp.stack.append(&mut groups);
                if last.pc == join {
                    return warp.resume();
                }
                warp.mask = last.mask;
            }
            last.pc
        }
    }
}

/// Where the sides of a branch meet.
pub(crate) struct Join;

impl Handle for Join {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        while let Some(&top) = warp.stack.last() {
            if !std::ptr::eq(top.join, op) {
                break;
            }
            warp.stack.pop();
            let mask = top.mask & !warp.exited;
            if mask == 0 {
                continue;
            }
            warp.mask = mask;
            if !std::ptr::eq(top.pc, op) {
                return top.pc;
            }
        }
        op.next()
    }
}

/// Narrows the mask to where predicate `a` holds (`b` 0) or does not (`b` 1), or skips `imm` ops when that is nowhere.
pub(crate) struct Guard;
/// Ends what [`Guard`] began.
pub(crate) struct Unguard;

impl Handle for Guard {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `a` is a predicate.
        let holds = unsafe { predicate(warp, op.a) } ^ op.b.wrapping_neg();
        let mask = holds & warp.mask;
        if mask == 0 {
            return op.jump(op.imm);
        }
        warp.saved = warp.mask;
        warp.mask = mask;
        op.next()
    }
}

impl Handle for Unguard {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        warp.mask = warp.saved;
        op.next()
    }
}

/// The active lanes leave the kernel.
pub(crate) struct Exit;
/// The lanes where predicate `a` holds (`b` 0) or does not (`b` 1) leave the kernel.
pub(crate) struct ExitIf;
/// `trap`.
pub(crate) struct Trap;
/// Nothing.
pub(crate) struct Nop;
/// `griddepcontrol.wait`: launches run one after the other, so there is nothing to wait for; the checkers note it.
pub(crate) struct GridWait;
/// Lets the block's other warps go first.
pub(crate) struct Yield;
/// A memory fence.
pub(crate) struct Fence;

impl Handle for Exit {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, _op: &Op) -> *const Op {
        warp.exited |= warp.mask;
        warp.resume()
    }
}

impl Handle for ExitIf {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `a` is a predicate.
        let holds = unsafe { predicate(warp, op.a) } ^ op.b.wrapping_neg();
        let leaving = holds & warp.mask;
        warp.exited |= leaving;
        warp.mask &= !leaving;
        if warp.mask == 0 { warp.resume() } else { op.next() }
    }
}

impl Handle for Trap {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let lane = warp.first_lane();
        warp.fail(op, lane, FaultKind::Trap, None, None)
    }
}

impl Handle for Nop {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(_warp: &mut Warp, op: &Op) -> *const Op {
        op.next()
    }
}

impl Handle for GridWait {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        warp.waited |= warp.mask;
        op.next()
    }
}

impl Handle for Yield {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        warp.stop(State::Ready, op.next())
    }
}

impl Handle for Fence {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(_warp: &mut Warp, op: &Op) -> *const Op {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        op.next()
    }
}

/// Arrives at barrier `a` (32-bit lanes) for the threads in `b` (32-bit lanes; `imm` bit 0: given). `imm` bits 1 and 2:
/// 0 sync, 1 arrive, 2 reduce predicate `c`, inverted by bit 3.
pub(crate) struct Barrier;
/// Reads the reduction at barrier `a`: `imm` 0 and, 1 or (to predicate `d`), 2 population count (to 32-bit lanes `d`).
pub(crate) struct BarrierResult;

impl Handle for Barrier {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let lane = warp.first_lane() as usize;
        // SAFETY: the decoder gave the op registers of these kinds where `imm` says so.
        let (id, threads, holds) = unsafe {
            let id = super::lanes::all::<u32>(warp, op.a)[lane];
            let threads = if op.imm & 1 != 0 { super::lanes::all::<u32>(warp, op.b)[lane] } else { 0 };
            let holds = if op.imm >> 1 & 3 == 2 { predicate(warp, op.c) } else { 0 };
            (id, threads, holds ^ if op.imm & 8 != 0 { u32::MAX } else { 0 })
        };
        if id > 15 {
            let what = format!("barrier {id}: there are 16");
            return warp.fail(op, lane as u32, FaultKind::Undefined(what), None, None);
        }
        if threads % 32 != 0 {
            let what = format!("barrier {id} for {threads} threads: not a multiple of 32");
            return warp.fail(op, lane as u32, FaultKind::Undefined(what), None, None);
        }
        if warp.mask | warp.exited != u32::MAX {
            let waiting = !(warp.mask | warp.exited);
            let what = format!(
                "barrier {id} reached by lanes {:#010x} of warp {} while lanes {waiting:#010x} are elsewhere",
                warp.mask, warp.index
            );
            return warp.fail(op, lane as u32, FaultKind::Divergence(what), None, None);
        }
        let arrival = match op.imm >> 1 & 3 {
            0 => Arrival::Sync,
            1 => Arrival::Arrive,
            _ => Arrival::Reduce,
        };
        warp.request = BarrierRequest { id, threads, arrival, predicate: holds & warp.mask };
        warp.stop(State::Barrier, op.next())
    }
}

impl Handle for BarrierResult {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of these kinds; a barrier with another number faulted before.
        unsafe {
            let id = super::lanes::all::<u32>(warp, op.a)[warp.first_lane() as usize] as usize & 15;
            let result = (*warp.block.reductions)[id];
            match op.imm {
                0 => put_predicate(warp, op.d, if result & 2 != 0 { u32::MAX } else { 0 }),
                1 => put_predicate(warp, op.d, if result & 1 != 0 { u32::MAX } else { 0 }),
                _ => super::lanes::put_all(warp, op.d, &[result >> 2; 32]),
            }
        }
        op.next()
    }
}
