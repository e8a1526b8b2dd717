//! The matrix of a linear layer, in whichever way its checkpoint encodes it.
//!
//! A layer is known by its *stem*, the name of its tensors up to the last dot. Beside `STEM.weight` a quantised layer has
//! scales under names that tell who wrote them:
//!
//! | encoding | tensors | value |
//! |---|---|---|
//! | plain | `weight` [out, in] | the element |
//! | F8, blocks of 128 × 128 | `weight` F8_E4M3 [out, in], `weight_scale_inv` (or `weight_scale`) [⌈out/128⌉, ⌈in/128⌉] | e4m3 · scale, rounded to f32 |
//! | NVFP4, ModelOpt | `weight` U8 [out, in/2], `weight_scale` F8_E4M3 [out, in/16], `weight_scale_2` F32 | e2m1 · e4m3 · scale_2 |
//! | NVFP4, compressed-tensors | `weight_packed`, `weight_scale`, `weight_global_scale` F32 | e2m1 · e4m3 / global_scale |
//!
//! `input_scale` and `input_global_scale` are what activations would be quantised with; activations are not quantised to 4
//! bits here (a W4A4 checkpoint runs as W4A16), so they are known, offered by name, and not applied.

use std::path::Path;

use super::{DType, FormatError, PlaneReader, TensorInfo, TensorSource};
use crate::kernel::TensorFormat;
use crate::quant;

/// Rows and columns that share an F8 scale.
pub const F8_BLOCK: u64 = 128;

/// How a matrix is encoded in its checkpoint. Shapes have been checked.
#[derive(Debug, Clone, PartialEq)]
pub enum WeightEncoding {
    /// One tensor, of elements or of blocks that carry their scales.
    Plain {
        /// The tensor.
        weight: String,
        /// Its type.
        dtype: DType,
    },
    /// 8-bit floats with a scale for each block of 128 × 128.
    F8Block128 {
        /// The elements.
        weight: String,
        /// The scales.
        scales: String,
        /// Their type: F32 or BF16.
        scales_dtype: DType,
    },
    /// 4-bit floats with a scale for each 16 in a row and one for all.
    Nvfp4 {
        /// The elements, two a byte, the first in the low nibble.
        packed: String,
        /// The scales of blocks, e4m3.
        scales: String,
        /// The tensor of the global scale.
        global_name: String,
        /// The global scale as a multiplier, the same whichever way up it was written
        /// ([`global_of_multiplier`](quant::global_of_multiplier)).
        global: f32,
        /// The tensor of the activations' scale, where there is one; not applied.
        input_scale: Option<String>,
    },
}

impl WeightEncoding {
    /// Whether a type is of plain floats that kernels read as they are.
    pub fn is_plain(dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
    }
}

/// A matrix of a linear layer: where it is and how it is encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearWeight {
    stem: String,
    rows: u64,
    cols: u64,
    encoding: WeightEncoding,
}

/// The device format of a type that runs as it is.
pub fn device_format(dtype: DType) -> Option<TensorFormat> {
    Some(match dtype {
        DType::F32 => TensorFormat::F32,
        DType::F16 => TensorFormat::F16,
        DType::Bf16 => TensorFormat::BF16,
        DType::Q8_0 => TensorFormat::Q8_0,
        DType::Q4_0 => TensorFormat::Q4_0,
        DType::Q4_1 => TensorFormat::Q4_1,
        DType::Q5_0 => TensorFormat::Q5_0,
        DType::Q4_K => TensorFormat::Q4_K,
        DType::Q5_K => TensorFormat::Q5_K,
        DType::Q6_K => TensorFormat::Q6_K,
        _ => return None,
    })
}

/// Looks for the tensors of one layer.
struct Finder<'a> {
    source: &'a dyn TensorSource,
    stem: &'a str,
}

