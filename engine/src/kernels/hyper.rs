//! Hyper-connections: a layer reads a weighted sum of `n` residual streams and writes its output back to all of them,
//! with weights that are functions of the streams.
//!
//! Rows of the projection are `[pre n | post n | comb n·n, row-major]`; the formulas are those of GLM-5.3's
//! `Glm5NextHyperConnection` in transformers. Every kernel takes `tokens` tokens, a block each or more, and reduces a token's
//! rows in an order that does not depend on how many there are.

use super::math::sigmoid;
use crate::kernel::{BF16, Case, F16, F32, Fill, HostTensor, QTensor, kernel};

/// Streams there may be: their pairs fit a warp.
pub const MAX_STREAMS: u32 = 5;

/// `tokens` blocks, or none (which a launch refuses) for more streams than the kernels hold.
fn blocks(tokens: u64, n: u64) -> u64 {
    if n <= u64::from(MAX_STREAMS) { tokens } else { 0 }
}

fn mean_square(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

fn project_reference(w: &HostTensor, streams: &[f32], m: &mut [f64], rows: u32, cols: u32, tokens: u32) {
    let (rows, cols) = (rows as usize, cols as usize);
    for token in 0..tokens as usize {
        let x = wide(&streams[token * cols..][..cols]);
        let out = &mut m[token * (rows + 1)..][..=rows];
        for (r, out) in out[..rows].iter_mut().enumerate() {
            *out = w.row(r).iter().zip(&x).map(|(&w, x)| f64::from(w) * x).sum();
        }
        out[rows] = mean_square(&x);
    }
}

/// Softmax over the last axis, then `iters` rounds of normalisation, the first of columns only.
fn sinkhorn(comb: &mut [f64], n: usize, iters: u32, eps: f64) {
    for row in comb.chunks_mut(n) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|v| (v - largest).exp()).sum();
        row.iter_mut().for_each(|v| *v = (*v - largest).exp() / sum + eps);
    }
    for round in 0..iters {
        if round > 0 {
            for row in comb.chunks_mut(n) {
                let sum: f64 = row.iter().sum();
                row.iter_mut().for_each(|v| *v /= sum + eps);
            }
        }
        for j in 0..n {
            let sum: f64 = (0..n).map(|i| comb[i * n + j]).sum();
            (0..n).for_each(|i| comb[i * n + j] /= sum + eps);
        }
    }
}

fn collapse_reference(
    streams: &[f32],
    m: &[f32],
    base: &[f32],
    scale: &[f32],
    norm_weight: &[f32],
    collapsed: &mut [f64],
    normed: &mut [f64],
    post: &mut [f64],
    comb: &mut [f64],
    hidden: u32,
    n: u32,
    iters: u32,
    hc_eps: f32,
    eps: f32,
    tokens: u32,
) {
    let (hidden, n) = (hidden as usize, n as usize);
    let (rows, hc_eps, eps) = (n * (n + 2), f64::from(hc_eps), f64::from(eps));
    for token in 0..tokens as usize {
        let m = &m[token * (rows + 1)..][..=rows];
        let inverse = 1.0 / (f64::from(m[rows]) + eps).sqrt();
        let mix =
            |r: usize, part: usize| f64::from(m[r]) * inverse * f64::from(scale[part]) + f64::from(base[r]);
        let pre: Vec<f64> = (0..n).map(|i| sigmoid(mix(i, 0)) + hc_eps).collect();
        (0..n).for_each(|i| post[token * n + i] = 2.0 * sigmoid(mix(n + i, 1)));
        let comb = &mut comb[token * n * n..][..n * n];
        comb.iter_mut().enumerate().for_each(|(k, c)| *c = mix(2 * n + k, 2));
        sinkhorn(comb, n, iters, hc_eps);
        let row = &mut collapsed[token * hidden..][..hidden];
        for (c, out) in row.iter_mut().enumerate() {
            *out = (0..n).map(|i| pre[i] * f64::from(streams[(token * n + i) * hidden + c])).sum();
        }
        let inverse = 1.0 / (mean_square(row) + eps).sqrt();
        for (c, x) in row.iter().enumerate() {
            normed[token * hidden + c] = x * inverse * f64::from(norm_weight[c]);
        }
    }
}

fn expand_reference(
    streams: &mut [f64],
    y: &[f32],
    post: &[f32],
    comb: &[f32],
    hidden: u32,
    n: u32,
    tokens: u32,
) {
    let (hidden, n) = (hidden as usize, n as usize);
    for token in 0..tokens as usize {
        let streams = &mut streams[token * n * hidden..][..n * hidden];
        for c in 0..hidden {
            let before: Vec<f64> = (0..n).map(|i| streams[i * hidden + c]).collect();
            for j in 0..n {
                let written = f64::from(post[token * n + j]) * f64::from(y[token * hidden + c]);
                let kept = |i: usize| f64::from(comb[(token * n + i) * n + j]) * before[i];
                streams[j * hidden + c] = written + (0..n).map(kept).sum::<f64>();
            }
        }
    }
}

