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
    let [a, b, c] = words::<0, 3, 12>(packed);
    let scales = [a & 0x3f3f_3f3f, c & LOW_4 | a >> 2 & 0x3030_3030];
    let minima = [b & 0x3f3f_3f3f, c >> 4 & LOW_4 | b >> 2 & 0x3030_3030];
    let mut pairs = [0; 16];
    for (i, pairs) in pairs.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *pairs = (apart(scales[i]) | apart(minima[i]) << 8).to_le_bytes();
    }
    pairs
}

/// The bytes of a word with bytes of zeros between.
fn apart(word: u32) -> u64 {
    let halves = (u64::from(word) | u64::from(word) << 16) & 0x0000_ffff_0000_ffff;
    (halves | halves << 8) & 0x00ff_00ff_00ff_00ff
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

/// Bytes `AT..AT + N` of a block. That both are constants is what makes these plain moves: a block is taken apart in some hundred
/// instructions, and loops over bytes would make ten times as many.
fn part<const AT: usize, const N: usize, const B: usize>(block: &[u8; B]) -> [u8; N] {
    const { assert!(AT + N <= B) };
    *block[AT..].first_chunk().expect("it has been asserted")
}

/// The same as words.
fn words<const AT: usize, const N: usize, const B: usize>(block: &[u8; B]) -> [u32; N] {
    const { assert!(AT + 4 * N <= B) };
    let chunks = block[AT..].as_chunks::<4>().0.first_chunk::<N>().expect("it has been asserted");
    chunks.map(u32::from_le_bytes)
}

/// The same as pairs of words, the first in the low half: without vector instructions two at a time are twice as fast.
fn pairs<const AT: usize, const N: usize, const B: usize>(block: &[u8; B]) -> [u64; N] {
    const { assert!(AT + 8 * N <= B) };
    let chunks = block[AT..].as_chunks::<8>().0.first_chunk::<N>().expect("it has been asserted");
    chunks.map(u64::from_le_bytes)
}

/// A mask of a word, for both of a pair.
const fn twice(mask: u32) -> u64 {
    (mask as u64) << 32 | mask as u64
}

/// A plane's part of a block, from words.
fn fill<const N: usize>(plane: &mut [u8], words: [u32; N]) {
    for (bytes, word) in plane.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
}

/// `{ f16 d; u8 qh[4]; u8 qs[16] }` to `qs`, `qt`, `d`.
pub(super) fn split_q5_0(block: &[u8; 22], qs: &mut [u8; 16], qt: &mut [u8; 4], d: &mut [u8; 2]) {
    *d = part::<0, 2, 22>(block);
    let [high] = words::<2, 1, 22>(block);
    let nibbles = pairs::<6, 2, 22>(block);
    // A multiplication spreads eight bits over eight bytes, seven by seven: bit i goes to bit 8i. The last bit would meet the first of the next
    // product's terms, and is put in its place by itself.
    let fifth = |pair: usize| {
        let bits = u64::from(high >> (8 * pair) & 0xff);
        (((bits & 0x7f) * 0x0002_0408_1020_4081) & 0x0101_0101_0101_0101 | bits >> 7 << 56) << 4
    };
    let pair = |i: usize| nibbles[i % 2] >> (i / 2 * 4) & twice(LOW_4) | fifth(i);
    let (first, last) = pack_five_bits_pairs([pair(0), pair(1), pair(2), pair(3)]);
    qs[..8].copy_from_slice(&first[0].to_le_bytes());
    qs[8..].copy_from_slice(&first[1].to_le_bytes());
    fill(qt, [last]);
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
    *dm = part::<0, 4, 144>(block);
    *scales = scale_pairs(&part::<4, 12, 144>(block));
    // 32 bytes hold two sub-blocks, the first in low nibbles; on the device a sub-block is 16 bytes, its first half in low nibbles.
    let pairs = qs.as_chunks_mut::<32>().0.iter_mut();
    for (out, pair) in pairs.zip(part::<16, 128, 144>(block).as_chunks::<32>().0) {
        let a = u128::from_le_bytes(part::<0, 16, 32>(pair));
        let b = u128::from_le_bytes(part::<16, 16, 32>(pair));
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
    *dm = part::<0, 4, 176>(block);
    *scales = scale_pairs(&part::<4, 12, 176>(block));
    let high = pairs::<16, 4, 176>(block);
    let nibbles = pairs::<48, 16, 176>(block);
    let outs = qs.as_chunks_mut::<16>().0.iter_mut().zip(qt.as_chunks_mut::<4>().0);
    for (i, (qs, qt)) in outs.enumerate() {
        let nibbles = &nibbles.as_chunks::<4>().0[i / 2];
        let shift = i % 2 * 4;
        let pair = |g: usize| nibbles[g] >> shift & twice(LOW_4) | (high[g] >> i & twice(0x0101_0101)) << 4;
        let (words, last) = pack_five_bits_pairs([pair(0), pair(1), pair(2), pair(3)]);
        qs[..8].copy_from_slice(&words[0].to_le_bytes());
        qs[8..].copy_from_slice(&words[1].to_le_bytes());
        *qt = last.to_le_bytes();
    }
}

/// [`pack_five_bits`] of groups in pairs: its first four words in pairs, and the fifth.
fn pack_five_bits_pairs([ab, cd, ef, gh]: [u64; 4]) -> ([u64; 2], u32) {
    let (e, f, g, h) = (ef as u32, (ef >> 32) as u32, gh as u32, (gh >> 32) as u32);
    let fg = ef >> 32 | gh << 32;
    let d = f >> 3 & 0x0303_0303 | h >> 1 & 0x0404_0404;
    (
        [ab << 3 | fg & twice(0x0707_0707), cd << 3 | u64::from(h & 0x0707_0707) | u64::from(d) << 32],
        e << 3 | g >> 3 & 0x0303_0303 | h >> 2 & 0x0404_0404,
    )
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
    d: &mut [u8; 4],
) {
    *scales = part::<192, 16, 210>(block);
    // A word, so that it can be copied as one.
    let [low, high] = part::<208, 2, 210>(block);
    *d = [low, high, 0, 0];
    let (low, high) = (pairs::<0, 16, 210>(block), pairs::<128, 8, 210>(block));
    let mut outs = qs.as_chunks_mut::<16>().0.iter_mut().zip(qt.as_chunks_mut::<8>().0);
    // Eight calls, so that what is shifted and by how much are constants.
    let mut next = |words: [u64; 3]| {
        if let Some((qs, qt)) = outs.next() {
            qs[..8].copy_from_slice(&words[0].to_le_bytes());
            qs[8..].copy_from_slice(&words[1].to_le_bytes());
            *qt = words[2].to_le_bytes();
        }
    };
    next(six_bits::<0>(&low, &high));
    next(six_bits::<1>(&low, &high));
    next(six_bits::<2>(&low, &high));
    next(six_bits::<3>(&low, &high));
    next(six_bits::<4>(&low, &high));
    next(six_bits::<5>(&low, &high));
    next(six_bits::<6>(&low, &high));
    next(six_bits::<7>(&low, &high));
}

/// The six words, in pairs, of run `RUN` of 32 weights of a block of Q6_K.
fn six_bits<const RUN: usize>(low: &[u64; 16], high: &[u64; 8]) -> [u64; 3] {
    let (side, r) = (RUN / 4, RUN % 4);
    let pair = |i: usize| {
        let (low, high) = (low[8 * side + r % 2 * 4 + i], high[4 * side + i]);
        low >> (r / 2 * 4) & twice(LOW_4) | (high >> (2 * r) & twice(0x0303_0303)) << 4
    };
    let (first, second) = (pack_six_bits_pairs(pair(0), pair(1)), pack_six_bits_pairs(pair(2), pair(3)));
    [first.0, first.1 | second.0 << 32, second.0 >> 32 | second.1 << 32]
}

/// [`pack_six_bits`] of groups in pairs: its first two words, and the third.
fn pack_six_bits_pairs(ab: u64, cd: u64) -> (u64, u64) {
    let (c, d) = (cd & 0xffff_ffff, cd >> 32);
    let b = ab >> 32 << 32;
    let a = (ab << 2) & 0xffff_ffff;
    (a | b | d & 0x0303_0303 | (d & 0x0c0c_0c0c) << 36, c | (d & 0x3030_3030) << 2)
}

/// The inverse of [`split_q6_k`].
pub(super) fn join_q6_k(
    block: &mut [u8; 210],
    qs: &[u8; 128],
    qt: &[u8; 64],
    scales: &[u8; 16],
    d: &[u8; 4],
) {
    block[..192].fill(0);
    block[192..208].copy_from_slice(scales);
    block[208..].copy_from_slice(&d[..2]);
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
    fn packing_in_pairs_is_packing() {
        let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
        for i in 0..1000 {
            let [a, b, c, d, e, f, g, h]: [u32; 8] = std::array::from_fn(|g| bytes(8 * i + g as u32, 32));
            let (words, last) = pack_five_bits_pairs([pair(a, b), pair(c, d), pair(e, f), pair(g, h)]);
            let [v, w, x, y, z] = pack_five_bits([a, b, c, d, e, f, g, h]);
            assert_eq!((words, last), ([pair(v, w), pair(x, y)], z));
            let [a, b, c, d]: [u32; 4] = std::array::from_fn(|g| bytes(4 * i + g as u32, 64));
            let [x, y, z] = pack_six_bits([a, b, c, d]);
            assert_eq!(pack_six_bits_pairs(pair(a, b), pair(c, d)), (pair(x, y), u64::from(z)));
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
