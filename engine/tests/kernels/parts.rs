//! Fused kernels have the bits of their parts, tokens those that they have alone, and NaN stays.

use bitwalk::device::Buffer;
use bitwalk::kernel::{BF16, F16, F32, NVFP4, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0};
use bitwalk::kernels::{activation, attention, embed, matvec, norm};

use crate::rig::{Rig, bits, bits_of, floats, planes, unit};

const TOKENS: usize = 3;
const LIMIT: f32 = 0.75;

/// `TOKENS` rows of activations, floats `stride` apart; int16s and their scales contiguous.
struct Input {
    x: Buffer<f32>,
    stride: usize,
    q: Buffer<i16>,
    scale: Buffer<f32>,
    cols: usize,
}

impl Input {
    fn new(rig: &Rig, cols: usize, stride: usize) -> Input {
        let q: Vec<i16> = (0..TOKENS * cols).map(|i| bits(5, i as u64) as i16).collect();
        let scale: Vec<f32> = (0..TOKENS * cols / 32).map(|i| (unit(6, i as u64) + 2.0) * 3e-5).collect();
        let x = rig.buffer(&floats(2, (TOKENS - 1) * stride + cols));
        Input { x, stride, q: rig.buffer(&q), scale: rig.buffer(&scale), cols }
    }

    fn x(&self, token: usize) -> Buffer<f32> {
        self.x.slice(token * self.stride..token * self.stride + self.cols).unwrap()
    }

    fn q(&self, token: usize) -> (Buffer<i16>, Buffer<f32>) {
        let blocks = self.cols / 32;
        (
            self.q.slice(token * self.cols..(token + 1) * self.cols).unwrap(),
            self.scale.slice(token * blocks..(token + 1) * blocks).unwrap(),
        )
    }
}

/// For each format: `TOKENS` tokens in a launch against one at a time, and the gated pair against its two halves.
macro_rules! linear_layers {
    ($shapes:expr, $($format:ident $matvec:ident $swiglu:ident $i16_matvec:tt $i16_swiglu:tt;)*) => {
        let rig = Rig::new();
        for (rows, cols) in $shapes {
            let input = Input::new(&rig, cols, cols + 32);
            let contiguous = Input::new(&rig, cols, cols);
            let (r, c, tokens) = (rows as u32, cols as u32, TOKENS as u32);
            let residual = rig.buffer(&floats(4, TOKENS * 2 * rows));
            let (both, alone) = (rig.zeros(TOKENS * 2 * rows), rig.zeros(TOKENS * 2 * rows));
            let (fused, parts) = (rig.zeros(TOKENS * rows), rig.zeros(TOKENS * rows));
            let row = |buffer: &Buffer<f32>, t: usize, cols: usize| buffer.slice(t * cols..(t + 1) * cols).unwrap();
            // The pairs' parts: halves of each token's rows of gate and up, in place.
            let activate = |both: &Buffer<f32>| {
                let (gate, up) = (both.slice(..both.len() - rows).unwrap(), both.slice(rows..).unwrap());
                rig.run(activation::swiglu(&gate, &up, &parts, r, LIMIT, tokens, 2 * r));
            };
            let same = |a: &Buffer<f32>, b: &Buffer<f32>, what: &str| {
                let values = a.to_vec().unwrap();
                assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != 0.0), "{what}");
                assert_eq!(bits_of(a), bits_of(b), "{what} [{rows}, {cols}]");
            };
            $({
                let w = rig.tensor::<$format>(2 * rows as u64, cols as u64, &planes::<$format>(2 * rows as u64, cols as u64));
                let what = stringify!($matvec);
                rig.run(matvec::$matvec(&w, &input.x, Some(&residual), &both, 2 * r, c, tokens, input.stride as u32));
                for t in 0..TOKENS {
                    let (residual, y) = (row(&residual, t, 2 * rows), row(&alone, t, 2 * rows));
                    rig.run(matvec::$matvec(&w, &input.x(t), Some(&residual), &y, 2 * r, c, 1, c));
                }
                same(&both, &alone, what);
                rig.run(matvec::$matvec(&w, &contiguous.x, None, &both, 2 * r, c, tokens, c));
                activate(&both);
                rig.run(matvec::$swiglu(&w, &contiguous.x, &fused, r, c, LIMIT, tokens));
                same(&fused, &parts, stringify!($swiglu));
                linear_layers!(@i16 $i16_matvec $i16_swiglu (w, rig, input, residual, both, alone, fused, r, c, tokens, row, rows, activate, parts, same));
            })*
        }
    };
    (@i16 () () $locals:tt) => {};
    (@i16 ($matvec:ident) ($swiglu:ident) ($w:ident, $rig:ident, $input:ident, $residual:ident, $both:ident, $alone:ident, $fused:ident, $r:ident, $c:ident, $tokens:ident, $row:ident, $rows:ident, $activate:ident, $parts:ident, $same:ident)) => {
        let (q, scale) = (&$input.q, &$input.scale);
        $rig.run(matvec::$matvec(&$w, q, scale, Some(&$residual), &$both, 2 * $r, $c, $tokens));
        for t in 0..TOKENS {
            let (residual, y) = ($row(&$residual, t, 2 * $rows), $row(&$alone, t, 2 * $rows));
            let (q, scale) = $input.q(t);
            $rig.run(matvec::$matvec(&$w, &q, &scale, Some(&residual), &y, 2 * $r, $c, 1));
        }
        $same(&$both, &$alone, stringify!($matvec));
        $rig.run(matvec::$matvec(&$w, q, scale, None, &$both, 2 * $r, $c, $tokens));
        $activate(&$both);
        $rig.run(matvec::$swiglu(&$w, q, scale, &$fused, $r, $c, LIMIT, $tokens));
        $same(&$fused, &$parts, stringify!($swiglu));
    };
}

