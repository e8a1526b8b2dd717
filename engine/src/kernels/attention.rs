//! Attention: rotary embedding and cache write, attention over chunks of 64 keys, the fold of the chunks.
//!
//! Token t of a launch is at `*position + t` and sees the keys up to itself.
//!
//! The cache holds keys and values as `[capacity, kv_heads, head_dim]` of float32, float16 or fp8 e4m3.

use crate::device::F8E4M3;
use crate::kernel::{Case, Counter, Fill, HostElement, kernel};

/// Keys of a chunk: the unit that attention is split by.
pub const CHUNK: u32 = 64;

/// Bytes of an element of a cache by its format: 0 float32, 1 float16, 2 fp8 e4m3.
pub(in crate::kernels) fn narrowed(cache_format: u64) -> u64 {
    4 >> cache_format.min(2)
}

/// Rotates a head in place.
pub(in crate::kernels) fn rotated(head: &mut [f64], inv_freq: &[f32], position: u32, interleaved: u32) {
    let half = head.len() / 2;
    for (pair, inv_freq) in inv_freq.iter().enumerate().take(half) {
        let (i, j) = if interleaved != 0 { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
        // The angle is a float32 product, as in the models' own code.
        let (sin, cos) = f64::from(position as f32 * inv_freq).sin_cos();
        (head[i], head[j]) = (head[i] * cos - head[j] * sin, head[j] * cos + head[i] * sin);
    }
}

fn rope_reference(
    qkv: &mut [f64],
    position: u32,
    inv_freq: &[f32],
    k_cache: &mut [f64],
    v_cache: &mut [f64],
    q_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    interleaved: u32,
    tokens: u32,
) {
    let (q, kv, dim) = (q_heads as usize, kv_heads as usize, head_dim as usize);
    for (qkv, position) in qkv.chunks_mut((q + 2 * kv) * dim).zip(position..position + tokens) {
        for head in 0..q + kv {
            let row = &mut qkv[head * dim..][..dim];
            if head < q {
                rotated(row, inv_freq, position, interleaved);
            } else {
                // Keys are rotated on their way into the cache.
                let key = &mut k_cache[(position as usize * kv + head - q) * dim..][..dim];
                key.copy_from_slice(row);
                rotated(key, inv_freq, position, interleaved);
            }
        }
        let at = position as usize * kv * dim;
        v_cache[at..][..kv * dim].copy_from_slice(&qkv[(q + kv) * dim..][..kv * dim]);
    }
}

fn split_reference<T: HostElement<Reference = f64>, const DIM: usize>(
    q: &[f32],
    k: &[T],
    v: &[T],
    position: u32,
    partial: &mut [f64],
    max_sum: &mut [f64],
    arrived: &mut [u32],
    out: &mut [f64],
    q_heads: u32,
    kv_heads: u32,
    scale: f32,
    max_chunks: u32,
    _n_splits: u32,
    tokens: u32,
    q_stride: u32,
    folds: u32,
) {
    let (q_heads, kv_heads, max_chunks) = (q_heads as usize, kv_heads as usize, max_chunks as usize);
    let group = q_heads / kv_heads;
    for (index, head) in (0..tokens as usize * q_heads).map(|index| (index, index % q_heads)) {
        let row = |cache: &[T], key: usize| -> Vec<f64> {
            cache[(key * kv_heads + head / group) * DIM..][..DIM].iter().map(|&x| x.widen()).collect()
        };
        let token = index / q_heads;
        let q = &q[token * q_stride as usize + head * DIM..][..DIM];
        let keys = position as usize + token + 1;
        for chunk in 0..keys.div_ceil(CHUNK as usize) {
            let range = chunk * CHUNK as usize..keys.min((chunk + 1) * CHUNK as usize);
            let scores: Vec<f64> = range
                .clone()
                .map(|key| {
                    q.iter().zip(row(k, key)).map(|(&q, k)| f64::from(q) * k).sum::<f64>() * f64::from(scale)
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let at = index * max_chunks + chunk;
            let out = &mut partial[at * DIM..][..DIM];
            out.fill(0.0);
            let mut sum = 0.0;
            for (key, score) in range.zip(&scores) {
                let weight = (score - largest).exp();
                sum += weight;
                out.iter_mut().zip(row(v, key)).for_each(|(out, v)| *out += weight * v);
            }
            (max_sum[2 * at], max_sum[2 * at + 1]) = (largest, sum);
        }
        if folds != 0 {
            let chunks = keys.div_ceil(CHUNK as usize);
            fold_head(
                &partial[index * max_chunks * DIM..],
                &max_sum[index * max_chunks * 2..],
                chunks,
                &mut out[index * DIM..][..DIM],
            );
        }
    }
    // Left as it was found: at zero.
    assert!(arrived.iter().all(|&n| n == 0), "the counts begin at zero");
}

/// `Σ_c exp(m_c − m) · partial[c] / Σ_c exp(m_c − m) · sum_c`.
fn fold_head(partial: &[f64], max_sum: &[f64], chunks: usize, out: &mut [f64]) {
    let dim = out.len();
    let largest = (0..chunks).map(|c| max_sum[2 * c]).fold(f64::NEG_INFINITY, f64::max);
    let weight = |c: usize| (max_sum[2 * c] - largest).exp();
    let sum: f64 = (0..chunks).map(|c| weight(c) * max_sum[2 * c + 1]).sum();
    for (d, out) in out.iter_mut().enumerate() {
        *out = (0..chunks).map(|c| weight(c) * partial[c * dim + d]).sum::<f64>() / sum;
    }
}

fn fold_reference(
    partial: &[f32],
    max_sum: &[f32],
    position: u32,
    out: &mut [f64],
    q_heads: u32,
    head_dim: u32,
    max_chunks: u32,
    tokens: u32,
) {
    let (dim, max_chunks) = (head_dim as usize, max_chunks as usize);
    let wide = |values: &[f32]| -> Vec<f64> { values.iter().map(|&v| f64::from(v)).collect() };
    for head in 0..(tokens * q_heads) as usize {
        let chunks = (position as usize + head / q_heads as usize) / CHUNK as usize + 1;
        let partial = wide(&partial[head * max_chunks * dim..][..chunks * dim]);
        let max_sum = wide(&max_sum[head * max_chunks * 2..][..chunks * 2]);
        fold_head(&partial, &max_sum, chunks, &mut out[head * dim..][..dim]);
    }
}

fn rope_cases() -> Vec<Case> {
    vec![
        rope_case([9, 3, 64], 0, 1, 1),
        rope_case([9, 3, 64], 5, 1, 1),
        rope_case([3, 1, 64], 63, 0, 1),
        rope_case([4, 4, 128], 2, 0, 1),
        rope_case([1, 1, 256], 1, 1, 1),
        rope_case([5, 1, 96], 7, 0, 1),
        rope_case([2, 1, 64], 100, 1, 1),
        rope_case([3, 1, 64], 62, 1, 2),
        rope_case([4, 2, 96], 0, 0, 5),
        rope_case([32, 8, 128], 4095, 1, 1).representative(),
        rope_case([32, 8, 128], 4032, 1, 64).representative(),
    ]
}

fn rope_case([q, kv, dim]: [u32; 3], position: u32, interleaved: u32, tokens: u32) -> Case {
    let inv_freq: Vec<f32> = (0..dim / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / dim as f32)).collect();
    let cache = (position + tokens + 1) as usize * kv as usize * dim as usize;
    Case::new(format!(
        "{tokens} of {q} + {kv} heads of {dim} at {position}{}",
        if interleaved != 0 { ", interleaved" } else { "" }
    ))
    .u32("q_heads", q)
    .u32("kv_heads", kv)
    .u32("head_dim", dim)
    .u32("interleaved", interleaved)
    .u32("tokens", tokens)
    .counter("position", position)
    .values("inv_freq", &inv_freq)
    .len("k_cache", cache)
    .len("v_cache", cache)
}

/// `(q_heads, kv_heads, position, tokens)`: one key, a chunk less one, full, one past; groups of 1, 3, 4, 5, 8 and 9 heads; two
/// tokens of which the second begins a chunk, five of which none has the first one's last key.
const ATTENTION_SHAPES: [(u32, u32, u32, u32); 10] = [
    (1, 1, 0, 1),
    (3, 1, 1, 1),
    (9, 3, 62, 1),
    (4, 4, 63, 1),
    (8, 2, 64, 1),
    (5, 1, 127, 1),
    (8, 1, 130, 1),
    (9, 1, 200, 1),
    (6, 2, 63, 2),
    (4, 2, 0, 5),
];

fn split_case(dim: u32, (q, kv, position, tokens): (u32, u32, u32, u32), folds: bool) -> Case {
    let keys = position + tokens;
    let chunks = keys.div_ceil(CHUNK);
    let cache = keys as usize * kv as usize * dim as usize;
    Case::new(format!("{tokens} of {q} heads on {kv} of {dim}, {keys} keys"))
        .u32("q_heads", q)
        .u32("kv_heads", kv)
        .f32("scale", 1.0 / (dim as f32).sqrt())
        .u32("max_chunks", chunks)
        .u32("n_splits", chunks.next_power_of_two())
        .u32("tokens", tokens)
        .u32("q_stride", (q + 2 * kv) * dim)
        .u32("folds", u32::from(folds))
        .values("arrived", &vec![0u32; if folds { (tokens * kv) as usize } else { 1 }])
        .counter("position", position)
        .len("k", cache)
        .len("v", cache)
}

fn split_cases<const DIM: u32>() -> Vec<Case> {
    let mut cases: Vec<Case> =
        ATTENTION_SHAPES.iter().enumerate().map(|(i, &shape)| split_case(DIM, shape, i % 4 != 3)).collect();
    cases.push(split_case(DIM, (32, 8, 4095, 1), true).representative());
    cases.push(split_case(DIM, (32, 8, 1984, 64), false).representative());
    cases
}

fn fold_case(q: u32, dim: u32, position: u32, tokens: u32) -> Case {
    let chunks = (position + tokens).div_ceil(CHUNK);
    Case::new(format!("{tokens} of {q} heads of {dim}, {chunks} chunks"))
        .u32("q_heads", q)
        .u32("head_dim", dim)
        .u32("max_chunks", chunks + 1)
        .u32("tokens", tokens)
        .counter("position", position)
        .fill("max_sum", Fill::Uniform(0.5, 8.0))
}

fn fold_cases() -> Vec<Case> {
    vec![
        fold_case(1, 64, 0, 1),
        fold_case(9, 64, 64, 1),
        fold_case(3, 128, 640, 1),
        fold_case(2, 256, 127, 1),
        fold_case(4, 64, 64 * 130, 1),
        fold_case(3, 96, 63, 2),
        fold_case(2, 64, 62, 5),
        fold_case(32, 128, 4095, 1).representative(),
        fold_case(32, 128, 4032, 64).representative(),
    ]
}

macro_rules! declare_rope {
    ($($name:ident $entry:tt $element:ident $tolerance:tt;)*) => {$(
        /// Rotary embedding of the queries (in place) and keys, which go to the cache with the values, at `*position + t` for token t.
        /// Pairs are `(2i, 2i + 1)` when `interleaved`, else `(i, i + head_dim/2)`; the angle is `position · inv_freq[i]`
        /// in float32. A thread a pair.
        ///
        /// The tolerance is the cache element's rounding, or for float32 that of a few operations.
        #[kernel(module = "attention", entry = $entry, reference = rope_reference, cases = rope_cases, tol = $tolerance)]
        #[launch(grid = (((q_heads + 2 * kv_heads) * (head_dim / 2)).div_ceil(128), tokens, 1), block = (128, 1, 1), dependent)]
        #[cost(
            read = qkv.bytes() + inv_freq.bytes() + 4,
            write = tokens * (4 * q_heads * head_dim + 2 * kv_heads * head_dim * size_of::<$element>() as u64),
            flops = 3 * tokens * (q_heads + kv_heads) * head_dim
        )]
        pub fn $name(
            #[len(tokens * (q_heads + 2 * kv_heads) * head_dim)] qkv: &mut [f32],
            position: &Counter,
            #[len(head_dim / 2)] inv_freq: &[f32],
            #[len(tokens * kv_heads * head_dim)] k_cache: &mut [$element],
            #[len(tokens * kv_heads * head_dim)] v_cache: &mut [$element],
            q_heads: u32,
            kv_heads: u32,
            head_dim: u32,
            interleaved: u32,
            tokens: u32,
        );
    )*};
}

