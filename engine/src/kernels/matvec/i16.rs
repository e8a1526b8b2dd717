//! Linear layers of the `i16` program: activations are int16 with a float32 scale for each block of 32, inner products
//! of a block are exact integers.

use super::{BLOCK_SHAPES, blocks, shapes, staged};
use crate::kernel::{Case, Fill, HostTensor, NVFP4, Q4_0, Q4_1, Q8_0, QTensor, kernel};
use crate::kernels::activation::swiglu_value;

/// Bytes of 32 staged activations: int16s, their scale, their sum and padding.
pub(in crate::kernels) const INT16_STAGE: u64 = 80;

pub(in crate::kernels) fn i16_dot(row: &[f32], xq: &[i16], xs: &[f32]) -> f64 {
    let block = |(row, (xq, &xs)): (&[f32], (&[i16], &f32))| -> f64 {
        row.iter().zip(xq).map(|(&w, &q)| f64::from(w) * f64::from(q)).sum::<f64>() * f64::from(xs)
    };
    row.chunks(32).zip(xq.chunks(32).zip(xs)).map(block).sum()
}

pub(super) fn reference(
    w: &HostTensor,
    xq: &[i16],
    xs: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f64],
    rows: u32,
    cols: u32,
    _tokens: u32,
) {
    let (rows, cols) = (rows as usize, cols as usize);
    for (t, (xq, xs)) in xq.chunks(cols).zip(xs.chunks(cols / 32)).enumerate() {
        for r in 0..rows {
            let at = t * rows + r;
            y[at] = i16_dot(w.row(r), xq, xs) + residual.map_or(0.0, |residual| f64::from(residual[at]));
        }
    }
}

pub(super) fn swiglu_reference(
    w: &HostTensor,
    xq: &[i16],
    xs: &[f32],
    y: &mut [f64],
    rows: u32,
    cols: u32,
    limit: f32,
    _tokens: u32,
) {
    let (rows, cols) = (rows as usize, cols as usize);
    for (y, (xq, xs)) in y.chunks_mut(rows).zip(xq.chunks(cols).zip(xs.chunks(cols / 32))) {
        for (r, y) in y.iter_mut().enumerate() {
            *y = swiglu_value(i16_dot(w.row(r), xq, xs), i16_dot(w.row(r + rows), xq, xs), limit);
        }
    }
}

/// Cases whose scales, in `buffer`, are as quantisation gives them for activations of order 1: magnitude / 32512.
pub(in crate::kernels) fn i16_scales(cases: Vec<Case>, buffer: &'static str) -> Vec<Case> {
    cases.into_iter().map(|case| case.fill(buffer, Fill::Uniform(2e-5, 1e-4))).collect()
}

fn cases() -> Vec<Case> {
    i16_scales(shapes(&BLOCK_SHAPES, false), "xs")
}

fn pairs() -> Vec<Case> {
    i16_scales(super::pairs(&BLOCK_SHAPES), "xs")
}

macro_rules! declare {
    ($($name:ident $entry:tt $format:ident $lanes:literal $tolerance:literal;)*) => {$(
        /// `y[t, r] = (residual[t, r] +) Σ_c w[r, c] · xq[t, c] · xs[t, c / 32]`, each 16-byte vector's integer sum exact (dp2a),
        /// then as in `matvec`; only those sums of a vector or a block round.
        ///
        /// The tolerance: a lane's two chains are of one term a vector, at most 17 each here, and every term has roundings of
        /// its own (the integer sum, the product of scales); vectors of Q8_0 are of 16 weights, of the others 32. The one row of
        /// NVFP4's first case is the small difference of its terms, and has only itself to be measured against.
        #[kernel(module = "matvec_i16", entry = $entry, reference = reference, cases = cases, tol = $tolerance)]
        #[launch(grid = (tokens, blocks(rows, $lanes), 1), block = (256, 1, 1), shared = staged(cols, INT16_STAGE))]
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

declare! {
    matvec_i16_q8_0 "matvec_i16_q8_0" Q8_0 16 7e-7;
    matvec_i16_q4_0 "matvec_i16_q4_0" Q4_0 8 5e-7;
    matvec_i16_q4_1 "matvec_i16_q4_1" Q4_1 8 5e-7;
    matvec_i16_nvfp4 "matvec_i16_nvfp4" NVFP4 8 9e-7;
}

macro_rules! declare_swiglu {
    ($($name:ident $entry:tt $format:ident $lanes:literal;)*) => {$(
        /// `y[t, r] = silu(min(w[r] · x[t], limit)) · clamp(w[rows + r] · x[t], −limit, limit)` for `x = xq · xs`. The sums have the bits of the `matvec_i16` of
        /// the same format.
        #[kernel(module = "matvec_i16", entry = $entry, reference = swiglu_reference, cases = pairs, tol = 1e-6)]
        #[launch(grid = (tokens, blocks(rows, $lanes), 1), block = (256, 1, 1), shared = staged(cols, INT16_STAGE))]
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

declare_swiglu! {
    matvec_swiglu_i16_q8_0 "matvec_swiglu_i16_q8_0" Q8_0 16;
    matvec_swiglu_i16_q4_0 "matvec_swiglu_i16_q4_0" Q4_0 8;
    matvec_swiglu_i16_q4_1 "matvec_swiglu_i16_q4_1" Q4_1 8;
    matvec_swiglu_i16_nvfp4 "matvec_swiglu_i16_nvfp4" NVFP4 8;
}
