//! The projections of attention in one launch: norm, q, k and v, rotary embedding, and the cache write.

use super::k::of_whole_blocks;
use super::{RowWalk, activations, dot};
use crate::kernel::{
    BF16, Case, Counter, F16, F32, HostTensor, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, QTensor, kernel,
};
use crate::kernels::attention::{narrowed, rotated};
use crate::kernels::token_rows;

fn reference<const I16: bool>(
    w: &HostTensor,
    x: &[f32],
    norm: Option<&[f32]>,
    eps: f32,
    position: u32,
    inv_freq: &[f32],
    q: &mut [f64],
    k_cache: &mut [f64],
    v_cache: &mut [f64],
    cache_format: u32,
    q_heads: u32,
    k_heads: u32,
    v_heads: u32,
    cache_heads: u32,
    head_dim: u32,
    interleaved: u32,
    cols: u32,
    tokens: u32,
    x_stride: u32,
    _blocks: u32,
    _threads: u32,
    _room: u32,
) {
    assert_eq!(
        cache_format, 0,
        "cases are of float32 caches; the narrow ones are compared with `rope_kv` bit for bit"
    );
    let (q_heads, k_heads, v_heads) = (q_heads as usize, k_heads as usize, v_heads as usize);
    let (cache_heads, dim) = (cache_heads as usize, head_dim as usize);
    for (t, x) in token_rows(x, cols, tokens, x_stride).enumerate() {
        let x = activations::<I16>(x, norm, eps);
        let at = position as usize + t;
        for head in 0..q_heads + k_heads + v_heads {
            let mut out: Vec<f64> = (0..dim).map(|d| dot(w.row(head * dim + d), &x)).collect();
            if head < q_heads + k_heads {
                rotated(&mut out, inv_freq, at as u32, interleaved);
            }
            let to = if head < q_heads {
                &mut q[(t * q_heads + head) * dim..]
            } else if head < q_heads + k_heads {
                &mut k_cache[(at * cache_heads + head - q_heads) * dim..]
            } else {
                &mut v_cache[(at * cache_heads + head - q_heads - k_heads) * dim..]
            };
            to[..dim].copy_from_slice(&out);
        }
    }
}

/// `([q, k, v, cache] heads, head_dim, cols, interleaved, tokens)`: all three projections, and those that a stack of several formats leaves.
const SHAPES: [([u32; 4], u32, u32, u32, u32); 8] = [
    ([3, 1, 1, 1], 64, 96, 1, 1),
    ([4, 2, 2, 2], 32, 288, 0, 1),
    ([2, 2, 0, 2], 64, 64, 1, 2),
    ([0, 0, 3, 3], 64, 128, 0, 1),
    ([2, 0, 0, 1], 128, 64, 0, 3),
    ([0, 2, 0, 2], 96, 32, 1, 1),
    ([2, 1, 1, 1], 32, 512, 1, 2),
    ([0, 0, 1, 1], 64, 768, 0, 1),
];

fn cases() -> Vec<Case> {
    let of =
        |i: usize| case(i, SHAPES[i], [2, 63, 0, 5, 1, 300, 7, 64][i], [(1, 256), (7, 512), (3, 288)][i % 3]);
    let mut cases: Vec<Case> = (0..SHAPES.len()).map(of).collect();
    cases.push(case(1, ([32, 8, 8, 8], 128, 4096, 1, 1), 319, (132, 512)).representative());
    cases.push(case(1, ([9, 3, 3, 3], 64, 576, 1, 1), 100, (132, 256)).representative());
    cases
}

fn super_block_cases() -> Vec<Case> {
    of_whole_blocks(cases())
}

fn case(
    index: usize,
    ([q, k, v, cache], dim, cols, interleaved, tokens): ([u32; 4], u32, u32, u32, u32),
    position: u32,
    (blocks, threads): (u32, u32),
) -> Case {
    let inv_freq: Vec<f32> = (0..dim / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / dim as f32)).collect();
    let len = (position + tokens + 1) as usize * (cache * dim) as usize;
    let case = Case::new(format!("{tokens} of {q} + {k} + {v} heads of {dim} from {cols} at {position}"))
        .u32("q_heads", q)
        .u32("k_heads", k)
        .u32("v_heads", v)
        .u32("cache_heads", cache)
        .u32("head_dim", dim)
        .u32("interleaved", interleaved)
        .u32("cache_format", 0)
        .u32("cols", cols)
        .u32("tokens", tokens)
        .u32("x_stride", cols + if index.is_multiple_of(2) { 0 } else { 8 })
        .u32("blocks", blocks)
        .u32("threads", threads)
        .u32("room", 0)
        .f32("eps", 1e-5)
        .counter("position", position)
        .values("inv_freq", &inv_freq)
        .len("k_cache", len)
        .len("v_cache", len);
    if index == 0 { case.absent("norm") } else { case }
}

