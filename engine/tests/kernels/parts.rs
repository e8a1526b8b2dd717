//! Fused kernels have the bits of their parts, tokens those that they have alone, and NaN stays.

use bitwalk::device::{Buffer, F8E4M3};
use bitwalk::kernel::{BF16, F16, F32, NVFP4, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0};
use bitwalk::kernels::{activation, attention, embed, matvec, norm};

use crate::rig::{Rig, bits_of, floats, planes};

const TOKENS: usize = 3;
const LIMIT: f32 = 0.75;
const EPS: f32 = 1e-5;

/// `TOKENS` rows of activations, `stride` apart.
struct Input {
    x: Buffer<f32>,
    stride: usize,
    cols: usize,
}

impl Input {
    fn new(rig: &Rig, cols: usize, stride: usize) -> Input {
        Input { x: rig.buffer(&floats(2, (TOKENS - 1) * stride + cols)), stride, cols }
    }

    fn x(&self, token: usize) -> Buffer<f32> {
        self.x.slice(token * self.stride..token * self.stride + self.cols).unwrap()
    }
}

/// For each format: `TOKENS` tokens in a launch against one at a time, on other blocks; the norm in a product's prologue against one
/// before it; and the gated pair against its two halves.
macro_rules! linear_layers {
    ($shapes:expr, $($format:ident $matvec:ident $swiglu:ident;)*) => {
        let rig = Rig::new();
        for (rows, cols) in $shapes {
            let input = Input::new(&rig, cols, cols + 32);
            let (r, c, tokens, stride) = (rows as u32, cols as u32, TOKENS as u32, input.stride as u32);
            let residual = rig.buffer(&floats(4, TOKENS * 2 * rows));
            let norm = rig.buffer(&floats(7, cols));
            let normed = rig.zeros(TOKENS * cols);
            rig.run(norm::rms_norm(&input.x, &norm, &normed, c, EPS, tokens, stride));
            let (both, alone) = (rig.zeros(TOKENS * 2 * rows), rig.zeros(TOKENS * 2 * rows));
            let (fused, parts) = (rig.zeros(TOKENS * rows), rig.zeros(TOKENS * rows));
            let row = |buffer: &Buffer<f32>, t: usize, cols: usize| buffer.slice(t * cols..(t + 1) * cols).unwrap();
            let same = |a: &Buffer<f32>, b: &Buffer<f32>, what: &str| {
                let values = a.to_vec().unwrap();
                assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != 0.0), "{what}");
                assert_eq!(bits_of(a), bits_of(b), "{what} [{rows}, {cols}]");
            };
            $({
                let w = rig.tensor::<$format>(2 * rows as u64, cols as u64, &planes::<$format>(2 * rows as u64, cols as u64));
                let what = stringify!($matvec);
                rig.run(matvec::$matvec(&w, &input.x, None, 0.0, Some(&residual), &both, 2 * r, c, tokens, stride, 5, 288, 0));
                for t in 0..TOKENS {
                    let (residual, y) = (row(&residual, t, 2 * rows), row(&alone, t, 2 * rows));
                    let x = input.x(t);
                    rig.run(matvec::$matvec(&w, &x, None, 0.0, Some(&residual), &y, 2 * r, c, 1, c, 1 + t as u32, 512, 0));
                }
                same(&both, &alone, what);
                rig.run(matvec::$matvec(&w, &input.x, Some(&norm), EPS, None, &both, 2 * r, c, tokens, stride, 2, 512, 0));
                rig.run(matvec::$matvec(&w, &normed, None, 0.0, None, &alone, 2 * r, c, tokens, c, 3, 256, 0));
                same(&both, &alone, what);
                // The pairs' parts: halves of each token's rows of gate and up, in place.
                let (gate, up) = (both.slice(..both.len() - rows).unwrap(), both.slice(rows..).unwrap());
                rig.run(activation::swiglu(&gate, &up, &parts, r, LIMIT, tokens, 2 * r));
                rig.run(matvec::$swiglu(&w, &input.x, Some(&norm), EPS, &fused, r, c, LIMIT, tokens, stride, 4, 256, 0));
                same(&fused, &parts, stringify!($swiglu));
            })*
        }
    };
}

