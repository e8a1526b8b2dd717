//! Taking blocks apart into planes.

use rayon::prelude::*;

use super::{QuantError, check, k_planes};
use crate::format::DType;

/// The types that [`split`] knows: those of weights that run.
pub const DEVICE_TYPES: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q4_K, Q5_K, Q6_K";

/// Bytes a block in each device plane of a type, in the order of the planes; `None` for types that do not run.
///
/// | type | planes |
/// |---|---|
/// | F32, F16, BF16 | `data` |
/// | Q8_0 | `qs` 32 × i8, `d` f16 |
/// | Q4_0 | `qs` 16 bytes of nibbles (byte j: element j low, j + 16 high), `d` f16 |
/// | Q4_1 | `qs` as Q4_0, `dm` f16 scale, f16 minimum |
/// | Q5_0 | `qs`, `qt` four words and one, as [`pack_five_bits`](super::pack_five_bits) makes them, `d` f16 |
/// | Q4_K | `qs` of each sub-block of 32 16 bytes as Q4_0, `scales` scale and minimum a sub-block, a byte each, `dm` f16 scale, f16 minimum |
/// | Q5_K | `qs`, `qt` of each sub-block as Q5_0, `scales` and `dm` as Q4_K |
/// | Q6_K | `qs`, `qt` for each 32 weights six words, three of every 16 as [`pack_six_bits`](super::pack_six_bits) makes them, the first four in `qs`; `scales` i8 for each 16, `d` f16 and two bytes of zeros |
pub fn plane_block_bytes(dtype: DType) -> Option<&'static [usize]> {
    match dtype {
        DType::F32 => Some(&[4]),
        DType::F16 | DType::Bf16 => Some(&[2]),
        DType::Q8_0 => Some(&[32, 2]),
        DType::Q4_0 => Some(&[16, 2]),
        DType::Q4_1 => Some(&[16, 4]),
        DType::Q5_0 => Some(&[16, 4, 2]),
        DType::Q4_K => Some(&[128, 16, 4]),
        DType::Q5_K => Some(&[128, 32, 16, 4]),
        DType::Q6_K => Some(&[128, 64, 16, 4]),
        _ => None,
    }
}

/// Splits `bytes`, blocks of `dtype`, into the planes of [`plane_block_bytes`].
///
/// Each plane gets its part of every block, in the order of the blocks. It works on the calling thread: whoever has much to
/// split gives several threads parts of it. Since planes are row-major, the planes of several
/// tensors of one type and width are stacked by passing consecutive sub-slices of the destination.
///
/// # Errors
/// [`QuantError::Unsupported`] for types that do not run; [`QuantError::Length`] if a slice has not the length that the
/// first plane implies.
///
/// # Panics
/// If the number of planes is not that of `plane_block_bytes`.
pub fn split(dtype: DType, bytes: &[u8], planes: &mut [&mut [u8]]) -> Result<(), QuantError> {
    checked(dtype, "laid out for the device", bytes.len(), planes.iter().map(|plane| plane.len()))?;

    match (dtype, planes) {
        (_, [data]) => data.copy_from_slice(bytes),
        // In these the scales come first.
        (DType::Q8_0, [qs, d]) => split_blocks::<2, 32>(bytes, d, qs),
        (DType::Q4_0, [qs, d]) => split_blocks::<2, 16>(bytes, d, qs),
        (DType::Q4_1, [qs, dm]) => split_blocks::<4, 16>(bytes, dm, qs),
        (DType::Q5_0, [qs, qt, d]) => {
            let planes = chunks(qs).zip(chunks(qt)).zip(chunks(d));
            for (block, ((qs, qt), d)) in blocks_of(bytes).zip(planes) {
                k_planes::split_q5_0(block, qs, qt, d);
            }
        }
        (DType::Q4_K, [qs, scales, dm]) => {
            let planes = chunks(qs).zip(chunks(scales)).zip(chunks(dm));
            for (block, ((qs, scales), dm)) in blocks_of(bytes).zip(planes) {
                k_planes::split_q4_k(block, qs, scales, dm);
            }
        }
        (DType::Q5_K, [qs, qt, scales, dm]) => {
            let planes = chunks(qs).zip(chunks(qt)).zip(chunks(scales)).zip(chunks(dm));
            for (block, (((qs, qt), scales), dm)) in blocks_of(bytes).zip(planes) {
                k_planes::split_q5_k(block, qs, qt, scales, dm);
            }
        }
        (DType::Q6_K, [qs, qt, scales, d]) => {
            let planes = chunks(qs).zip(chunks(qt)).zip(chunks(scales)).zip(chunks(d));
            for (block, (((qs, qt), scales), d)) in blocks_of(bytes).zip(planes) {
                k_planes::split_q6_k(block, qs, qt, scales, d);
            }
        }
        (_, planes) => unreachable!("{dtype} has not {} planes", planes.len()),
    }
    Ok(())
}

