//! Linear layers: `y = W · x`, optionally with a norm before it and a residual after it; the gated pair; and the projections of
//! attention with rotary embedding and cache write. With float32 activations (`…_q8_0`), or quantised to block-scaled int16
//! in the kernel (`…_i16_q8_0`), which is program `i16`.

mod float;
mod i16;
mod k;
mod qkv;

pub use float::*;
pub use i16::*;
pub use k::*;
pub use qkv::*;

use super::activation::swiglu_value;
use super::norm::{int16_rounded, normalised};
use super::token_rows;
use crate::kernel::{Case, HostTensor, TensorFormat};

/// Most threads of a block: enough warps to keep memory busy, few enough registers that a block of the next launch can come beside.
const MAX_THREADS: u32 = 512;
/// Fewest: as many as add up the squares of a norm.
const MIN_THREADS: u32 = 256;
/// 16-byte vectors of weights that a thread has on their way.
const RING: u64 = 8;
/// Columns of activations in shared memory at a time.
const CHUNK: u64 = 16384;
/// Bytes of shared memory that kernels have beside the dynamic.
const RESERVED: u64 = 64;

/// More than half of a Hopper multiprocessor's shared memory.
const EXCLUSIVE: u32 = 116 << 10;

/// The geometry of a launch that walks rows.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Blocks a token.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
    /// Bytes of shared memory to ask for at least.
    pub room: u32,
}

/// How the rows of a format are read; see `rows.cuh`.
#[derive(Debug, Clone, Copy)]
pub struct RowWalk {
    /// Neighbouring lanes that share a row.
    pub lanes: u32,
    /// Columns that all of them read at a time.
    pub span: u64,
    /// Words that go with each 16-byte vector of weights.
    pub side: u64,
}

impl RowWalk {
    /// Bytes of dynamic shared memory: the activations, a norm's weights, and the ring of weights of each thread.
    pub(in crate::kernels) fn shared(self, cols: u64, norm: u64, threads: u64) -> u64 {
        let blocks = cols.min(CHUNK).next_multiple_of(self.span) / 32;
        blocks * 144 + norm + threads * RING * (16 + 4 * self.side)
    }

    /// How `tasks` tasks of `cols` columns are shared by `blocks` blocks on a device that gives a block `shared` bytes.
    ///
    /// Blocks that have more than one round of tasks get a multiprocessor each, by asking for more than half of its shared memory: else
    /// two of a launch that begins early may come to one that is free already, and none to another.
    pub fn share(self, tasks: u32, blocks: u32, cols: u32, shared: u32) -> Share {
        let threads = self.threads(tasks, blocks, cols, shared);
        let rounds = u64::from(tasks) * u64::from(self.lanes) > u64::from(blocks) * u64::from(threads);
        let room = if rounds && shared >= EXCLUSIVE { EXCLUSIVE } else { 0 };
        Share { blocks, threads, room }
    }

    /// Threads of a block where `blocks` blocks share `tasks` tasks of `cols` columns: no more than have one, and no more than there is
    /// room for in `shared` bytes.
    fn threads(self, tasks: u32, blocks: u32, cols: u32, shared: u32) -> u32 {
        let lanes = tasks.div_ceil(blocks.max(1)).saturating_mul(self.lanes);
        let wanted = lanes.clamp(MIN_THREADS, MAX_THREADS).next_multiple_of(32);
        let cols = u64::from(cols);
        if self.shared(cols, 4 * cols, wanted.into()) + RESERVED <= shared.into() {
            wanted
        } else {
            MIN_THREADS
        }
    }
}

/// By format.
#[allow(non_upper_case_globals)] // the formats' own names
impl RowWalk {
    /// float32.
    pub const F32: RowWalk = RowWalk { lanes: 32, span: 128, side: 0 };
    /// IEEE half.
    pub const F16: RowWalk = RowWalk { lanes: 32, span: 256, side: 0 };
    /// bfloat16.
    pub const BF16: RowWalk = RowWalk::F16;
    /// Blocks of 32 bytes.
    pub const Q8_0: RowWalk = RowWalk { lanes: 16, span: 256, side: 1 };
    /// Blocks of 32 nibbles.
    pub const Q4_0: RowWalk = RowWalk { lanes: 8, span: 256, side: 1 };
    /// Blocks of 32 nibbles with a minimum.
    pub const Q4_1: RowWalk = RowWalk::Q4_0;
    /// Blocks of 32 weights of five bits.
    pub const Q5_0: RowWalk = RowWalk { lanes: 8, span: 256, side: 2 };
    /// Super-blocks of four bits.
    pub const Q4_K: RowWalk = RowWalk::Q5_0;
    /// Super-blocks of five bits.
    pub const Q5_K: RowWalk = RowWalk { lanes: 8, span: 256, side: 3 };
    /// Super-blocks of six bits.
    pub const Q6_K: RowWalk = RowWalk { lanes: 8, span: 256, side: 4 };
    /// Blocks of 16 4-bit floats.
    pub const NVFP4: RowWalk = RowWalk::Q4_0;