type Half = half::f16;

declare_rope! {
    rope_kv_f32 "rope_kv_f32" f32 3e-7;
    rope_kv_f16 "rope_kv_f16" Half 4.9e-4;
    rope_kv_fp8 "rope_kv_fp8" F8E4M3 6.3e-2;
}

macro_rules! declare_split {
    ($($name:ident $entry:tt $element:ident $dim:literal;)*) => {$(
        /// For each token t, query head and chunk of 64 keys up to `*position + t`: `partial = Σ exp(s − m) · v`, `max_sum = (m, Σ
        /// exp(s − m))`, with scores `s = scale · q · k` and `m` the chunk's largest. Queries of a token are `q_stride` from those of
        /// the next. Block (kv head, token, chunk); chunks past the length leave at once, so the result does not depend on
        /// `n_splits`, the launch's capacity in chunks. Where it `folds`, the last block of a kv head and token to arrive folds the
        /// chunks into `out` with the bits of [`attn_fold`]; `arrived` counts them, from zero, and is left at zero.
        #[kernel(module = "attention", entry = $entry, reference = split_reference::<$element, $dim>, cases = split_cases::<$dim>, tol = 1e-6)]
        #[launch(grid = (kv_heads, tokens, n_splits), block = (128, 1, 1), dependent)]
        #[cost(
            read = 4 * tokens * q_heads * $dim + 2 * n_splits * 64 * kv_heads * $dim * size_of::<$element>() as u64,
            write = tokens * n_splits * q_heads * ($dim + 2) * 4 + folds * out.bytes(),
            flops = 4 * tokens * n_splits * 64 * q_heads * $dim
        )]
        pub fn $name(
            #[len((tokens - 1) * q_stride + q_heads * $dim)] q: &[f32],
            #[len(kv_heads * $dim)] k: &[$element],
            #[len(kv_heads * $dim)] v: &[$element],
            position: &Counter,
            #[out]
            #[len(tokens * q_heads * max_chunks * $dim)]
            partial: &mut [f32],
            #[out]
            #[len(tokens * q_heads * max_chunks * 2)]
            max_sum: &mut [f32],
            #[len(folds * tokens * kv_heads)] arrived: &mut [u32],
            #[out]
            #[len(tokens * q_heads * $dim)]
            out: &mut [f32],
            q_heads: u32,
            kv_heads: u32,
            scale: f32,
            max_chunks: u32,
            n_splits: u32,
            tokens: u32,
            q_stride: u32,
            folds: u32,
        );
    )*};
}