macro_rules! declare {
    ($module:tt, $i16:literal, $tolerance:literal; $($name:ident $entry:tt $format:ident $cases:ident;)*) => {$(
        /// The rows of `w` are those of `q_heads` query heads, `k_heads` key heads and `v_heads` value heads; `y = W · norm(x[t])` is made
        /// as in `matvec`. Queries and keys are rotated at position `*position + t` (pairs are neighbours where `interleaved`, else half a
        /// head apart); queries go to `q`, keys and values into the caches, `[capacity, cache_heads, head_dim]` of float32, float16 or
        /// fp8 e4m3 by `cache_format` 0, 1, 2, which are passed by their bytes. The bits are those of `matvec` and `rope_kv`.
        ///
        /// The tolerance is `matvec`'s, and a rotation's two products.
        #[kernel(module = $module, entry = $entry, reference = reference::<$i16>, cases = $cases, tol = $tolerance)]
        #[launch(
            grid = (tokens, blocks, 1),
            block = (threads, 1, 1),
            shared = RowWalk::$format.shared(cols, norm.bytes(), threads).max(room),
            dependent
        )]
        #[cost(
            read = w.bytes() + 4 * tokens * cols + norm.bytes() + inv_freq.bytes(),
            write = q.bytes() + tokens * (k_heads + v_heads) * head_dim * narrowed(cache_format),
            flops = 2 * tokens * (q_heads + k_heads + v_heads) * head_dim * cols
        )]
        pub fn $name(
            #[shape((q_heads + k_heads + v_heads) * head_dim, cols)] w: &QTensor<$format>,
            #[len((tokens - 1) * x_stride + cols)] x: &[f32],
            #[len(cols)] norm: Option<&[f32]>,
            eps: f32,
            position: &Counter,
            #[len(head_dim / 2)] inv_freq: &[f32],
            #[out]
            #[len(tokens * q_heads * head_dim)]
            q: &mut [f32],
            #[len(cache_heads * head_dim * narrowed(cache_format) / 4)] k_cache: &mut [f32],
            #[len(cache_heads * head_dim * narrowed(cache_format) / 4)] v_cache: &mut [f32],
            cache_format: u32,
            q_heads: u32,
            k_heads: u32,
            v_heads: u32,
            cache_heads: u32,
            head_dim: u32,
            interleaved: u32,
            cols: u32,
            tokens: u32,
            x_stride: u32,
            blocks: u32,
            threads: u32,
            room: u32,
        );
    )*};
}

declare! {
    "qkv", false, 1e-6;
    qkv_rope_f32 "qkv_rope_f32" F32 cases;
    qkv_rope_f16 "qkv_rope_f16" F16 cases;
    qkv_rope_bf16 "qkv_rope_bf16" BF16 cases;
    qkv_rope_q8_0 "qkv_rope_q8_0" Q8_0 cases;
    qkv_rope_q4_0 "qkv_rope_q4_0" Q4_0 cases;
    qkv_rope_q4_1 "qkv_rope_q4_1" Q4_1 cases;
}

declare! {
    "qkv_i16", true, 8e-7;
    qkv_rope_i16_q8_0 "qkv_rope_i16_q8_0" Q8_0 cases;
    qkv_rope_i16_q4_0 "qkv_rope_i16_q4_0" Q4_0 cases;
    qkv_rope_i16_q4_1 "qkv_rope_i16_q4_1" Q4_1 cases;
}

declare! {
    "qkv_k", false, 1e-6;
    qkv_rope_q5_0 "qkv_rope_q5_0" Q5_0 cases;
    qkv_rope_q4_k "qkv_rope_q4_k" Q4_K super_block_cases;
    qkv_rope_q5_k "qkv_rope_q5_k" Q5_K super_block_cases;
    qkv_rope_q6_k "qkv_rope_q6_k" Q6_K super_block_cases;
}

declare! {
    "qkv_i16_k", true, 8e-7;
    qkv_rope_i16_q5_0 "qkv_rope_i16_q5_0" Q5_0 cases;
    qkv_rope_i16_q4_k "qkv_rope_i16_q4_k" Q4_K super_block_cases;
    qkv_rope_i16_q5_k "qkv_rope_i16_q5_k" Q5_K super_block_cases;
    qkv_rope_i16_q6_k "qkv_rope_i16_q6_k" Q6_K super_block_cases;
}