/// The bytes a block in each plane of `dtype`, where `bytes` are whole blocks and each of `planes` bytes its part of them.
fn checked(
    dtype: DType,
    operation: &'static str,
    bytes: usize,
    planes: impl ExactSizeIterator<Item = usize>,
) -> Result<&'static [usize], QuantError> {
    let sizes = plane_block_bytes(dtype).ok_or(QuantError::Unsupported {
        dtype,
        operation,
        supported: DEVICE_TYPES,
    })?;
    assert_eq!(planes.len(), sizes.len(), "planes of {dtype}");
    let blocks = bytes / dtype.block_bytes();
    check(dtype, "the tensor's data", bytes, blocks * dtype.block_bytes())?;
    for (plane, size) in planes.zip(sizes) {
        check(dtype, "a plane", plane, blocks * size)?;
    }
    Ok(sizes)
}

/// The inverse of [`split`]: the blocks of `dtype` whose planes these are.
///
/// # Errors
/// As [`split`].
///
/// # Panics
/// If the number of planes is not that of `plane_block_bytes`.
pub fn join(dtype: DType, planes: &[&[u8]], bytes: &mut [u8]) -> Result<(), QuantError> {
    let lengths = planes.iter().map(|plane| plane.len());
    let sizes = checked(dtype, "put together from planes", bytes.len(), lengths)?;
    let size = dtype.block_bytes();
    bytes.par_chunks_exact_mut(size).enumerate().for_each(|(i, block)| {
        let part = |plane: usize| &planes[plane][i * sizes[plane]..][..sizes[plane]];
        match dtype {
            DType::Q5_0 => {
                k_planes::join_q5_0(fixed_mut(block), fixed(part(0)), fixed(part(1)), fixed(part(2)))
            }
            DType::Q4_K => {
                k_planes::join_q4_k(fixed_mut(block), fixed(part(0)), fixed(part(1)), fixed(part(2)))
            }
            DType::Q5_K => {
                let (qs, qt, scales, dm) = (fixed(part(0)), fixed(part(1)), fixed(part(2)), fixed(part(3)));
                k_planes::join_q5_k(fixed_mut(block), qs, qt, scales, dm);
            }
            DType::Q6_K => {
                let (qs, qt, scales, d) = (fixed(part(0)), fixed(part(1)), fixed(part(2)), fixed(part(3)));
                k_planes::join_q6_k(fixed_mut(block), qs, qt, scales, d);
            }
            _ if sizes.len() == 1 => block.copy_from_slice(part(0)),
            _ => {
                let (scales, quants) = block.split_at_mut(sizes[1]);
                scales.copy_from_slice(part(1));
                quants.copy_from_slice(part(0));
            }
        }
    });
    Ok(())
}

fn fixed<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.first_chunk().expect("lengths have been checked")
}

fn fixed_mut<const N: usize>(bytes: &mut [u8]) -> &mut [u8; N] {
    bytes.first_chunk_mut().expect("lengths have been checked")
}

/// The blocks of `N` bytes; sizes known to the compiler become plain moves.
fn blocks_of<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = &[u8; N]> {
    bytes.as_chunks().0.iter()
}

