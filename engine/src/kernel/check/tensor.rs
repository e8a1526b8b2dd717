//! Random weight matrices: planes of bytes, and what they stand for.

use half::{bf16, f16};

use super::random::Random;
use crate::device::F8E4M3;
use crate::kernel::{Fill, HostTensor, TensorFormat};
use crate::quant::{self, E2M1};

/// The planes of a `[rows, cols]` matrix and its values by the format's definition. Weights have standard deviation
/// `fill`, 1/√cols without one; every bit pattern of the quantised integers occurs.
pub(super) fn random(
    format: TensorFormat,
    rows: u64,
    cols: u64,
    fill: Option<&Fill>,
    random: Random,
) -> Result<(Vec<Vec<u8>>, HostTensor), String> {
    let deviation = match fill {
        None => 1.0 / (cols as f64).sqrt(),
        Some(Fill::Normal(deviation)) => *deviation,
        Some(other) => return Err(format!("a tensor is filled by a deviation, not by {other:?}")),
    };
    let count = rows * cols;
    let mut values = Vec::with_capacity(count as usize);
    let planes = match format {
        TensorFormat::F32 | TensorFormat::F16 | TensorFormat::BF16 => {
            let mut data = Vec::new();
            for i in 0..count {
                let value = (deviation * random.normal(i)) as f32;
                values.push(match format {
                    TensorFormat::F16 => {
                        let value = f16::from_f32(value);
                        data.extend(value.to_le_bytes());
                        value.to_f32()
                    }
                    TensorFormat::BF16 => {
                        let value = bf16::from_f32(value);
                        data.extend(value.to_le_bytes());
                        value.to_f32()
                    }
                    _ => {
                        data.extend(value.to_le_bytes());
                        value
                    }
                });
            }
            vec![data]
        }
        TensorFormat::Q8_0 | TensorFormat::Q4_0 | TensorFormat::Q4_1 => {
            blocks(format, count / 32, deviation, random, &mut values)
        }
        TensorFormat::Q5_0 | TensorFormat::Q4_K | TensorFormat::Q5_K | TensorFormat::Q6_K => {
            sub_blocks(format, count / 32, deviation, random, &mut values)
        }
        TensorFormat::NVFP4 => nvfp4(rows, cols, deviation, random, &mut values),
    };
    Ok((planes, HostTensor { rows: rows as usize, cols: cols as usize, values }))
}

/// Standard deviation of a uniform integer of `n` values: √((n² − 1) / 12).
fn integer_deviation(n: f64) -> f64 {
    ((n * n - 1.0) / 12.0).sqrt()
}

fn blocks(
    format: TensorFormat,
    count: u64,
    deviation: f64,
    random: Random,
    values: &mut Vec<f32>,
) -> Vec<Vec<u8>> {
    let (mut quants, mut scales) = (Vec::new(), Vec::new());
    let levels = if format == TensorFormat::Q8_0 { 256.0 } else { 16.0 };
    for block in 0..count {
        // Eight words a block: four of quants (Q4 uses two), one for each number of the scales.
        let word = |i: u64| random.bits(8 * block + i);
        let spread = 0.5 + random.uniform(8 * block + 4);
        let sign = if word(5) & 1 == 0 { 1.0 } else { -1.0 };
        let d = f16::from_f64(sign * spread * deviation / integer_deviation(levels));
        scales.extend(d.to_le_bytes());
        let bytes: Vec<u8> = (0..4).flat_map(|i| word(i).to_le_bytes()).collect();
        let d = d.to_f32();
        // Element j of a block of nibbles: low of byte j, or high of byte j − 16.
        let nibble = |j: usize| f32::from(if j < 16 { bytes[j] & 15 } else { bytes[j - 16] >> 4 });
        match format {
            TensorFormat::Q8_0 => {
                quants.extend(&bytes);
                values.extend(bytes.iter().map(|&byte| d * f32::from(byte as i8)));
            }
            TensorFormat::Q4_0 => {
                quants.extend(&bytes[..16]);
                values.extend((0..32).map(|j| d * (nibble(j) - 8.0)));
            }
            _ => {
                // The middle of the range, moved about by the deviation, so that the mean is not always zero.
                let m =
                    f16::from_f64(-7.5 * f64::from(d) + deviation * (random.uniform(8 * block + 6) - 0.5));
                scales.extend(m.to_le_bytes());
                quants.extend(&bytes[..16]);
                values.extend((0..32).map(|j| d * nibble(j) + m.to_f32()));
            }
        }
    }
    vec![quants, scales]
}

