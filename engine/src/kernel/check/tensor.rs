//! Random weight matrices: planes of bytes, and what they stand for.

use half::{bf16, f16};

use super::random::Random;
use crate::device::F8E4M3;
use crate::kernel::{Fill, HostTensor, TensorFormat};
use crate::quant::E2M1;

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
    use crate::quant;

    #[test]
    fn planes_mean_what_the_formats_say() {
        let formats = [
            (TensorFormat::F32, DType::F32),
            (TensorFormat::F16, DType::F16),
            (TensorFormat::BF16, DType::Bf16),
            (TensorFormat::Q8_0, DType::Q8_0),
            (TensorFormat::Q4_0, DType::Q4_0),
            (TensorFormat::Q4_1, DType::Q4_1),
        ];
        for (format, dtype) in formats {
            let (planes, host) = random(format, 5, 64, None, Random::new(&[format.name()])).unwrap();
            for (plane, decl) in planes.iter().zip(format.planes()) {
                assert_eq!(
                    plane.len() as u64,
                    5 * 64 / format.block() * decl.block_bytes,
                    "{format} {}",
                    decl.name
                );
            }
            // In a file the scales of a block stand before its quants.
            let blocks = 5 * 64 / format.block() as usize;
            let mut file = Vec::new();
            for block in 0..blocks {
                for plane in planes.iter().rev() {
                    let size = plane.len() / blocks;
                    file.extend(&plane[block * size..][..size]);
                }
            }
            let mut wanted = vec![0f32; 5 * 64];
            quant::dequantise(dtype, &file, &mut wanted).unwrap();
            assert_eq!(host.values, wanted, "{format}");
            let square = wanted.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / wanted.len() as f64;
            // 320 weights of variance 1/64 (13/12 of that for blocks of random scale, plus 1/12 for Q4_1's means).
            assert!((0.6..1.8).contains(&(square * 64.0)), "{format}: {}", square * 64.0);
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
