//! float32 activations.
//!
//! The tolerance: a lane's chain of m = cols / (2 · lanes) products of order 1 errs by about 2⁻²⁵·√m of its
//! size, m at most 257 here; a few times that for the worst of many rows. Formats of nibbles sum a block of 32 first
//! (chains of 16, then of at most 33 blocks), and err less. A norm adds three roundings a column. float16's first case
//! is of one row, a small difference of larger terms, which has only itself to be measured against.

use super::{
    RowWalk, block_cases, block_pairs, declare_matvec, declare_swiglu, float_cases, float_pairs, reference,
    swiglu_reference,
};
use crate::kernel::{BF16, F16, F32, NVFP4, Q4_0, Q4_1, Q8_0, QTensor, kernel};

declare_matvec! {
    "matvec", false;
    matvec_f32 "matvec_f32" F32 9e-7 float_cases;
    matvec_f16 "matvec_f16" F16 1.3e-6 float_cases;
    matvec_bf16 "matvec_bf16" BF16 9e-7 float_cases;
    matvec_q8_0 "matvec_q8_0" Q8_0 9e-7 block_cases;
    matvec_q4_0 "matvec_q4_0" Q4_0 9e-7 block_cases;
    matvec_q4_1 "matvec_q4_1" Q4_1 9e-7 block_cases;
    matvec_nvfp4 "matvec_nvfp4" NVFP4 9e-7 block_cases;
}

declare_swiglu! {
    "matvec", false;
    matvec_swiglu_f32 "matvec_swiglu_f32" F32 1e-6 float_pairs;
    matvec_swiglu_f16 "matvec_swiglu_f16" F16 1e-6 float_pairs;
    matvec_swiglu_bf16 "matvec_swiglu_bf16" BF16 1e-6 float_pairs;
    matvec_swiglu_q8_0 "matvec_swiglu_q8_0" Q8_0 1e-6 block_pairs;
    matvec_swiglu_q4_0 "matvec_swiglu_q4_0" Q4_0 1e-6 block_pairs;
    matvec_swiglu_q4_1 "matvec_swiglu_q4_1" Q4_1 1e-6 block_pairs;
    matvec_swiglu_nvfp4 "matvec_swiglu_nvfp4" NVFP4 1e-6 block_pairs;
}
