//! The decoded form of a kernel and the functions that execute it, one warp at a time, 32 lanes together.
//!
//! A kernel is a flat array of [`Op`]s. Each holds the function that executes it and the places of its operands in
//! the warp's *frame*: a block of memory with 32 lanes of 4 or 8 bytes a register, one mask of 32 bits a predicate,
//! and the constants the kernel uses, already spread over the lanes. A function returns the op to go on with.
//!
//! Each function is compiled for the baseline and, where it is hot, for AVX2 (see [`Level`]) from one body, whose loops
//! over lanes are written so that the compiler makes vector code of them.

#[macro_use]
pub(crate) mod lanes;
pub(crate) mod access;
pub(crate) mod atom;
pub(crate) mod bits;
pub(crate) mod check;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod int;
pub(crate) mod isa;
pub(crate) mod memory;
pub(crate) mod mma;
pub(crate) mod moves;
pub(crate) mod warp_wide;

pub(crate) use isa::{Handle, Isa, Level, select};

use crate::exec::warp::Warp;

/// Executes one op and returns the next, or null to leave the loop (see [`Warp::stop`]).
///
/// # Safety
/// `warp.frame` must point to a frame laid out as the kernel that `op` belongs to says.
pub(crate) type Handler = unsafe fn(warp: &mut Warp, op: &Op) -> *const Op;

/// One decoded operation. Operands are byte offsets into the frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) run: Handler,
    pub(crate) d: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) e: u32,
    /// An immediate: an address offset, a jump distance, packed modifiers, or the index of further operands.
    pub(crate) imm: i32,
}

impl Op {
    /// The op that follows this one.
    #[inline(always)]
    pub(crate) fn next(&self) -> *const Op {
        // Every kernel ends in an op that leaves, so there is always a following one for those that call this.
        (self as *const Op).wrapping_add(1)
    }

    /// The op `distance` ops away.
    #[inline(always)]
    pub(crate) fn jump(&self, distance: i32) -> *const Op {
        (self as *const Op).wrapping_offset(distance as isize)
    }
}