impl<'a> Finder<'a> {
    fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.stem)
    }

    fn find(&self, suffix: &str) -> Option<&'a TensorInfo> {
        self.source.find(&self.name(suffix))
    }

    fn error(&self, suffix: &str, reason: impl Into<String>) -> FormatError {
        FormatError::Tensor {
            path: self.source.path().into(),
            tensor: self.name(suffix),
            reason: reason.into(),
        }
    }

    /// A tensor that the others of the layer ask for, of one of these types.
    fn require(&self, suffix: &str, dtypes: &[DType], what: &str) -> Result<&'a TensorInfo, FormatError> {
        let info = self.find(suffix).ok_or_else(|| self.error(suffix, format!("is missing: {what}")))?;
        if dtypes.contains(&info.dtype) {
            return Ok(info);
        }
        let names: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
        Err(self.error(suffix, format!("is {}, but {what} must be {}", info.dtype, names.join(" or "))))
    }

    fn shape(&self, suffix: &str, found: &TensorInfo, wanted: &[u64], what: &str) -> Result<(), FormatError> {
        if found.shape == wanted {
            return Ok(());
        }
        Err(self.error(suffix, format!("has shape {:?}, but {what} have {wanted:?}", found.shape)))
    }

    fn scalar(&self, suffix: &str) -> Result<f32, FormatError> {
        let info = self.require(suffix, &[DType::F32], "the global scale of an NVFP4 matrix")?;
        if info.elements() != 1 {
            return Err(self.error(suffix, format!("has shape {:?}, but is one number", info.shape)));
        }
        let data = self.source.data(&info.name)?;
        let bytes = data.first_chunk().ok_or_else(|| self.error(suffix, "has no 4 bytes"))?;
        Ok(f32::from_le_bytes(*bytes))
    }

    /// Refuses scales that the encoding has no use for: ignoring them would change the weights.
    fn no_others(&self, encoding: &str, allowed: &[&str]) -> Result<(), FormatError> {
        const SCALES: [&str; 9] = [
            "weight_scale",
            "weight_scale_inv",
            "weight_scale_2",
            "weight_global_scale",
            "weight_zero_point",
            "weight_g_idx",
            "pre_quant_scale",
            "weight_packed",
            "comfy_quant",
        ];
        match SCALES.into_iter().find(|name| !allowed.contains(name) && self.find(name).is_some()) {
            None => Ok(()),
            Some(name) => {
                Err(self.error(name, format!("is there beside {encoding}, which has no use for it")))
            }
        }
    }

    fn packed(&self, suffix: &'static str) -> Result<LinearWeight, FormatError> {
        let info = self.require(suffix, &[DType::U8], "the packed elements of an NVFP4 matrix")?;
        let &[rows, bytes] = info.shape.as_slice() else {
            return Err(self.error(suffix, format!("has shape {:?}, but a matrix is wanted", info.shape)));
        };
        let cols = bytes.checked_mul(2).filter(|cols| cols.is_multiple_of(quant::NVFP4_BLOCK as u64));
        let cols = cols.ok_or_else(|| {
            self.error(
                suffix,
                format!("has rows of {bytes} bytes; NVFP4 needs a multiple of 8 (16 elements)"),
            )
        })?;
        let scales =
            self.require("weight_scale", &[DType::F8_E4M3], "the block scales of an NVFP4 matrix")?;
        let wanted = [rows, cols / quant::NVFP4_BLOCK as u64];
        if scales.shape != wanted {
            let padded = [rows.next_multiple_of(128), wanted[1].next_multiple_of(4)];
            let hint = if scales.elements() == padded[0] * padded[1] {
                "; they look swizzled for tensor cores, which is not supported: export them in rows"
            } else {
                ""
            };
            let reason = format!(
                "has shape {:?}, but block scales of [{rows}, {cols}] in NVFP4 have {wanted:?}{hint}",
                scales.shape
            );
            return Err(self.error("weight_scale", reason));
        }
        let divisor = suffix == "weight_packed";
        let (global_name, input) = if divisor {
            ("weight_global_scale", "input_global_scale")
        } else {
            ("weight_scale_2", "input_scale")
        };
        self.no_others("an NVFP4 matrix", &["weight_scale", "weight_packed", global_name])?;
        let global = self.scalar(global_name)?;
        let normalised =
            if divisor { quant::global_of_divisor(global) } else { quant::global_of_multiplier(global) };
        let global = normalised.map_err(|reason| self.error(global_name, reason))?;
        let encoding = WeightEncoding::Nvfp4 {
            packed: self.name(suffix),
            scales: self.name("weight_scale"),
            global_name: self.name(global_name),
            global,
            input_scale: self.find(input).map(|info| info.name.clone()),
        };
        Ok(LinearWeight { stem: self.stem.into(), rows, cols, encoding })
    }

    fn f8(&self, [rows, cols]: [u64; 2]) -> Result<LinearWeight, FormatError> {
        let suffix =
            if self.find("weight_scale_inv").is_some() { "weight_scale_inv" } else { "weight_scale" };
        let what = "the scales of an F8_E4M3 matrix, one for each 128 × 128,";
        if self.find(suffix).is_none() {
            return Err(self.error("weight_scale_inv", format!("is missing: {what} stand there")));
        }
        let scales = self.require(suffix, &[DType::F32, DType::Bf16], what)?;
        let wanted = [rows.div_ceil(F8_BLOCK), cols.div_ceil(F8_BLOCK)];
        if scales.elements() == 1 && scales.shape != wanted {
            let reason =
                "is one scale for the whole matrix; F8_E4M3 is supported with a scale for each 128 × 128";
            return Err(self.error(suffix, reason));
        }
        self.shape(
            suffix,
            scales,
            &wanted,
            &format!("the scales of [{rows}, {cols}] in blocks of 128 × 128"),
        )?;
        self.no_others("an F8_E4M3 matrix", &[suffix])?;
        let encoding = WeightEncoding::F8Block128 {
            weight: self.name("weight"),
            scales: self.name(suffix),
            scales_dtype: scales.dtype,
        };
        Ok(LinearWeight { stem: self.stem.into(), rows, cols, encoding })
    }
}

