//! NVFP4: 4-bit floats in blocks of 16 with an 8-bit scale each, and one f32 scale over all.
//!
//! Element `2i` of a row is in the low nibble of byte `i`. A nibble is an e2m1 float: bit 3 the sign, two bits of exponent
//! of bias 1, one of mantissa (OCP Microscaling Formats 1.0, §5.3.3). Block scales are e4m3. The value of an element is
//! `(e2m1 · e4m3) · global`: the first product has at most 6 significant bits and is exact in f32, so a value is rounded once.

use rayon::prelude::*;

use super::{QuantError, TASK};
use crate::device::F8E4M3;
use crate::format::DType;

/// Elements a block.
pub const NVFP4_BLOCK: usize = 16;

/// The value of each e2m1 code.
pub const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Largest and smallest global scale that is not zero, either way up: far beyond any real one, and such that its
/// reciprocal, and the product with the largest element, are normal numbers.
const GLOBAL_RANGE: std::ops::RangeInclusive<f32> = f32::from_bits(0x0380_0000)..=f32::from_bits(0x7b80_0000);

/// The multiplier that a matrix has on the device, of a global scale that its checkpoint gives as a multiplier.
///
/// Some writers store the global scale as a multiplier m, others as a divisor, the f32 nearest to 1/m. Several m share one
/// such divisor where m's mantissa exceeds √2, so m cannot always be told from its divisor. That the same matrix have the
/// same bits whoever wrote it, a multiplier is taken for the representative of all that share its divisor: 1/(1/m), each
/// step rounded. It differs from m by at most one unit in the last place (2⁻²³ of m), and not at all where m's mantissa is
/// √2 or less. Doing it again changes nothing.
///
/// # Errors
/// A sentence, for a scale that is negative, not finite, or absurd (other than 0 and outside of 2⁻¹²⁰ … 2¹²⁰).
pub fn global_of_multiplier(multiplier: f32) -> Result<f32, String> {
    if multiplier == 0.0 {
        return Ok(0.0); // a matrix of zeros
    }
    in_range("multiplier", multiplier)?;
    Ok(1.0 / (1.0 / multiplier))
}

/// The same of a global scale that is a divisor: 1/divisor.
///
/// # Errors
/// As [`global_of_multiplier`]; also for 0.
pub fn global_of_divisor(divisor: f32) -> Result<f32, String> {
    in_range("divisor", divisor)?;
    Ok(1.0 / divisor)
}

fn in_range(what: &str, scale: f32) -> Result<(), String> {
    if GLOBAL_RANGE.contains(&scale) {
        Ok(())
    } else {
        Err(format!(
            "the global scale, a {what}, is {scale:e}; a positive number from 2^-120 to 2^120 is wanted"
        ))
    }
}