#[test]
fn linear_layers_have_the_bits_of_one_token_and_of_their_parts() {
    linear_layers! {
        [(5usize, 96usize), (67, 576), (3, 2080)],
        F32 matvec_f32 matvec_swiglu_f32;
        F16 matvec_f16 matvec_swiglu_f16;
        BF16 matvec_bf16 matvec_swiglu_bf16;
        Q8_0 matvec_q8_0 matvec_swiglu_q8_0;
        Q4_0 matvec_q4_0 matvec_swiglu_q4_0;
        Q4_1 matvec_q4_1 matvec_swiglu_q4_1;
        Q5_0 matvec_q5_0 matvec_swiglu_q5_0;
        NVFP4 matvec_nvfp4 matvec_swiglu_nvfp4;
        Q8_0 matvec_i16_q8_0 matvec_swiglu_i16_q8_0;
        Q4_0 matvec_i16_q4_0 matvec_swiglu_i16_q4_0;
        Q4_1 matvec_i16_q4_1 matvec_swiglu_i16_q4_1;
        Q5_0 matvec_i16_q5_0 matvec_swiglu_i16_q5_0;
        NVFP4 matvec_i16_nvfp4 matvec_swiglu_i16_nvfp4;
    }
}

#[test]
fn k_formats_have_the_bits_of_one_token_and_of_their_parts() {
    linear_layers! {
        [(5usize, 256usize), (19, 768)],
        Q4_K matvec_q4_k matvec_swiglu_q4_k;
        Q5_K matvec_q5_k matvec_swiglu_q5_k;
        Q6_K matvec_q6_k matvec_swiglu_q6_k;
        Q4_K matvec_i16_q4_k matvec_swiglu_i16_q4_k;
        Q5_K matvec_i16_q5_k matvec_swiglu_i16_q5_k;
        Q6_K matvec_i16_q6_k matvec_swiglu_i16_q6_k;
    }
}

