//! Root-mean-square norm of rows, and the quantisation of the `i16` program.

use super::token_rows;
use crate::kernel::{Case, kernel};

pub(in crate::kernels) fn normalised(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(&v, &w)| f64::from(v) * scale * f64::from(w)).collect()
}

fn reference(x: &[f32], weight: &[f32], y: &mut [f64], cols: u32, eps: f32, tokens: u32, x_stride: u32) {
    for (y, x) in y.chunks_mut(cols as usize).zip(token_rows(x, cols, tokens, x_stride)) {
        y.copy_from_slice(&normalised(x, weight, eps));
    }
}

/// [`normalised`] by the kernels' own steps, in float32: the order of summation is part of the program's definition.
fn normalised_f32(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mut lanes = [[0.0f32; 4]; 256];
    for (i, quad) in x.chunks(4).enumerate() {
        for (sum, v) in lanes[i % 256].iter_mut().zip(quad) {
            *sum = v.mul_add(*v, *sum);
        }
    }
    let folded: Vec<f32> = lanes.iter().map(|s| (s[0] + s[1]) + (s[2] + s[3])).collect();
    let warps: Vec<f32> = folded.chunks(32).map(butterfly).collect();
    let inverse = 1.0 / (butterfly(&warps) / x.len() as f32 + eps).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| x * inverse * w).collect()
}

/// What program `i16` multiplies with: a row, normed where there is a norm, quantised, as `q · scale`.
pub(in crate::kernels) fn int16_rounded(x: &[f32], norm: Option<&[f32]>, eps: f32) -> Vec<f64> {
    let x = norm.map_or_else(|| x.to_vec(), |weight| normalised_f32(x, weight, eps));
    x.chunks(32)
        .flat_map(|block| {
            let (scale, reciprocal) = int16_scale(block);
            block.iter().map(move |&v| f64::from(int16(v, reciprocal)) * f64::from(scale))
        })
        .collect()
}

/// By the program's definition, in float32: the scale is `max |x| / 32512`, or 0 where that is below the normal range; and what values are
/// multiplied with.
fn int16_scale(block: &[f32]) -> (f32, f32) {
    let scale = block.iter().fold(0.0f32, |a, v| a.max(v.abs())) / 32512.0;
    if scale < f32::MIN_POSITIVE { (0.0, 0.0) } else { (scale, 1.0 / scale) }
}

fn int16(v: f32, reciprocal: f32) -> i16 {
    (v * reciprocal).round_ties_even().clamp(-32767.0, 32767.0) as i16
}

/// A power of two of sums, folded half onto half.
fn butterfly(sums: &[f32]) -> f32 {
    let mut sums = sums.to_vec();
    while sums.len() > 1 {
        let upper = sums.split_off(sums.len() / 2);
        sums.iter_mut().zip(upper).for_each(|(sum, other)| *sum += other);
    }
    sums[0]
}

fn quantise_reference(x: &[f32], q: &mut [i16], scale: &mut [f64], cols: u32, tokens: u32, x_stride: u32) {
    let blocks = token_rows(x, cols, tokens, x_stride).flat_map(|row| row.chunks(32));
    for (index, block) in blocks.enumerate() {
        let (s, reciprocal) = int16_scale(block);
        scale[index] = f64::from(s);
        for (q, v) in q[index * 32..].iter_mut().zip(block) {
            *q = int16(*v, reciprocal);
        }
    }
}

/// One token of each width; two and five of some, contiguous or apart; those of real models.
fn rows(widths: &[u32]) -> Vec<Case> {
    let case = |cols: u32, tokens: u32, x_stride: u32| {
        Case::new(format!("{tokens} of {cols} columns, {x_stride} apart"))
            .u32("cols", cols)
            .u32("tokens", tokens)
            .u32("x_stride", x_stride)
    };
    let mut cases: Vec<Case> = widths.iter().map(|&cols| case(cols, 1, cols)).collect();
    cases.extend([case(96, 2, 224), case(576, 5, 576), case(64, 5, 100), case(1536, 2, 2112)]);
    cases.extend([case(4096, 1, 4096).representative(), case(4096, 64, 4096).representative()]);
    cases
}

fn cases() -> Vec<Case> {
    rows(&[8, 24, 96, 576, 1024, 1032, 2056]).into_iter().map(|case| case.f32("eps", 1e-5)).collect()
}

fn quantise_cases() -> Vec<Case> {
    let mut cases = rows(&[32, 96, 576, 1056, 2080]);
    // A block of zeros, denormals (whose scale is taken for 0), and the largest finite values.
    let mut x = vec![0.0f32; 96];
    for (i, x) in x.iter_mut().enumerate().skip(32) {
        let sign = if i % 3 == 0 { -1.0 } else { 1.0 };
        *x = if i < 64 {
            f32::from_bits(65_536 + i as u32 * 997) * sign
        } else {
            f32::MAX * sign / (i - 63) as f32
        };
    }
    let special = Case::new("zeros, denormals, largest").u32("cols", 96).u32("tokens", 1).u32("x_stride", 96);
    cases.push(special.values("x", &x));
    cases
}

/// `y[t] = x[t] / sqrt(mean(x[t]²) + eps) · weight`. One block a token: quads of columns in turn to 256 threads, each into four
/// sums; folded in pairs, by a butterfly over each warp, then over the warps.
///
/// The tolerance is that of a handful of roundings: the sum's (short chains of positive terms), the square root's, the
/// quotient's and two products'.
#[kernel(module = "norm", entry = "rms_norm", reference = reference, cases = cases, tol = 4e-7)]
#[launch(grid = (tokens, 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = 4 * tokens * cols + weight.bytes(), write = y.bytes(), flops = 4 * tokens * cols)]
pub fn rms_norm(
    #[len((tokens - 1) * x_stride + cols)] x: &[f32],
    #[len(cols)] weight: &[f32],
    #[out]
    #[len(tokens * cols)]
    y: &mut [f32],
    cols: u32,
    eps: f32,
    tokens: u32,
    x_stride: u32,
);

/// Each block of 32 columns as int16: `scale = max |x| / 32512`, `q = round(x · (1 / scale))`, in float32; where the scale would be below
/// the normal range, it and the values are 0. Infinities and NaN make the block's scale infinite or NaN.
#[kernel(module = "norm", entry = "quantise_i16", reference = quantise_reference, cases = quantise_cases, tol = 0)]
#[launch(grid = (cols.div_ceil(1024), tokens, 1), block = (256, 1, 1), dependent)]
#[cost(read = 4 * tokens * cols, write = q.bytes() + scale.bytes(), flops = 2 * tokens * cols)]
pub fn quantise_i16(
    #[len((tokens - 1) * x_stride + cols)] x: &[f32],
    #[out]
    #[len(tokens * cols)]
    q: &mut [i16],
    #[out]
    #[len(tokens * (cols / 32))]
    scale: &mut [f32],
    cols: u32,
    tokens: u32,
    x_stride: u32,
);
