//! What the parts of a model ask for: vectors, matrices, matrices stacked by rows.

use std::sync::Arc;
use std::time::Instant;

use super::pipeline::{Done, Job, PIECE, Pipeline};
use super::{LoadError, LoadProgress, LoadTimings};
use crate::device::Buffer;
use crate::engine::Engine;
use crate::format::{LinearWeight, PlaneReader, TensorSource, WeightEncoding};
use crate::kernel::{PlaneDecl, RawTensor, TensorFormat};
use crate::kernels::fill;
use crate::models::linear::Stacked;
use crate::quant::{self, QuantError};

/// Runs `body` with a loader, and waits until everything that it asked for is on the device. `total` is the source's bytes of it
/// all, for `progress`.
pub(super) fn load<T>(
    engine: &Engine,
    source: &dyn TensorSource,
    total: u64,
    progress: LoadProgress<'_>,
    body: impl FnOnce(&mut Loader<'_>) -> Result<T, LoadError>,
) -> Result<(T, LoadTimings), LoadError> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let pipeline = Pipeline::start(scope, engine.device(), total)?;
        let mut loader =
            Loader { engine, source, progress, pipeline, done: 0, total, timings: LoadTimings::default() };
        let result = body(&mut loader)?;
        loader.finish(start).map(|timings| (result, timings))
    })
}

/// Loads tensors of one source onto one engine's device. Matrices arrive there in the background: they are complete when the
/// loader has finished.
pub(in crate::models) struct Loader<'a> {
    engine: &'a Engine,
    source: &'a dyn TensorSource,
    progress: LoadProgress<'a>,
    pipeline: Pipeline<'a>,
    done: u64,
    total: u64,
    timings: LoadTimings,
}

