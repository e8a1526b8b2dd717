//! Operations that the lanes of a warp do together: shuffles, votes, matches, reductions.

use super::lanes::{all, predicate, put_all, put_predicate};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::fault::FaultKind;

/// Runs `body` for the active lanes, after checking that all lanes of the membership mask in the 32-bit lanes `op.e` are
/// here. Where lanes name different masks (the tiles of a partition), each group has its turn, with `warp.mask` the group.
///
/// # Safety
/// `op.e` must be a register of 32-bit lanes. The sign of `op.imm` says that it is a constant.
#[inline(always)]
unsafe fn together(warp: &mut Warp, op: &Op, what: &str, body: impl Fn(&mut Warp)) -> *const Op {
    // SAFETY: the caller's promise.
    unsafe {
        let first = *warp.frame.add(op.e as usize).cast::<u32>().add(warp.first_lane() as usize);
        // A constant mask, as the decoder knows, is the same for all.
        if op.imm >= 0 {
            let members = all::<u32>(warp, op.e);
            let differs = |i: usize| warp.mask >> i & 1 != 0 && members[i] != first;
            if (0..32).any(differs) {
                return in_groups(warp, op, &members, what, body);
            }
        }
        if first & !warp.exited & !warp.mask != 0 || warp.mask & !first != 0 {
            return diverged(warp, op, first, what);
        }
        body(warp);
    }
    op.next()
}

#[inline(never)]
fn in_groups(
    warp: &mut Warp,
    op: &Op,
    members: &[u32; 32],
    what: &str,
    body: impl Fn(&mut Warp),
) -> *const Op {
    let active = warp.mask;
    let mut left = active;
    while left != 0 {
        let member = members[left.trailing_zeros() as usize];
        let same = |i: &u32| left >> i & 1 != 0 && members[*i as usize] == member;
        warp.mask = (0..32u32).filter(same).fold(0, |mask, i| mask | 1 << i);
        left &= !warp.mask;
        if member & !warp.exited & !warp.mask != 0 || warp.mask & !member != 0 {
            return diverged(warp, op, member, what);
        }
        body(warp);
    }
    warp.mask = active;
    op.next()
}

#[cold]
#[inline(never)]
fn diverged(warp: &mut Warp, op: &Op, member: u32, what: &str) -> *const Op {
    let absent = member & !warp.exited & !warp.mask;
    let why = if absent != 0 {
        format!("{what} with mask {member:#010x}, but lanes {absent:#010x} are elsewhere")
    } else {
        format!(
            "{what} with mask {member:#010x} by lanes {:#010x}, which it does not name",
            warp.mask & !member
        )
    };
    let lane = warp.first_lane();
    warp.fail(op, lane, FaultKind::Divergence(why), None, None)
}

/// Shuffle: `d` from `a`, by `b`, clamped by `c`, among the lanes of `e`. `imm` bits 0 and 1: 0 up, 1 down, 2 butterfly,
/// 3 by index.
pub(crate) struct Shuffle;
/// A shuffle's predicate `d`: whether the source lane is in range. Operands as [`Shuffle`].
pub(crate) struct ShuffleInRange;

/// Each lane's source and whether it is in range (PTX ISA, shfl.sync).
#[inline(always)]
fn sources(mode: i32, b: &[u32; 32], c: &[u32; 32]) -> ([u32; 32], [u32; 32]) {
    let mut source = [0; 32];
    let mut fine = [0; 32];
    for lane in 0..32u32 {
        let i = lane as usize;
        let distance = b[i] & 31;
        let segment = c[i] >> 8 & 31;
        let clamp = c[i] & 31;
        let first = lane & segment;
        let last = first | clamp & !segment;
        let (j, ok) = match mode & 3 {
            0 => (lane.wrapping_sub(distance), (lane as i32 - distance as i32) >= last as i32),
            1 => (lane + distance, lane + distance <= last),
            2 => (lane ^ distance, lane ^ distance <= last),
            _ => {
                let j = first | distance & !segment;
                (j, j <= last)
            }
        };
        source[i] = if ok { j } else { lane };
        fine[i] = if ok { u32::MAX } else { 0 };
    }
    (source, fine)
}

/// Whether a butterfly by `distance` with the segments of `clamp` has every lane's partner in range.
pub(crate) fn whole_butterfly(distance: u32, clamp: u32) -> bool {
    let (source, _) = sources(2, &[distance; 32], &[clamp; 32]);
    (0..32u32).all(|lane| source[lane as usize] == lane ^ distance)
}

impl Handle for Shuffle {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes; the CPU has `I`.
        unsafe {
            together(warp, op, "shfl.sync", |warp| {
                let (b, c) = (all::<u32>(warp, op.b), all::<u32>(warp, op.c));
                let (source, _) = sources(op.imm & 3, &b, &c);
                let out = I::permute(&all::<u32>(warp, op.a), &source);
                put_all(warp, op.d, &out);
            })
        }
    }
}

/// A butterfly by the constant distance `imm` with all partners in range, the common case.
pub(crate) struct Butterfly;