#[test]
fn linear_layers_have_the_bits_of_one_token_and_of_their_parts() {
    linear_layers! {
        [(5usize, 96usize), (40, 576), (3, 2080), (2, 8224)],
        F32 matvec_f32 matvec_swiglu_f32 () ();
        F16 matvec_f16 matvec_swiglu_f16 () ();
        BF16 matvec_bf16 matvec_swiglu_bf16 () ();
        Q8_0 matvec_q8_0 matvec_swiglu_q8_0 (matvec_i16_q8_0) (matvec_swiglu_i16_q8_0);
        Q4_0 matvec_q4_0 matvec_swiglu_q4_0 (matvec_i16_q4_0) (matvec_swiglu_i16_q4_0);
        Q4_1 matvec_q4_1 matvec_swiglu_q4_1 (matvec_i16_q4_1) (matvec_swiglu_i16_q4_1);
        NVFP4 matvec_nvfp4 matvec_swiglu_nvfp4 (matvec_i16_nvfp4) (matvec_swiglu_i16_nvfp4);
        Q5_0 matvec_q5_0 matvec_swiglu_q5_0 (matvec_i16_q5_0) (matvec_swiglu_i16_q5_0);
    }
    linear_layers! {
        [(5usize, 256usize), (40, 768), (2, 8448)],
        Q4_K matvec_q4_k matvec_swiglu_q4_k (matvec_i16_q4_k) (matvec_swiglu_i16_q4_k);
        Q5_K matvec_q5_k matvec_swiglu_q5_k (matvec_i16_q5_k) (matvec_swiglu_i16_q5_k);
        Q6_K matvec_q6_k matvec_swiglu_q6_k (matvec_i16_q6_k) (matvec_swiglu_i16_q6_k);
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
        let quantised = || (rig.zeros::<i16>(TOKENS * cols), rig.zeros::<f32>(TOKENS * cols / 32));
        let ((q, s), (plain_q, plain_s)) = (quantised(), quantised());
        rig.run(norm::rms_norm(&input.x, &weight, &y, c, 1e-5, tokens, stride));
        rig.run(norm::rms_norm_i16(&input.x, &weight, &q, &s, c, 1e-5, tokens, stride));
        rig.run(norm::quantise_i16(&input.x, &plain_q, &plain_s, c, tokens, stride));
        for t in 0..TOKENS {
            let x = input.x(t);
            let (one, one_q, one_s) = (rig.zeros(cols), rig.zeros(cols), rig.zeros(cols / 32));
            rig.run(norm::rms_norm(&x, &weight, &one, c, 1e-5, 1, c));
            assert_eq!(bits_of(&one), bits_of(&y)[t * cols..][..cols], "rms_norm, token {t}");
            for (q, s, plain) in [(&q, &s, false), (&plain_q, &plain_s, true)] {
                rig.run(if plain {
                    norm::quantise_i16(&x, &one_q, &one_s, c, 1, c)
                } else {
                    norm::rms_norm_i16(&x, &weight, &one_q, &one_s, c, 1e-5, 1, c)
                });
                assert_eq!(one_q.to_vec().unwrap(), q.to_vec().unwrap()[t * cols..][..cols]);
                assert_eq!(bits_of(&one_s), bits_of(s)[t * cols / 32..][..cols / 32]);
            }
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
        rig.run(attention::attn_split_f16_64(
            &qkv, &self.k, &self.v, &position, &partial, &max_sum, HEADS, KV_HEADS, 0.125, max_chunks,
            n_splits, tokens, ROW as u32,
        ));
        rig.run(attention::attn_fold(&partial, &max_sum, &position, &out, HEADS, DIM, max_chunks, tokens));
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
        let y = rig.zeros(2);
        let w = rig.tensor::<Q4_1>(2, 96, &planes::<Q4_1>(2, 96));
        rig.run(matvec::matvec_i16_q4_1(&w, &q, &scale, None, &y, 2, 96, 1));
        assert!(y.to_vec().unwrap().iter().all(|v| !v.is_finite()), "{bad}");
        let w = rig.tensor::<NVFP4>(2, 96, &planes::<NVFP4>(2, 96));
        rig.run(matvec::matvec_i16_nvfp4(&w, &q, &scale, None, &y, 2, 96, 1));
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
