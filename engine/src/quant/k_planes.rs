//! Taking blocks with five and six bits a weight, and ggml's "k" blocks, apart into planes, and putting them together again.
//!
//! A word holds four neighbouring weights, a byte each, so that the device gets them by masking. Bytes have room to spare:
//! the bits of further weights are spread over it ([`pack_five_bits`], [`pack_six_bits`]).

/// The nibbles of four, or sixteen, bytes.
const LOW_4: u32 = 0x0f0f_0f0f;
const LOW_16: u128 = 0x0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f_0f0f;

/// A word of weights: byte b is weight 4i + b of its block.
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put<const N: usize>(bytes: &mut [u8; N], index: usize, word: u32) {
    bytes[4 * index..][..4].copy_from_slice(&word.to_le_bytes());
}

/// 32 weights of five bits in five words.
///
/// `groups` are eight words of four weights each, a byte a weight. In every byte of a packed word the upper five bits are a
/// weight: those of groups 0–4. The lower three bits of words 0, 1 and 2 are the lower three of groups 5, 6 and 7; of word 3,
/// bits 3 and 4 of group 5 and bit 3 of group 7; of word 4, bits 3 and 4 of group 6 and bit 4 of group 7.
pub fn pack_five_bits(groups: [u32; 8]) -> [u32; 5] {
    let [a, b, c, d, e, f, g, h] = groups;
    [
        a << 3 | f & 0x0707_0707,
        b << 3 | g & 0x0707_0707,
        c << 3 | h & 0x0707_0707,
        d << 3 | f >> 3 & 0x0303_0303 | h >> 1 & 0x0404_0404,
        e << 3 | g >> 3 & 0x0303_0303 | h >> 2 & 0x0404_0404,
    ]
}

/// The inverse of [`pack_five_bits`].
pub fn unpack_five_bits(words: [u32; 5]) -> [u32; 8] {
    let main = words.map(|word| word >> 3 & 0x1f1f_1f1f);
    let [a, b, c, d, e] = words;
    [
        main[0],
        main[1],
        main[2],
        main[3],
        main[4],
        a & 0x0707_0707 | d << 3 & 0x1818_1818,
        b & 0x0707_0707 | e << 3 & 0x1818_1818,
        c & 0x0707_0707 | d << 1 & 0x0808_0808 | e << 2 & 0x1010_1010,
    ]
}

/// 16 weights of six bits in three words.
///
/// `groups` are four words of four weights each, a byte a weight. Group 0 is the upper six bits of word 0's bytes, groups 1 and 2
/// the lower six of words 1 and 2. Group 3 has its lowest two bits in the lowest of word 0, the next two in the uppermost of word
/// 1, the last two in the uppermost of word 2.
pub fn pack_six_bits(groups: [u32; 4]) -> [u32; 3] {
    let [a, b, c, d] = groups;
    [a << 2 | d & 0x0303_0303, b | (d & 0x0c0c_0c0c) << 4, c | (d & 0x3030_3030) << 2]
}

/// The inverse of [`pack_six_bits`].
pub fn unpack_six_bits(words: [u32; 3]) -> [u32; 4] {
    let [a, b, c] = words;
    [
        a >> 2 & 0x3f3f_3f3f,
        b & 0x3f3f_3f3f,
        c & 0x3f3f_3f3f,
        a & 0x0303_0303 | b >> 4 & 0x0c0c_0c0c | c >> 2 & 0x3030_3030,
    ]
}

/// The scale and the minimum of each sub-block, one byte each, from ggml's twelve bytes (`k_blocks.rs` says which bits are where).
fn scale_pairs(packed: &[u8; 12]) -> [u8; 16] {
    let [a, b, c] = [0, 4, 8].map(|at| word(packed, at));
    let scales = [a & 0x3f3f_3f3f, c & LOW_4 | a >> 2 & 0x3030_3030].map(u32::to_le_bytes);
    let minima = [b & 0x3f3f_3f3f, c >> 4 & LOW_4 | b >> 2 & 0x3030_3030].map(u32::to_le_bytes);
    std::array::from_fn(|i| if i % 2 == 0 { scales[i / 8][i / 2 % 4] } else { minima[i / 8][i / 2 % 4] })
}

fn packed_scales(pairs: &[u8; 16]) -> [u8; 12] {
    std::array::from_fn(|i| {
        let (scale, minimum) = (|k: usize| pairs[2 * k], |k: usize| pairs[2 * k + 1]);
        match i {
            0..4 => scale(i) | scale(4 + i) >> 4 << 6,
            4..8 => minimum(i - 4) | minimum(i) >> 4 << 6,
            _ => scale(i - 4) & 15 | (minimum(i - 4) & 15) << 4,
        }
    })
}