impl LinearWeight {
    /// The matrix of the layer `stem`; `None` if the source has neither `STEM.weight` nor `STEM.weight_packed`.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] naming the tensor that is missing beside it, of the wrong type or shape, or unsupported.
    pub fn find(source: &dyn TensorSource, stem: &str) -> Result<Option<LinearWeight>, FormatError> {
        let finder = Finder { source, stem };
        let Some(weight) = finder.find("weight") else {
            return match finder.find("weight_packed") {
                Some(_) => finder.packed("weight_packed").map(Some),
                None => Ok(None),
            };
        };
        if finder.find("weight_packed").is_some() {
            return Err(finder.error("weight_packed", "is there beside `weight`: which of them counts?"));
        }
        if weight.dtype == DType::U8 {
            return finder.packed("weight").map(Some);
        }
        let &[rows, cols] = weight.shape.as_slice() else {
            return Err(
                finder.error("weight", format!("has shape {:?}, but a matrix is wanted", weight.shape))
            );
        };
        if weight.dtype == DType::F8_E4M3 {
            return finder.f8([rows, cols]).map(Some);
        }
        if device_format(weight.dtype).is_none() {
            let reason = format!(
                "is {}; weights that run are {}, F8_E4M3 with block scales, NVFP4",
                weight.dtype,
                quant::DEVICE_TYPES
            );
            return Err(finder.error("weight", reason));
        }
        finder.no_others(&format!("a matrix of {}", weight.dtype), &[])?;
        let encoding = WeightEncoding::Plain { weight: weight.name.clone(), dtype: weight.dtype };
        Ok(Some(LinearWeight { stem: stem.into(), rows, cols, encoding }))
    }

    /// The same, which must be there and have this shape.
    ///
    /// # Errors
    /// As [`find`](Self::find); also if it is missing or has another shape.
    pub fn require(
        source: &dyn TensorSource,
        stem: &str,
        [rows, cols]: [u64; 2],
    ) -> Result<LinearWeight, FormatError> {
        let finder = Finder { source, stem };
        let Some(weight) = LinearWeight::find(source, stem)? else {
            return Err(finder.error("weight", "is missing, and the model needs it"));
        };
        if (weight.rows, weight.cols) != (rows, cols) {
            let reason = format!(
                "has shape [{}, {}], but the model's configuration asks for [{rows}, {cols}] (rows first)",
                weight.rows, weight.cols
            );
            return Err(finder.error("weight", reason));
        }
        Ok(weight)
    }

    /// A tensor of a name that is no linear layer's as a matrix of this shape.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if it is missing, or of another shape or of a type that does not run.
    pub fn of_tensor(
        source: &dyn TensorSource,
        name: &str,
        [rows, cols]: [u64; 2],
    ) -> Result<LinearWeight, FormatError> {
        let dtype = source.require(name, &[rows, cols])?.dtype;
        let encoding = WeightEncoding::Plain { weight: name.into(), dtype };
        let weight = LinearWeight { stem: name.into(), rows, cols, encoding };
        if device_format(dtype).is_none() {
            let known: Vec<_> = TensorFormat::ALL.iter().map(|format| format.name()).collect();
            let reason = format!("no kernel reads {dtype}; those of {} are read", known.join(", "));
            return Err(weight.error(source.path(), reason));
        }
        Ok(weight)
    }