declare_split! {
    attn_split_f32_64 "attn_split_f32_64" f32 64;
    attn_split_f32_128 "attn_split_f32_128" f32 128;
    attn_split_f32_256 "attn_split_f32_256" f32 256;
    attn_split_f16_64 "attn_split_f16_64" Half 64;
    attn_split_f16_128 "attn_split_f16_128" Half 128;
    attn_split_f16_256 "attn_split_f16_256" Half 256;
    attn_split_fp8_64 "attn_split_fp8_64" F8E4M3 64;
    attn_split_fp8_128 "attn_split_fp8_128" F8E4M3 128;
    attn_split_fp8_256 "attn_split_fp8_256" F8E4M3 256;
}

/// `out[t, h] = Σ_c exp(m_c − m) · partial[t, h, c] / Σ_c exp(m_c − m) · sum_c` over the chunks up to `*position + t`, in
/// order. One block a head and token, one thread a column: `head_dim` is a multiple of 32, at most 256.
#[kernel(module = "attention", entry = "attn_fold", reference = fold_reference, cases = fold_cases, tol = 1e-6)]
#[launch(grid = (q_heads, tokens, 1), block = (head_dim, 1, 1), dependent)]
#[cost(read = partial.bytes() + max_sum.bytes() + 4, write = out.bytes(), flops = 2 * tokens * q_heads * max_chunks * head_dim)]
pub fn attn_fold(
    #[len(tokens * q_heads * max_chunks * head_dim)] partial: &[f32],
    #[len(tokens * q_heads * max_chunks * 2)] max_sum: &[f32],
    position: &Counter,
    #[out]
    #[len(tokens * q_heads * head_dim)]
    out: &mut [f32],
    q_heads: u32,
    head_dim: u32,
    max_chunks: u32,
    tokens: u32,
);
