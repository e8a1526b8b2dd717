//! Block formats: what the bytes of a quantised tensor mean, and how they are laid out for the device.
//!
//! - [`dequantise`] gives the float32 value of every element, by ggml's definition of each format. It is the
//!   reference for all that kernels compute from the same bytes.
//! - [`split`] takes a tensor apart into *planes*: the quantised integers in one array, the scales in another,
//!   so that a warp can load 16 aligned bytes a lane. It changes no bit of either.
//! - [`quantise`] is the inverse of `dequantise` up to rounding, for fixtures and tests.
//!
//! All of them take whole rows or several; `dequantise` and `join` work on all cores, `split` is called by several threads.

mod blocks;
mod encode;
mod f8;
mod k_blocks;
mod k_encode;
mod k_planes;
mod nvfp4;
mod planes;

use rayon::prelude::*;

use crate::format::DType;

pub use encode::quantise;
pub use f8::{dequantise_f8_block, f8_block_planes};
pub use k_planes::{pack_five_bits, pack_six_bits, unpack_five_bits, unpack_six_bits};
pub use nvfp4::{E2M1, NVFP4_BLOCK, dequantise_nvfp4, global_of_divisor, global_of_multiplier};
pub use planes::{DEVICE_TYPES, join, plane_block_bytes, split};

/// A type without the operation asked for, or slices whose lengths do not fit each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// The operation is not defined for this type.
    #[error("{dtype} cannot be {operation}; supported are {supported}")]
    Unsupported {
        /// The type.
        dtype: DType,
        /// What was asked for, as a participle.
        operation: &'static str,
        /// The types for which it works.
        supported: &'static str,
    },
    /// A slice has not the length that the others and the type imply.
    #[error("{what} has {found} bytes or elements; {wanted} are wanted for {dtype}")]
    Length {
        /// The type.
        dtype: DType,
        /// Which slice.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length it should have.
        wanted: usize,
    },
}

/// Elements that one task of a parallel loop handles: enough to outweigh its start, a multiple of all block sizes.
const TASK: usize = 1 << 14;

/// Writes the float32 value of each element of `bytes`, blocks of `dtype`, to `out`.
///
/// Each value is the one that ggml's `dequantize_row_*` gives, bit for bit: products of a half-precision scale and a
/// small integer are exact in float32, so that at most one rounding occurs (the sum with a minimum).
///
/// # Errors
/// [`QuantError::Unsupported`] for types other than F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K;
/// [`QuantError::Length`] if `out` is no whole number of blocks or `bytes` is not as long as it implies.
pub fn dequantise(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    let block: fn(&[u8], &mut [f32]) = match dtype {
        DType::F32 => blocks::f32,
        DType::F16 => blocks::f16,
        DType::Bf16 => blocks::bf16,
        DType::Q4_0 => blocks::q4_0,
        DType::Q4_1 => blocks::q4_1,
        DType::Q5_0 => blocks::q5_0,
        DType::Q5_1 => blocks::q5_1,
        DType::Q8_0 => blocks::q8_0,
        DType::Q4_K => k_blocks::q4_k,
        DType::Q5_K => k_blocks::q5_k,
        DType::Q6_K => k_blocks::q6_k,
        _ => {
            let supported = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K";
            return Err(QuantError::Unsupported { dtype, operation: "dequantised", supported });
        }
    };
    let (len, size) = (dtype.block_len(), dtype.block_bytes());
    check(dtype, "the output", out.len(), out.len().next_multiple_of(len))?;
    check(dtype, "the tensor's data", bytes.len(), out.len() / len * size)?;
    let task_bytes = TASK / len * size;
    out.par_chunks_mut(TASK).zip(bytes.par_chunks(task_bytes)).for_each(|(out, bytes)| {
        for (out, bytes) in out.chunks_exact_mut(len).zip(bytes.chunks_exact(size)) {
            block(bytes, out);
        }
    });
    Ok(())
}

fn check(dtype: DType, what: &'static str, found: usize, wanted: usize) -> Result<(), QuantError> {
    if found == wanted { Ok(()) } else { Err(QuantError::Length { dtype, what, found, wanted }) }
}