/// The projections of attention in one launch, and as two (queries and keys, then values), against product and rotary embedding.
macro_rules! projections {
    ($cols:expr, $($format:ident $qkv:ident $matvec:ident;)*) => {
        let (rig, cols) = (Rig::new(), $cols);
        let (c, tokens, position) = (cols as u32, TOKENS as u32, 5u32);
        let (x, norm) = (rig.buffer(&floats(2, TOKENS * cols)), rig.buffer(&floats(7, cols)));
        let rows = u64::from((HEADS + 2 * KV_HEADS) * DIM);
        let inv_freq: Vec<f32> = (0..DIM / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / DIM as f32)).collect();
        let (inv_freq, at) = (rig.buffer(&inv_freq), rig.buffer(&[position]));
        let q_len = TOKENS * (HEADS * DIM) as usize;
        $(for interleaved in [0, 1] {
            let w = rig.tensor::<$format>(rows, cols as u64, &planes::<$format>(rows, cols as u64));
            let qkv = rig.zeros(TOKENS * rows as usize);
            rig.run(matvec::$matvec(&w, &x, Some(&norm), EPS, None, &qkv, rows as u32, c, tokens, c, 2, 256, 0));
            let qkv = qkv.to_vec().unwrap();
            projections!(@cache rig, w, $qkv, qkv, x, norm, at, inv_freq, interleaved, c, q_len, f32, rope_kv_f32, 0);
            projections!(@cache rig, w, $qkv, qkv, x, norm, at, inv_freq, interleaved, c, q_len, half::f16, rope_kv_f16, 1);
            projections!(@cache rig, w, $qkv, qkv, x, norm, at, inv_freq, interleaved, c, q_len, F8E4M3, rope_kv_fp8, 2);
        })*
    };
    (@cache $rig:ident, $w:ident, $qkv:ident, $values:ident, $x:ident, $norm:ident, $at:ident, $inv_freq:ident, $interleaved:ident,
        $c:ident, $q_len:ident, $element:ty, $rope:ident, $code:literal) => {
        let len = 9 * (KV_HEADS * DIM) as usize;
        let parts = $rig.buffer(&$values);
        let (k, v) = ($rig.zeros::<$element>(len), $rig.zeros::<$element>(len));
        $rig.run(attention::$rope(&parts, &$at, &$inv_freq, &k, &v, HEADS, KV_HEADS, DIM, $interleaved, TOKENS as u32));
        let parts: Vec<u32> = bits_of(&parts);
        let wanted: Vec<u32> = parts.chunks(ROW).flat_map(|row| row[..(HEADS * DIM) as usize].to_vec()).collect();
        for split in [false, true] {
            let q = $rig.zeros($q_len);
            let (one_k, one_v) = ($rig.zeros::<$element>(len), $rig.zeros::<$element>(len));
            let (words_k, words_v) = (one_k.cast::<f32>().unwrap(), one_v.cast::<f32>().unwrap());
            let run = |w: &_, q_heads: u32, k_heads: u32, v_heads: u32| {
                $rig.run(matvec::$qkv(w, &$x, Some(&$norm), EPS, &$at, &$inv_freq, &q, &words_k, &words_v, $code, q_heads, k_heads,
                    v_heads, KV_HEADS, DIM, $interleaved, $c, TOKENS as u32, $c, 3, 288, 0));
            };
            if split {
                let (first, rest) = (u64::from((HEADS + KV_HEADS) * DIM), u64::from(KV_HEADS * DIM));
                run(&$w.raw().row_range(0, first).unwrap().typed().unwrap(), HEADS, KV_HEADS, 0);
                run(&$w.raw().row_range(first, rest).unwrap().typed().unwrap(), 0, 0, KV_HEADS);
            } else {
                run(&$w, HEADS, KV_HEADS, KV_HEADS);
            }
            let what = concat!(stringify!($qkv), " beside ", stringify!($rope));
            assert!(wanted.iter().any(|&bits| bits != 0));
            assert_eq!(bits_of(&q), wanted, "{what}");
            for (one, other) in [(&one_k, &k), (&one_v, &v)] {
                let (one, other) = (one.to_vec().unwrap(), other.to_vec().unwrap());
                assert!(bytemuck::cast_slice::<_, u8>(&one) == bytemuck::cast_slice::<_, u8>(&other), "{what}");
            }
        }
    };
}

#[test]
fn projections_have_the_bits_of_their_parts() {
    projections! {
        96usize,
        F32 qkv_rope_f32 matvec_f32;
        F16 qkv_rope_f16 matvec_f16;
        BF16 qkv_rope_bf16 matvec_bf16;
        Q8_0 qkv_rope_q8_0 matvec_q8_0;
        Q4_0 qkv_rope_q4_0 matvec_q4_0;
        Q4_1 qkv_rope_q4_1 matvec_q4_1;
        Q5_0 qkv_rope_q5_0 matvec_q5_0;
        Q8_0 qkv_rope_i16_q8_0 matvec_i16_q8_0;
        Q4_0 qkv_rope_i16_q4_0 matvec_i16_q4_0;
        Q4_1 qkv_rope_i16_q4_1 matvec_i16_q4_1;
        Q5_0 qkv_rope_i16_q5_0 matvec_i16_q5_0;
    }
}

#[test]
fn projections_of_k_formats_have_the_bits_of_their_parts() {
    projections! {
        256usize,
        Q4_K qkv_rope_q4_k matvec_q4_k;
        Q5_K qkv_rope_q5_k matvec_q5_k;
        Q6_K qkv_rope_q6_k matvec_q6_k;
        Q4_K qkv_rope_i16_q4_k matvec_i16_q4_k;
        Q5_K qkv_rope_i16_q5_k matvec_i16_q5_k;
        Q6_K qkv_rope_i16_q6_k matvec_i16_q6_k;
    }
}

