//! Attention over a cache of latents `[capacity, dim]`, one row a token that serves all heads as key and as value
//! (multi-head latent attention in absorbed form), restricted to a selection of positions.
//!
//! The selection of the token at position `p`: `count` pools of `kpool` neighbouring positions each, listed ascending in
//! `pools`, and then the tail, the `(p + 1) mod kpool` positions of the pool that is not complete.

use super::matvec::RowWalk;
use crate::kernel::{BF16, Case, Counter, F16, F32, Fill, HostElement, HostTensor, QTensor, kernel};

/// Positions of a chunk: the unit that attention over a selection is split by.
pub const CHUNK: u32 = 64;
/// The longest row of latents.
pub const MAX_DIM: u32 = 512;
/// Heads that share a pass over a chunk.
const HEADS: u64 = 4;

/// The most chunks that a selection of up to `max_pools` pools has.
pub fn latent_chunks(max_pools: u32, kpool: u32) -> u32 {
    max_pools.saturating_mul(kpool).saturating_add(kpool.saturating_sub(1)).div_ceil(CHUNK)
}

/// `count` blocks, or none (which a launch refuses) for rows that the kernels cannot hold.
fn blocks(count: u64, dim: u64) -> u64 {
    if dim <= u64::from(MAX_DIM) && dim.is_multiple_of(32) { count } else { 0 }
}

fn append_reference(
    x: &[f32],
    weight: &[f32],
    cache: &mut [f64],
    position: u32,
    cols: u32,
    eps: f32,
    tokens: u32,
    x_stride: u32,
) {
    let cols = cols as usize;
    for token in 0..tokens as usize {
        let row: Vec<f64> = x[token * x_stride as usize..][..cols].iter().map(|&v| f64::from(v)).collect();
        let mean = row.iter().map(|v| v * v).sum::<f64>() / cols as f64;
        let inverse = 1.0 / (mean + f64::from(eps)).sqrt();
        let out = &mut cache[(position as usize + token) * cols..][..cols];
        for ((out, v), &w) in out.iter_mut().zip(&row).zip(weight) {
            *out = v * inverse * f64::from(w);
        }
    }
}

fn heads_reference(w: &HostTensor, x: &[f32], y: &mut [f64], heads: u32, rows: u32, cols: u32, tokens: u32) {
    let (heads, rows, cols) = (heads as usize, rows as usize, cols as usize);
    for at in 0..tokens as usize * heads {
        let x = &x[at * cols..][..cols];
        for r in 0..rows {
            let row = w.row(at % heads * rows + r);
            y[at * rows + r] = row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
        }
    }
}

/// The positions that a token sees, in order.
fn selection(position: usize, pools: &[u32], kpool: usize) -> Vec<usize> {
    let complete = (position + 1) / kpool * kpool;
    let listed = pools.iter().flat_map(|&pool| pool as usize * kpool..(pool as usize + 1) * kpool);
    listed.chain(complete..position + 1).collect()
}

fn split_reference<T: HostElement<Reference = f64>>(
    q: &[f32],
    cache: &[T],
    pools: &[u32],
    count: &[u32],
    position: u32,
    partial: &mut [f64],
    max_sum: &mut [f64],
    heads: u32,
    dim: u32,
    scale: f32,
    kpool: u32,
    max_pools: u32,
    max_chunks: u32,
    tokens: u32,
) {
    let (heads, dim, max_chunks) = (heads as usize, dim as usize, max_chunks as usize);
    for token in 0..tokens as usize {
        let listed = &pools[token * max_pools as usize..][..count[token] as usize];
        let seen = selection(position as usize + token, listed, kpool as usize);
        for (chunk, places) in seen.chunks(CHUNK as usize).enumerate() {
            let latent = |&place: &usize| -> Vec<f64> {
                cache[place * dim..][..dim].iter().map(|&v| v.widen()).collect()
            };
            let latents: Vec<Vec<f64>> = places.iter().map(latent).collect();
            for row in token * heads..(token + 1) * heads {
                let q: Vec<f64> = q[row * dim..][..dim].iter().map(|&v| f64::from(v)).collect();
                let score = |latent: &Vec<f64>| -> f64 {
                    q.iter().zip(latent).map(|(q, k)| q * k).sum::<f64>() * f64::from(scale)
                };
                let scores: Vec<f64> = latents.iter().map(score).collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let at = row * max_chunks + chunk;
                let out = &mut partial[at * dim..][..dim];
                out.fill(0.0);
                let mut sum = 0.0;
                for (latent, score) in latents.iter().zip(&scores) {
                    let weight = (score - largest).exp();
                    sum += weight;
                    out.iter_mut().zip(latent).for_each(|(out, v)| *out += weight * v);
                }
                (max_sum[2 * at], max_sum[2 * at + 1]) = (largest, sum);
            }
        }
    }
}

