//! Taking blocks apart into planes.

use rayon::prelude::*;

use super::{QuantError, TASK, check};
use crate::format::DType;

/// Bytes a block in each device plane of a type, in the order of the planes; `None` for types that do not run.
///
/// | type | planes |
/// |---|---|
/// | F32, F16, BF16 | `data` |
/// | Q8_0 | `qs` 32 × i8, `d` f16 |
/// | Q4_0 | `qs` 16 bytes of nibbles (byte j: element j low, j + 16 high), `d` f16 |
/// | Q4_1 | `qs` as Q4_0, `dm` f16 scale, f16 minimum |
pub fn plane_block_bytes(dtype: DType) -> Option<&'static [usize]> {
    match dtype {
        DType::F32 => Some(&[4]),
        DType::F16 | DType::Bf16 => Some(&[2]),
        DType::Q8_0 => Some(&[32, 2]),
        DType::Q4_0 => Some(&[16, 2]),
        DType::Q4_1 => Some(&[16, 4]),
        _ => None,
    }
}

/// Splits `bytes`, blocks of `dtype`, into the planes of [`plane_block_bytes`].
///
/// Each plane gets its part of every block, in the order of the blocks. Since planes are row-major, the planes of several
/// tensors of one type and width are stacked by passing consecutive sub-slices of the destination.
///
/// # Errors
/// [`QuantError::Unsupported`] for types that do not run; [`QuantError::Length`] if a slice has not the length that the
/// first plane implies.
///
/// # Panics
/// If the number of planes is not that of `plane_block_bytes`.
pub fn split(dtype: DType, bytes: &[u8], planes: &mut [&mut [u8]]) -> Result<(), QuantError> {
    let sizes = plane_block_bytes(dtype).ok_or(QuantError::Unsupported {
        dtype,
        operation: "laid out for the device",
        supported: "F32, F16, BF16, Q8_0, Q4_0, Q4_1",
    })?;
    assert_eq!(planes.len(), sizes.len(), "planes of {dtype}");
    let size = dtype.block_bytes();
    let blocks = bytes.len() / size;
    check(dtype, "the tensor's data", bytes.len(), blocks * size)?;
    for (plane, size) in planes.iter().zip(sizes) {
        check(dtype, "a plane", plane.len(), blocks * size)?;
    }

    let task = TASK / dtype.block_len();
    match planes {
        [data] => {
            data.par_chunks_mut(task * size).zip(bytes.par_chunks(task * size)).for_each(|(to, from)| {
                to.copy_from_slice(from);
            })
        }
        // In every blocked format the scales come first.
        [qs, scales] => {
            let qs = qs.par_chunks_mut(task * sizes[0]);
            let scales = scales.par_chunks_mut(task * sizes[1]);
            let work = qs.zip(scales).zip(bytes.par_chunks(task * size));
            work.for_each(|((qs, scales), bytes)| match dtype {
                DType::Q8_0 => split_blocks::<2, 32>(bytes, scales, qs),
                DType::Q4_0 => split_blocks::<2, 16>(bytes, scales, qs),
                DType::Q4_1 => split_blocks::<4, 16>(bytes, scales, qs),
                _ => unreachable!("types of two planes are these"),
            });
        }
        _ => unreachable!("no type has more than two planes"),
    }
    Ok(())
}

/// Copies bytes that are laid out as the device wants them, on all cores: most of the time goes into pages of a mapped file
/// that are touched for the first time.
///
/// # Errors
/// [`QuantError::Length`] if the slices have not the same length.
pub fn copy(from: &[u8], to: &mut [u8]) -> Result<(), QuantError> {
    const PIECE: usize = 1 << 18;
    check(DType::U8, "the tensor's data", from.len(), to.len())?;
    to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
    Ok(())
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
