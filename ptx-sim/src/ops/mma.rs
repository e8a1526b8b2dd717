//! Matrix operations of a warp: `mma.sync` and `ldmatrix`.
//!
//! Fragments lie over the lanes as the PTX ISA's figures say: with `g = lane / 4` and `t = lane % 4`, a lane holds rows
//! `g` and `g + 8` of A and of the sums, column `g` of B, and `t` picks the place within a row. Integer products are
//! exact. Products of halves are summed in f64 and rounded once, which is defined but is not how a GPU sums them.

use super::lanes::{all, put_all};
use super::memory::{Address, Space, resolve};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::fault::FaultKind;
use crate::num::{bf16_to_f32, bits32, f16_to_f32};
use std::marker::PhantomData;

/// Matrix operations are defined for whole warps only.
fn whole(warp: &mut Warp, op: &Op, what: &str) -> Result<(), *const Op> {
    if warp.mask == u32::MAX {
        return Ok(());
    }
    let lane = warp.first_lane();
    let what = format!("{what} by lanes {:#010x} of a warp: all 32 must be there", warp.mask);
    Err(warp.fail(op, lane, FaultKind::Divergence(what), None, None))
}

/// The extra operands of an op: `N` registers' frame offsets from `imm`.
///
/// # Safety
/// The op must have that many extra operands.
unsafe fn extra<const N: usize>(warp: &Warp, op: &Op) -> [u32; N] {
    // SAFETY: the caller's promise.
    unsafe { warp.block.extra.add(op.imm as usize).cast::<[u32; N]>().read_unaligned() }
}

/// Integer `mma` of `M` × 8 × `K` bytes; registers of D, A, B and C follow each other in the extra operands. `a` and `b`
/// are 1 for signed factors; `c` 1 saturates.
pub(crate) struct MmaBytes<const M: usize, const K: usize>;

impl<const M: usize, const K: usize> Handle for MmaBytes<M, K> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        if let Err(leave) = whole(warp, op, "mma.sync") {
            return leave;
        }
        let sums = M / 4; // registers of D and of C
        let (in_a, in_b) = (M / 8 * (K / 16), K / 16);
        // SAFETY: the decoder gave 2 · sums + in_a + in_b registers of 32-bit lanes.
        unsafe {
            let registers =
                std::slice::from_raw_parts(warp.block.extra.add(op.imm as usize), 2 * sums + in_a + in_b);
            let (to, rest) = registers.split_at(sums);
            let (a_registers, rest) = rest.split_at(in_a);
            let (b_registers, c_registers) = rest.split_at(in_b);
            if M == 16 && K == 32 && (op.a, op.b, op.c) == (1, 1, 0) {
                let place = |register: u32| warp.frame.add(register as usize).cast::<u32>().cast_const();
                let [a, c] = [a_registers, c_registers].map(|r| [r[0], r[1], r[2], r[3]].map(place));
                let b = [b_registers[0], b_registers[1]].map(place);
                if let Some(outs) = I::multiply_bytes(a, b, c) {
                    for (out, &register) in outs.iter().zip(to) {
                        put_all(warp, register, out);
                    }
                    return op.next();
                }
            }
            let byte = |word: u32, i: usize, signed: u32| -> i16 {
                let byte = (word >> (8 * i)) as u8;
                if signed != 0 { i16::from(byte as i8) } else { i16::from(byte) }
            };
            let mut a = [[0i16; K]; M];
            for (r, &register) in a_registers.iter().enumerate() {
                // Registers alternate between the upper and the lower eight rows, then go on along K.
                let (half, along) = if M == 16 { (r % 2, r / 2) } else { (0, r) };
                for (lane, &word) in all::<u32>(warp, register).iter().enumerate() {
                    for i in 0..4 {
                        a[8 * half + lane / 4][16 * along + 4 * (lane % 4) + i] = byte(word, i, op.a);
                    }
                }
            }
            let mut b = [[0i16; K]; 8];
            for (r, &register) in b_registers.iter().enumerate() {
                for (lane, &word) in all::<u32>(warp, register).iter().enumerate() {
                    for i in 0..4 {
                        b[lane / 4][16 * r + 4 * (lane % 4) + i] = byte(word, i, op.b);
                    }
                }
            }
            let mut product = [[0i32; 8]; M];
            for (row, a) in product.iter_mut().zip(&a) {
                for (sum, b) in row.iter_mut().zip(&b) {
                    for k in 0..K {
                        *sum += i32::from(a[k]) * i32::from(b[k]);
                    }
                }
            }
            let outs: [[u32; 32]; 4] = std::array::from_fn(|r| {
                if r >= sums {
                    return [0; 32];
                }
                let c = all::<u32>(warp, c_registers[r]);
                std::array::from_fn(|lane| {
                    let sum = product[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
                    let c = c[lane] as i32;
                    (if op.c != 0 { c.saturating_add(sum) } else { c.wrapping_add(sum) }) as u32
                })
            });
            for (out, &register) in outs.iter().zip(to) {
                put_all(warp, register, out);
            }
        }
        op.next()
    }
}

