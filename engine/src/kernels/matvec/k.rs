//! Linear layers over formats with five bits and ggml's "k" formats, in both programs: kernels of the same arithmetic as the others,
//! in modules of their own.
//!
//! The tolerances: a sub-block is summed in chains of at most 16, or exactly in integers, then a lane's two sums in chains of at most
//! 33 here; every term has some roundings of its own.

use super::{
    RowWalk, block_cases, block_pairs, declare_matvec, declare_swiglu, pairs, reference, shapes,
    swiglu_reference,
};
use crate::kernel::{Case, Q4_K, Q5_0, Q5_K, Q6_K, QTensor, ScalarValue, kernel};

/// `(rows, cols)` for blocks of 256: one row, odd rows, ragged last steps, past one block of rows, past a chunk of 16384 columns.
const SUPER_BLOCK_SHAPES: [(u32, u32); 7] =
    [(4, 256), (3, 512), (5, 768), (33, 256), (67, 1024), (1, 2304), (6, 16640)];

fn super_block_cases() -> Vec<Case> {
    of_whole_blocks(shapes(&SUPER_BLOCK_SHAPES))
}

fn super_block_pairs() -> Vec<Case> {
    of_whole_blocks(pairs(&SUPER_BLOCK_SHAPES))
}

/// A shape of some real model may have rows that are no whole super-blocks.
pub(super) fn of_whole_blocks(mut cases: Vec<Case>) -> Vec<Case> {
    cases.retain(|case| {
        !case.scalars.iter().any(|(name, value)| {
            matches!(value, ScalarValue::U32(cols) if *name == "cols" && !cols.is_multiple_of(256))
        })
    });
    cases
}

declare_matvec! {
    "matvec_k", false;
    matvec_q5_0 "matvec_q5_0" Q5_0 9e-7 block_cases;
    matvec_q4_k "matvec_q4_k" Q4_K 9e-7 super_block_cases;
    matvec_q5_k "matvec_q5_k" Q5_K 9e-7 super_block_cases;
    matvec_q6_k "matvec_q6_k" Q6_K 9e-7 super_block_cases;
}

declare_swiglu! {
    "matvec_k", false;
    matvec_swiglu_q5_0 "matvec_swiglu_q5_0" Q5_0 1e-6 block_pairs;
    matvec_swiglu_q4_k "matvec_swiglu_q4_k" Q4_K 1e-6 super_block_pairs;
    matvec_swiglu_q5_k "matvec_swiglu_q5_k" Q5_K 1e-6 super_block_pairs;
    matvec_swiglu_q6_k "matvec_swiglu_q6_k" Q6_K 1e-6 super_block_pairs;
}

declare_matvec! {
    "matvec_i16_k", true;
    matvec_i16_q5_0 "matvec_i16_q5_0" Q5_0 5e-7 block_cases;
    matvec_i16_q4_k "matvec_i16_q4_k" Q4_K 5e-7 super_block_cases;
    matvec_i16_q5_k "matvec_i16_q5_k" Q5_K 5e-7 super_block_cases;
    matvec_i16_q6_k "matvec_i16_q6_k" Q6_K 5e-7 super_block_cases;
}

declare_swiglu! {
    "matvec_i16_k", true;
    matvec_swiglu_i16_q5_0 "matvec_swiglu_i16_q5_0" Q5_0 1e-6 block_pairs;
    matvec_swiglu_i16_q4_k "matvec_swiglu_i16_q4_k" Q4_K 1e-6 super_block_pairs;
    matvec_swiglu_i16_q5_k "matvec_swiglu_i16_q5_k" Q5_K 1e-6 super_block_pairs;
    matvec_swiglu_i16_q6_k "matvec_swiglu_i16_q6_k" Q6_K 1e-6 super_block_pairs;
}