fn chunks<const N: usize>(plane: &mut [u8]) -> impl Iterator<Item = &mut [u8; N]> {
    plane.as_chunks_mut().0.iter_mut()
}

/// Blocks of `HEAD` bytes of scales and `TAIL` bytes of integers; sizes known to the compiler become plain moves.
fn split_blocks<const HEAD: usize, const TAIL: usize>(bytes: &[u8], heads: &mut [u8], tails: &mut [u8]) {
    let heads = heads.as_chunks_mut::<HEAD>().0;
    let tails = tails.as_chunks_mut::<TAIL>().0;
    for ((block, head), tail) in bytes.chunks_exact(HEAD + TAIL).zip(heads).zip(tails) {
        head.copy_from_slice(&block[..HEAD]);
        tail.copy_from_slice(&block[HEAD..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from their neighbours and between blocks.
    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761) as u8 ^ (i >> 8) as u8).collect()
    }

    #[test]
    fn every_byte_goes_to_its_plane() {
        let layouts: [(DType, usize, usize); 3] =
            [(DType::Q8_0, 2, 32), (DType::Q4_0, 2, 16), (DType::Q4_1, 4, 16)];
        for (dtype, head, tail) in layouts {
            let blocks = 1500; // more than one task
            let bytes = pattern(blocks * (head + tail));
            let (mut qs, mut scales) = (vec![0; blocks * tail], vec![0; blocks * head]);
            split(dtype, &bytes, &mut [&mut qs, &mut scales]).unwrap();
            for (i, block) in bytes.chunks(head + tail).enumerate() {
                assert_eq!(scales[i * head..][..head], block[..head], "{dtype} block {i}");
                assert_eq!(qs[i * tail..][..tail], block[head..], "{dtype} block {i}");
            }
        }
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let bytes = pattern(40_000 * dtype.block_bytes());
            let mut data = vec![0; bytes.len()];
            split(dtype, &bytes, &mut [&mut data]).unwrap();
            assert_eq!(data, bytes, "{dtype}");
        }
    }

    #[test]
    fn packed_types_keep_every_byte() {
        for dtype in [DType::Q5_0, DType::Q4_K, DType::Q5_K, DType::Q6_K] {
            let sizes = plane_block_bytes(dtype).unwrap();
            // Six-bit scales and minima take a byte each, the scale of Q6_K a word.
            let more = match dtype {
                DType::Q4_K | DType::Q5_K => 4,
                DType::Q6_K => 2,
                _ => 0,
            };
            assert_eq!(sizes.iter().sum::<usize>(), dtype.block_bytes() + more);
            let blocks = 1000;
            let bytes = pattern(blocks * dtype.block_bytes());
            let mut planes: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; blocks * size]).collect();
            let mut views: Vec<&mut [u8]> = planes.iter_mut().map(Vec::as_mut_slice).collect();
            split(dtype, &bytes, &mut views).unwrap();
            let views: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
            let mut back = vec![0; bytes.len()];
            join(dtype, &views, &mut back).unwrap();
            assert!(back == bytes, "{dtype}");
            let error = join(dtype, &views, &mut back[1..]).unwrap_err();
            assert!(matches!(error, QuantError::Length { .. }), "{error}");
        }
    }

    /// Weights worked out from the planes as the table above describes them, against ggml's definition.
    #[test]
    fn planes_have_the_values_of_their_blocks() {
        use half::f16;
        for dtype in [DType::Q5_0, DType::Q4_K, DType::Q5_K, DType::Q6_K] {
            let sizes = plane_block_bytes(dtype).unwrap();
            let (blocks, len) = (40, dtype.block_len());
            let mut bytes = pattern(blocks * dtype.block_bytes());
            // Scales are finite: bit 14 of a half's exponent is cleared.
            for block in bytes.chunks_mut(dtype.block_bytes()) {
                for at in if dtype == DType::Q6_K { vec![209] } else { vec![1, 3] } {
                    if dtype != DType::Q5_0 || at == 1 {
                        block[at] &= 0xbf;
                    }
                }
            }
            let mut wanted = vec![0f32; blocks * len];
            crate::quant::dequantise(dtype, &bytes, &mut wanted).unwrap();
            let mut planes: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; blocks * size]).collect();
            let mut views: Vec<&mut [u8]> = planes.iter_mut().map(Vec::as_mut_slice).collect();
            split(dtype, &bytes, &mut views).unwrap();
            let half = |plane: usize, i: usize| {
                f16::from_le_bytes([planes[plane][2 * i], planes[plane][2 * i + 1]]).to_f32()
            };
            let words = |plane: usize, at: usize| word_at(&planes[plane], at);
            for (i, &wanted) in wanted.iter().enumerate() {
                let (sub, j) = (i / 32, i % 32);
                let five = || {
                    let words = [0, 1, 2, 3].map(|k| words(0, 4 * sub + k));
                    let groups = super::super::unpack_five_bits([
                        words[0],
                        words[1],
                        words[2],
                        words[3],
                        word_at(&planes[1], sub),
                    ]);
                    f32::from(groups[j / 4].to_le_bytes()[j % 4])
                };
                let pair = |plane: usize| {
                    let [s, m] = [0, 1].map(|k| f32::from(planes[plane][2 * sub + k]));
                    (half(plane + 1, 2 * (i / 256)) * s, half(plane + 1, 2 * (i / 256) + 1) * m)
                };
                let found = match dtype {
                    DType::Q5_0 => half(2, sub) * (five() - 16.0),
                    DType::Q4_K => {
                        let nibble = planes[0][16 * sub + j % 16] >> (4 * (j / 16)) & 15;
                        let (d, m) = pair(1);
                        d * f32::from(nibble) - m
                    }
                    DType::Q5_K => {
                        let (d, m) = pair(2);
                        d * five() - m
                    }
                    _ => {
                        let six = [0, 1, 2, 3].map(|k| words(0, 4 * sub + k));
                        let tail = [0, 1].map(|k| words(1, 2 * sub + k));
                        let words =
                            if j < 16 { [six[0], six[1], six[2]] } else { [six[3], tail[0], tail[1]] };
                        let q = super::super::unpack_six_bits(words)[j / 4 % 4].to_le_bytes()[j % 4];
                        let scale = f32::from(planes[2][i / 16] as i8);
                        half(3, 2 * (i / 256)) * scale * (f32::from(q) - 32.0)
                    }
                };
                assert_eq!(found.to_bits(), wanted.to_bits(), "{dtype} element {i}");
            }
        }
    }

    fn word_at(plane: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(plane[4 * at..][..4].try_into().unwrap())
    }

    #[test]
    fn stacking_is_splitting_into_consecutive_parts() {
        let (a, b) = (pattern(3 * 34), pattern(5 * 34));
        let (mut qs, mut d) = (vec![0; 8 * 32], vec![0; 8 * 2]);
        let (qs_a, qs_b) = qs.split_at_mut(3 * 32);
        let (d_a, d_b) = d.split_at_mut(3 * 2);
        split(DType::Q8_0, &a, &mut [qs_a, d_a]).unwrap();
        split(DType::Q8_0, &b, &mut [qs_b, d_b]).unwrap();
        let (mut qs_both, mut d_both) = (vec![0; 8 * 32], vec![0; 8 * 2]);
        split(DType::Q8_0, &[a, b].concat(), &mut [&mut qs_both, &mut d_both]).unwrap();
        assert_eq!((qs, d), (qs_both, d_both));
    }

    #[test]
    fn wrong_lengths_and_types_are_refused() {
        let (mut qs, mut d) = ([0; 32], [0; 3]);
        let error = split(DType::Q8_0, &[0; 34], &mut [&mut qs, &mut d]).unwrap_err();
        assert_eq!(error, QuantError::Length { dtype: DType::Q8_0, what: "a plane", found: 3, wanted: 2 });
        let error = split(DType::Q2_K, &[0; 84], &mut [&mut qs]).unwrap_err().to_string();
        assert!(error.starts_with("Q2_K cannot be laid out for the device"), "{error}");
    }
}
