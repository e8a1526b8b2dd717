//! Kimi Delta Attention: the short convolution and the gated delta rule, with state that is updated in place.
//!
//! Both take the tokens of a chunk one after the other, so the chunk's length changes no bit; at position 0 what the
//! buffers hold does not count. Formulas: "Kimi Linear" (arXiv:2510.26692), with GLM-5.3's bound on the decay.

use super::math::{sigmoid, softplus};
use crate::kernel::{Case, Counter, Fill, kernel};

/// Taps that the convolution may have.
pub const MAX_TAPS: u32 = 8;

/// Blocks of 128 channels, or none (which a launch refuses) for more taps than the kernel holds.
fn blocks(channels: u64, taps: u64) -> u64 {
    if taps <= u64::from(MAX_TAPS) { channels.div_ceil(128) } else { 0 }
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

fn conv_reference(
    x: &[f32],
    weight: &[f32],
    ring: &mut [f64],
    position: u32,
    y: &mut [f64],
    channels: u32,
    taps: u32,
    tokens: u32,
    x_stride: u32,
) {
    let (channels, taps, stride) = (channels as usize, taps as usize, x_stride as usize);
    for c in 0..channels {
        for token in 0..tokens as usize {
            let at = position as usize + token;
            ring[at % taps * channels + c] = f64::from(x[token * stride + c]);
            let term = |k: usize| {
                // Tap k reads position at − (taps − 1) + k.
                let from = (at + k).checked_sub(taps - 1)?;
                Some(f64::from(weight[c * taps + k]) * ring[from % taps * channels + c])
            };
            y[token * channels + c] = silu((0..taps).filter_map(term).sum());
        }
    }
}

fn step_reference<const D: usize>(
    qkv: &[f32],
    decay: &[f32],
    dt_bias: &[f32],
    a_log: &[f32],
    beta: &[f32],
    gate: &[f32],
    norm_weight: &[f32],
    state: &mut [f64],
    position: u32,
    y: &mut [f64],
    heads: u32,
    bound: f32,
    bounded: u32,
    eps: f32,
    tokens: u32,
    beta_stride: u32,
) {
    let inner = heads as usize * D;
    for head in 0..heads as usize {
        let state = &mut state[head * D * D..][..D * D];
        if position == 0 {
            state.fill(0.0);
        }
        let rate = f64::from(a_log[head]).exp();
        for token in 0..tokens as usize {
            let part = |p: usize| -> Vec<f64> {
                let from = token * 3 * inner + p * inner + head * D;
                qkv[from..][..D].iter().map(|&v| f64::from(v)).collect()
            };
            let unit = |a: Vec<f64>| -> Vec<f64> {
                let norm = (a.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
                a.into_iter().map(|v| v / norm).collect()
            };
            let (q, k, v) = (unit(part(0)), unit(part(1)), part(2));
            let strength = sigmoid(f64::from(beta[token * beta_stride as usize + head]));
            for (i, row) in state.chunks_mut(D).enumerate() {
                let channel = head * D + i;
                let r = f64::from(decay[token * inner + channel]) + f64::from(dt_bias[channel]);
                let log =
                    if bounded != 0 { f64::from(bound) * sigmoid(rate * r) } else { -rate * softplus(r) };
                row.iter_mut().for_each(|s| *s *= log.exp());
            }
            let mut out = vec![0.0; D];
            for (j, out) in out.iter_mut().enumerate() {
                let predicted: f64 = (0..D).map(|i| state[i * D + j] * k[i]).sum();
                let delta = strength * (v[j] - predicted);
                (0..D).for_each(|i| state[i * D + j] += k[i] * delta);
                *out = (0..D).map(|i| state[i * D + j] * q[i]).sum::<f64>() / (D as f64).sqrt();
            }
            let mean = out.iter().map(|o| o * o).sum::<f64>() / D as f64;
            for (j, o) in out.iter().enumerate() {
                let at = token * inner + head * D + j;
                let normed = o / (mean + f64::from(eps)).sqrt() * f64::from(norm_weight[j]);
                y[at] = normed * sigmoid(f64::from(gate[at]));
            }
        }
    }
}

/// `(channels, taps, tokens, x_stride, position)`: no past, some, all of it, a ring that wraps, chunks longer than it.
fn conv_cases() -> Vec<Case> {
    let case = |&(channels, taps, tokens, stride, position): &(u32, u32, u32, u32, u32)| {
        Case::new(format!(
            "{channels} channels of stride {stride}, {taps} taps, {tokens} tokens at {position}"
        ))
        .u32("channels", channels)
        .u32("taps", taps)
        .u32("tokens", tokens)
        .u32("x_stride", stride)
        .counter("position", position)
    };
    let shapes = [
        (384, 4, 1, 384, 0),
        (192, 4, 1, 256, 2),
        (130, 4, 2, 132, 3),
        (96, 4, 5, 640, 0),
        (384, 4, 5, 384, 1001),
        (128, 8, 11, 128, 5),
        (40, 2, 3, 40, 7),
        (24, 1, 2, 24, 4),
        (33, 3, 1, 36, 1),
    ];
    let mut cases: Vec<Case> = shapes.iter().map(case).collect();
    // What the ring holds before position 0 does not count.
    cases.push(
        Case::new("a ring of NaN at 1")
            .u32("channels", 64)
            .u32("taps", 4)
            .u32("tokens", 1)
            .u32("x_stride", 64)
            .counter("position", 1)
            .values("ring", &[[0.5f32; 64], [f32::NAN; 64], [f32::NAN; 64], [f32::NAN; 64]].concat()),
    );
    let model = [(24576, 4, 1, 24576, 4095), (24576, 4, 64, 24576, 4096)];
    cases.extend(model.iter().map(|shape| case(shape).representative()));
    cases
}

/// Of heads, tokens and a position; the bound is that of the models, or there is none.
fn step_cases<const D: u32>() -> Vec<Case> {
    let case = |heads: u32, tokens: u32, position: u32, bound: Option<f32>| {
        let (kind, stride) =
            (if bound.is_some() { "bounded" } else { "not bounded" }, heads.next_multiple_of(4));
        Case::new(format!("{heads} heads, {tokens} tokens at {position}, {kind}"))
            .u32("heads", heads)
            .f32("bound", bound.unwrap_or(0.0))
            .u32("bounded", bound.is_some().into())
            .f32("eps", 1e-5)
            .u32("tokens", tokens)
            .u32("beta_stride", stride)
            .counter("position", position)
            .fill("a_log", Fill::Uniform(-1.0, 1.5))
    };
    let mut cases = vec![
        case(4, 1, 0, Some(-5.0)),
        case(2, 1, 9, Some(-4.0)),
        case(3, 2, 63, Some(-5.0)),
        case(2, 5, 0, Some(-5.0)),
        case(4, 5, 17, None),
        case(1, 40, 3, Some(-5.0)),
    ];
    // What the state holds before position 0 does not count.
    let state = vec![f32::NAN; (D * D) as usize];
    cases.push(case(1, 1, 0, None).values("state", &state));
    // Keys and queries of zeros have no direction, and leave the state decayed.
    let qkv: Vec<f32> = (0..3 * D).map(|i| if i < 2 * D { 0.0 } else { 1.0 }).collect();
    cases.push(case(1, 1, 2, Some(-5.0)).values("qkv", &qkv));
    cases.push(case(64, 1, 4095, Some(-5.0)).representative());
    cases.push(case(64, 64, 4096, Some(-5.0)).representative());
    cases
}

/// `y[t, c] = silu(Σ_k weight[c, k] · x[t − (taps − 1) + k, c])`: a depthwise causal convolution, in order of `k`.
/// `ring[p mod taps]` holds what `x` was at position `p`: read for the tokens before the chunk (zeros before position
/// 0), and left holding the last `taps`. A thread a channel; at most 8 taps. A token's row of `x` begins `x_stride`
/// floats after the one before.
///
/// The tolerance is that of the sum's `taps` roundings and of `silu`.
#[kernel(module = "kda", entry = "conv_silu", reference = conv_reference, cases = conv_cases, tol = 2e-7)]
#[launch(grid = (blocks(channels, taps), 1, 1), block = (128, 1, 1), dependent)]
#[cost(
    read = 4 * (tokens * channels + channels * taps + channels * taps) + 4,
    write = 4 * (tokens * channels + tokens.min(taps) * channels),
    flops = 2 * tokens * channels * taps
)]
pub fn conv_silu(
    #[len((tokens - 1) * x_stride + channels)] x: &[f32],
    #[len(channels * taps)] weight: &[f32],
    #[len(taps * channels)] ring: &mut [f32],
    position: &Counter,
    #[out]
    #[len(tokens * channels)]
    y: &mut [f32],
    channels: u32,
    taps: u32,
    tokens: u32,
    x_stride: u32,
);