fn fold_reference(
    partial: &[f32],
    max_sum: &[f32],
    count: &[u32],
    position: u32,
    y: &mut [f64],
    heads: u32,
    dim: u32,
    kpool: u32,
    max_chunks: u32,
    tokens: u32,
) {
    let (heads, dim, max_chunks) = (heads as usize, dim as usize, max_chunks as usize);
    for token in 0..tokens {
        let tail = (position + token + 1) % kpool;
        let chunks = (count[token as usize] * kpool + tail).div_ceil(CHUNK) as usize;
        for row in token as usize * heads..(token as usize + 1) * heads {
            let pair = |c: usize| &max_sum[(row * max_chunks + c) * 2..][..2];
            let largest = (0..chunks).map(|c| pair(c)[0]).fold(f32::NEG_INFINITY, f32::max);
            let weight = |c: usize| (f64::from(pair(c)[0]) - f64::from(largest)).exp();
            let sum: f64 = (0..chunks).map(|c| weight(c) * f64::from(pair(c)[1])).sum();
            for d in 0..dim {
                let term = |c: usize| weight(c) * f64::from(partial[(row * max_chunks + c) * dim + d]);
                y[row * dim + d] = (0..chunks).map(term).sum::<f64>() / sum;
            }
        }
    }
}

/// `(cols, tokens, x_stride, position)`.
fn append_cases() -> Vec<Case> {
    let case = |&(cols, tokens, stride, position): &(u32, u32, u32, u32)| {
        Case::new(format!("{cols} columns of stride {stride}, {tokens} tokens at {position}"))
            .u32("cols", cols)
            .f32("eps", 1e-5)
            .u32("tokens", tokens)
            .u32("x_stride", stride)
            .counter("position", position)
            .len("cache", ((position + tokens + 1) * cols) as usize)
    };
    let shapes = [
        (64, 1, 64, 0),
        (64, 5, 104, 3),
        (96, 2, 96, 60),
        (512, 1, 576, 9),
        (1032, 2, 1032, 1),
        (8, 1, 8, 2),
    ];
    let mut cases: Vec<Case> = shapes.iter().map(case).collect();
    let model = [(512, 1, 2208, 4095), (512, 64, 2208, 4096)];
    cases.extend(model.iter().map(|shape| case(shape).representative()));
    cases
}

/// `(heads, rows, cols, tokens)`: rows that end within a group of lanes, a head a block and less.
fn heads_cases() -> Vec<Case> {
    let case = |&(heads, rows, cols, tokens): &(u32, u32, u32, u32)| {
        Case::new(format!("{heads} heads [{rows}, {cols}], {tokens} tokens"))
            .u32("heads", heads)
            .u32("rows", rows)
            .u32("cols", cols)
            .u32("tokens", tokens)
    };
    let shapes =
        [(4, 64, 32, 1), (4, 32, 64, 5), (2, 40, 96, 2), (3, 7, 24, 1), (1, 4, 8, 1), (2, 37, 520, 2)];
    let mut cases: Vec<Case> = shapes.iter().map(case).collect();
    let model = [(64, 512, 256, 1), (64, 256, 512, 1), (64, 512, 256, 8)];
    cases.extend(model.iter().map(|shape| case(shape).representative()));
    cases
}

/// A case of which each token sees as many pools as there are, up to `top`, spread over all that are complete.
fn selection_case(heads: u32, dim: u32, kpool: u32, top: u32, tokens: u32, position: u32) -> (Case, u32) {
    let max_chunks = latent_chunks(top, kpool);
    let complete = |token: u32| (position + token + 1) / kpool;
    let count: Vec<u32> = (0..tokens).map(|token| complete(token).min(top)).collect();
    let label = format!("{heads} heads of {dim}, {top} pools of {kpool}, {tokens} tokens at {position}");
    let case = Case::new(label)
        .u32("heads", heads)
        .u32("dim", dim)
        .u32("kpool", kpool)
        .u32("max_chunks", max_chunks)
        .u32("tokens", tokens)
        .counter("position", position)
        .values("count", &count);
    (case, max_chunks)
}

