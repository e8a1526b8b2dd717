//! From a tensor source to buffers on the device.

use thiserror::Error;

use super::linear::Stacked;
use super::{HybridModel, StageRange};
use crate::config::Family;
use crate::device::{Buffer, DeviceError};
use crate::engine::Engine;
use crate::format::gguf::GgufFile;
use crate::format::synthetic::PlaneFill;
use crate::format::{DType, FormatError, LinearWeight, TensorSource, WeightEncoding, device_format};
use crate::kernel::{RawTensor, TensorFormat};
use crate::kernels::fill;
use crate::plan::PlanError;
use crate::quant::{self, QuantError};

/// Why a model could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file or its configuration is at fault.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A synthetic tensor could not be filled.
    #[error("tensor {tensor}: {source}")]
    Fill {
        /// The tensor.
        tensor: String,
        /// Why.
        source: Box<PlanError>,
    },
    /// A stage that the model does not have.
    #[error(
        "{file}: a stage of layers {first}..{end}: the model has {total}, and a stage needs at least one"
    )]
    Stage {
        /// The file.
        file: String,
        /// Its first layer.
        first: u32,
        /// One past its last.
        end: u32,
        /// Layers of the model.
        total: u32,
    },
    /// No such split.
    #[error("{file}: {total} layers cannot be split into {stages} stages: ask for fewer")]
    Split {
        /// The file.
        file: String,
        /// Stages asked for.
        stages: u32,
        /// Layers of the model.
        total: u32,
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

impl HybridModel {
    /// Loads a GGUF file onto the engine's device.
    ///
    /// # Errors
    /// Those of [`HybridModel::load_from_source`].
    pub fn load(
        engine: &Engine,
        file: &GgufFile,
        progress: LoadProgress<'_>,
    ) -> Result<HybridModel, LoadError> {
        HybridModel::load_from_source(engine, file, progress)
    }

    /// Loads a model of any family onto the engine's device, weights kept in their own formats.
    ///
    /// # Errors
    /// A configuration that is incomplete or inconsistent, a missing or misshapen tensor, a type that no kernel reads,
    /// out of memory: each by name.
    pub fn load_from_source(
        engine: &Engine,
        source: &dyn TensorSource,
        progress: LoadProgress<'_>,
    ) -> Result<HybridModel, LoadError> {
        HybridModel::load_stage(engine, source, None, progress)
    }

    /// Loads the layers of one stage, with the embedding in the first and the head in the last; all without a range.
    ///
    /// # Errors
    /// Those of [`HybridModel::load_from_source`]; a range that is not one of the model's layers.
    pub fn load_stage(
        engine: &Engine,
        source: &dyn TensorSource,
        range: Option<StageRange>,
        progress: LoadProgress<'_>,
    ) -> Result<HybridModel, LoadError> {
        let family = source.family()?;
        let total = match &family {
            Family::Llama(config) => config.layers,
            Family::Glm5(config) => config.layers.len() as u32,
        };
        let range = range.unwrap_or(StageRange::whole(total));
        if range.total != total || range.first >= range.end || range.end > total {
            let StageRange { first, end, .. } = range;
            let file = source.path().display().to_string();
            return Err(LoadError::Stage { file, first, end, total });
        }
        match family {
            Family::Llama(config) => HybridModel::load_llama(engine, source, config, range, progress),
            Family::Glm5(config) => HybridModel::load_glm5(engine, source, &config, range, progress),
        }
    }
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
        self.vectors(&[name.to_owned()], &[len])
    }

    /// Small tensors of one shape, widened to f32, one after the other.
    pub fn vectors(&mut self, names: &[String], shape: &[u32]) -> Result<Buffer<f32>, LoadError> {
        let mut values = Vec::new();
        for name in names {
            values.extend(self.host_values(name, shape)?);
        }
        let label = names.join(" + ");
        let fail = |source| LoadError::Device { tensor: label.clone(), source };
        let buffer = Buffer::from_slice(self.engine.device(), &values, &label).map_err(fail)?;
        self.engine.synchronize().map_err(fail)?;
        Ok(buffer)
    }

    /// A small tensor of plain floats, on the host.
    fn host_values(&mut self, name: &str, shape: &[u32]) -> Result<Vec<f32>, LoadError> {
        let shape: Vec<u64> = shape.iter().map(|&n| u64::from(n)).collect();
        let info = self.source.require(name, &shape)?;
        let (dtype, bytes, len) = (info.dtype, info.bytes(), info.elements() as usize);
        let data = self.source.data(name)?;
        let mut values = vec![0.0; len];
        quant::dequantise(dtype, &data, &mut values).map_err(|source| self.bad_data(name, source))?;
        self.loaded(bytes);
        Ok(values)
    }

    fn bad_data(&self, tensor: &str, source: QuantError) -> LoadError {
        LoadError::Quant { file: self.file(), tensor: tensor.to_owned(), source }
    }

    /// Matrices of `cols` columns and the rows given, stacked: one tensor where their formats agree, else one for each.
    pub fn stacked(&mut self, parts: &[(String, u32)], cols: u32) -> Result<Stacked, LoadError> {
        self.stacked_rows(parts, cols, 0)
    }

    /// [`Loader::stacked`] with rows of zeros at the end, so that the rows are a multiple of 8 in all: where the outputs of
    /// several tokens are read in place, each token's then begins on a 16-byte boundary.
    pub fn stacked_padded(&mut self, parts: &[(String, u32)], cols: u32) -> Result<Stacked, LoadError> {
        let rows: u32 = parts.iter().map(|(_, rows)| rows).sum();
        self.stacked_rows(parts, cols, rows.next_multiple_of(8) - rows)
    }

    fn stacked_rows(&mut self, parts: &[(String, u32)], cols: u32, zeros: u32) -> Result<Stacked, LoadError> {
        let formats =
            parts.iter().map(|(name, rows)| self.format(name, *rows, cols)).collect::<Result<Vec<_>, _>>()?;
        if let [first, rest @ ..] = &formats[..]
            && rest.iter().all(|format| format == first)
        {
            return Ok(Stacked(vec![self.tensor(parts, cols, *first, zeros)?]));
        }
        let count = parts.len();
        let each = parts.iter().zip(formats).enumerate().map(|(index, (part, format))| {
            let zeros = if index + 1 == count { zeros } else { 0 };
            self.tensor(std::slice::from_ref(part), cols, format, zeros)
        });
        Ok(Stacked(each.collect::<Result<_, _>>()?))
    }

    /// Matrices that must be of one format, stacked by rows.
    pub fn uniform(&mut self, parts: &[(String, u32)], cols: u32) -> Result<RawTensor, LoadError> {
        let mut first = None;
        for (name, rows) in parts {
            let format = self.format(name, *rows, cols)?;
            let (wanted, like) = *first.get_or_insert((format, name));
            if format != wanted {
                let reason = format!(
                    "is {format}, but {like} is {wanted}: all experts of a layer must be of one format"
                );
                return Err(LoadError::Tensor { file: self.file(), tensor: name.clone(), reason });
            }
        }
        let format = first.map_or(TensorFormat::F32, |(format, _)| format);
        self.tensor(parts, cols, format, 0)
    }

    /// One matrix.
    pub fn matrix(&mut self, name: &str, rows: u32, cols: u32) -> Result<RawTensor, LoadError> {
        let format = self.format(name, rows, cols)?;
        self.tensor(&[(name.to_owned(), rows)], cols, format, 0)
    }

    /// A latent's projection to keys and values, `[heads·(keys + values), cols]`, taken apart: the keys transposed within a
    /// head, `[heads·cols, keys]`, and the values as they are, `[heads·values, cols]`. Kept in the floats that it is stored in,
    /// or widened to f32.
    pub fn keys_and_values(
        &mut self,
        name: &str,
        heads: u32,
        keys: u32,
        values: u32,
        cols: u32,
    ) -> Result<(RawTensor, RawTensor), LoadError> {
        let rows = heads * (keys + values);
        let (format, data) = self.plain_floats(name, rows, cols)?;
        let element = format.bytes(1, 8) as usize / 8;
        let (cols, keys, values) = (cols as usize, keys as usize, values as usize);
        let row_bytes = cols * element;
        let (mut transposed, mut straight) = (Vec::new(), Vec::new());
        for head in data.chunks_exact((keys + values) * row_bytes) {
            let (key_rows, value_rows) = head.split_at(keys * row_bytes);
            for col in 0..cols {
                for row in key_rows.chunks_exact(row_bytes) {
                    transposed.extend_from_slice(&row[col * element..(col + 1) * element]);
                }
            }
            straight.extend_from_slice(value_rows);
        }
        let heads = u64::from(heads);
        let absorb =
            self.upload(&format!("{name} (keys)"), format, heads * cols as u64, keys as u64, &transposed)?;
        let expand =
            self.upload(&format!("{name} (values)"), format, heads * values as u64, cols as u64, &straight)?;
        self.loaded(data.len() as u64);
        Ok((absorb, expand))
    }

    /// Uploads a matrix of plain floats.
    fn upload(
        &self,
        label: &str,
        format: TensorFormat,
        rows: u64,
        cols: u64,
        data: &[u8],
    ) -> Result<RawTensor, LoadError> {
        let device = |source| LoadError::Device { tensor: label.to_owned(), source };
        let buffer = Buffer::from_slice(self.engine.device(), data, label).map_err(device)?;
        self.engine.synchronize().map_err(device)?;
        RawTensor::new(format, rows, cols, &[buffer.raw()]).map_err(|reason| self.misfit(label, reason))
    }

    fn misfit(&self, label: &str, reason: String) -> LoadError {
        LoadError::Tensor { file: self.file(), tensor: label.to_owned(), reason }
    }

    /// Matrices of one format, stacked by rows on the device, with rows of zeros at the end. One part is in host memory at a
    /// time.
    fn tensor(
        &mut self,
        parts: &[(String, u32)],
        cols: u32,
        format: TensorFormat,
        zeros: u32,
    ) -> Result<RawTensor, LoadError> {
        let label = label(parts);
        let cols = u64::from(cols);
        let multiple = format.column_multiple();
        if !cols.is_multiple_of(multiple) {
            let reason = format!("{cols} columns: kernels for {format} need a multiple of {multiple}");
            return Err(self.misfit(&label, reason));
        }
        let device = |source| LoadError::Device { tensor: label.clone(), source };
        let blocks = cols / format.block();
        let rows: u64 = parts.iter().map(|(_, rows)| u64::from(*rows)).sum::<u64>() + u64::from(zeros);
        let planes: Vec<Buffer<u8>> = format
            .planes()
            .iter()
            .map(|plane| {
                let bytes = plane.bytes(rows, blocks) as usize;
                self.engine.uninit(bytes, &format!("{label}.{}", plane.name)).map_err(device)
            })
            .collect::<Result<_, _>>()?;
        let mut row = 0;
        for (name, part_rows) in parts {
            let part_rows = u64::from(*part_rows);
            let slices: Vec<Buffer<u8>> = format
                .planes()
                .iter()
                .zip(&planes)
                .map(|(decl, plane)| {
                    let from = decl.bytes(row, blocks) as usize;
                    plane.slice(from..from + decl.bytes(part_rows, blocks) as usize).map_err(device)
                })
                .collect::<Result<_, _>>()?;
            if !self.filled_in_place(name, part_rows, cols, &slices)? {
                let host = self.planes(name, part_rows, cols, format)?;
                for (slice, bytes) in slices.iter().zip(&host) {
                    self.engine.copy_into(slice, bytes).map_err(device)?;
                }
            }
            self.loaded(slices.iter().map(|plane| plane.len() as u64).sum());
            row += part_rows;
        }
        if zeros > 0 {
            for (decl, plane) in format.planes().iter().zip(&planes) {
                let slice = plane.slice(decl.bytes(row, blocks) as usize..).map_err(device)?;
                self.engine.stream().fill(&slice, 0).map_err(device)?;
            }
        }
        let planes: Vec<_> = planes.iter().map(Buffer::raw).collect();
        RawTensor::new(format, rows, cols, &planes).map_err(|reason| self.misfit(&label, reason))
    }

    /// A matrix as it lies in the source. Those of linear layers are called `STEM.weight`, whatever tensors they consist of.
    fn find(&self, name: &str, rows: u64, cols: u64) -> Result<HostMatrix, LoadError> {
        if let Some(stem) = name.strip_suffix(".weight") {
            return Ok(HostMatrix::Linear(LinearWeight::require(self.source, stem, [rows, cols])?));
        }
        let dtype = self.source.require(name, &[rows, cols])?.dtype;
        let format = device_format(dtype).ok_or_else(|| {
            let known: Vec<_> = TensorFormat::ALL.iter().map(|format| format.name()).collect();
            self.misfit(name, format!("no kernel reads {dtype}; those of {} are read", known.join(", ")))
        })?;
        Ok(HostMatrix::Tensor { name: name.to_owned(), dtype, format })
    }

    /// The format that a matrix has on the device.
    fn format(&self, name: &str, rows: u32, cols: u32) -> Result<TensorFormat, LoadError> {
        Ok(match self.find(name, u64::from(rows), u64::from(cols))? {
            HostMatrix::Linear(weight) => weight.format(),
            HostMatrix::Tensor { format, .. } => format,
        })
    }

    /// Fills the planes of a synthetic matrix on the device; whether it could.
    fn filled_in_place(
        &self,
        name: &str,
        rows: u64,
        cols: u64,
        planes: &[Buffer<u8>],
    ) -> Result<bool, LoadError> {
        let fills = match self.find(name, rows, cols)? {
            HostMatrix::Linear(weight) => weight.fills(self.source),
            HostMatrix::Tensor { name, .. } => self.source.synthetic(&name).map(<[PlaneFill]>::to_vec),
        };
        let Some(fills) =
            fills.filter(|fills| fills.iter().zip(planes).all(|(fill, plane)| fill::fits(fill, plane)))
        else {
            return Ok(false);
        };
        for (fill, plane) in fills.iter().zip(planes) {
            fill::run(self.engine, fill, plane)
                .map_err(|source| LoadError::Fill { tensor: name.to_owned(), source: Box::new(source) })?;
        }
        Ok(true)
    }

    /// A matrix's planes in host memory.
    fn planes(
        &self,
        name: &str,
        rows: u64,
        cols: u64,
        format: TensorFormat,
    ) -> Result<Vec<Vec<u8>>, LoadError> {
        let sizes = format.planes().iter().map(|plane| plane.bytes(rows, cols / format.block()) as usize);
        let mut planes: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
        let mut views: Vec<&mut [u8]> = planes.iter_mut().map(Vec::as_mut_slice).collect();
        match self.find(name, rows, cols)? {
            HostMatrix::Linear(weight) => weight.write_planes(self.source, &mut views)?,
            HostMatrix::Tensor { name, dtype, .. } => {
                let data = self.source.data(&name)?;
                quant::split(dtype, &data, &mut views).map_err(|source| self.bad_data(&name, source))?;
            }
        }
        Ok(planes)
    }

    /// A matrix in the plain floats that it is stored in, or widened to f32.
    fn plain_floats(&self, name: &str, rows: u32, cols: u32) -> Result<(TensorFormat, Vec<u8>), LoadError> {
        let (rows, cols) = (u64::from(rows), u64::from(cols));
        if let HostMatrix::Linear(weight) = self.find(name, rows, cols)?
            && !matches!(weight.encoding(), WeightEncoding::Plain { dtype, .. } if WeightEncoding::is_plain(*dtype))
        {
            let values = weight.dequantise(self.source)?;
            return Ok((TensorFormat::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()));
        }
        let format = self.format(name, rows as u32, cols as u32)?;
        let data = self.planes(name, rows, cols, format)?.swap_remove(0);
        Ok((format, data))
    }
}

/// Where a matrix comes from.
enum HostMatrix {
    /// A linear layer's, in any encoding.
    Linear(LinearWeight),
    /// One tensor.
    Tensor { name: String, dtype: DType, format: TensorFormat },
}

/// What stacked matrices are called: by the first and the number of the others where there are many.
fn label(parts: &[(String, u32)]) -> String {
    match parts {
        [first, .., last] if parts.len() > 6 => {
            format!("{} … {} ({} matrices)", first.0, last.0, parts.len())
        }
        _ => parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" + "),
    }
}