macro_rules! declare_step {
    ($($name:ident $entry:tt $d:literal $threads:literal;)*) => {$(
        /// The gated delta rule over `tokens` tokens, a head a block, its state `S [D (k), D (v)]` updated in place. For
        /// each token, with `q`, `k` scaled to length 1 (1e-6 under the root) and `q` by `D^-½`:
        ///
        /// `g = bound · σ(exp(a_log) · r)` where `bounded`, else `−exp(a_log) · softplus(r)`, `r = decay + dt_bias`;
        /// `S ← exp(g)[k] · S`; `S ← S + k ⊗ σ(beta) · (v − Sᵀk)`; `o = Sᵀq`; `y = RMSNorm(o) · norm_weight · σ(gate)`.
        ///
        /// At position 0 the state counts as zeros. `qkv` is `[tokens, q | k | v]`, each of `heads · D`; `beta` has rows
        /// `beta_stride` apart. A thread holds 32 rows of a column of the state in registers for all tokens; sums over
        /// rows are chains over each 32 in order, then the groups in order.
        ///
        /// The tolerance: chains of 32 roundings in the prediction and the read-out, which the norm magnifies where `o` is
        /// small: at position 0 it is `v · β · (k · q)`, and a query nearly orthogonal to the key leaves of `k · q` a
        /// few digits fewer. Several tokens add up to little more, since decays forget.
        #[kernel(module = "kda", entry = $entry, reference = step_reference::<$d>, cases = step_cases::<$d>, tol = 2e-6)]
        #[launch(grid = (heads, 1, 1), block = ($threads, 1, 1), dependent)]
        #[cost(
            read = state.bytes() + qkv.bytes() + decay.bytes() + gate.bytes(),
            write = state.bytes() + y.bytes(),
            flops = tokens * heads * 7 * $d * $d
        )]
        pub fn $name(
            #[len(tokens * 3 * heads * $d)] qkv: &[f32],
            #[len(tokens * heads * $d)] decay: &[f32],
            #[len(heads * $d)] dt_bias: &[f32],
            #[len(heads)] a_log: &[f32],
            #[len((tokens - 1) * beta_stride + heads)] beta: &[f32],
            #[len(tokens * heads * $d)] gate: &[f32],
            #[len($d)] norm_weight: &[f32],
            #[len(heads * $d * $d)] state: &mut [f32],
            position: &Counter,
            #[out]
            #[len(tokens * heads * $d)]
            y: &mut [f32],
            heads: u32,
            bound: f32,
            bounded: u32,
            eps: f32,
            tokens: u32,
            beta_stride: u32,
        );
    )*};
}

declare_step! {
    kda_step_32 "kda_step_32" 32 32;
    kda_step_64 "kda_step_64" 64 128;
    kda_step_128 "kda_step_128" 128 512;
}
