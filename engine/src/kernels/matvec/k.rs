//! Linear layers over formats with five bits and ggml's "k" formats, in both programs: kernels of the same arithmetic as the others,
//! in modules of their own.

use super::i16::{INT16_STAGE, i16_scales};
use super::{BLOCK_SHAPES, FLOAT_STAGE, block_cases, block_pairs, blocks, pairs, shapes, staged};
use crate::kernel::{Case, Q4_K, Q5_0, Q5_K, Q6_K, QTensor, ScalarValue, kernel};

/// Lanes a row in all of them.
const LANES: u64 = 8;

/// `(rows, cols)` for blocks of 256: one row, odd rows, ragged last steps, past one block of rows, past a chunk of 8192 columns.
const SUPER_BLOCK_SHAPES: [(u32, u32); 7] =
    [(4, 256), (3, 512), (5, 768), (33, 256), (67, 1024), (1, 2304), (6, 8448)];

fn super_block_cases() -> Vec<Case> {
    of_whole_blocks(shapes(&SUPER_BLOCK_SHAPES, true))
}

fn super_block_pairs() -> Vec<Case> {
    of_whole_blocks(pairs(&SUPER_BLOCK_SHAPES))
}

fn i16_cases() -> Vec<Case> {
    i16_scales(shapes(&BLOCK_SHAPES, false), "xs")
}

fn i16_pairs() -> Vec<Case> {
    i16_scales(block_pairs(), "xs")
}

fn i16_super_block_cases() -> Vec<Case> {
    i16_scales(of_whole_blocks(shapes(&SUPER_BLOCK_SHAPES, false)), "xs")
}

fn i16_super_block_pairs() -> Vec<Case> {
    i16_scales(super_block_pairs(), "xs")
}

/// A shape of some real model may have rows that are no whole super-blocks.
fn of_whole_blocks(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| {
        !case.scalars.iter().any(|(name, value)| {
            matches!(value, ScalarValue::U32(cols) if *name == "cols" && !cols.is_multiple_of(256))
        })
    });
    cases
}

macro_rules! declare {
    ($($name:ident $entry:tt $format:ident $tolerance:literal $cases:ident;)*) => {$(
        /// `y[t, r] = (residual[t, r] +) Σ_c w[r, c] · x[t, c]`, rows of `x` being `x_stride` apart, in the order of the other `matvec`s.
        ///
        /// The tolerance: a sub-block is summed in chains of at most 16, then a lane's two sums in chains of at most 17 here.
        #[kernel(module = "matvec_k", entry = $entry, reference = super::reference, cases = $cases, tol = $tolerance)]
        #[launch(grid = (tokens, blocks(rows, LANES), 1), block = (256, 1, 1), shared = staged(cols, FLOAT_STAGE))]
        #[cost(read = w.bytes() + 4 * tokens * cols + residual.bytes(), write = y.bytes(), flops = 2 * tokens * rows * cols)]
        pub fn $name(
            #[shape(rows, cols)] w: &QTensor<$format>,
            #[len((tokens - 1) * x_stride + cols)] x: &[f32],
            #[len(tokens * rows)] residual: Option<&[f32]>,
            #[out]
            #[len(tokens * rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
            tokens: u32,
            x_stride: u32,
        );
    )*};
}

declare! {
    matvec_q5_0 "matvec_q5_0" Q5_0 6e-7 block_cases;
    matvec_q4_k "matvec_q4_k" Q4_K 6e-7 super_block_cases;
    matvec_q5_k "matvec_q5_k" Q5_K 6e-7 super_block_cases;
    matvec_q6_k "matvec_q6_k" Q6_K 6e-7 super_block_cases;
}

macro_rules! declare_swiglu {
    ($($name:ident $entry:tt $format:ident $cases:ident;)*) => {$(
        /// `y[t, r] = silu(min(w[r] · x[t], limit)) · clamp(w[rows + r] · x[t], −limit, limit)`; the sums have the bits of the `matvec` of the same
        /// format.
        #[kernel(module = "matvec_k", entry = $entry, reference = super::swiglu_reference, cases = $cases, tol = 1e-6)]
        #[launch(grid = (tokens, blocks(rows, LANES), 1), block = (256, 1, 1), shared = staged(cols, FLOAT_STAGE))]
        #[cost(read = w.bytes() + 4 * tokens * cols, write = y.bytes(), flops = 4 * tokens * rows * cols)]
        pub fn $name(
            #[shape(2 * rows, cols)] w: &QTensor<$format>,
            #[len(tokens * cols)] x: &[f32],
            #[out]
            #[len(tokens * rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
            limit: f32,
            tokens: u32,
        );
    )*};
}