impl<'a> Loader<'a> {
    /// Waits for the threads and for the device.
    fn finish(mut self, start: Instant) -> Result<LoadTimings, LoadError> {
        let mut failure = None;
        for done in self.pipeline.finish() {
            match done {
                Done::Piece(bytes) => {
                    self.done += bytes;
                    (self.progress)(self.done.min(self.total), self.total);
                }
                Done::Ended(times) => {
                    self.timings.making += times.making;
                    self.timings.waiting += times.waiting;
                    self.timings.pinned_bytes += times.pinned_bytes;
                }
                // The first one is the cause.
                Done::Failed(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let device = |source| LoadError::Device { tensor: "the last ones".to_owned(), source };
        self.engine.synchronize().map_err(device)?;
        (self.progress)(self.total, self.total);
        self.timings.stored_bytes = self.done;
        self.timings.threads = self.pipeline.threads;
        self.timings.total = start.elapsed();
        Ok(self.timings)
    }

    /// The engine whose device is loaded onto.
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// Where the tensors come from.
    pub fn source(&self) -> &'a dyn TensorSource {
        self.source
    }

    fn file(&self) -> String {
        self.source.path().display().to_string()
    }

    fn loaded(&mut self, bytes: u64) {
        self.done += bytes;
        (self.progress)(self.done.min(self.total), self.total);
    }

    /// Takes note of what the threads report.
    fn listen(&mut self) -> Result<(), LoadError> {
        let mut bytes = 0;
        for done in self.pipeline.reports() {
            match done {
                Done::Piece(loaded) => bytes += loaded,
                Done::Failed(error) => return Err(error),
                Done::Ended(_) => {}
            }
        }
        if bytes > 0 {
            self.loaded(bytes);
        }
        Ok(())
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
        let parts = self.find_all(parts, cols)?;
        if parts.iter().all(|part| part.format() == parts[0].format()) {
            return Ok(Stacked(vec![self.tensor(&parts, zeros)?]));
        }
        let count = parts.len();
        let each = parts.chunks(1).enumerate().map(|(index, part)| {
            let zeros = if index + 1 == count { zeros } else { 0 };
            self.tensor(part, zeros)
        });
        Ok(Stacked(each.collect::<Result<_, _>>()?))
    }

    /// Matrices that must be of one format, stacked by rows.
    pub fn uniform(&mut self, parts: &[(String, u32)], cols: u32) -> Result<RawTensor, LoadError> {
        let found = self.find_all(parts, cols)?;
        let wanted = found[0].format();
        if let Some(other) = found.iter().position(|part| part.format() != wanted) {
            let reason = format!(
                "is {}, but {} is {wanted}: all experts of a layer must be of one format",
                found[other].format(),
                parts[0].0
            );
            return Err(self.misfit(&parts[other].0, reason));
        }
        self.tensor(&found, 0)
    }

    /// One matrix.
    pub fn matrix(&mut self, name: &str, rows: u32, cols: u32) -> Result<RawTensor, LoadError> {
        let weight = self.find(name, u64::from(rows), u64::from(cols))?;
        self.tensor(&[weight], 0)
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
        let weight = self.find(name, u64::from(rows), u64::from(cols))?;
        let (format, data) = self.plain_floats(&weight)?;
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
        self.loaded(self.stored_bytes(&weight));
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

    /// Matrices of one format and width, stacked by rows on the device, with rows of zeros at the end. They are on their way
    /// when it returns.
    fn tensor(&mut self, parts: &[LinearWeight], zeros: u32) -> Result<RawTensor, LoadError> {
        let label = label(parts);
        let (format, cols) = (parts[0].format(), parts[0].cols());
        let multiple = format.column_multiple();
        if !cols.is_multiple_of(multiple) {
            let reason = format!("{cols} columns: kernels for {format} need a multiple of {multiple}");
            return Err(self.misfit(&label, reason));
        }
        let device = |source| LoadError::Device { tensor: label.clone(), source };
        let blocks = cols / format.block();
        let rows: u64 = parts.iter().map(LinearWeight::rows).sum::<u64>() + u64::from(zeros);
        let start = Instant::now();
        let planes: Vec<Buffer<u8>> = format
            .planes()
            .iter()
            .map(|plane| {
                let bytes = plane.bytes(rows, blocks) as usize;
                self.engine.uninit(bytes, &format!("{label}.{}", plane.name)).map_err(device)
            })
            .collect::<Result<_, _>>()?;
        self.timings.allocating += start.elapsed();
        self.timings.device_bytes += format.bytes(rows, cols);
        let slices = |from: u64, rows: u64| -> Result<Vec<Buffer<u8>>, LoadError> {
            let slice = |(decl, plane): (&PlaneDecl, &Buffer<u8>)| {
                let start = decl.bytes(from, blocks) as usize;
                plane.slice(start..start + decl.bytes(rows, blocks) as usize).map_err(device)
            };
            format.planes().iter().zip(&planes).map(slice).collect()
        };
        let mut row = 0;
        for part in parts {
            if !self.filled_in_place(part, &slices(row, part.rows())?)? {
                self.send(part, |from, rows| slices(row + from, rows))?;
            }
            row += part.rows();
        }
        if zeros > 0 {
            for slice in slices(row, u64::from(zeros))? {
                self.engine.stream().fill(&slice, 0).map_err(device)?;
            }
        }
        let planes: Vec<_> = planes.iter().map(Buffer::raw).collect();
        RawTensor::new(format, rows, cols, &planes).map_err(|reason| self.misfit(&label, reason))
    }

    /// Hands a matrix to the threads, in pieces. `slices` gives the parts of the planes for a number of rows from a first one on.
    fn send(
        &mut self,
        weight: &LinearWeight,
        slices: impl Fn(u64, u64) -> Result<Vec<Buffer<u8>>, LoadError>,
    ) -> Result<(), LoadError> {
        let reader = Arc::new(PlaneReader::new(weight, self.source)?);
        let (rows, format) = (weight.rows(), weight.format());
        let step = (PIECE / format.bytes(1, weight.cols()).max(1)).max(1);
        let stored_up_to =
            |row: u64| (u128::from(reader.stored_bytes()) * u128::from(row) / u128::from(rows)) as u64;
        let mut row = 0;
        while row < rows {
            let end = rows.min(row + step);
            let to = slices(row, end - row)?;
            let stored = stored_up_to(end) - stored_up_to(row);
            self.pipeline.send(Job { reader: reader.clone(), rows: row..end, to, stored });
            self.listen()?;
            row = end;
        }
        Ok(())
    }

    /// A matrix as it lies in the source. Those of linear layers are called `STEM.weight`, whatever tensors they consist of.
    fn find(&self, name: &str, rows: u64, cols: u64) -> Result<LinearWeight, LoadError> {
        Ok(match name.strip_suffix(".weight") {
            Some(stem) => LinearWeight::require(self.source, stem, [rows, cols])?,
            None => LinearWeight::of_tensor(self.source, name, [rows, cols])?,
        })
    }

    /// At least one matrix, all of one width.
    fn find_all(&self, parts: &[(String, u32)], cols: u32) -> Result<Vec<LinearWeight>, LoadError> {
        let find = |(name, rows): &(String, u32)| self.find(name, u64::from(*rows), u64::from(cols));
        parts.iter().map(find).collect()
    }

    /// Fills the planes of a synthetic matrix on the device; whether it could.
    fn filled_in_place(&mut self, weight: &LinearWeight, planes: &[Buffer<u8>]) -> Result<bool, LoadError> {
        let Some(fills) = weight
            .fills(self.source)
            .filter(|fills| fills.iter().zip(planes).all(|(fill, plane)| fill::fits(fill, plane)))
        else {
            return Ok(false);
        };
        for (fill, plane) in fills.iter().zip(planes) {
            fill::run(self.engine, fill, plane)
                .map_err(|source| LoadError::Fill { tensor: weight.name(), source: Box::new(source) })?;
        }
        self.loaded(self.stored_bytes(weight));
        Ok(true)
    }

    /// Bytes of all tensors of a matrix in the source.
    fn stored_bytes(&self, weight: &LinearWeight) -> u64 {
        let names = weight.tensor_names();
        names.iter().filter_map(|name| self.source.find(name)).map(|info| info.bytes()).sum()
    }

    /// A matrix in the plain floats that it is stored in, or widened to f32.
    fn plain_floats(&self, weight: &LinearWeight) -> Result<(TensorFormat, Vec<u8>), LoadError> {
        if !matches!(weight.encoding(), WeightEncoding::Plain { dtype, .. } if WeightEncoding::is_plain(*dtype))
        {
            let values = weight.dequantise(self.source)?;
            return Ok((TensorFormat::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()));
        }
        let mut data = vec![0; weight.device_bytes() as usize];
        weight.write_planes(self.source, &mut [&mut data])?;
        Ok((weight.format(), data))
    }
}

/// What stacked matrices are called: by the first and the number of the others where there are many.
fn label(parts: &[LinearWeight]) -> String {
    match parts {
        [first, .., last] if parts.len() > 6 => {
            format!("{} … {} ({} matrices)", first.name(), last.name(), parts.len())
        }
        _ => parts.iter().map(LinearWeight::name).collect::<Vec<_>>().join(" + "),
    }
}
