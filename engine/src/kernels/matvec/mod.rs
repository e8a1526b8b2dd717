//! Linear layers: `y = W · x`, optionally with a residual, and the gated pair, with float32 activations (`matvec_…`) and
//! with those of the `i16` program (`matvec_i16_…`).

mod i16;
mod k;

pub use i16::*;
pub use k::*;

use super::activation::swiglu_value;
use super::token_rows;
use crate::kernel::{BF16, Case, F16, F32, HostTensor, NVFP4, Q4_0, Q4_1, Q8_0, QTensor, kernel};

/// Threads a block: eight warps share the staged activations, which pays even where that leaves multiprocessors idle.
const THREADS: u64 = 256;
/// Bytes of 32 staged activations: floats, their sum and padding.
pub(in crate::kernels) const FLOAT_STAGE: u64 = 144;

/// Blocks that cover `rows` of `lanes` lanes each.
pub(in crate::kernels) fn blocks(rows: u64, lanes: u64) -> u64 {
    rows.div_ceil(THREADS / lanes)
}

/// Bytes of staged activations: whole turns of 256 columns, at most a chunk of 8192.
pub(in crate::kernels) fn staged(cols: u64, stage: u64) -> u64 {
    cols.div_ceil(256).min(32) * 8 * stage
}

pub(in crate::kernels) fn dot(row: &[f32], x: &[f32]) -> f64 {
    row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum()
}

fn reference(
    w: &HostTensor,
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f64],
    rows: u32,
    cols: u32,
    tokens: u32,
    x_stride: u32,
) {
    for (t, x) in token_rows(x, cols, tokens, x_stride).enumerate() {
        for r in 0..rows as usize {
            let at = t * rows as usize + r;
            y[at] = dot(w.row(r), x) + residual.map_or(0.0, |residual| f64::from(residual[at]));
        }
    }
}

fn swiglu_reference(w: &HostTensor, x: &[f32], y: &mut [f64], rows: u32, cols: u32, limit: f32, tokens: u32) {
    let rows = rows as usize;
    for (y, x) in y.chunks_mut(rows).zip(token_rows(x, cols, tokens, cols)) {
        for (r, y) in y.iter_mut().enumerate() {
            *y = swiglu_value(dot(w.row(r), x), dot(w.row(r + rows), x), limit);
        }
    }
}

/// `(rows, cols)`: one row, odd rows, ragged last steps, past one block of rows, past a chunk of 8192 columns.
const FLOAT_SHAPES: [(u32, u32); 9] =
    [(1, 8), (3, 24), (5, 96), (33, 128), (67, 576), (7, 2056), (9, 2048), (6, 4104), (3, 8200)];
/// The same for formats of blocks of 32.
const BLOCK_SHAPES: [(u32, u32); 9] =
    [(1, 32), (3, 64), (5, 96), (33, 256), (67, 576), (131, 288), (9, 2048), (7, 2080), (6, 8224)];
/// `(rows, cols)` of real models: SmolLM2-135M's output, down and head, Llama-3.2-1B's down, Llama-3-8B's qkv and down, and
/// GLM-5.3-Flash's dense down.
const MODEL_SHAPES: [(u32, u32); 7] =
    [(576, 576), (576, 1536), (49152, 576), (2048, 8192), (6144, 4096), (4096, 14336), (4096, 12288)];
/// `(rows, cols)` of a gated pair, rows of one half.
const MODEL_PAIRS: [(u32, u32); 2] = [(1536, 576), (8192, 2048)];

/// How many tokens a case has: two shapes in three are of one, the others of two and of five.
fn tokens(index: usize) -> u32 {
    [1, 1, 2, 1, 1, 5][index % 6]
}

fn case((rows, cols): (u32, u32), tokens: u32) -> Case {
    let tokens_text = if tokens == 1 { String::new() } else { format!(", {tokens} tokens") };
    Case::new(format!("[{rows}, {cols}]{tokens_text}"))
        .u32("rows", rows)
        .u32("cols", cols)
        .u32("tokens", tokens)
}

/// One case a shape; the residual is there in every other. With `strided`, tokens of every fourth shape are apart.
fn shapes(small: &[(u32, u32)], strided: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, &shape) in small.iter().enumerate() {
        cases.push((case(shape, tokens(i)), shape.1 + if i % 4 == 1 { 24 } else { 0 }, i % 2 == 0));
    }
    for shape in MODEL_SHAPES {
        cases.push((case(shape, 1).representative(), shape.1, true));
    }
    cases.push((case((6144, 4096), 16).representative(), 4096, true));
    let finish = |(case, x_stride, residual): (Case, u32, bool)| {
        let case = if strided { case.u32("x_stride", x_stride) } else { case };
        if residual { case } else { case.absent("residual") }
    };
    cases.into_iter().map(finish).collect()
}