/// Runs of 32 weights of four, five or six bits, any; scales of sub-blocks all over their range.
fn sub_blocks(
    format: TensorFormat,
    count: u64,
    deviation: f64,
    random: Random,
    values: &mut Vec<f32>,
) -> Vec<Vec<u8>> {
    let (mut qs, mut qt, mut scales, mut halves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let bits = match format {
        TensorFormat::Q4_K => 4,
        TensorFormat::Q6_K => 6,
        _ => 5,
    };
    let levels = f64::from(1u32 << bits);
    let minima = matches!(format, TensorFormat::Q4_K | TensorFormat::Q5_K);
    // Sub-blocks that share their halves, and the root of the mean square of six-bit scales, or of any i8.
    let (shared, scale) = match format {
        TensorFormat::Q5_0 => (1, 1.0),
        TensorFormat::Q6_K => (8, 74.0),
        _ => (8, 36.7),
    };
    let (mut d, mut dmin) = (0f32, 0f32);
    for block in 0..count {
        let word = |i: u64| random.bits(16 * block + i);
        if block % shared == 0 {
            let spread = 0.5 + random.uniform(16 * block + 8);
            let sign = if !minima && word(9) & 1 == 1 { -1.0 } else { 1.0 };
            let half = f16::from_f64(sign * spread * deviation / (integer_deviation(levels) * scale));
            halves.extend(half.to_le_bytes());
            d = half.to_f32();
            if format == TensorFormat::Q6_K {
                halves.extend([0, 0]); // the other half of its word
            }
            if minima {
                // On the average, minima are the middle of the range.
                let half = f16::from_f64(f64::from(d) * (levels - 1.0) / 2.0);
                halves.extend(half.to_le_bytes());
                dmin = half.to_f32();
            }
        }
        let q: [u8; 32] =
            std::array::from_fn(|i| word(i as u64 / 8).to_le_bytes()[i % 8] & ((1u8 << bits) - 1));
        let group = |g: usize| u32::from_le_bytes([q[4 * g], q[4 * g + 1], q[4 * g + 2], q[4 * g + 3]]);
        match bits {
            4 => qs.extend((0..16).map(|j| q[j] | q[j + 16] << 4)),
            5 => {
                let [first @ .., last] = quant::pack_five_bits(std::array::from_fn(group));
                qs.extend(first.iter().flat_map(|word| word.to_le_bytes()));
                qt.extend(last.to_le_bytes());
            }
            _ => {
                let [a, b] = [0, 4]
                    .map(|g| quant::pack_six_bits([group(g), group(g + 1), group(g + 2), group(g + 3)]));
                qs.extend([a[0], a[1], a[2], b[0]].iter().flat_map(|word| word.to_le_bytes()));
                qt.extend([b[1], b[2]].iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        let codes = word(10).to_le_bytes();
        match format {
            TensorFormat::Q5_0 => values.extend(q.map(|q| d * (f32::from(q) - 16.0))),
            TensorFormat::Q6_K => {
                scales.extend(&codes[..2]);
                let weight = |i: usize| d * f32::from(codes[i / 16] as i8) * (f32::from(q[i]) - 32.0);
                values.extend((0..32).map(weight));
            }
            _ => {
                // Minima near the scales, as quantisation makes them: the mean of a sub-block is small beside its weights.
                let s = codes[0] & 63;
                let m = (s + codes[1] % 8).saturating_sub(4).min(63);
                scales.extend([s, m]);
                let (d, m) = (d * f32::from(s), dmin * f32::from(m));
                values.extend(q.map(|q| d * f32::from(q) - m));
            }
        }
    }
    let planes = [qs, qt, scales, halves];
    planes.into_iter().filter(|plane| !plane.is_empty()).collect()
}

/// Any codes; block scales of one to two times 2⁰ … 2³, of either sign; a global scale a row.
fn nvfp4(rows: u64, cols: u64, deviation: f64, random: Random, values: &mut Vec<f32>) -> Vec<Vec<u8>> {
    let (mut qs, mut scales, mut globals) = (Vec::new(), Vec::new(), Vec::new());
    // The root of the mean square of e2m1's values, and of these block scales.
    let square = |values: &[f32]| {
        (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    let scale_codes: Vec<u8> = (0x38..0x58).collect();
    let scale_values: Vec<f32> = scale_codes.iter().map(|&code| F8E4M3(code).to_f32()).collect();
    let unit = square(&E2M1) * square(&scale_values);
    for row in 0..rows {
        let spread = 0.75 + 0.5 * random.uniform(row << 32);
        let global = (spread * deviation / unit) as f32;
        globals.extend(global.to_le_bytes());
        for block in 0..cols / 16 {
            let word = |i: u64| random.bits((row << 32) + 2 * block + 1 + i);
            let bytes = word(0).to_le_bytes();
            let scale = scale_codes[(word(1) % 32) as usize] | (word(1) >> 8) as u8 & 0x80;
            qs.extend(bytes);
            scales.push(scale);
            let codes = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            values.extend(codes.map(|code| E2M1[code as usize] * F8E4M3(scale).to_f32() * global));
        }
    }
    vec![qs, scales, globals]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DType;

    #[test]
    fn planes_mean_what_the_formats_say() {
        let formats = [
            (TensorFormat::F32, DType::F32),
            (TensorFormat::F16, DType::F16),
            (TensorFormat::BF16, DType::Bf16),
            (TensorFormat::Q8_0, DType::Q8_0),
            (TensorFormat::Q4_0, DType::Q4_0),
            (TensorFormat::Q4_1, DType::Q4_1),
            (TensorFormat::Q5_0, DType::Q5_0),
            (TensorFormat::Q4_K, DType::Q4_K),
            (TensorFormat::Q5_K, DType::Q5_K),
            (TensorFormat::Q6_K, DType::Q6_K),
        ];
        for (format, dtype) in formats {
            let cols = 64.max(format.block());
            let (planes, host) = random(format, 5, cols, None, Random::new(&[format.name()])).unwrap();
            assert_eq!(planes.len(), format.planes().len(), "{format}");
            for (plane, decl) in planes.iter().zip(format.planes()) {
                assert_eq!(
                    plane.len() as u64,
                    decl.bytes(5, cols / format.block()),
                    "{format} {}",
                    decl.name
                );
            }
            let blocks = 5 * (cols / format.block()) as usize;
            let mut file = vec![0; blocks * dtype.block_bytes()];
            let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
            quant::join(dtype, &planes, &mut file).unwrap();
            let mut wanted = vec![0f32; 5 * cols as usize];
            quant::dequantise(dtype, &file, &mut wanted).unwrap();
            assert_eq!(host.values, wanted, "{format}");
            let square = wanted.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / wanted.len() as f64;
            // 320 weights or more of variance 1/cols (13/12 of that for blocks of random scale, plus 1/12 for Q4_1's means).
            let variance = square * cols as f64;
            assert!((0.6..1.8).contains(&variance), "{format}: {variance}");
        }
    }

    #[test]
    fn nvfp4_planes_mean_what_the_format_says() {
        let (rows, cols) = (40, 64);
        let (planes, host) = random(TensorFormat::NVFP4, rows, cols, None, Random::new(&["NVFP4"])).unwrap();
        for (plane, decl) in planes.iter().zip(TensorFormat::NVFP4.planes()) {
            assert_eq!(plane.len() as u64, decl.bytes(rows, cols / 16), "{}", decl.name);
        }
        let mut row = vec![0f32; cols as usize];
        for r in 0..rows as usize {
            let global = f32::from_le_bytes(planes[2][4 * r..][..4].try_into().unwrap());
            quant::dequantise_nvfp4(&planes[0][32 * r..][..32], &planes[1][4 * r..][..4], global, &mut row)
                .unwrap();
            assert_eq!(host.row(r), row);
        }
        let square = host.values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        // Variance 1/64, times 1 + 1/48 for the rows' spread.
        let variance = square / host.values.len() as f64 * 64.0;
        assert!((0.8..1.25).contains(&variance), "{variance}");
    }

    #[test]
    fn only_a_deviation_fills_a_tensor() {
        let fill = Fill::Uniform(0.0, 1.0);
        let error = random(TensorFormat::F32, 1, 8, Some(&fill), Random::new(&["x"])).unwrap_err();
        assert!(error.contains("Uniform"), "{error}");
    }
}
