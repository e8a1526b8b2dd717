//! The planes of a matrix, made from its source a range of rows at a time.

use std::ops::Range;
use std::path::PathBuf;

use super::{DType, F8_BLOCK, FormatError, LinearWeight, Stored, TensorSource, WeightEncoding};
use crate::kernel::TensorFormat;
use crate::quant;

/// Bytes that are taken from the source at a time where they are taken apart on the way: few enough to stay in a core's cache
/// in between.
const PIECE: usize = 256 << 10;

/// Makes the planes of one matrix. Any thread may make any rows, so that several make one matrix together and what is in host
/// memory at a time does not depend on its size.
#[derive(Debug)]
pub struct PlaneReader<'a> {
    weight: LinearWeight,
    path: PathBuf,
    parts: Parts<'a>,
    stored_bytes: u64,
}

/// The tensors that a matrix consists of; lengths have been checked.
#[derive(Debug)]
enum Parts<'a> {
    Blocks { dtype: DType, row_bytes: usize, data: Stored<'a> },
    F8 { data: Stored<'a>, scales: Vec<f32> },
    Nvfp4 { packed: Stored<'a>, scales: Stored<'a>, global: f32 },
}

impl<'a> PlaneReader<'a> {
    /// A reader of `weight`, one of `source`'s.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if a tensor is missing, or its data has not the length that the shape implies;
    /// [`FormatError::Read`] if scales cannot be read.
    pub fn new(weight: &LinearWeight, source: &'a dyn TensorSource) -> Result<PlaneReader<'a>, FormatError> {
        let (rows, cols) = (weight.rows(), weight.cols());
        let row_bytes = |dtype: DType| {
            let bytes = dtype.row_bytes(cols).and_then(|bytes| usize::try_from(bytes).ok());
            bytes.ok_or_else(|| {
                weight.error(source.path(), format!("rows of {cols} are no whole blocks of {dtype}"))
            })
        };
        let stored = |name: &str, row_bytes: usize| {
            let stored = source.stored(name)?;
            if (rows as usize).checked_mul(row_bytes) == Some(stored.len()) {
                return Ok(stored);
            }
            let reason = format!("{name} has {} bytes, not {rows} rows of {row_bytes}", stored.len());
            Err(weight.error(source.path(), reason))
        };
        let parts = match weight.encoding() {
            WeightEncoding::Plain { weight: name, dtype } => {
                let row_bytes = row_bytes(*dtype)?;
                Parts::Blocks { dtype: *dtype, row_bytes, data: stored(name, row_bytes)? }
            }
            WeightEncoding::F8Block128 { weight: name, scales, scales_dtype } => {
                let scales = weight.f8_scales(source, scales, *scales_dtype)?;
                Parts::F8 { data: stored(name, cols as usize)?, scales }
            }
            WeightEncoding::Nvfp4 { packed, scales, global, .. } => {
                let packed = stored(packed, cols as usize / 2)?;
                let scales = stored(scales, cols as usize / quant::NVFP4_BLOCK)?;
                Parts::Nvfp4 { packed, scales, global: *global }
            }
        };
        let names = weight.tensor_names();
        let stored_bytes = names.iter().filter_map(|name| source.find(name)).map(|info| info.bytes()).sum();
        Ok(PlaneReader { weight: weight.clone(), path: source.path().into(), parts, stored_bytes })
    }

    /// The matrix.
    pub fn weight(&self) -> &LinearWeight {
        &self.weight
    }

    /// Bytes of all its tensors in the source, those of scales included.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Writes the part of each plane that belongs to `rows`: `PlaneDecl::bytes(rows, cols / block)` bytes each, all of them.
    /// `scratch` is memory to use again.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] for rows that the matrix has not and slices of another length; [`FormatError::Read`].
    pub fn write(
        &self,
        rows: Range<u64>,
        scratch: &mut Vec<u8>,
        planes: &mut [&mut [u8]],
    ) -> Result<(), FormatError> {
        let count = self.check(&rows, planes)?;
        let first = rows.start as usize;
        match (&self.parts, planes) {
            // As it is on disk: from there to where it is copied from, in one go.
            (Parts::Blocks { row_bytes, data, .. }, [plane]) => data.read(first * row_bytes, plane),
            (Parts::Blocks { dtype, row_bytes, data }, planes) => {
                let step = (PIECE / row_bytes).max(1);
                for at in (0..count).step_by(step) {
                    let part = at..count.min(at + step);
                    let bytes = (first + part.start) * row_bytes..(first + part.end) * row_bytes;
                    let bytes = data.piece(bytes, scratch)?;
                    let mut slices: Vec<&mut [u8]> = planes
                        .iter_mut()
                        .map(|plane| {
                            let row = plane.len() / count;
                            &mut plane[part.start * row..part.end * row]
                        })
                        .collect();
                    quant::split(*dtype, bytes, &mut slices)
                        .map_err(|error| self.error(error.to_string()))?;
                }
                Ok(())
            }
            (Parts::F8 { data, scales }, [plane]) => {
                let cols = self.weight.cols() as usize;
                let bands = cols.div_ceil(F8_BLOCK as usize);
                // The rows of one band of scales at a time.
                let (mut row, mut rest) = (first, &mut **plane);
                while row < first + count {
                    let band = row / F8_BLOCK as usize;
                    let end = ((band + 1) * F8_BLOCK as usize).min(first + count);
                    let (out, behind) = rest.split_at_mut((end - row) * cols * 4);
                    let bytes = data.piece(row * cols..end * cols, scratch)?;
                    quant::f8_block_planes(bytes, &scales[band * bands..][..bands], cols, out)
                        .map_err(|error| self.error(error.to_string()))?;
                    (row, rest) = (end, behind);
                }
                Ok(())
            }
            (Parts::Nvfp4 { packed, scales, global }, [qs, block_scales, globals]) => {
                let cols = self.weight.cols() as usize;
                packed.read(first * (cols / 2), qs)?;
                scales.read(first * (cols / quant::NVFP4_BLOCK), block_scales)?;
                for word in globals.as_chunks_mut::<4>().0 {
                    *word = global.to_le_bytes();
                }
                Ok(())
            }
            _ => unreachable!("the number of planes has been checked"),
        }
    }

    /// How many rows these are, if the matrix has them and the slices are as long as they must be.
    fn check(&self, rows: &Range<u64>, planes: &[&mut [u8]]) -> Result<usize, FormatError> {
        let format: TensorFormat = self.weight.format();
        let (total, cols) = (self.weight.rows(), self.weight.cols());
        if rows.start >= rows.end || rows.end > total {
            let Range { start, end } = rows;
            return Err(self.error(format!("rows {start} to {end} of {total} were asked for")));
        }
        if planes.len() != format.planes().len() {
            return Err(self.error(format!("{} planes given for {format}", planes.len())));
        }
        let count = rows.end - rows.start;
        for (plane, decl) in planes.iter().zip(format.planes()) {
            let wanted = decl.bytes(count, cols / format.block());
            if plane.len() as u64 != wanted {
                let reason = format!("plane {} has {} bytes, not {wanted}", decl.name, plane.len());
                return Err(self.error(reason));
            }
        }
        Ok(count as usize)
    }

    fn error(&self, reason: String) -> FormatError {
        self.weight.error(&self.path, reason)
    }
}