    /// That of a format.
    pub fn of(format: TensorFormat) -> RowWalk {
        match format {
            TensorFormat::F32 => RowWalk::F32,
            TensorFormat::F16 => RowWalk::F16,
            TensorFormat::BF16 => RowWalk::BF16,
            TensorFormat::Q8_0 => RowWalk::Q8_0,
            TensorFormat::Q4_0 => RowWalk::Q4_0,
            TensorFormat::Q4_1 => RowWalk::Q4_1,
            TensorFormat::Q5_0 => RowWalk::Q5_0,
            TensorFormat::Q4_K => RowWalk::Q4_K,
            TensorFormat::Q5_K => RowWalk::Q5_K,
            TensorFormat::Q6_K => RowWalk::Q6_K,
            TensorFormat::NVFP4 => RowWalk::NVFP4,
        }
    }
}

pub(in crate::kernels) fn dot(row: &[f32], x: &[f64]) -> f64 {
    row.iter().zip(x).map(|(&w, &x)| f64::from(w) * x).sum()
}

/// What the rows of a plane are multiplied with: `x`, normed where there is a norm; in program `i16`, with the float32 steps that
/// define it, as `q · scale`.
fn activations<const I16: bool>(x: &[f32], norm: Option<&[f32]>, eps: f32) -> Vec<f64> {
    match (I16, norm) {
        (false, None) => x.iter().map(|&x| f64::from(x)).collect(),
        (false, Some(weight)) => normalised(x, weight, eps),
        (true, _) => int16_rounded(x, norm, eps),
    }
}

fn reference<const I16: bool>(
    w: &HostTensor,
    x: &[f32],
    norm: Option<&[f32]>,
    eps: f32,
    residual: Option<&[f32]>,
    y: &mut [f64],
    rows: u32,
    cols: u32,
    tokens: u32,
    x_stride: u32,
    _blocks: u32,
    _threads: u32,
    _room: u32,
) {
    for (t, x) in token_rows(x, cols, tokens, x_stride).enumerate() {
        let x = activations::<I16>(x, norm, eps);
        for r in 0..rows as usize {
            let at = t * rows as usize + r;
            y[at] = dot(w.row(r), &x) + residual.map_or(0.0, |residual| f64::from(residual[at]));
        }
    }
}

fn swiglu_reference<const I16: bool>(
    w: &HostTensor,
    x: &[f32],
    norm: Option<&[f32]>,
    eps: f32,
    y: &mut [f64],
    rows: u32,
    cols: u32,
    limit: f32,
    tokens: u32,
    x_stride: u32,
    _blocks: u32,
    _threads: u32,
    _room: u32,
) {
    let rows = rows as usize;
    for (y, x) in y.chunks_mut(rows).zip(token_rows(x, cols, tokens, x_stride)) {
        let x = activations::<I16>(x, norm, eps);
        for (r, y) in y.iter_mut().enumerate() {
            *y = swiglu_value(dot(w.row(r), &x), dot(w.row(r + rows), &x), limit);
        }
    }
}

/// `(rows, cols)`: one row, odd rows, ragged last steps, past one block of rows, past a chunk of 16384 columns.
const FLOAT_SHAPES: [(u32, u32); 9] =
    [(1, 8), (3, 24), (5, 96), (33, 128), (67, 576), (7, 2056), (9, 2048), (6, 4104), (3, 16392)];
/// The same for formats of blocks of 32.
const BLOCK_SHAPES: [(u32, u32); 9] =
    [(1, 32), (3, 64), (5, 96), (33, 256), (67, 576), (131, 288), (9, 2048), (7, 2080), (6, 16416)];
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

/// Blocks and threads of a case: one block, a few, more than there are tasks.
fn geometry(index: usize) -> (u32, u32) {
    [(1, 256), (3, 512), (2, 288), (132, 512), (5, 256)][index % 5]
}

fn case((rows, cols): (u32, u32), tokens: u32, apart: u32, (blocks, threads): (u32, u32)) -> Case {
    // The widest rows with a norm leave no room for the rings of more.
    let threads = if u64::from(cols) > CHUNK / 2 { MIN_THREADS } else { threads };
    let tokens_text = if tokens == 1 { String::new() } else { format!(", {tokens} tokens") };
    Case::new(format!("[{rows}, {cols}]{tokens_text}, {blocks} blocks of {threads}"))
        .u32("rows", rows)
        .u32("cols", cols)
        .u32("tokens", tokens)
        .u32("x_stride", cols + apart)
        .u32("blocks", blocks)
        .u32("threads", threads)
        .u32("room", 0)
        .f32("eps", 1e-5)
}

/// Whether the case at `index` has a norm: two in three.
fn normed(case: Case, index: usize) -> Case {
    if index.is_multiple_of(3) { case.absent("norm") } else { case }
}