    /// What it is called: the tensor that its rows and columns are of, or that it would be without an encoding.
    pub fn name(&self) -> String {
        match &self.encoding {
            WeightEncoding::Plain { weight, .. } => weight.clone(),
            _ => format!("{}.weight", self.stem),
        }
    }

    /// What its tensors' names begin with.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// Rows: outputs.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Columns: the inner product's length.
    pub fn cols(&self) -> u64 {
        self.cols
    }

    /// How it is encoded.
    pub fn encoding(&self) -> &WeightEncoding {
        &self.encoding
    }

    /// The format that it has on the device. F8 is expanded to F32 when it is loaded, since the product of an element and
    /// its scale fits no smaller type exactly.
    pub fn format(&self) -> TensorFormat {
        match &self.encoding {
            WeightEncoding::Plain { dtype, .. } => device_format(*dtype).unwrap_or(TensorFormat::F32),
            WeightEncoding::F8Block128 { .. } => TensorFormat::F32,
            WeightEncoding::Nvfp4 { .. } => TensorFormat::NVFP4,
        }
    }

    /// All tensors that belong to it.
    pub fn tensor_names(&self) -> Vec<String> {
        match &self.encoding {
            WeightEncoding::Plain { weight, .. } => vec![weight.clone()],
            WeightEncoding::F8Block128 { weight, scales, .. } => {
                vec![weight.clone(), scales.clone(), format!("{}.input_scale", self.stem)]
            }
            WeightEncoding::Nvfp4 { packed, scales, global_name, input_scale, .. } => {
                let names = [packed, scales, global_name].into_iter().chain(input_scale);
                names.cloned().collect()
            }
        }
    }

    /// Bytes of its planes on the device.
    pub fn device_bytes(&self) -> u64 {
        self.format().bytes(self.rows, self.cols)
    }

    /// Writes the planes of [`format`](Self::format), each `PlaneDecl::bytes(rows, cols / block)` long. Matrices of one
    /// format and width are stacked by rows by passing consecutive parts of larger planes. [`PlaneReader`] does it in pieces.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if a tensor's data, or a plane, has not the length that the shape implies;
    /// [`FormatError::Read`].
    pub fn write_planes(
        &self,
        source: &dyn TensorSource,
        planes: &mut [&mut [u8]],
    ) -> Result<(), FormatError> {
        PlaneReader::new(self, source)?.write(0..self.rows, &mut Vec::new(), planes)
    }

    /// The f32 value of every element, row-major: the definition of each encoding.
    ///
    /// # Errors
    /// [`FormatError::Tensor`] if a tensor's data has not the length that the shape implies.
    pub fn dequantise(&self, source: &dyn TensorSource) -> Result<Vec<f32>, FormatError> {
        let error = |error: quant::QuantError| self.error(source.path(), error.to_string());
        let mut out = vec![0f32; (self.rows * self.cols) as usize];
        match &self.encoding {
            WeightEncoding::Plain { weight, dtype } => {
                quant::dequantise(*dtype, &source.data(weight)?, &mut out).map_err(error)?;
            }
            WeightEncoding::F8Block128 { weight, scales, scales_dtype } => {
                let scales = self.f8_scales(source, scales, *scales_dtype)?;
                let data = source.data(weight)?;
                quant::dequantise_f8_block(&data, &scales, self.cols as usize, &mut out).map_err(error)?;
            }
            WeightEncoding::Nvfp4 { packed, scales, global, .. } => {
                let (qs, scales) = (source.data(packed)?, source.data(scales)?);
                quant::dequantise_nvfp4(&qs, &scales, *global, &mut out).map_err(error)?;
            }
        }
        Ok(out)
    }

    /// The scales of an F8 matrix, `[⌈rows/128⌉, ⌈cols/128⌉]`.
    pub(super) fn f8_scales(
        &self,
        source: &dyn TensorSource,
        name: &str,
        dtype: DType,
    ) -> Result<Vec<f32>, FormatError> {
        let count = self.rows.div_ceil(F8_BLOCK) * self.cols.div_ceil(F8_BLOCK);
        let mut scales = vec![0f32; count as usize];
        quant::dequantise(dtype, &source.data(name)?, &mut scales)
            .map_err(|error| self.error(source.path(), error.to_string()))?;
        Ok(scales)
    }

    pub(super) fn error(&self, path: &Path, reason: String) -> FormatError {
        FormatError::Tensor { path: path.into(), tensor: self.name(), reason }
    }
}