/// `(heads, dim, kpool, top, tokens, position)`: one position, every tail, selections short of a chunk, of one, of several,
/// chosen among more pools than may be, heads that do not fill a pass.
const SELECTIONS: [(u32, u32, u32, u32, u32, u32); 9] = [
    (4, 64, 4, 4, 1, 0),
    (4, 64, 4, 4, 5, 14),
    (3, 64, 4, 4, 1, 99),
    (4, 32, 4, 40, 5, 61),
    (2, 96, 4, 33, 2, 300),
    (5, 512, 4, 16, 1, 63),
    (1, 160, 1, 70, 2, 130),
    (6, 512, 4, 32, 1, 130),
    (4, 64, 8, 9, 1, 71),
];
const MODEL_SELECTIONS: [(u32, u32, u32, u32, u32, u32); 2] =
    [(64, 512, 4, 512, 1, 4094), (64, 512, 4, 512, 4, 4096)];

fn split_case(&(heads, dim, kpool, top, tokens, position): &(u32, u32, u32, u32, u32, u32)) -> Case {
    let (case, _) = selection_case(heads, dim, kpool, top, tokens, position);
    // Pool i of n: spread over the complete ones, ascending.
    let spread = |token: u32, i: u32| {
        let complete = (position + token + 1) / kpool;
        if i >= complete {
            u32::MAX
        } else if complete <= top {
            i
        } else {
            i * complete / top
        }
    };
    let pools: Vec<u32> = (0..tokens).flat_map(|token| (0..top).map(move |i| spread(token, i))).collect();
    case.f32("scale", 1.0 / (dim as f32).sqrt())
        .u32("max_pools", top)
        .values("pools", &pools)
        .len("cache", ((position + tokens) * dim) as usize)
}

fn split_cases() -> Vec<Case> {
    let mut cases: Vec<Case> = SELECTIONS.iter().map(split_case).collect();
    cases.extend(MODEL_SELECTIONS.iter().map(|shape| split_case(shape).representative()));
    cases
}

fn fold_cases() -> Vec<Case> {
    let case = |&(heads, dim, kpool, top, tokens, position): &(u32, u32, u32, u32, u32, u32)| {
        let (case, _) = selection_case(heads, dim, kpool, top, tokens, position);
        case.fill("max_sum", Fill::Uniform(0.5, 8.0))
    };
    let mut cases: Vec<Case> = SELECTIONS.iter().map(case).collect();
    // More chunks than are weighed at a time.
    cases.push(case(&(2, 64, 4, 2100, 1, 8402)));
    cases.extend(MODEL_SELECTIONS.iter().map(|shape| case(shape).representative()));
    cases
}

type Half = half::f16;

macro_rules! declare_append {
    ($($name:ident $entry:tt $element:ident $tolerance:tt;)*) => {$(
        /// `cache[*position + t] = RMSNorm(x[t]) · weight`. A token's row of `x` begins `x_stride` floats (a multiple of 4)
        /// after the one before. A block a token; sums by 128 threads, as in `rms_norm`.
        ///
        /// The tolerance is the cache element's rounding, or for float32 that of a handful of operations.
        #[kernel(module = "latent", entry = $entry, reference = append_reference, cases = append_cases, tol = $tolerance)]
        #[launch(grid = (tokens, 1, 1), block = (128, 1, 1), dependent)]
        #[cost(
            read = 4 * (tokens + 1) * cols + 4,
            write = tokens * cols * size_of::<$element>() as u64,
            flops = 4 * tokens * cols
        )]
        pub fn $name(
            #[len((tokens - 1) * x_stride + cols)] x: &[f32],
            #[len(cols)] weight: &[f32],
            #[len(tokens * cols)] cache: &mut [$element],
            position: &Counter,
            cols: u32,
            eps: f32,
            tokens: u32,
            x_stride: u32,
        );
    )*};
}

declare_append! {
    latent_append_f32 "latent_append_f32" f32 4e-7;
    latent_append_f16 "latent_append_f16" Half 4.9e-4;
}