/// One case a shape; the residual is there in every other, the norm in two of three, and tokens of every fourth are apart.
fn shapes(small: &[(u32, u32)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, &shape) in small.iter().enumerate() {
        let case = case(shape, tokens(i), if i % 4 == 1 { 24 } else { 0 }, geometry(i));
        cases.push(normed(if i % 2 == 0 { case } else { case.absent("residual") }, i));
    }
    for (i, shape) in MODEL_SHAPES.into_iter().enumerate() {
        cases.push(normed(case(shape, 1, 0, (132, 512)), i).representative());
    }
    cases.push(case((6144, 4096), 16, 0, (132, 512)).absent("norm").representative());
    cases
}

/// One case a shape; every third activation is limited.
fn pairs(small: &[(u32, u32)]) -> Vec<Case> {
    let limit = |i: usize| if i.is_multiple_of(3) { 0.75 } else { f32::INFINITY };
    let small = small.iter().enumerate();
    let mut cases: Vec<Case> = small
        .map(|(i, &shape)| normed(case(shape, tokens(i), 0, geometry(i + 1)).f32("limit", limit(i)), i + 1))
        .collect();
    cases.extend(
        MODEL_PAIRS.map(|shape| case(shape, 1, 0, (132, 512)).f32("limit", f32::INFINITY).representative()),
    );
    cases.push(case((8192, 2048), 16, 0, (132, 512)).f32("limit", f32::INFINITY).representative());
    cases
}

fn float_cases() -> Vec<Case> {
    shapes(&FLOAT_SHAPES)
}

fn block_cases() -> Vec<Case> {
    shapes(&BLOCK_SHAPES)
}

fn float_pairs() -> Vec<Case> {
    pairs(&FLOAT_SHAPES)
}

fn block_pairs() -> Vec<Case> {
    pairs(&BLOCK_SHAPES)
}

/// Declares the kernels of a program: `y = W · x`.
macro_rules! declare_matvec {
    ($module:tt, $i16:literal; $($name:ident $entry:tt $format:ident $tolerance:literal $cases:ident;)*) => {$(
        /// `y[t, r] = (residual[t, r] +) Σ_c w[r, c] · norm(x[t])[c]`, rows of `x` being `x_stride` apart; without `norm`, of `x`
        /// itself. A group of neighbouring lanes a row, each taking 16-byte vectors in turn into two alternating sums, folded by a
        /// butterfly: that order is the numeric contract. `blocks` of `threads` share the rows of a token, each
        /// with at least `room` bytes of shared memory to itself.
        ///
        /// The tolerance is explained with the program's kernels.
        #[kernel(module = $module, entry = $entry, reference = reference::<$i16>, cases = $cases, tol = $tolerance)]
        #[launch(
            grid = (tokens, blocks, 1),
            block = (threads, 1, 1),
            shared = RowWalk::$format.shared(cols, norm.bytes(), threads).max(room),
            dependent
        )]
        #[cost(
            read = w.bytes() + 4 * tokens * cols + norm.bytes() + residual.bytes(),
            write = y.bytes(),
            flops = 2 * tokens * rows * cols
        )]
        pub fn $name(
            #[shape(rows, cols)] w: &QTensor<$format>,
            #[len((tokens - 1) * x_stride + cols)] x: &[f32],
            #[len(cols)] norm: Option<&[f32]>,
            eps: f32,
            #[len(tokens * rows)] residual: Option<&[f32]>,
            #[out]
            #[len(tokens * rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
            tokens: u32,
            x_stride: u32,
            blocks: u32,
            threads: u32,
            room: u32,
        );
    )*};
}

/// Declares the kernels of a program: the gated pair.
macro_rules! declare_swiglu {
    ($module:tt, $i16:literal; $($name:ident $entry:tt $format:ident $tolerance:literal $cases:ident;)*) => {$(
        /// `y[t, r] = silu(min(w[r] · x', limit)) · clamp(w[rows + r] · x', −limit, limit)` with `x' = norm(x[t])`: gate and up
        /// projections, stacked, and the activation; a limit of infinity bounds nothing. The sums have the bits of the `matvec` of
        /// the same format and program.
        #[kernel(module = $module, entry = $entry, reference = swiglu_reference::<$i16>, cases = $cases, tol = $tolerance)]
        #[launch(
            grid = (tokens, blocks, 1),
            block = (threads, 1, 1),
            shared = RowWalk::$format.shared(cols, norm.bytes(), threads).max(room),
            dependent
        )]
        #[cost(read = w.bytes() + 4 * tokens * cols + norm.bytes(), write = y.bytes(), flops = 4 * tokens * rows * cols)]
        pub fn $name(
            #[shape(2 * rows, cols)] w: &QTensor<$format>,
            #[len((tokens - 1) * x_stride + cols)] x: &[f32],
            #[len(cols)] norm: Option<&[f32]>,
            eps: f32,
            #[out]
            #[len(tokens * rows)]
            y: &mut [f32],
            rows: u32,
            cols: u32,
            limit: f32,
            tokens: u32,
            x_stride: u32,
            blocks: u32,
            threads: u32,
            room: u32,
        );
    )*};
}

use {declare_matvec, declare_swiglu};