declare_swiglu! {
    matvec_swiglu_q5_0 "matvec_swiglu_q5_0" Q5_0 block_pairs;
    matvec_swiglu_q4_k "matvec_swiglu_q4_k" Q4_K super_block_pairs;
    matvec_swiglu_q5_k "matvec_swiglu_q5_k" Q5_K super_block_pairs;
    matvec_swiglu_q6_k "matvec_swiglu_q6_k" Q6_K super_block_pairs;
}

macro_rules! declare_i16 {
    ($($name:ident $entry:tt $format:ident $tolerance:literal $cases:ident;)*) => {$(
        /// `y[t, r] = (residual[t, r] +) Σ_c w[r, c] · xq[t, c] · xs[t, c / 32]`, the integer sum of 32 weights (of 16 in Q6_K) exact (dp2a), then as
        /// in `matvec`; only those sums round.
        ///
        /// The tolerance: two chains a lane of one term a sub-block, at most 17 each here, every term with some roundings of its own.
        #[kernel(module = "matvec_i16_k", entry = $entry, reference = super::i16::reference, cases = $cases, tol = $tolerance)]
        #[launch(grid = (tokens, blocks(rows, LANES), 1), block = (256, 1, 1), shared = staged(cols, INT16_STAGE))]
        #[cost(read = w.bytes() + xq.bytes() + xs.bytes() + residual.bytes(), write = y.bytes(), flops = 2 * tokens * rows * cols)]
        pub fn $name(
            #[shape(rows, cols)] w: &QTensor<$format>,
            #[len(tokens * cols)] xq: &[i16],
            #[len(tokens * (cols / 32))] xs: &[f32],
            #[len(tokens * rows)] residual: Option<&[f32]>,
            #[out]
            #[len(tokens * rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
            tokens: u32,
        );
    )*};
}

declare_i16! {
    matvec_i16_q5_0 "matvec_i16_q5_0" Q5_0 5e-7 i16_cases;
    matvec_i16_q4_k "matvec_i16_q4_k" Q4_K 5e-7 i16_super_block_cases;
    matvec_i16_q5_k "matvec_i16_q5_k" Q5_K 5e-7 i16_super_block_cases;
    matvec_i16_q6_k "matvec_i16_q6_k" Q6_K 5e-7 i16_super_block_cases;
}

macro_rules! declare_swiglu_i16 {
    ($($name:ident $entry:tt $format:ident $cases:ident;)*) => {$(
        /// `y[t, r] = silu(min(w[r] · x[t], limit)) · clamp(w[rows + r] · x[t], −limit, limit)` for `x = xq · xs`. The sums have the bits of the
        /// `matvec_i16` of the same format.
        #[kernel(module = "matvec_i16_k", entry = $entry, reference = super::i16::swiglu_reference, cases = $cases, tol = 1e-6)]
        #[launch(grid = (tokens, blocks(rows, LANES), 1), block = (256, 1, 1), shared = staged(cols, INT16_STAGE))]
        #[cost(read = w.bytes() + xq.bytes() + xs.bytes(), write = y.bytes(), flops = 4 * tokens * rows * cols)]
        pub fn $name(
            #[shape(2 * rows, cols)] w: &QTensor<$format>,
            #[len(tokens * cols)] xq: &[i16],
            #[len(tokens * (cols / 32))] xs: &[f32],
            #[out]
            #[len(tokens * rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
            limit: f32,
            tokens: u32,
        );
    )*};
}

declare_swiglu_i16! {
    matvec_swiglu_i16_q5_0 "matvec_swiglu_i16_q5_0" Q5_0 i16_pairs;
    matvec_swiglu_i16_q4_k "matvec_swiglu_i16_q4_k" Q4_K i16_super_block_pairs;
    matvec_swiglu_i16_q5_k "matvec_swiglu_i16_q5_k" Q5_K i16_super_block_pairs;
    matvec_swiglu_i16_q6_k "matvec_swiglu_i16_q6_k" Q6_K i16_super_block_pairs;
}