/// Bytes `at..at + N` of a block.
fn part<const N: usize, const B: usize>(block: &[u8; B], at: usize) -> [u8; N] {
    std::array::from_fn(|i| block[at + i])
}

/// `{ f16 d; u8 qh[4]; u8 qs[16] }` to `qs`, `qt`, `d`.
pub(super) fn split_q5_0(block: &[u8; 22], qs: &mut [u8; 16], qt: &mut [u8; 4], d: &mut [u8; 2]) {
    *d = part(block, 0);
    let high = word(block, 2);
    // A multiplication spreads four bits over four bytes: bit i goes to bit 8i, and 16 times that.
    let fifth = |group: usize| (((high >> (4 * group) & 15) * 0x0020_4081) & 0x0101_0101) << 4;
    let groups = std::array::from_fn(|g| {
        let nibbles = word(block, 6 + 4 * (g % 4));
        (if g < 4 { nibbles } else { nibbles >> 4 }) & LOW_4 | fifth(g)
    });
    let words = pack_five_bits(groups);
    (0..4).for_each(|i| put(qs, i, words[i]));
    put(qt, 0, words[4]);
}

/// The inverse of [`split_q5_0`].
pub(super) fn join_q5_0(block: &mut [u8; 22], qs: &[u8; 16], qt: &[u8; 4], d: &[u8; 2]) {
    let groups = unpack_five_bits([word(qs, 0), word(qs, 4), word(qs, 8), word(qs, 12), word(qt, 0)]);
    let q: [u8; 32] = std::array::from_fn(|i| groups[i / 4].to_le_bytes()[i % 4]);
    let high = (0..32).fold(0u32, |high, i| high | u32::from(q[i] >> 4) << i);
    block[..2].copy_from_slice(d);
    block[2..6].copy_from_slice(&high.to_le_bytes());
    (0..16).for_each(|j| block[6 + j] = q[j] & 15 | q[j + 16] << 4);
}

/// `{ f16 d; f16 dmin; u8 scales[12]; u8 qs[128] }` to `qs`, `scales`, `dm`.
pub(super) fn split_q4_k(block: &[u8; 144], qs: &mut [u8; 128], scales: &mut [u8; 16], dm: &mut [u8; 4]) {
    *dm = part(block, 0);
    *scales = scale_pairs(&part(block, 4));
    // 32 bytes hold two sub-blocks, the first in low nibbles; on the device a sub-block is 16 bytes, its first half in low nibbles.
    for (pair, out) in qs.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let [a, b] = [0, 16].map(|at| u128::from_le_bytes(part(block, 16 + 32 * pair + at)));
        out[..16].copy_from_slice(&(a & LOW_16 | (b & LOW_16) << 4).to_le_bytes());
        out[16..].copy_from_slice(&(a >> 4 & LOW_16 | b & !LOW_16).to_le_bytes());
    }
}

/// The inverse of [`split_q4_k`].
pub(super) fn join_q4_k(block: &mut [u8; 144], qs: &[u8; 128], scales: &[u8; 16], dm: &[u8; 4]) {
    block[..4].copy_from_slice(dm);
    block[4..16].copy_from_slice(&packed_scales(scales));
    for (both, out) in qs.as_chunks::<32>().0.iter().zip(block[16..].as_chunks_mut::<32>().0) {
        for j in 0..16 {
            let (first, second) = (both[j], both[16 + j]);
            out[j] = first & 15 | second << 4;
            out[16 + j] = first >> 4 | second & 0xf0;
        }
    }
}

/// `{ f16 d; f16 dmin; u8 scales[12]; u8 qh[32]; u8 qs[128] }` to `qs`, `qt`, `scales`, `dm`.
pub(super) fn split_q5_k(
    block: &[u8; 176],
    qs: &mut [u8; 128],
    qt: &mut [u8; 32],
    scales: &mut [u8; 16],
    dm: &mut [u8; 4],
) {
    *dm = part(block, 0);
    *scales = scale_pairs(&part(block, 4));
    let high: [u32; 8] = std::array::from_fn(|g| word(block, 16 + 4 * g));
    for i in 0..8 {
        let groups = std::array::from_fn(|g| {
            let nibbles = word(block, 48 + 32 * (i / 2) + 4 * g) >> (4 * (i % 2));
            nibbles & LOW_4 | (high[g] >> i & 0x0101_0101) << 4
        });
        let words = pack_five_bits(groups);
        (0..4).for_each(|k| put(qs, 4 * i + k, words[k]));
        put(qt, i, words[4]);
    }
}

