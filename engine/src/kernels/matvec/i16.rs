//! Linear layers of the `i16` program: activations are int16 with a float32 scale for each block of 32, inner products
//! of a block are exact integers.

use super::{BLOCK_SHAPES, MODEL_PAIRS, MODEL_SHAPES, blocks, shapes, staged};
use crate::kernel::{Case, Fill, HostTensor, Q4_0, Q4_1, Q8_0, QTensor, kernel};
use crate::kernels::activation::swiglu_value;

/// Bytes of 32 staged activations: int16s, their scale, their sum and padding.
const INT16_STAGE: u64 = 80;

fn dot(row: &[f32], xq: &[i16], xs: &[f32]) -> f64 {
    let block = |(row, (xq, &xs)): (&[f32], (&[i16], &f32))| -> f64 {
        row.iter().zip(xq).map(|(&w, &q)| f64::from(w) * f64::from(q)).sum::<f64>() * f64::from(xs)
    };
    row.chunks(32).zip(xq.chunks(32).zip(xs)).map(block).sum()
}

fn reference(
    w: &HostTensor,
    xq: &[i16],
    xs: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f64],
    rows: u32,
    _cols: u32,
) {
    for (r, y) in y.iter_mut().enumerate().take(rows as usize) {
        *y = dot(w.row(r), xq, xs) + residual.map_or(0.0, |residual| f64::from(residual[r]));
    }
}

fn swiglu_reference(w: &HostTensor, xq: &[i16], xs: &[f32], y: &mut [f64], rows: u32, _cols: u32) {
    for (r, y) in y.iter_mut().enumerate().take(rows as usize) {
        *y = swiglu_value(dot(w.row(r), xq, xs), dot(w.row(r + rows as usize), xq, xs));
    }
}

/// Scales as quantisation gives them for activations of order 1: magnitude / 32512.
fn scaled(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|case| case.fill("xs", Fill::Uniform(2e-5, 1e-4))).collect()
}

fn cases() -> Vec<Case> {
    scaled(shapes(&BLOCK_SHAPES, &MODEL_SHAPES, true))
}

fn pairs() -> Vec<Case> {
    scaled(shapes(&BLOCK_SHAPES, &MODEL_PAIRS, false))
}

macro_rules! declare {
    ($($name:ident $entry:tt $format:ident $lanes:literal;)*) => {$(
        /// `y[r] = (residual[r] +) Σ_c w[r, c] · xq[c] · xs[c / 32]`, each 16-byte vector's integer sum exact (dp2a),
        /// then as in `matvec`; only those sums of a vector or a block round.
        #[kernel(module = "matvec_i16", entry = $entry, reference = reference, cases = cases, tol = 7e-7)]
        #[launch(grid = (blocks(rows, $lanes), 1, 1), block = (256, 1, 1), shared = staged(cols, INT16_STAGE))]
        #[cost(read = w.bytes() + xq.bytes() + xs.bytes() + residual.bytes(), write = y.bytes(), flops = 2 * rows * cols)]
        pub fn $name(
            #[shape(rows, cols)] w: &QTensor<$format>,
            #[len(cols)] xq: &[i16],
            #[len(cols / 32)] xs: &[f32],
            #[len(rows)] residual: Option<&[f32]>,
            #[out]
            #[len(rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
        );
    )*};
}

declare! {
    matvec_i16_q8_0 "matvec_i16_q8_0" Q8_0 16;
    matvec_i16_q4_0 "matvec_i16_q4_0" Q4_0 8;
    matvec_i16_q4_1 "matvec_i16_q4_1" Q4_1 8;
}

macro_rules! declare_swiglu {
    ($($name:ident $entry:tt $format:ident $lanes:literal;)*) => {$(
        /// `y[r] = silu(w[r] · x) · (w[rows + r] · x)` for `x = xq · xs`. The sums have the bits of the `matvec_i16` of
        /// the same format.
        #[kernel(module = "matvec_i16", entry = $entry, reference = swiglu_reference, cases = pairs, tol = 1e-6)]
        #[launch(grid = (blocks(rows, $lanes), 1, 1), block = (256, 1, 1), shared = staged(cols, INT16_STAGE))]
        #[cost(read = w.bytes() + xq.bytes() + xs.bytes(), write = y.bytes(), flops = 4 * rows * cols)]
        pub fn $name(
            #[shape(2 * rows, cols)] w: &QTensor<$format>,
            #[len(cols)] xq: &[i16],
            #[len(cols / 32)] xs: &[f32],
            #[out]
            #[len(rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
        );
    )*};
}

declare_swiglu! {
    matvec_swiglu_i16_q8_0 "matvec_swiglu_i16_q8_0" Q8_0 16;
    matvec_swiglu_i16_q4_0 "matvec_swiglu_i16_q4_0" Q4_0 8;
    matvec_swiglu_i16_q4_1 "matvec_swiglu_i16_q4_1" Q4_1 8;
}