#[test]
fn norms_have_the_bits_of_one_token() {
    let rig = Rig::new();
    for cols in [96usize, 1056] {
        let (c, input) = (cols as u32, Input::new(&rig, cols, cols + 64));
        let (stride, tokens) = (input.stride as u32, TOKENS as u32);
        let weight = rig.buffer(&floats(3, cols));
        let y = rig.zeros(TOKENS * cols);
        let (q, s) = (rig.zeros::<i16>(TOKENS * cols), rig.zeros::<f32>(TOKENS * cols / 32));
        rig.run(norm::rms_norm(&input.x, &weight, &y, c, EPS, tokens, stride));
        rig.run(norm::quantise_i16(&input.x, &q, &s, c, tokens, stride));
        for t in 0..TOKENS {
            let x = input.x(t);
            let (one, one_q, one_s) = (rig.zeros(cols), rig.zeros(cols), rig.zeros(cols / 32));
            rig.run(norm::rms_norm(&x, &weight, &one, c, EPS, 1, c));
            assert_eq!(bits_of(&one), bits_of(&y)[t * cols..][..cols], "rms_norm, token {t}");
            rig.run(norm::quantise_i16(&x, &one_q, &one_s, c, 1, c));
            assert_eq!(one_q.to_vec().unwrap(), q.to_vec().unwrap()[t * cols..][..cols]);
            assert_eq!(bits_of(&one_s), bits_of(&s)[t * cols / 32..][..cols / 32]);
        }
    }
}

/// Attention's launches: rotary embedding into the caches, chunks, fold.
struct Attention<'a> {
    rig: &'a Rig,
    inv_freq: Buffer<f32>,
    k: Buffer<half::f16>,
    v: Buffer<half::f16>,
}

const HEADS: u32 = 6;
const KV_HEADS: u32 = 2;
const DIM: u32 = 64;
const ROW: usize = ((HEADS + 2 * KV_HEADS) * DIM) as usize;

impl<'a> Attention<'a> {
    fn new(rig: &'a Rig, capacity: usize) -> Self {
        let cache = || {
            let values = floats(2, capacity * (KV_HEADS * DIM) as usize);
            rig.buffer(&values.into_iter().map(half::f16::from_f32).collect::<Vec<_>>())
        };
        let inv_freq: Vec<f32> = (0..DIM / 2).map(|i| 10_000f32.powf(-2.0 * i as f32 / DIM as f32)).collect();
        Attention { rig, inv_freq: rig.buffer(&inv_freq), k: cache(), v: cache() }
    }

    /// The outputs of the tokens in `qkv`, of which the first is at `position`.
    fn run(&self, qkv: &[f32], position: u32, n_splits: u32, max_chunks: u32) -> Vec<u32> {
        let rig = self.rig;
        let tokens = (qkv.len() / ROW) as u32;
        let (qkv, position) = (rig.buffer(qkv), rig.buffer(&[position]));
        let results = |each: u32| rig.zeros((tokens * HEADS * each) as usize);
        let (partial, max_sum, out) = (results(max_chunks * DIM), results(2 * max_chunks), results(DIM));
        rig.run(attention::rope_kv_f16(
            &qkv,
            &position,
            &self.inv_freq,
            &self.k,
            &self.v,
            HEADS,
            KV_HEADS,
            DIM,
            0,
            tokens,
        ));
        // The fold in the last block to arrive, and as a launch of its own.
        let (arrived, folded) = (rig.zeros::<u32>((tokens * KV_HEADS) as usize), results(DIM));
        for folds in [1, 0] {
            rig.run(attention::attn_split_f16_64(
                &qkv, &self.k, &self.v, &position, &partial, &max_sum, &arrived, &folded, HEADS, KV_HEADS,
                0.125, max_chunks, n_splits, tokens, ROW as u32, folds,
            ));
        }
        rig.run(attention::attn_fold(&partial, &max_sum, &position, &out, HEADS, DIM, max_chunks, tokens));
        assert_eq!(bits_of(&folded), bits_of(&out));
        assert!(arrived.to_vec().unwrap().iter().all(|&n| n == 0));
        bits_of(&out)
    }
}