/// The inverse of [`split_q5_k`].
pub(super) fn join_q5_k(
    block: &mut [u8; 176],
    qs: &[u8; 128],
    qt: &[u8; 32],
    scales: &[u8; 16],
    dm: &[u8; 4],
) {
    block[..4].copy_from_slice(dm);
    block[4..16].copy_from_slice(&packed_scales(scales));
    block[16..].fill(0);
    for i in 0..8 {
        let w = |k: usize| word(qs, 16 * i + 4 * k);
        let groups = unpack_five_bits([w(0), w(1), w(2), w(3), word(qt, 4 * i)]);
        for j in 0..32 {
            let q = groups[j / 4].to_le_bytes()[j % 4];
            block[16 + j] |= (q >> 4) << i;
            block[48 + 32 * (i / 2) + j] |= (q & 15) << (4 * (i % 2));
        }
    }
}

/// `{ u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d }` to `qs`, `qt`, `scales`, `d`.
pub(super) fn split_q6_k(
    block: &[u8; 210],
    qs: &mut [u8; 128],
    qt: &mut [u8; 64],
    scales: &mut [u8; 16],
    d: &mut [u8; 2],
) {
    *scales = part(block, 192);
    *d = part(block, 208);
    for run in 0..8 {
        let (side, r) = (run / 4, run % 4);
        let groups: [u32; 8] = std::array::from_fn(|g| {
            let low = word(block, 64 * side + 32 * (r % 2) + 4 * g) >> (4 * (r / 2)) & LOW_4;
            let high = word(block, 128 + 32 * side + 4 * g) >> (2 * r) & 0x0303_0303;
            low | high << 4
        });
        let [a, b, c, d, e, f, g, h] = groups;
        let (first, second) = (pack_six_bits([a, b, c, d]), pack_six_bits([e, f, g, h]));
        for (k, word) in [first[0], first[1], first[2], second[0]].into_iter().enumerate() {
            put(qs, 4 * run + k, word);
        }
        put(qt, 2 * run, second[1]);
        put(qt, 2 * run + 1, second[2]);
    }
}

/// The inverse of [`split_q6_k`].
pub(super) fn join_q6_k(
    block: &mut [u8; 210],
    qs: &[u8; 128],
    qt: &[u8; 64],
    scales: &[u8; 16],
    d: &[u8; 2],
) {
    block[..192].fill(0);
    block[192..208].copy_from_slice(scales);
    block[208..].copy_from_slice(d);
    for run in 0..8 {
        let (side, r) = (run / 4, run % 4);
        let w = |k: usize| word(qs, 16 * run + 4 * k);
        let first = unpack_six_bits([w(0), w(1), w(2)]);
        let second = unpack_six_bits([w(3), word(qt, 8 * run), word(qt, 8 * run + 4)]);
        for j in 0..32 {
            let groups = if j < 16 { first } else { second };
            let q = groups[j / 4 % 4].to_le_bytes()[j % 4];
            block[64 * side + 32 * (r % 2) + j] |= (q & 15) << (4 * (r / 2));
            block[128 + 32 * side + j] |= (q >> 4) << (2 * r);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four bytes below `limit` that differ from each other and between words.
    fn bytes(i: u32, limit: u32) -> u32 {
        (0..4).fold(0, |word, b| word | ((i.wrapping_mul(2_654_435_761) >> (7 * b)) % limit) << (8 * b))
    }

    #[test]
    fn packing_keeps_every_bit() {
        for i in 0..1000 {
            let five: [u32; 8] = std::array::from_fn(|g| bytes(8 * i + g as u32, 32));
            assert_eq!(unpack_five_bits(pack_five_bits(five)), five);
            let six: [u32; 4] = std::array::from_fn(|g| bytes(4 * i + g as u32, 64));
            assert_eq!(unpack_six_bits(pack_six_bits(six)), six);
        }
        // Every bit of a word is used: any words are those of some weights.
        for i in 0..1000u32 {
            let words: [u32; 5] = std::array::from_fn(|k| (5 * i + k as u32).wrapping_mul(2_654_435_761));
            let five = unpack_five_bits(words);
            assert!(five.iter().all(|group| group & !0x1f1f_1f1f == 0));
            assert_eq!(pack_five_bits(five), words);
            let six = unpack_six_bits([words[0], words[1], words[2]]);
            assert!(six.iter().all(|group| group & !0x3f3f_3f3f == 0));
            assert_eq!(pack_six_bits(six), words[..3]);
        }
    }

    #[test]
    fn scales_and_minima_come_in_pairs() {
        let pairs: [u8; 16] = [1, 0, 2, 5, 63, 31, 32, 63, 33, 62, 17, 48, 47, 16, 60, 15];
        // Packed by hand from the layout's description.
        let packed = [
            0b10_000001,
            0b01_000010,
            0b10_111111,
            0b11_100000,
            0b11_000000,
            0b11_000101,
            0b01_011111,
            0b00_111111,
            0xe1,
            0x01,
            0x0f,
            0xfc,
        ];
        assert_eq!(scale_pairs(&packed), pairs);
        assert_eq!(packed_scales(&pairs), packed);
    }
}
