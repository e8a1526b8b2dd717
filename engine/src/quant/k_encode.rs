//! Quantisation to five bits and to ggml's "k" formats, for fixtures, synthetic weights and tests: plain rounding, without the searches
//! by which ggml makes the error smaller.

use half::f16;

use super::encode::{extreme, inverse};
use super::k_planes::{join_q4_k, join_q5_0, join_q5_k, join_q6_k, pack_five_bits, pack_six_bits};

/// Four integers below 64 as a word.
fn word(q: &[u8], group: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|b| q[4 * group + b]))
}

/// Words of a plane.
fn plane<const N: usize>(words: impl IntoIterator<Item = u32>) -> [u8; N] {
    let mut bytes = [0; N];
    for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

fn rounded(x: f32, least: i32, most: i32) -> i32 {
    (x.round() as i32).clamp(least, most)
}

/// d = x / −16 for the x of largest magnitude.
pub(super) fn q5_0(x: &[f32], bytes: &mut Vec<u8>) {
    let d = extreme(x) / -16.0;
    let inverse = inverse(d);
    let q: [u8; 32] = std::array::from_fn(|i| (x[i] * inverse + 16.5).clamp(0.0, 31.0) as u8);
    let [qs @ .., qt] = pack_five_bits(std::array::from_fn(|g| word(&q, g)));
    let mut block = [0; 22];
    join_q5_0(&mut block, &plane(qs), &plane([qt]), &f16::from_f32(d).to_le_bytes());
    bytes.extend(block);
}

/// A super-block's eight scales and minima, and the integers, up to `levels`, that they leave.
///
/// Of a sub-block the minimum is the least weight below zero, the scale what spans from there to the largest weight in `levels` steps. Both are
/// rounded to 63rds of the largest of the super-block.
fn with_minima(x: &[f32], levels: f32) -> ([u8; 4], [u8; 16], [u8; 256]) {
    let subs: [(f32, f32); 8] = std::array::from_fn(|i| {
        let sub = &x[32 * i..][..32];
        let min = sub.iter().copied().fold(0f32, f32::min);
        let max = sub.iter().copied().fold(min, f32::max);
        ((max - min) / levels, -min)
    });
    let d = f16::from_f32(subs.iter().fold(0f32, |max, sub| max.max(sub.0)) / 63.0);
    let dmin = f16::from_f32(subs.iter().fold(0f32, |max, sub| max.max(sub.1)) / 63.0);
    let (mut scales, mut q) = ([0; 16], [0; 256]);
    for (i, (scale, min)) in subs.into_iter().enumerate() {
        let s = rounded(scale * inverse(d.to_f32()), 0, 63);
        let m = rounded(min * inverse(dmin.to_f32()), 0, 63);
        (scales[2 * i], scales[2 * i + 1]) = (s as u8, m as u8);
        let (inverse, min) = (inverse(d.to_f32() * s as f32), dmin.to_f32() * m as f32);
        for (q, x) in q[32 * i..][..32].iter_mut().zip(&x[32 * i..]) {
            *q = rounded((x + min) * inverse, 0, levels as i32) as u8;
        }
    }
    let [a, b] = [d, dmin].map(f16::to_le_bytes);
    ([a[0], a[1], b[0], b[1]], scales, q)
}

pub(super) fn q4_k(x: &[f32], bytes: &mut Vec<u8>) {
    let (dm, scales, q) = with_minima(x, 15.0);
    let qs = std::array::from_fn(|i| {
        let (sub, j) = (i / 16, i % 16);
        q[32 * sub + j] | q[32 * sub + j + 16] << 4
    });
    let mut block = [0; 144];
    join_q4_k(&mut block, &qs, &scales, &dm);
    bytes.extend(block);
}

pub(super) fn q5_k(x: &[f32], bytes: &mut Vec<u8>) {
    let (dm, scales, q) = with_minima(x, 31.0);
    let words: [[u32; 5]; 8] =
        std::array::from_fn(|sub| pack_five_bits(std::array::from_fn(|g| word(&q, 8 * sub + g))));
    let qs = plane(words.iter().flat_map(|words| words[..4].iter().copied()));
    let qt = plane(words.iter().map(|words| words[4]));
    let mut block = [0; 176];
    join_q5_k(&mut block, &qs, &qt, &scales, &dm);
    bytes.extend(block);
}

/// Of 16 weights the scale is x / −32 for the x of largest magnitude, in −128ths of the largest scale of the super-block.
pub(super) fn q6_k(x: &[f32], bytes: &mut Vec<u8>) {
    let wanted: [f32; 16] = std::array::from_fn(|i| extreme(&x[16 * i..][..16]) / -32.0);
    let d = f16::from_f32(extreme(&wanted) / -128.0);
    let mut q = [0; 256];
    let scales: [u8; 16] = std::array::from_fn(|i| {
        let scale = rounded(wanted[i] * inverse(d.to_f32()), -128, 127);
        let inverse = inverse(d.to_f32() * scale as f32);
        for (q, x) in q[16 * i..][..16].iter_mut().zip(&x[16 * i..]) {
            *q = (rounded(x * inverse, -32, 31) + 32) as u8;
        }
        scale as i8 as u8
    });
    let words: [[u32; 3]; 16] =
        std::array::from_fn(|half| pack_six_bits(std::array::from_fn(|g| word(&q, 4 * half + g))));
    let (mut qs, mut qt) = (Vec::new(), Vec::new());
    for pair in words.as_chunks::<2>().0 {
        qs.extend([pair[0][0], pair[0][1], pair[0][2], pair[1][0]]);
        qt.extend([pair[1][1], pair[1][2]]);
    }
    let mut block = [0; 210];
    let [low, high] = d.to_le_bytes();
    join_q6_k(&mut block, &plane(qs), &plane(qt), &scales, &[low, high, 0, 0]);
    bytes.extend(block);
}

#[cfg(test)]
mod tests {
    use crate::format::DType;
    use crate::quant::{dequantise, quantise};

    /// What rounding may do, worked out for each format: half a step, or a whole one where the side away from the extreme is a
    /// level short; what the rounding of scales and minima takes from the ends; 2⁻¹⁰ for halves.
    #[test]
    fn values_come_back_within_a_step() {
        let values: Vec<f32> =
            (0..1024).map(|i| (i as f32 * 0.37).sin() * (1.0 + i as f32 / 64.0) + (i / 300) as f32).collect();
        for dtype in [DType::Q5_0, DType::Q4_K, DType::Q5_K, DType::Q6_K] {
            let bytes = quantise(dtype, &values).unwrap();
            assert_eq!(bytes.len(), values.len() / dtype.block_len() * dtype.block_bytes());
            let mut back = vec![0.0; values.len()];
            dequantise(dtype, &bytes, &mut back).unwrap();
            let len = dtype.block_len();
            for (i, (block, back)) in values.chunks(len).zip(back.chunks(len)).enumerate() {
                let max = block.iter().fold(0f32, |max, x| max.max(x.abs()));
                let ranges = |levels: f32| {
                    let subs = block.chunks(32).map(|sub| {
                        let min = sub.iter().copied().fold(0f32, f32::min);
                        (sub.iter().copied().fold(min, f32::max) - min) / levels
                    });
                    let step = subs.fold(0f32, f32::max);
                    step * (0.5 + levels / 126.0) + max / 126.0
                };
                let bound = max / 1024.0
                    + match dtype {
                        DType::Q5_0 => max / 16.0,
                        DType::Q4_K => ranges(15.0),
                        DType::Q5_K => ranges(31.0),
                        _ => max / 32.0 * (1.0 + 1.0 / 8.0),
                    };
                for (x, y) in block.iter().zip(back) {
                    assert!((x - y).abs() <= bound, "{dtype} block {i}: {x} became {y}, bound {bound}");
                }
            }
            // Blocks of zeros stay zeros.
            let zeros = quantise(dtype, &vec![0.0; len]).unwrap();
            let mut back = vec![1.0; len];
            dequantise(dtype, &zeros, &mut back).unwrap();
            assert!(back.iter().all(|&x| x == 0.0), "{dtype}");
        }
    }
}