fn mean_reference(
    streams: &[f32],
    weight: &[f32],
    y: &mut [f64],
    hidden: u32,
    n: u32,
    eps: f32,
    tokens: u32,
) {
    let (hidden, n) = (hidden as usize, n as usize);
    for token in 0..tokens as usize {
        let stream = |i: usize, c: usize| f64::from(streams[(token * n + i) * hidden + c]);
        let mean: Vec<f64> =
            (0..hidden).map(|c| (0..n).map(|i| stream(i, c)).sum::<f64>() / n as f64).collect();
        let inverse = 1.0 / (mean_square(&mean) + f64::from(eps)).sqrt();
        for (c, x) in mean.iter().enumerate() {
            y[token * hidden + c] = x * inverse * f64::from(weight[c]);
        }
    }
}

/// `(hidden, streams, tokens)`: the small models' sizes, one stream, five, a row past one turn of the threads.
const SHAPES: [(u32, u32, u32); 7] =
    [(128, 4, 1), (96, 4, 2), (128, 4, 5), (8, 1, 1), (24, 2, 3), (2056, 3, 2), (136, 5, 1)];
/// GLM-5.3-Flash, decode and a chunk of a prompt.
const MODEL_SHAPES: [(u32, u32, u32); 2] = [(4096, 4, 1), (4096, 4, 64)];

/// A case a shape, of which `finish` sets the rest.
fn shapes(finish: impl Fn(Case, u32, u32) -> Case) -> Vec<Case> {
    let case = |&(hidden, n, tokens): &(u32, u32, u32)| {
        let label = format!("{n} streams of {hidden}, {tokens} tokens");
        finish(Case::new(label).u32("tokens", tokens), hidden, n)
    };
    let mut cases: Vec<Case> = SHAPES.iter().map(case).collect();
    cases.extend(MODEL_SHAPES.iter().map(|shape| case(shape).representative()));
    cases
}

fn project_cases() -> Vec<Case> {
    shapes(|case, hidden, n| case.u32("rows", n * (n + 2)).u32("cols", n * hidden))
}

fn collapse_cases() -> Vec<Case> {
    let common = |case: Case, hidden, n, iters| {
        case.u32("hidden", hidden).u32("n", n).u32("iters", iters).f32("hc_eps", 1e-6).f32("eps", 1e-5)
    };
    // The mean square stands last in each row of m and is positive.
    let mut cases = shapes(|case, hidden, n| common(case, hidden, n, 20).fill("m", Fill::Uniform(0.1, 2.0)));
    let varied = |label: &str, iters| common(Case::new(label).u32("tokens", 1), 128, 4, iters);
    cases.push(varied("one round", 1).fill("m", Fill::Uniform(0.5, 3.0)));
    // Weights far apart: rows of the softmax that are nearly one-hot, and of which the rounds move much.
    let m: Vec<f32> = (0..25).map(|i| if i == 24 { 0.25 } else { ((i * 7) % 11) as f32 - 5.0 }).collect();
    cases.push(varied("far apart", 20).values("m", &m).values("scale", &[1.0f32, 1.0, 0.8]));
    let not_a_number: Vec<f32> = (0..25).map(|i| if i == 24 { f32::NAN } else { 0.5 }).collect();
    cases.push(varied("NaN", 20).values("m", &not_a_number));
    cases
}

fn expand_cases() -> Vec<Case> {
    shapes(|case, hidden, n| {
        case.u32("hidden", hidden)
            .u32("n", n)
            .fill("post", Fill::Uniform(0.0, 2.0))
            .fill("comb", Fill::Uniform(0.0, 1.0))
    })
}

fn mean_cases() -> Vec<Case> {
    shapes(|case, hidden, n| case.u32("hidden", hidden).u32("n", n).f32("eps", 1e-5))
}

macro_rules! declare_project {
    ($($name:ident $entry:tt $format:ident;)*) => {$(
        /// `m[t, r] = w[r] · streams[t]` for each of `rows` rows, and `m[t, rows]` the mean of the streams' squares, by which
        /// `hc_collapse` normalises them. A block a token and row; 512 threads take quads of columns in turn into four
        /// sums, folded in pairs, by a butterfly over each warp, then over the warps.
        ///
        /// The tolerance: a chain of at most 8 roundings in each sum, and nine of the fold.
        #[kernel(module = "hyper", entry = $entry, reference = project_reference, cases = project_cases, tol = 3e-7)]
        #[launch(grid = (tokens, rows + 1, 1), block = (512, 1, 1), dependent)]
        #[cost(read = w.bytes() + streams.bytes(), write = m.bytes(), flops = 2 * tokens * (rows + 1) * cols)]
        pub fn $name(
            #[shape(rows, cols)] w: &QTensor<$format>,
            #[len(tokens * cols)] streams: &[f32],
            #[out]
            #[len(tokens * (rows + 1))]
            m: &mut [f32],
            rows: u32,
            cols: u32,
            tokens: u32,
        );
    )*};
}

