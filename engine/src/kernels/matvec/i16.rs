//! Program `i16`: activations become int16 with a float32 scale for each block of 32, inner products of a block are exact integers.
//!
//! In this program each 16-byte vector's integer sum is exact (dp2a); only the scaled sums of a vector or a block round.
//!
//! The tolerance: a lane's two chains are of one term a vector, at most 33 each here, and every term has roundings of
//! its own (the integer sum, the product of scales); vectors of Q8_0 are of 16 weights, of the others 32.

use super::{RowWalk, block_cases, block_pairs, declare_matvec, declare_swiglu, reference, swiglu_reference};
use crate::kernel::{Case, Fill, NVFP4, Q4_0, Q4_1, Q8_0, QTensor, kernel};

pub(in crate::kernels) fn i16_dot(row: &[f32], xq: &[i16], xs: &[f32]) -> f64 {
    let block = |(row, (xq, &xs)): (&[f32], (&[i16], &f32))| -> f64 {
        row.iter().zip(xq).map(|(&w, &q)| f64::from(w) * f64::from(q)).sum::<f64>() * f64::from(xs)
    };
    row.chunks(32).zip(xq.chunks(32).zip(xs)).map(block).sum()
}

/// Cases whose scales, in `buffer`, are as quantisation gives them for activations of order 1: magnitude / 32512.
pub(in crate::kernels) fn i16_scales(cases: Vec<Case>, buffer: &'static str) -> Vec<Case> {
    cases.into_iter().map(|case| case.fill(buffer, Fill::Uniform(2e-5, 1e-4))).collect()
}

declare_matvec! {
    "matvec_i16", true;
    matvec_i16_q8_0 "matvec_i16_q8_0" Q8_0 7e-7 block_cases;
    matvec_i16_q4_0 "matvec_i16_q4_0" Q4_0 5e-7 block_cases;
    matvec_i16_q4_1 "matvec_i16_q4_1" Q4_1 5e-7 block_cases;
    matvec_i16_nvfp4 "matvec_i16_nvfp4" NVFP4 5e-7 block_cases;
}

declare_swiglu! {
    "matvec_i16", true;
    matvec_swiglu_i16_q8_0 "matvec_swiglu_i16_q8_0" Q8_0 1e-6 block_pairs;
    matvec_swiglu_i16_q4_0 "matvec_swiglu_i16_q4_0" Q4_0 1e-6 block_pairs;
    matvec_swiglu_i16_q4_1 "matvec_swiglu_i16_q4_1" Q4_1 1e-6 block_pairs;
    matvec_swiglu_i16_nvfp4 "matvec_swiglu_i16_nvfp4" NVFP4 1e-6 block_pairs;
}