#[test]
fn attention_depends_neither_on_the_launches_capacity_nor_on_how_tokens_share_it() {
    let rig = Rig::new();
    // From the last keys of a chunk into the next.
    let (first, tokens, capacity) = (125u32, 7usize, 140);
    let qkv = floats(1, tokens * ROW);
    let together = Attention::new(&rig, capacity);
    let exact = together.run(&qkv, first, 3, 3);
    assert!(exact.iter().any(|&bits| bits != 0));
    assert_eq!(exact, Attention::new(&rig, capacity).run(&qkv, first, 4, 8));
    assert_eq!(exact, Attention::new(&rig, capacity).run(&qkv, first, 8, 8));
    for size in [1, 3] {
        let chunked = Attention::new(&rig, capacity);
        let outputs: Vec<u32> = qkv
            .chunks(size * ROW)
            .enumerate()
            .flat_map(|(chunk, qkv)| chunked.run(qkv, first + (chunk * size) as u32, 4, 4))
            .collect();
        assert_eq!(exact, outputs, "{size} tokens at a time");
        assert_eq!(together.k.to_vec().unwrap(), chunked.k.to_vec().unwrap());
        assert_eq!(together.v.to_vec().unwrap(), chunked.v.to_vec().unwrap());
    }
}

#[test]
fn bad_tokens_and_bad_activations_become_nan() {
    let rig = Rig::new();
    let w = rig.tensor::<Q8_0>(4, 64, &planes::<Q8_0>(4, 64));
    let (position, x) = (rig.buffer(&[1u32]), rig.zeros(3 * 2 * 64));
    rig.run(embed::embed_q8_0(&w, &rig.buffer(&[9, 3u32, 4, u32::MAX]), &position, &x, 64, 4, 3, 2));
    let rows: Vec<bool> =
        x.to_vec().unwrap().chunks(64).map(|row| row.iter().all(|v: &f32| v.is_nan())).collect();
    assert_eq!(rows, [false, false, true, true, true, true]);
    // A block of int16 that cannot say NaN says it with its scale; the blocks beside it are as they were.
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = floats(9, 96);
        values[40] = bad;
        let (q, scale) = (rig.zeros(96), rig.zeros(3));
        rig.run(norm::quantise_i16(&rig.buffer(&values), &q, &scale, 96, 1, 96));
        let scale_values = scale.to_vec().unwrap();
        assert!(scale_values[0].is_finite() && !scale_values[1].is_finite() && scale_values[2].is_finite());
        let (x, y) = (rig.buffer(&values), rig.zeros(2));
        let w = rig.tensor::<Q4_1>(2, 96, &planes::<Q4_1>(2, 96));
        rig.run(matvec::matvec_i16_q4_1(&w, &x, None, 0.0, None, &y, 2, 96, 1, 96, 1, 256, 0));
        assert!(y.to_vec().unwrap().iter().all(|v| !v.is_finite()), "{bad}");
        let w = rig.tensor::<NVFP4>(2, 96, &planes::<NVFP4>(2, 96));
        rig.run(matvec::matvec_i16_nvfp4(&w, &x, None, 0.0, None, &y, 2, 96, 1, 96, 1, 256, 0));
        assert!(y.to_vec().unwrap().iter().all(|v| !v.is_finite()), "{bad}");
    }
}

#[test]
fn a_limited_activation_keeps_nan() {
    let rig = Rig::new();
    let (gate, up) =
        (rig.buffer(&[f32::NAN, 1.0, 50.0, 1.0, -50.0]), rig.buffer(&[1.0, f32::NAN, 2.0, -50.0, 1.0]));
    let y = rig.zeros(5);
    rig.run(activation::swiglu(&gate, &up, &y, 5, 10.0, 1, 5));
    let y: Vec<f32> = y.to_vec().unwrap();
    assert!(y[0].is_nan() && y[1].is_nan());
    // The gate is bounded from above only: silu(10) is 10 to five digits, silu(−50) is −9.6e-21 and not silu(−10).
    assert!((y[2] - 20.0).abs() < 2e-3 && (y[3] + 7.310_586).abs() < 1e-5 && y[4].abs() < 1e-19, "{y:?}");
}