/// `mma` of 16 × 8 × `K` halves with f32 sums: registers of D (4), A (K / 4), B (K / 8) and C (4). `a` is 1 for bf16.
pub(crate) struct MmaHalves<const K: usize>;

impl<const K: usize> Handle for MmaHalves<K> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        if let Err(leave) = whole(warp, op, "mma.sync") {
            return leave;
        }
        let (in_a, in_b) = (K / 4, K / 8);
        // SAFETY: the decoder gave 8 + in_a + in_b registers of 32-bit lanes.
        unsafe {
            let registers =
                std::slice::from_raw_parts(warp.block.extra.add(op.imm as usize), 8 + in_a + in_b);
            let (to, rest) = registers.split_at(4);
            let (a_registers, rest) = rest.split_at(in_a);
            let (b_registers, c_registers) = rest.split_at(in_b);
            let wide = |word: u32, i: usize| -> f64 {
                let half = (word >> (16 * i)) as u16;
                f64::from(if op.a != 0 { bf16_to_f32(half) } else { f16_to_f32(half) })
            };
            let mut a = [[0f64; K]; 16];
            for (r, &register) in a_registers.iter().enumerate() {
                for (lane, &word) in all::<u32>(warp, register).iter().enumerate() {
                    for i in 0..2 {
                        a[8 * (r % 2) + lane / 4][8 * (r / 2) + 2 * (lane % 4) + i] = wide(word, i);
                    }
                }
            }
            let mut b = [[0f64; K]; 8];
            for (r, &register) in b_registers.iter().enumerate() {
                for (lane, &word) in all::<u32>(warp, register).iter().enumerate() {
                    for i in 0..2 {
                        b[lane / 4][8 * r + 2 * (lane % 4) + i] = wide(word, i);
                    }
                }
            }
            let outs: [[u32; 32]; 4] = std::array::from_fn(|r| {
                let c = all::<f32>(warp, c_registers[r]);
                std::array::from_fn(|lane| {
                    let (row, column) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
                    let products = a[row].iter().zip(&b[column]).map(|(x, y)| x * y);
                    bits32(products.fold(f64::from(c[lane]), |sum, product| sum + product) as f32)
                })
            });
            for (out, &register) in outs.iter().zip(to) {
                put_all(warp, register, out);
            }
        }
        op.next()
    }
}

/// `ldmatrix` of `N` matrices of 8 × 8 halves to the extra operands; row addresses in `a` plus `b`. `c` 1 transposes.
pub(crate) struct LoadMatrix<S, const N: usize>(PhantomData<S>);

impl<S: Space, const N: usize> Handle for LoadMatrix<S, N> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        if let Err(leave) = whole(warp, op, "ldmatrix") {
            return leave;
        }
        // SAFETY: the decoder gave an address register and `N` extra registers of 32-bit lanes.
        unsafe {
            let registers = extra::<N>(warp, op);
            let addresses = all::<S::Addr>(warp, op.a);
            for (matrix, register) in registers.into_iter().enumerate() {
                let mut rows = [[0u16; 8]; 8];
                for (row, values) in rows.iter_mut().enumerate() {
                    let lane = 8 * matrix + row;
                    let address = addresses[lane].plus(i64::from(op.b as i32) as u64).wide();
                    match resolve::<S>(warp, op, lane as u32, address, 16, false) {
                        Ok(place) => *values = place.cast::<[u16; 8]>().read_unaligned(),
                        Err(leave) => return leave,
                    }
                }
                let out = std::array::from_fn(|lane| {
                    let (major, minor) = (lane / 4, 2 * (lane % 4));
                    let pick = |i: usize| {
                        u32::from(if op.c != 0 { rows[minor + i][major] } else { rows[major][minor + i] })
                    };
                    pick(0) | pick(1) << 16
                });
                put_all(warp, register, &out);
            }
        }
        op.next()
    }
}