/// Writes the f32 value of each element of rows of NVFP4 to `out`.
///
/// `qs` holds two elements a byte, `scales` one e4m3 for 16, in the order of the elements; `global` is the multiplier.
///
/// # Errors
/// [`QuantError::Length`] if `out` is no whole number of blocks, or `qs` or `scales` are not as long as it implies.
pub fn dequantise_nvfp4(qs: &[u8], scales: &[u8], global: f32, out: &mut [f32]) -> Result<(), QuantError> {
    let blocks = out.len().div_ceil(NVFP4_BLOCK);
    let check = |what, found, wanted| {
        if found == wanted {
            Ok(())
        } else {
            Err(QuantError::Length { dtype: DType::U8, what, found, wanted })
        }
    };
    check("the NVFP4 output", out.len(), blocks * NVFP4_BLOCK)?;
    check("the plane of packed NVFP4 elements", qs.len(), blocks * NVFP4_BLOCK / 2)?;
    check("the plane of NVFP4 block scales", scales.len(), blocks)?;
    let task = TASK / NVFP4_BLOCK;
    let parts = qs.par_chunks(TASK / 2).zip(scales.par_chunks(task));
    out.par_chunks_mut(TASK).zip(parts).for_each(|(out, (qs, scales))| {
        let blocks = qs.as_chunks::<{ NVFP4_BLOCK / 2 }>().0.iter().zip(scales);
        for (out, (qs, &scale)) in out.as_chunks_mut::<NVFP4_BLOCK>().0.iter_mut().zip(blocks) {
            let scale = F8E4M3(scale).to_f32();
            for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(qs) {
                *pair = [byte & 15, byte >> 4].map(|code| E2M1[code as usize] * scale * global);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_worked_out_by_hand() {
        // Every code, times 1.5 (0x3c) and −0.5 (0xb0), times 0.25.
        let qs: Vec<u8> = (0..8).map(|i| (2 * i) | ((2 * i + 1) << 4)).collect();
        let mut out = [f32::NAN; 32];
        dequantise_nvfp4(&[&qs[..], &qs[..]].concat(), &[0x3c, 0xb0], 0.25, &mut out).unwrap();
        let first = [0.0, 0.1875, 0.375, 0.5625, 0.75, 1.125, 1.5, 2.25].map(|x: f32| x); // e2m1 · 0.375
        assert_eq!(out[..8], first);
        assert_eq!(out[8..16], first.map(|x| -x));
        assert!(out[8].is_sign_negative() && out[8] == 0.0, "minus zero keeps its sign");
        let second = [0.0, -0.0625, -0.125, -0.1875, -0.25, -0.375, -0.5, -0.75]; // e2m1 · −0.125
        assert_eq!(out[16..24], second);
        assert_eq!(out[24..], second.map(|x| -x));
    }

    #[test]
    fn a_value_is_rounded_once() {
        // All codes of both, times a scale of 24 significant bits, against the product in f64, which holds 53.
        let global = global_of_multiplier(0.001_234_568).unwrap();
        for scale in (0..=255u8).filter(|scale| scale & 0x7f != 0x7f) {
            let qs: Vec<u8> = (0..8).map(|i| (2 * i) | ((2 * i + 1) << 4)).collect();
            let mut out = [0f32; 16];
            dequantise_nvfp4(&qs, &[scale], global, &mut out).unwrap();
            for (code, value) in out.iter().enumerate() {
                let exact = f64::from(E2M1[code]) * F8E4M3(scale).to_f64() * f64::from(global);
                assert_eq!(value.to_bits(), (exact as f32).to_bits(), "code {code}, scale {scale:#x}");
            }
        }
    }

    #[test]
    fn a_multiplier_and_its_divisor_are_one_global_scale() {
        // Mantissas all over [1, 2), exponents of both signs; both as writers make them: the divisor from the multiplier,
        // and the multiplier from the divisor.
        let (mut moved, mut count) = (0, 0);
        for i in 0..200_000u32 {
            let m = f32::from_bits(((100 + i % 50) << 23) | (i.wrapping_mul(2_654_435_761) & 0x7f_ffff));
            let global = global_of_multiplier(m).unwrap();
            assert_eq!(global_of_divisor(1.0 / m).unwrap().to_bits(), global.to_bits(), "{m:e}");
            assert_eq!(global_of_multiplier(global).unwrap().to_bits(), global.to_bits(), "{m:e}");
            assert_eq!(global_of_multiplier(1.0 / m).unwrap(), global_of_divisor(m).unwrap(), "{m:e}");
            assert!(global.to_bits().abs_diff(m.to_bits()) <= 1, "{m:e} became {global:e}");
            let mantissa = m / 2f32.powi((m.to_bits() >> 23) as i32 - 127);
            assert!(global == m || mantissa > std::f32::consts::SQRT_2, "{m:e} became {global:e}");
            moved += u32::from(global != m);
            count += 1;
        }
        assert!(moved > 0 && moved < count / 4, "{moved} of {count} moved");
    }

    #[test]
    fn absurd_global_scales_are_refused() {
        assert_eq!(global_of_multiplier(0.0), Ok(0.0));
        for scale in [f32::NAN, f32::INFINITY, -1.0, 1e-40, 1e38] {
            assert!(global_of_multiplier(scale).unwrap_err().contains("multiplier"), "{scale}");
            assert!(global_of_divisor(scale).unwrap_err().contains("divisor"), "{scale}");
        }
        assert!(global_of_divisor(0.0).is_err());
    }

    #[test]
    fn lengths_are_checked() {
        let mut out = [0f32; 32];
        let error = dequantise_nvfp4(&[0; 16], &[0; 3], 1.0, &mut out).unwrap_err().to_string();
        assert!(error.contains("NVFP4 block scales has 3"), "{error}");
        assert!(dequantise_nvfp4(&[0; 15], &[0; 2], 1.0, &mut out).is_err());
        assert!(dequantise_nvfp4(&[0; 8], &[0; 1], 1.0, &mut out[..15]).is_err());
    }
}
