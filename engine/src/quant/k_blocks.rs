//! Dequantisation of ggml's "k" formats: super-blocks of 256 with quantised scales. Each function handles one.
//!
//! Layouts: `block_q4_K`, `block_q5_K`, `block_q6_K` in ggml's `ggml-common.h`.

use half::f16;

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Scale and minimum, six bits each, of sub-block `i` of eight, from the twelve bytes they are packed in.
///
/// Bytes 0–3 hold the low six bits of scales 0–3, bytes 4–7 those of minima 0–3. Scale `4 + k` has its low four bits in
/// the low nibble of byte `8 + k` and its high two in the top of byte `k`; minimum `4 + k` in the high nibble of byte
/// `8 + k` and the top of byte `4 + k`.
fn scale_and_min(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        let both = packed[i + 4];
        (both & 15 | packed[i - 4] >> 6 << 4, both >> 4 | packed[i] >> 6 << 4)
    }
}

/// `{ f16 d; f16 dmin; u8 scales[12]; u8 qs[128] }`: w = (d · scale) · q − dmin · min.
///
/// Every 32 bytes of `qs` hold two sub-blocks of 32: the low nibbles, then the high nibbles.
pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for i in 0..8 {
        let (scale, min) = scale_and_min(&block[4..16], i);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let nibbles = &block[16 + 32 * (i / 2)..][..32];
        for (out, byte) in out[32 * i..][..32].iter_mut().zip(nibbles) {
            let q = byte >> (4 * (i % 2)) & 15;
            *out = scale * f32::from(q) - min;
        }
    }
}

/// `{ f16 d; f16 dmin; u8 scales[12]; u8 qh[32]; u8 qs[128] }`: as Q4_K, with a fifth bit.
///
/// Bit `i` of `qh[j]` is the fifth bit of element `j` of sub-block `i`.
pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let high = &block[16..48];
    for i in 0..8 {
        let (scale, min) = scale_and_min(&block[4..16], i);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let nibbles = &block[48 + 32 * (i / 2)..][..32];
        for (j, out) in out[32 * i..][..32].iter_mut().enumerate() {
            let q = nibbles[j] >> (4 * (i % 2)) & 15 | (high[j] >> i & 1) << 4;
            *out = scale * f32::from(q) - min;
        }
    }
}

/// `{ u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d }`: w = (d · scale) · (q − 32).
///
/// Each half of 128 elements has 64 bytes of `ql` and 32 of `qh`. Of its four runs of 32, runs 0 and 1 take the low
/// nibbles of the first and second 32 bytes of `ql`, runs 2 and 3 their high nibbles; run `r` takes bits 2r and 2r + 1
/// of `qh`. A scale serves 16 elements.
pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    for run in 0..8 {
        let (side, r) = (run / 4, run % 4);
        let low = &block[64 * side + 32 * (r % 2)..][..32];
        let high = &block[128 + 32 * side..][..32];
        for (j, out) in out[32 * run..][..32].iter_mut().enumerate() {
            let q = low[j] >> (4 * (r / 2)) & 15 | (high[j] >> (2 * r) & 3) << 4;
            let scale = block[192 + 2 * run + j / 16] as i8;
            *out = d * f32::from(scale) * f32::from(q as i8 - 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: [u8; 2] = 0x3400u16.to_le_bytes(); // 0.25
    const DMIN: [u8; 2] = 0x4000u16.to_le_bytes(); // 2

    /// Eight scales and minima of six bits, packed into twelve bytes as the layout's description says.
    fn pack(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
        let mut packed = [0; 12];
        for k in 0..4 {
            packed[k] = scales[k] | scales[4 + k] >> 4 << 6;
            packed[4 + k] = mins[k] | mins[4 + k] >> 4 << 6;
            packed[8 + k] = scales[4 + k] & 15 | (mins[4 + k] & 15) << 4;
        }
        packed
    }

    const SCALES: [u8; 8] = [1, 2, 63, 32, 33, 17, 47, 60];
    const MINS: [u8; 8] = [0, 5, 31, 63, 62, 48, 16, 15];

    /// The quantised value of element `i` in the tests below, below `limit`.
    fn q(i: usize, limit: usize) -> u8 {
        ((i * 7 + i / 32) % limit) as u8
    }

    #[test]
    fn packed_scales_and_minima() {
        let packed = pack(SCALES, MINS);
        for i in 0..8 {
            assert_eq!(scale_and_min(&packed, i), (SCALES[i], MINS[i]), "sub-block {i}");
        }
    }

    #[test]
    fn q4_k_by_hand() {
        let mut block = [&D[..], &DMIN, &pack(SCALES, MINS), &[0; 128]].concat();
        for i in 0..256 {
            block[16 + i / 64 * 32 + i % 32] |= q(i, 16) << (4 * (i / 32 % 2));
        }
        let mut out = [0.0; 256];
        q4_k(&block, &mut out);
        for (i, &w) in out.iter().enumerate() {
            let (s, m) = (f32::from(SCALES[i / 32]), f32::from(MINS[i / 32]));
            assert_eq!(w, 0.25 * s * f32::from(q(i, 16)) - 2.0 * m, "element {i}");
        }
    }

    #[test]
    fn q5_k_by_hand() {
        let mut block = [&D[..], &DMIN, &pack(SCALES, MINS), &[0; 160]].concat();
        for i in 0..256 {
            block[16 + i % 32] |= (q(i, 32) >> 4) << (i / 32);
            block[48 + i / 64 * 32 + i % 32] |= (q(i, 32) & 15) << (4 * (i / 32 % 2));
        }
        let mut out = [0.0; 256];
        q5_k(&block, &mut out);
        for (i, &w) in out.iter().enumerate() {
            let (s, m) = (f32::from(SCALES[i / 32]), f32::from(MINS[i / 32]));
            assert_eq!(w, 0.25 * s * f32::from(q(i, 32)) - 2.0 * m, "element {i}");
        }
    }

    #[test]
    fn q6_k_by_hand() {
        let mut block = [0; 210];
        block[208..].copy_from_slice(&D);
        for i in 0..256 {
            let (half, r, j) = (i / 128, i % 128 / 32, i % 32);
            block[64 * half + 32 * (r % 2) + j] |= (q(i, 64) & 15) << (4 * (r / 2));
            block[128 + 32 * half + j] |= (q(i, 64) >> 4) << (2 * r);
            block[192 + i / 16] = (i / 16 * 16) as u8; // 0, 16, … 112, −128, … −16
        }
        let mut out = [0.0; 256];
        q6_k(&block, &mut out);
        for (i, &w) in out.iter().enumerate() {
            let scale = f32::from((i / 16 * 16) as u8 as i8);
            assert_eq!(w, 0.25 * scale * (f32::from(q(i, 64)) - 32.0), "element {i}");
        }
    }
}