declare_project! {
    hc_project_f32 "hc_project_f32" F32;
    hc_project_f16 "hc_project_f16" F16;
    hc_project_bf16 "hc_project_bf16" BF16;
}

/// The layer's input and the weights of its output, of what `hc_project` gave. With `v = m[r] / sqrt(m[rows] + eps)`:
/// `pre = σ(v · scale[0] + base) + hc_eps`, `post = 2 σ(v · scale[1] + base)`, `comb` = softmax over the last axis of
/// `v · scale[2] + base`, plus `hc_eps`, then columns over (their sum + `hc_eps`), then `iters − 1` times rows and columns;
/// `collapsed = Σ_i pre[i] · streams[i]` (a chain in order), `normed = RMSNorm(collapsed) · norm_weight`.
///
/// A block a token: a warp makes `comb` in registers, one weight a lane, sums by shuffles in order of index. Up to 5
/// streams; `hidden` a multiple of 4.
///
/// The tolerance, of the largest comb weight (about 1), post (below 2) or column: the argument of the softmax has an
/// error of an ulp or two of its size (a few), which a weight of about ½ has a quarter of; 2e-6 absolute is what the
/// reference data asks for.
#[kernel(module = "hyper", entry = "hc_collapse", reference = collapse_reference, cases = collapse_cases, tol = 6e-7)]
#[launch(grid = (blocks(tokens, n), 1, 1), block = (544, 1, 1), shared = 4 * hidden, dependent)]
#[cost(
    read = streams.bytes() + m.bytes() + norm_weight.bytes(),
    write = collapsed.bytes() + normed.bytes() + post.bytes() + comb.bytes(),
    flops = 2 * tokens * (n + 2) * hidden
)]
pub fn hc_collapse(
    #[len(tokens * n * hidden)] streams: &[f32],
    #[len(tokens * (n * (n + 2) + 1))] m: &[f32],
    #[len(n * (n + 2))] base: &[f32],
    #[len(3)] scale: &[f32],
    #[len(hidden)] norm_weight: &[f32],
    #[out]
    #[len(tokens * hidden)]
    collapsed: &mut [f32],
    #[out]
    #[len(tokens * hidden)]
    normed: &mut [f32],
    #[out]
    #[len(tokens * n)]
    post: &mut [f32],
    #[out]
    #[len(tokens * n * n)]
    comb: &mut [f32],
    hidden: u32,
    n: u32,
    iters: u32,
    hc_eps: f32,
    eps: f32,
    tokens: u32,
);

/// `streams[j] = post[j] · y + Σ_i comb[i, j] · streams[i]`, with the streams from before on the right; a chain from
/// `post[j] · y`, `i` in order. A thread a quad of columns.
///
/// The tolerance is that of `n + 1` roundings.
#[kernel(module = "hyper", entry = "hc_expand", reference = expand_reference, cases = expand_cases, tol = 3e-7)]
#[launch(grid = ((hidden / 4).div_ceil(64), blocks(tokens, n), 1), block = (64, 1, 1), dependent)]
#[cost(read = streams.bytes() + y.bytes(), write = streams.bytes(), flops = 2 * tokens * n * (n + 1) * hidden)]
pub fn hc_expand(
    #[len(tokens * n * hidden)] streams: &mut [f32],
    #[len(tokens * hidden)] y: &[f32],
    #[len(tokens * n)] post: &[f32],
    #[len(tokens * n * n)] comb: &[f32],
    hidden: u32,
    n: u32,
    tokens: u32,
);

/// `y = RMSNorm(mean of the streams) · weight`: what the model's head reads. A block a token.
///
/// The tolerance is that of a handful of roundings, as `rms_norm`'s.
#[kernel(module = "hyper", entry = "mean_norm", reference = mean_reference, cases = mean_cases, tol = 5e-7)]
#[launch(grid = (blocks(tokens, n), 1, 1), block = (512, 1, 1), shared = 4 * hidden, dependent)]
#[cost(read = streams.bytes() + weight.bytes(), write = y.bytes(), flops = tokens * (n + 4) * hidden)]
pub fn mean_norm(
    #[len(tokens * n * hidden)] streams: &[f32],
    #[len(hidden)] weight: &[f32],
    #[out]
    #[len(tokens * hidden)]
    y: &mut [f32],
    hidden: u32,
    n: u32,
    eps: f32,
    tokens: u32,
);
