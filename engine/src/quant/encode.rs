//! Quantisation, for fixtures, synthetic weights and tests. It rounds as ggml's `quantize_row_*_ref` do.

use half::{bf16, f16};

use super::{QuantError, check, k_encode};
use crate::format::DType;

/// The blocks of `dtype` that best hold `values`.
///
/// # Errors
/// [`QuantError::Unsupported`] for types that do not run; [`QuantError::Length`] if `values`
/// is no whole number of blocks.
pub fn quantise(dtype: DType, values: &[f32]) -> Result<Vec<u8>, QuantError> {
    check(dtype, "the input", values.len(), values.len().next_multiple_of(dtype.block_len()))?;
    let blocks = values.chunks_exact(dtype.block_len());
    let mut bytes = Vec::with_capacity(blocks.len() * dtype.block_bytes());
    let block: fn(&[f32], &mut Vec<u8>) = match dtype {
        DType::F32 => |x, bytes| bytes.extend(x[0].to_le_bytes()),
        DType::F16 => |x, bytes| bytes.extend(f16::from_f32(x[0]).to_le_bytes()),
        DType::Bf16 => |x, bytes| bytes.extend(bf16::from_f32(x[0]).to_le_bytes()),
        DType::Q8_0 => q8_0,
        DType::Q4_0 => q4_0,
        DType::Q4_1 => q4_1,
        DType::Q5_0 => k_encode::q5_0,
        DType::Q4_K => k_encode::q4_k,
        DType::Q5_K => k_encode::q5_k,
        DType::Q6_K => k_encode::q6_k,
        _ => {
            let supported = super::DEVICE_TYPES;
            return Err(QuantError::Unsupported { dtype, operation: "quantised", supported });
        }
    };
    blocks.for_each(|values| block(values, &mut bytes));
    Ok(bytes)
}

/// The reciprocal of a scale, 0 for a block of zeros.
pub(super) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The value of largest magnitude.
pub(super) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |max, &x| if x.abs() > max.abs() { x } else { max })
}

fn push_nibbles(bytes: &mut Vec<u8>, q: [u8; 32]) {
    bytes.extend((0..16).map(|j| q[j] | q[j + 16] << 4));
}

/// d = max |x| / 127.
fn q8_0(x: &[f32], bytes: &mut Vec<u8>) {
    let d = x.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
    bytes.extend(f16::from_f32(d).to_le_bytes());
    let inverse = inverse(d);
    bytes.extend(x.iter().map(|x| (x * inverse).round() as i8 as u8));
}

/// d = x / −8 for the x of largest magnitude, so that it becomes the integer −8, exactly representable.
fn q4_0(x: &[f32], bytes: &mut Vec<u8>) {
    let d = extreme(x) / -8.0;
    bytes.extend(f16::from_f32(d).to_le_bytes());
    let inverse = inverse(d);
    push_nibbles(bytes, std::array::from_fn(|j| ((x[j] * inverse + 8.5) as u8).min(15)));
}

/// m = min x, d = (max x − min x) / 15.
fn q4_1(x: &[f32], bytes: &mut Vec<u8>) {
    let min = x.iter().copied().fold(f32::INFINITY, f32::min);
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / 15.0;
    bytes.extend(f16::from_f32(d).to_le_bytes());
    bytes.extend(f16::from_f32(min).to_le_bytes());
    let inverse = inverse(d);
    push_nibbles(bytes, std::array::from_fn(|j| (((x[j] - min) * inverse + 0.5) as u8).min(15)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::dequantise;

    /// Rounding error is at most half a step, plus what the scale itself loses in half precision (2⁻¹¹ of the value).
    #[test]
    fn values_come_back_within_half_a_step() {
        let values: Vec<f32> = (0..320).map(|i| (i as f32 * 0.37).sin() * (1.0 + i as f32 / 32.0)).collect();
        for (dtype, steps) in [(DType::Q8_0, 127.0), (DType::Q4_0, 8.0), (DType::Q4_1, 7.5)] {
            let bytes = quantise(dtype, &values).unwrap();
            let mut back = vec![0.0; values.len()];
            dequantise(dtype, &bytes, &mut back).unwrap();
            for (i, (block, back)) in values.chunks(32).zip(back.chunks(32)).enumerate() {
                let max = block.iter().fold(0f32, |max, x| max.max(x.abs()));
                // Q4_0 has 15 levels on one side only 7 steps long: a value there may miss by a whole step.
                let bound = max / steps * if dtype == DType::Q4_0 { 1.0 } else { 0.5 } + max * 1e-3;
                for (x, y) in block.iter().zip(back) {
                    assert!((x - y).abs() <= bound, "{dtype} block {i}: {x} became {y}, bound {bound}");
                }
            }
        }
    }

    #[test]
    fn quantising_again_changes_nothing() {
        let values: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) / 8.0).collect();
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let bytes = quantise(dtype, &values).unwrap();
            let mut back = vec![0.0; values.len()];
            dequantise(dtype, &bytes, &mut back).unwrap();
            assert_eq!(back, values, "{dtype}: these values need no rounding");
        }
        assert_eq!(quantise(DType::Q8_0, &[0.0; 32]).unwrap(), [0; 34]);
        assert!(quantise(DType::Q8_0, &[0.0; 31]).is_err());
        assert!(quantise(DType::Q2_K, &[]).is_err());
    }
}