/// One case a shape; every third activation is limited.
fn pairs(small: &[(u32, u32)]) -> Vec<Case> {
    let limit = |i: usize| if i.is_multiple_of(3) { 0.75 } else { f32::INFINITY };
    let small = small.iter().enumerate();
    let mut cases: Vec<Case> =
        small.map(|(i, &shape)| case(shape, tokens(i)).f32("limit", limit(i))).collect();
    cases.extend(MODEL_PAIRS.map(|shape| case(shape, 1).f32("limit", f32::INFINITY).representative()));
    cases.push(case((8192, 2048), 16).f32("limit", f32::INFINITY).representative());
    cases
}

fn float_cases() -> Vec<Case> {
    shapes(&FLOAT_SHAPES, true)
}

fn block_cases() -> Vec<Case> {
    shapes(&BLOCK_SHAPES, true)
}

fn float_pairs() -> Vec<Case> {
    pairs(&FLOAT_SHAPES)
}

fn block_pairs() -> Vec<Case> {
    pairs(&BLOCK_SHAPES)
}

macro_rules! declare {
    ($($name:ident $entry:tt $format:ident $lanes:literal $tolerance:literal $cases:ident;)*) => {$(
        /// `y[t, r] = (residual[t, r] +) Σ_c w[r, c] · x[t, c]`, rows of `x` being `x_stride` apart. A group of neighbouring lanes a row, each taking 16-byte vectors
        /// in turn into two alternating sums, folded by a butterfly: that order is the numeric contract.
        ///
        /// The tolerance: a lane's chain of m = cols / (2 · lanes) products of order 1 errs by about 2⁻²⁵·√m of its
        /// size, m at most 130 here; a few times that for the worst of many rows. Formats of nibbles sum a block of 32 first
        /// (chains of 16, then of at most 17 blocks), and err less.
        #[kernel(module = "matvec", entry = $entry, reference = reference, cases = $cases, tol = $tolerance)]
        #[launch(grid = (tokens, blocks(rows, $lanes), 1), block = (256, 1, 1), shared = staged(cols, FLOAT_STAGE))]
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
    matvec_f32 "matvec_f32" F32 32 9e-7 float_cases;
    matvec_f16 "matvec_f16" F16 32 9e-7 float_cases;
    matvec_bf16 "matvec_bf16" BF16 32 9e-7 float_cases;
    matvec_q8_0 "matvec_q8_0" Q8_0 16 9e-7 block_cases;
    matvec_q4_0 "matvec_q4_0" Q4_0 8 6e-7 block_cases;
    matvec_q4_1 "matvec_q4_1" Q4_1 8 6e-7 block_cases;
    matvec_nvfp4 "matvec_nvfp4" NVFP4 8 6e-7 block_cases;
}

macro_rules! declare_swiglu {
    ($($name:ident $entry:tt $format:ident $lanes:literal $cases:ident;)*) => {$(
        /// `y[t, r] = silu(min(w[r] · x[t], limit)) · clamp(w[rows + r] · x[t], −limit, limit)`: gate and up projections, stacked, and
        /// the activation; a limit of infinity bounds nothing. The sums have the bits of the `matvec` of the same format.
        #[kernel(module = "matvec", entry = $entry, reference = swiglu_reference, cases = $cases, tol = 1e-6)]
        #[launch(grid = (tokens, blocks(rows, $lanes), 1), block = (256, 1, 1), shared = staged(cols, FLOAT_STAGE))]
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
    matvec_swiglu_f32 "matvec_swiglu_f32" F32 32 float_pairs;
    matvec_swiglu_f16 "matvec_swiglu_f16" F16 32 float_pairs;
    matvec_swiglu_bf16 "matvec_swiglu_bf16" BF16 32 float_pairs;
    matvec_swiglu_q8_0 "matvec_swiglu_q8_0" Q8_0 16 block_pairs;
    matvec_swiglu_q4_0 "matvec_swiglu_q4_0" Q4_0 8 block_pairs;
    matvec_swiglu_q4_1 "matvec_swiglu_q4_1" Q4_1 8 block_pairs;
    matvec_swiglu_nvfp4 "matvec_swiglu_nvfp4" NVFP4 8 block_pairs;
}
