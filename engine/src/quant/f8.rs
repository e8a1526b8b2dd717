//! 8-bit floats (e4m3) with a scale for each block of 128 × 128 of a matrix.
//!
//! The value of an element is `e4m3 · scale`, rounded once, to f32: 4 significant bits times 24 fit no smaller type.

use super::QuantError;
use crate::device::F8E4M3;
use crate::format::DType;

/// Rows and columns that share a scale.
const BLOCK: usize = 128;

/// Calls `write(out, value)` for each element.
fn each<T>(
    bytes: &[u8],
    scales: &[f32],
    cols: usize,
    out: &mut [T],
    write: impl Fn(&mut T, f32),
) -> Result<(), QuantError> {
    let check = |what, found, wanted| {
        if found == wanted {
            Ok(())
        } else {
            Err(QuantError::Length { dtype: DType::F8_E4M3, what, found, wanted })
        }
    };
    let cols = cols.max(1);
    let (rows, block_cols) = (out.len() / cols, cols.div_ceil(BLOCK));
    check("the output", out.len(), rows * cols)?;
    check("the tensor's data", bytes.len(), rows * cols)?;
    check("the scales", scales.len(), rows.div_ceil(BLOCK) * block_cols)?;
    let values: Vec<f32> = (0..=255).map(|code| F8E4M3(code).to_f32()).collect();
    let rows = out.chunks_mut(cols).zip(bytes.chunks(cols)).enumerate();
    for (row, (out, bytes)) in rows {
        let scales = &scales[row / BLOCK * block_cols..][..block_cols];
        let blocks = out.chunks_mut(BLOCK).zip(bytes.chunks(BLOCK)).zip(scales);
        for ((out, bytes), &scale) in blocks {
            for (out, &code) in out.iter_mut().zip(bytes) {
                write(out, values[code as usize] * scale);
            }
        }
    }
    Ok(())
}

/// Writes the f32 value of each element of a matrix of `cols` columns; `scales` is `[⌈rows/128⌉, ⌈cols/128⌉]`.
///
/// # Errors
/// [`QuantError::Length`] if the slices' lengths do not fit each other.
pub fn dequantise_f8_block(
    bytes: &[u8],
    scales: &[f32],
    cols: usize,
    out: &mut [f32],
) -> Result<(), QuantError> {
    each(bytes, scales, cols, out, |out, value| *out = value)
}

/// The same, as the little-endian bytes of a plane of F32.
///
/// # Errors
/// As [`dequantise_f8_block`].
pub fn f8_block_planes(
    bytes: &[u8],
    scales: &[f32],
    cols: usize,
    plane: &mut [u8],
) -> Result<(), QuantError> {
    let (words, rest) = plane.as_chunks_mut::<4>();
    if !rest.is_empty() {
        let (found, wanted) = (words.len() * 4 + rest.len(), bytes.len() * 4);
        return Err(QuantError::Length { dtype: DType::F8_E4M3, what: "a plane", found, wanted });
    }
    each(bytes, scales, cols, words, |word, value| *word = value.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 130 × 260: blocks that are cut short both ways.
    const ROWS: usize = 130;
    const COLS: usize = 260;

    #[test]
    fn each_block_has_its_scale() {
        // 1.0 is 0x38 and −2.5 is 0xc2 (OCP OFP8: bias 7).
        let bytes: Vec<u8> = (0..ROWS * COLS)
            .map(|i| if (i / COLS + i % COLS).is_multiple_of(2) { 0x38 } else { 0xc2 })
            .collect();
        let scales = [1.0, 0.5, 3.0, -0.25, 8.0, 0.0625];
        let mut out = vec![f32::NAN; ROWS * COLS];
        dequantise_f8_block(&bytes, &scales, COLS, &mut out).unwrap();
        for (i, &value) in out.iter().enumerate() {
            let (row, col) = (i / COLS, i % COLS);
            let scale = scales[if row < 128 { 0 } else { 3 } + col / 128];
            let element = if (row + col).is_multiple_of(2) { 1.0 } else { -2.5 };
            assert_eq!(value, element * scale, "[{row}, {col}]");
        }
        let mut plane = vec![0u8; 4 * ROWS * COLS];
        f8_block_planes(&bytes, &scales, COLS, &mut plane).unwrap();
        let read: Vec<f32> = plane.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        assert_eq!(read, out);
    }

    #[test]
    fn a_value_is_rounded_once_to_f32() {
        let scale = 0.012_345_679_f32;
        let codes: Vec<u8> = (0..=255).filter(|code| code & 0x7f != 0x7f).collect();
        let mut out = vec![0f32; codes.len()];
        dequantise_f8_block(&codes, &[scale, scale], codes.len(), &mut out).unwrap();
        for (&code, value) in codes.iter().zip(&out) {
            let exact = F8E4M3(code).to_f64() * f64::from(scale);
            assert_eq!(value.to_bits(), (exact as f32).to_bits(), "{code:#x}");
        }
    }

    #[test]
    fn lengths_are_checked() {
        let mut out = [0f32; 256];
        assert!(dequantise_f8_block(&[0; 255], &[1.0], 128, &mut out).is_err());
        assert!(dequantise_f8_block(&[0; 256], &[1.0, 1.0], 128, &mut out).is_err());
        assert!(f8_block_planes(&[0; 256], &[1.0], 128, &mut [0; 1023]).is_err());
    }
}