impl Handle for Butterfly {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes; the CPU has `I`.
        unsafe {
            together(warp, op, "shfl.sync", |warp| {
                let out = I::butterfly(&all::<u32>(warp, op.a), op.imm as u32 & 31);
                put_all(warp, op.d, &out);
            })
        }
    }
}

impl Handle for ShuffleInRange {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes; the CPU has `I`.
        unsafe {
            let (b, c) = (all::<u32>(warp, op.b), all::<u32>(warp, op.c));
            let (_, fine) = sources(op.imm, &b, &c);
            let low: [u32; 16] = std::array::from_fn(|i| fine[i]);
            let high: [u32; 16] = std::array::from_fn(|i| fine[i + 16]);
            put_predicate(warp, op.d, I::sign_mask(&low) | I::sign_mask(&high) << 16);
        }
        op.next()
    }
}

/// Vote on predicate `a` (inverted by `b` = 1) among the lanes of `e`. `imm`: 0 all, 1 any, 2 uniform (to predicate `d`),
/// 3 ballot (to 32-bit lanes `d`).
pub(crate) struct Vote;

impl Handle for Vote {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of these kinds.
        unsafe {
            together(warp, op, "vote.sync", |warp| {
                let lanes = warp.mask;
                let votes = (predicate(warp, op.a) ^ op.b.wrapping_neg()) & lanes;
                let truth = |holds: bool| if holds { u32::MAX } else { 0 };
                match op.imm & 3 {
                    0 => put_predicate(warp, op.d, truth(votes == lanes)),
                    1 => put_predicate(warp, op.d, truth(votes != 0)),
                    2 => put_predicate(warp, op.d, truth(votes == 0 || votes == lanes)),
                    _ => put_all(warp, op.d, &[votes; 32]),
                }
            })
        }
    }
}

/// The mask of active lanes to 32-bit lanes `d`.
pub(crate) struct ActiveMask;

impl Handle for ActiveMask {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `d` has 32-bit lanes.
        unsafe { put_all(warp, op.d, &[warp.mask; 32]) };
        op.next()
    }
}

/// `bar.warp.sync` of the lanes in `e`: they are converged, or it is a fault.
pub(crate) struct WarpSync;

impl Handle for WarpSync {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: `e` has 32-bit lanes.
        unsafe { together(warp, op, "bar.warp.sync", |_| {}) }
    }
}

/// Elects the lowest lane of `e`: predicate `d` holds there; its number goes to 32-bit lanes `b`.
pub(crate) struct Elect;

impl Handle for Elect {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of these kinds.
        unsafe {
            together(warp, op, "elect.sync", |warp| {
                let leader = warp.first_lane();
                put_predicate(warp, op.d, 1 << leader);
                put_all(warp, op.b, &[leader; 32]);
            })
        }
    }
}

/// Match among the lanes of `e` on the lanes of `a` (64 bits where `imm` bit 0). Bit 1: all must be equal, and predicate
/// `c` says whether they are; the mask goes to 32-bit lanes `d`.
pub(crate) struct Match;

impl Handle for Match {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of these kinds.
        unsafe {
            together(warp, op, "match.sync", |warp| {
                let values = if op.imm & 1 != 0 {
                    all::<u64>(warp, op.a)
                } else {
                    all::<u32>(warp, op.a).map(u64::from)
                };
                let mask = warp.mask;
                let equal = |value: u64| {
                    let hits = (0..32).filter(|&j| mask >> j & 1 != 0 && values[j] == value);
                    hits.fold(0u32, |hits, j| hits | 1 << j)
                };
                if op.imm & 2 != 0 {
                    let same = equal(values[warp.first_lane() as usize]) == mask;
                    put_all(warp, op.d, &[if same { mask } else { 0 }; 32]);
                    put_predicate(warp, op.c, if same { u32::MAX } else { 0 });
                } else {
                    put_all(warp, op.d, &values.map(equal));
                }
            })
        }
    }
}

/// Reduction of 32-bit lanes `a` among the lanes of `e` to `d`. `imm`: 0 add, 1 and, 2 or, 3 xor, 4 and 5 unsigned least
/// and greatest, 6 and 7 signed.
pub(crate) struct Reduce;

impl Handle for Reduce {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe {
            together(warp, op, "redux.sync", |warp| {
                let a = all::<u32>(warp, op.a);
                let mask = warp.mask;
                let values = (0..32).filter(|&i| mask >> i & 1 != 0).map(|i| a[i]);
                let combine = |x: u32, y: u32| match op.imm & 7 {
                    0 => x.wrapping_add(y),
                    1 => x & y,
                    2 => x | y,
                    3 => x ^ y,
                    4 => x.min(y),
                    5 => x.max(y),
                    6 => (x as i32).min(y as i32) as u32,
                    _ => (x as i32).max(y as i32) as u32,
                };
                let out = values.reduce(combine).unwrap_or(0);
                put_all(warp, op.d, &[out; 32]);
            })
        }
    }
}
