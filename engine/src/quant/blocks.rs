//! Dequantisation of plain elements and of blocks of 32. Each function handles one block.
//!
//! Layouts: ggml's `block_q4_0` … `block_q8_0` (`ggml-common.h`). In the 4- and 5-bit formats byte `j` of the
//! nibbles holds element `j` in its low half and element `j + 16` in its high half.

use half::{bf16, f16};

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

pub(super) fn f32(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

pub(super) fn f16(block: &[u8], out: &mut [f32]) {
    out[0] = half_at(block, 0);
}

pub(super) fn bf16(block: &[u8], out: &mut [f32]) {
    out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32();
}

/// `{ f16 d; u8 qs[16] }`: w = d · (q − 8).
pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (j, &q) in block[2..18].iter().enumerate() {
        out[j] = d * f32::from((q & 15) as i8 - 8);
        out[j + 16] = d * f32::from((q >> 4) as i8 - 8);
    }
}

/// `{ f16 d; f16 m; u8 qs[16] }`: w = d · q + m.
pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (j, &q) in block[4..20].iter().enumerate() {
        out[j] = d * f32::from(q & 15) + m;
        out[j + 16] = d * f32::from(q >> 4) + m;
    }
}

/// The five bits of elements `j` and `j + 16`: four from the nibbles, the fifth from bits `j` and `j + 16` of `high`.
fn five_bits(nibbles: u8, high: u32, j: usize) -> (u8, u8) {
    let low = nibbles & 15 | ((high >> j & 1) << 4) as u8;
    let top = nibbles >> 4 | ((high >> (j + 16) & 1) << 4) as u8;
    (low, top)
}

fn high_bits(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// `{ f16 d; u8 qh[4]; u8 qs[16] }`: w = d · (q − 16).
pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let (d, high) = (half_at(block, 0), high_bits(block, 2));
    for (j, &nibbles) in block[6..22].iter().enumerate() {
        let (low, top) = five_bits(nibbles, high, j);
        out[j] = d * f32::from(low as i8 - 16);
        out[j + 16] = d * f32::from(top as i8 - 16);
    }
}

/// `{ f16 d; f16 m; u8 qh[4]; u8 qs[16] }`: w = d · q + m.
pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m, high) = (half_at(block, 0), half_at(block, 2), high_bits(block, 4));
    for (j, &nibbles) in block[8..24].iter().enumerate() {
        let (low, top) = five_bits(nibbles, high, j);
        out[j] = d * f32::from(low) + m;
        out[j + 16] = d * f32::from(top) + m;
    }
}

/// `{ f16 d; i8 qs[32] }`: w = d · q.
pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (out, &q) in out.iter_mut().zip(&block[2..34]) {
        *out = d * f32::from(q as i8);
    }
}

#[cfg(test)]
mod tests {
    use crate::format::DType;
    use crate::quant::{QuantError, dequantise};

    /// The block with these leading bytes, then bytes that count up from `first` by `step`.
    fn block(head: &[u8], len: usize, first: u8, step: u8) -> Vec<u8> {
        let mut block = head.to_vec();
        block.extend((0..len).map(|i| first.wrapping_add(step.wrapping_mul(i as u8))));
        block
    }

    const HALF: [u8; 2] = 0x3800u16.to_le_bytes(); // 0.5
    const MINUS_TWO: [u8; 2] = 0xc000u16.to_le_bytes();

    fn values(dtype: DType, bytes: &[u8]) -> Vec<f32> {
        let mut out = vec![f32::NAN; dtype.block_len() * (bytes.len() / dtype.block_bytes())];
        dequantise(dtype, bytes, &mut out).unwrap();
        out
    }

    #[test]
    fn plain_types_keep_their_value() {
        assert_eq!(values(DType::F32, &1.1f32.to_le_bytes()), [1.1]);
        assert_eq!(values(DType::F16, &[0x01, 0x00, 0x00, 0xc0]), [2f32.powi(-24), -2.0]);
        assert_eq!(values(DType::Bf16, &[0x80, 0x3f, 0x01, 0x00]), [1.0, f32::from_bits(0x10000)]);
    }

    #[test]
    fn q8_0_is_scale_times_integer() {
        let out = values(DType::Q8_0, &block(&HALF, 32, 0x80, 8));
        for (i, &w) in out.iter().enumerate() {
            assert_eq!(w, 0.5 * f32::from(0x80u8.wrapping_add(8 * i as u8) as i8), "element {i}");
        }
        assert_eq!(out[0], -64.0);
    }

    #[test]
    fn nibbles_are_low_half_then_high_half() {
        // Byte j is 17·j, so both nibbles are j.
        let out = values(DType::Q4_0, &block(&HALF, 16, 0, 17));
        for j in 0..16 {
            assert_eq!((out[j], out[j + 16]), (0.5 * (j as f32 - 8.0), 0.5 * (j as f32 - 8.0)));
        }
        // Byte j is j: low nibble j, high nibble 0.
        let out = values(DType::Q4_1, &block(&[HALF, MINUS_TWO].concat(), 16, 0, 1));
        for j in 0..16 {
            assert_eq!((out[j], out[j + 16]), (0.5 * j as f32 - 2.0, -2.0));
        }
    }

    #[test]
    fn fifth_bits_come_from_one_word() {
        // The fifth bit of element i is bit i of the word: here that of the odd elements below 16, and of 16.
        let high = 0x0001_aaaau32.to_le_bytes();
        let out = values(DType::Q5_0, &block(&[&HALF[..], &high].concat(), 16, 0, 17));
        for j in 0..16 {
            let fifth = |set: bool| if set { 16.0 } else { 0.0 };
            assert_eq!(out[j], 0.5 * (j as f32 + fifth(j % 2 == 1) - 16.0), "element {j}");
            assert_eq!(out[j + 16], 0.5 * (j as f32 + fifth(j == 0) - 16.0), "element {}", j + 16);
        }
        let out = values(DType::Q5_1, &block(&[&HALF[..], &MINUS_TWO, &high].concat(), 16, 0, 17));
        for j in 0..16 {
            let fifth = |set: bool| if set { 16.0 } else { 0.0 };
            assert_eq!(out[j], 0.5 * (j as f32 + fifth(j % 2 == 1)) - 2.0, "element {j}");
            assert_eq!(out[j + 16], 0.5 * (j as f32 + fifth(j == 0)) - 2.0, "element {}", j + 16);
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let wrong = |what, found, wanted| QuantError::Length { dtype: DType::Q8_0, what, found, wanted };
        assert_eq!(dequantise(DType::Q8_0, &[0; 34], &mut [0.0; 33]), Err(wrong("the output", 33, 64)));
        assert_eq!(
            dequantise(DType::Q8_0, &[0; 35], &mut [0.0; 32]),
            Err(wrong("the tensor's data", 35, 34))
        );
        let error = dequantise(DType::Iq2_S, &[], &mut []).unwrap_err().to_string();
        assert!(error.starts_with("IQ2_S cannot be dequantised; supported are F32"), "{error}");
    }

    #[test]
    fn many_rows_are_handled_in_order() {
        let bytes: Vec<u8> = (0..3000).flat_map(|i| block(&HALF, 32, i as u8, 0)).collect();
        let out = values(DType::Q8_0, &bytes);
        assert!(out.chunks(32).enumerate().all(|(i, row)| row == [0.5 * f32::from(i as u8 as i8); 32]));
    }
}