macro_rules! declare_heads {
    ($($name:ident $entry:tt $format:ident;)*) => {$(
        /// `y[t, h, r] = w[h · rows + r] · x[t, h]`: a matrix a head, stacked by rows, each row summed as in `matvec`, with
        /// its bits. A block takes about four rows of a head for each group of lanes.
        ///
        /// The tolerance is that of `matvec`'s short rows.
        #[kernel(module = "latent", entry = $entry, reference = heads_reference, cases = heads_cases, tol = 5e-7)]
        #[launch(
            grid = (tokens, rows.div_ceil(32), heads),
            block = (256, 1, 1),
            shared = RowWalk::$format.shared(cols, 0, 256),
            dependent
        )]
        #[cost(read = w.bytes() + x.bytes(), write = y.bytes(), flops = 2 * tokens * heads * rows * cols)]
        pub fn $name(
            #[shape(heads * rows, cols)] w: &QTensor<$format>,
            #[len(tokens * heads * cols)] x: &[f32],
            #[out]
            #[len(tokens * heads * rows)]
            y: &mut [f32],
            heads: u32,
            rows: u32,
            cols: u32,
            tokens: u32,
        );
    )*};
}

declare_heads! {
    heads_matvec_f32 "heads_matvec_f32" F32;
    heads_matvec_f16 "heads_matvec_f16" F16;
    heads_matvec_bf16 "heads_matvec_bf16" BF16;
}

macro_rules! declare_split {
    ($($name:ident $entry:tt $element:ident;)*) => {$(
        /// For each head and chunk of 64 entries of a token's selection: `partial = Σ exp(s − m) · latent`, `max_sum = (m,
        /// Σ exp(s − m))`, with scores `s = scale · q · latent` and `m` the chunk's largest. Block (four heads, chunk,
        /// token); chunks past the selection leave at once, so `max_chunks` does not change a bit. `dim` is a multiple of
        /// 32, at most 512; `pools` has rows of `max_pools`.
        ///
        /// The tolerance: a score's error, some 2⁻²³ of its size, goes into every weight; a few for the sums.
        #[kernel(module = "latent", entry = $entry, reference = split_reference::<$element>, cases = split_cases, tol = 1e-6)]
        #[launch(grid = (blocks(heads.div_ceil(HEADS), dim), max_chunks, tokens), block = (256, 1, 1), dependent)]
        #[cost(
            read = q.bytes() + tokens * max_chunks * 64 * dim * size_of::<$element>() as u64,
            write = partial.bytes() + max_sum.bytes(),
            flops = 4 * tokens * max_chunks * 64 * heads * dim
        )]
        pub fn $name(
            #[len(tokens * heads * dim)] q: &[f32],
            #[len(dim)] cache: &[$element],
            #[len(tokens * max_pools)] pools: &[u32],
            #[len(tokens)] count: &[u32],
            position: &Counter,
            #[out]
            #[len(tokens * heads * max_chunks * dim)]
            partial: &mut [f32],
            #[out]
            #[len(tokens * heads * max_chunks * 2)]
            max_sum: &mut [f32],
            heads: u32,
            dim: u32,
            scale: f32,
            kpool: u32,
            max_pools: u32,
            max_chunks: u32,
            tokens: u32,
        );
    )*};
}

declare_split! {
    latent_split_f32 "latent_split_f32" f32;
    latent_split_f16 "latent_split_f16" Half;
}

/// `y[t, h] = Σ_c exp(m_c − m) · partial[c] / Σ_c exp(m_c − m) · sum_c` over the chunks of the token's selection, in order. One
/// block a head and token, a thread a column: `dim` is a multiple of 32, at most 512.
#[kernel(module = "latent", entry = "latent_fold", reference = fold_reference, cases = fold_cases, tol = 1e-6)]
#[launch(grid = (blocks(heads, dim), tokens, 1), block = (dim, 1, 1), dependent)]
#[cost(read = partial.bytes() + max_sum.bytes(), write = y.bytes(), flops = 2 * tokens * heads * max_chunks * dim)]
pub fn latent_fold(
    #[len(tokens * heads * max_chunks * dim)] partial: &[f32],
    #[len(tokens * heads * max_chunks * 2)] max_sum: &[f32],
    #[len(tokens)] count: &[u32],
    position: &Counter,
    #[out]
    #[len(tokens * heads * dim)]
    y: &mut [f32],
    heads: u32,
    dim: u32,
    kpool: u32,
    max_chunks: u32,
    tokens: u32,
);
