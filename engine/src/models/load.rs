//! From a tensor source to buffers on the device.

use thiserror::Error;

use super::linear::Stacked;
use crate::device::{Buffer, DeviceError};
use crate::engine::Engine;
use crate::format::{DType, FormatError, TensorSource};
use crate::kernel::{RawTensor, TensorFormat};
use crate::quant::{self, QuantError};

/// Why a model could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file or its configuration is at fault.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The source carries no configuration that bitwalk reads.
    #[error("{file}: no GGUF metadata, so the model's shape is unknown")]
    NoConfig {
        /// The file.
        file: String,
    },
    /// The device failed, out of memory most likely.
    #[error("tensor {tensor}: {source}")]
    Device {
        /// The tensor that was being loaded.
        tensor: String,
        /// Why.
        source: DeviceError,
    },
    /// A tensor's data is at fault.
    #[error("{file}: tensor {tensor}: {source}")]
    Quant {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Why.
        source: QuantError,
    },
    /// A tensor of a type or shape that no kernel takes.
    #[error("{file}: tensor {tensor}: {reason}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Why.
        reason: String,
    },
}

/// Told of every tensor that has been loaded: bytes done and bytes in all.
pub type LoadProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// Loads tensors of one source onto one engine's device.
pub(super) struct Loader<'a> {
    engine: &'a Engine,
    source: &'a dyn TensorSource,
    progress: LoadProgress<'a>,
    done: u64,
    total: u64,
}

/// The device format of an on-disk type.
fn device_format(dtype: DType) -> Option<TensorFormat> {
    Some(match dtype {
        DType::F32 => TensorFormat::F32,
        DType::F16 => TensorFormat::F16,
        DType::Bf16 => TensorFormat::BF16,
        DType::Q8_0 => TensorFormat::Q8_0,
        DType::Q4_0 => TensorFormat::Q4_0,
        DType::Q4_1 => TensorFormat::Q4_1,
        _ => return None,
    })
}

impl<'a> Loader<'a> {
    pub fn new(engine: &'a Engine, source: &'a dyn TensorSource, progress: LoadProgress<'a>) -> Self {
        let total = source.tensors().iter().map(|info| info.bytes()).sum();
        Loader { engine, source, progress, done: 0, total }
    }

    fn file(&self) -> String {
        self.source.path().display().to_string()
    }

    fn loaded(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(self.done, self.total);
    }

    /// A vector of `len` floats, widened to f32 whatever its type.
    pub fn vector(&mut self, name: &str, len: u32) -> Result<Buffer<f32>, LoadError> {
        let values = self.host_vector(name, len)?;
        let buffer = Buffer::from_slice(self.engine.device(), &values, name)
            .map_err(|source| LoadError::Device { tensor: name.to_owned(), source })?;
        self.engine.synchronize().map_err(|source| LoadError::Device { tensor: name.to_owned(), source })?;
        Ok(buffer)
    }

    /// The same, left on the host.
    pub fn host_vector(&mut self, name: &str, len: u32) -> Result<Vec<f32>, LoadError> {
        let info = self.source.require(name, &[u64::from(len)])?;
        let (dtype, bytes) = (info.dtype, info.bytes());
        let data = self.source.data(name)?;
        let mut values = vec![0.0; len as usize];
        quant::dequantise(dtype, &data, &mut values).map_err(|source| LoadError::Quant {
            file: self.file(),
            tensor: name.to_owned(),
            source,
        })?;
        self.loaded(bytes);
        Ok(values)
    }

    /// Matrices of `cols` columns and the rows given, stacked: one tensor where the types agree, else one for each.
    pub fn stacked(&mut self, parts: &[(String, u32)], cols: u32) -> Result<Stacked, LoadError> {
        let mut types = Vec::new();
        for (name, rows) in parts {
            types.push(self.source.require(name, &[u64::from(*rows), u64::from(cols)])?.dtype);
        }
        if types.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(Stacked(vec![self.tensor(parts, cols, types[0])?]));
        }
        let each = parts.iter().zip(types);
        Ok(Stacked(
            each.map(|(part, ty)| self.tensor(std::slice::from_ref(part), cols, ty))
                .collect::<Result<_, _>>()?,
        ))
    }

    /// One matrix.
    pub fn matrix(&mut self, name: &str, rows: u32, cols: u32) -> Result<RawTensor, LoadError> {
        let dtype = self.source.require(name, &[u64::from(rows), u64::from(cols)])?.dtype;
        self.tensor(&[(name.to_owned(), rows)], cols, dtype)
    }

    fn tensor(&mut self, parts: &[(String, u32)], cols: u32, dtype: DType) -> Result<RawTensor, LoadError> {
        let label = parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" + ");
        let fail = |reason| LoadError::Tensor { file: self.file(), tensor: label.clone(), reason };
        let format = device_format(dtype).ok_or_else(|| {
            let known: Vec<_> = TensorFormat::ALL.iter().map(|format| format.name()).collect();
            fail(format!("no kernel reads {dtype}; those of {} are read", known.join(", ")))
        })?;
        let multiple = format.column_multiple();
        if !u64::from(cols).is_multiple_of(multiple) {
            return Err(fail(format!("{cols} columns: kernels for {format} need a multiple of {multiple}")));
        }
        let rows: u64 = parts.iter().map(|(_, rows)| u64::from(*rows)).sum();
        let row_blocks = u64::from(cols) / format.block();
        let mut planes: Vec<Vec<u8>> = format
            .planes()
            .iter()
            .map(|plane| vec![0; (rows * row_blocks * plane.block_bytes) as usize])
            .collect();
        {
            let mut rest: Vec<&mut [u8]> = planes.iter_mut().map(Vec::as_mut_slice).collect();
            for (name, rows) in parts {
                let data = self.source.data(name)?;
                let blocks = u64::from(*rows) * row_blocks;
                let mut heads = Vec::new();
                for (slice, plane) in rest.iter_mut().zip(format.planes()) {
                    let (head, tail) =
                        std::mem::take(slice).split_at_mut((blocks * plane.block_bytes) as usize);
                    heads.push(head);
                    *slice = tail;
                }
                quant::split(dtype, &data, &mut heads).map_err(|source| LoadError::Quant {
                    file: self.file(),
                    tensor: name.clone(),
                    source,
                })?;
            }
        }
        let buffers = planes
            .iter()
            .zip(format.planes())
            .map(|(bytes, plane)| {
                let name = format!("{label}.{}", plane.name);
                Buffer::from_slice(self.engine.device(), bytes, &name)
                    .map(|plane| plane.raw())
                    .map_err(|source| LoadError::Device { tensor: label.clone(), source })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let tensor = RawTensor::new(format, rows, u64::from(cols), &buffers).map_err(fail)?;
        self.loaded(tensor.bytes());
        Ok(tensor)
    }
}
