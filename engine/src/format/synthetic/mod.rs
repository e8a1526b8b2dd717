//! A model of any configuration without a file: weights from a counter-based hash, made when they are asked for, on the CPU
//! here or on a device in place ([`PlaneFill`]), the same bits either way.

mod hash;
mod recipes;
mod spread;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use half::f16;

pub use hash::{FloatKind, Key, PlaneFill};
pub use recipes::{Formats, Recipe};

use super::{DType, FormatError, LinearWeight, TensorInfo, TensorSource, WeightEncoding};
use crate::config::glm5::{self, TensorKind};
use crate::config::{self, Family, ModelConfig, TensorRole};
use crate::device::F8E4M3;
use crate::kernel::TensorFormat;
use crate::quant;

/// Why a synthetic model cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// No configuration of this name is built in.
    #[error("{name:?} is no synthetic model; there are {known}")]
    Name {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// An option that does not exist or has a value that makes no sense.
    #[error("option {option:?}: {reason}")]
    Option {
        /// The option with its value.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor that the format asked for cannot hold.
    #[error("tensor {tensor} of {shape:?}: {reason}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// Its extents.
        shape: Vec<u64>,
        /// Why.
        reason: String,
    },
}

/// A source of synthetic weights.
#[derive(Debug)]
pub struct SyntheticSource {
    recipe: Recipe,
    path: PathBuf,
    tensors: Vec<TensorInfo>,
    /// For each tensor, how its planes are filled, in the order that they have on the device.
    fills: Vec<Vec<PlaneFill>>,
    index: HashMap<String, usize>,
}

impl SyntheticSource {
    /// A model by a recipe.
    ///
    /// # Errors
    /// [`SyntheticError::Tensor`] if a matrix's rows are no whole blocks of its format, or it has 2³² elements or more.
    pub fn new(recipe: Recipe) -> Result<SyntheticSource, SyntheticError> {
        let path = PathBuf::from(format!("synthetic:{}", recipe.name));
        let mut source = SyntheticSource {
            recipe: recipe.clone(),
            path,
            tensors: Vec::new(),
            fills: Vec::new(),
            index: HashMap::new(),
        };
        match &recipe.family {
            Family::Llama(config) => {
                for (name, shape, role) in config::tensors(config) {
                    let cols = shape.last().copied().unwrap_or(1);
                    let format = match role {
                        TensorRole::Norm => TensorFormat::F32,
                        TensorRole::Matrix => recipe.formats.of(config, &name, cols),
                    };
                    source.matrix(name, shape, format)?;
                }
            }
            Family::Glm5(config) => {
                for tensor in glm5::tensors(config) {
                    let format = glm5_format(&recipe, &tensor);
                    source.matrix(tensor.name, tensor.shape, format)?;
                }
            }
        }
        Ok(source)
    }

    /// The recipe.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    fn matrix(&mut self, name: String, shape: Vec<u64>, format: TensorFormat) -> Result<(), SyntheticError> {
        let cols = *shape.last().unwrap_or(&1);
        let error =
            |reason: String| SyntheticError::Tensor { tensor: name.clone(), shape: shape.clone(), reason };
        let elements = shape.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent));
        if elements.is_none_or(|elements| elements > u64::from(u32::MAX)) {
            return Err(error("counters of elements have 32 bits".into()));
        }
        if !cols.is_multiple_of(format.block()) {
            return Err(error(format!("{format} needs rows of whole blocks of {} elements", format.block())));
        }
        let spread = spread::of(&self.recipe.family, &name, cols);
        let key = |part: &str| Key::new(self.recipe.seed, part);
        let words = |key, mask, base| PlaneFill::Words { key, mask, base };
        let floats = |kind| PlaneFill::Floats {
            key: key(&name),
            kind,
            scale: (spread.deviation * 3f64.sqrt() * 2f64.powi(-24)) as f32,
            offset: spread.middle as f32,
        };
        // Scales of blocks: the base, up to 63 units in the last place larger; where the integers' mean is not zero, of
        // either sign.
        let half = |value: f64| u32::from(f16::from_f64(value).to_bits());
        let both = |bits: u32| bits << 16 | bits;
        let (dtype, fills) = match format {
            TensorFormat::F32 => (DType::F32, vec![floats(FloatKind::F32)]),
            TensorFormat::F16 => (DType::F16, vec![floats(FloatKind::F16)]),
            TensorFormat::BF16 => (DType::Bf16, vec![floats(FloatKind::BF16)]),
            TensorFormat::Q8_0 | TensorFormat::Q4_0 => {
                // Deviation of a uniform i8, and of a uniform nibble less 8 about zero.
                let unit: f64 = if format == TensorFormat::Q8_0 { 5461.5 } else { 21.5 };
                let d = half(spread.deviation / unit.sqrt());
                let scales = words(key(&format!("{name}.d")), 0x803f_803f, both(d));
                let dtype = if format == TensorFormat::Q8_0 { DType::Q8_0 } else { DType::Q4_0 };
                (dtype, vec![words(key(&name), u32::MAX, 0), scales])
            }
            TensorFormat::Q4_1 => {
                // The minimum about −7.5 scales, so that the mean is about zero.
                let d = f16::from_f64(spread.deviation / 21.25f64.sqrt());
                let m = half(-7.5 * d.to_f64());
                let scales = words(key(&format!("{name}.dm")), 0x003f_003f, m << 16 | u32::from(d.to_bits()));
                (DType::Q4_1, vec![words(key(&name), u32::MAX, 0), scales])
            }
            TensorFormat::Q5_0 | TensorFormat::Q4_K | TensorFormat::Q5_K | TensorFormat::Q6_K => {
                let mut fills = vec![words(key(&name), u32::MAX, 0)];
                if format != TensorFormat::Q4_K {
                    fills.push(words(key(&format!("{name}.qt")), u32::MAX, 0));
                }
                let scales = key(&format!("{name}.scales"));
                let halves = |part: &str, mask, base| words(key(&format!("{name}.{part}")), mask, base);
                // Scales of sub-blocks are 32 … 63: mean 47.5, mean square 2341.5.
                let dtype = match format {
                    TensorFormat::Q5_0 => {
                        // Mean square of a uniform 0 … 31 less 16.
                        fills.push(halves("d", 0x803f_803f, both(half(spread.deviation / 85.5f64.sqrt()))));
                        DType::Q5_0
                    }
                    TensorFormat::Q6_K => {
                        fills.push(words(scales, 0x1f1f_1f1f, 0x2020_2020));
                        let d = spread.deviation / (2341.5f64 * 341.5).sqrt();
                        // Of either sign; halves this small have few bits to vary.
                        fills.push(halves("d", 0x8000, half(d)));
                        DType::Q6_K
                    }
                    _ => {
                        // Minima are 40 … 55, so of the scales' mean, times the mean of the integers. What remains of a sub-block's
                        // mean has the variance of scales (85.25) and minima (21.25), times the square of that.
                        let (levels, dtype) = if format == TensorFormat::Q4_K {
                            (16.0, DType::Q4_K)
                        } else {
                            (32.0, DType::Q5_K)
                        };
                        let (middle, variance): (f64, f64) =
                            ((levels - 1.0) / 2.0, (levels * levels - 1.0) / 12.0);
                        let unit = 2341.5 * variance + middle * middle * (85.25 + 21.25);
                        fills.push(words(scales, 0x0f1f_0f1f, 0x2820_2820));
                        let d = f16::from_f64(spread.deviation / unit.sqrt());
                        let dmin = half(middle * d.to_f64());
                        fills.push(halves("dm", 0, dmin << 16 | u32::from(d.to_bits())));
                        dtype
                    }
                };
                (dtype, fills)
            }
            TensorFormat::NVFP4 => return self.nvfp4(name, &shape, spread.deviation),
        };
        self.push(TensorInfo { name, shape, dtype }, fills);
        Ok(())
    }

    /// ModelOpt's three tensors.
    fn nvfp4(&mut self, name: String, shape: &[u64], deviation: f64) -> Result<(), SyntheticError> {
        let stem = name.strip_suffix(".weight").unwrap_or(&name);
        let &[rows, cols] = shape else {
            let reason = "NVFP4 is for matrices".into();
            return Err(SyntheticError::Tensor { tensor: name, shape: shape.to_vec(), reason });
        };
        let key = |part: &str| Key::new(self.recipe.seed, part);
        let square = |values: &mut dyn Iterator<Item = f32>| {
            let (sum, n) = values.fold((0.0, 0.0), |(sum, n), v| (sum + f64::from(v).powi(2), n + 1.0f64));
            (sum / n).sqrt()
        };
        // Any elements; scales 0x38 … 0x47, which are 1 … 3.75.
        let unit = square(&mut quant::E2M1.into_iter())
            * square(&mut (0x38..0x48).map(|code| F8E4M3(code).to_f32()));
        let multiplier = quant::global_of_multiplier((deviation / unit) as f32);
        let multiplier = multiplier.map_err(|reason| SyntheticError::Tensor {
            tensor: name.clone(),
            shape: shape.to_vec(),
            reason,
        })?;
        let scales = format!("{stem}.weight_scale");
        let global = format!("{stem}.weight_scale_2");
        let packed = PlaneFill::Words { key: key(&name), mask: u32::MAX, base: 0 };
        let codes = PlaneFill::Words { key: key(&scales), mask: 0x0f0f_0f0f, base: 0x3838_3838 };
        let one =
            PlaneFill::Floats { key: key(&global), kind: FloatKind::F32, scale: 0.0, offset: multiplier };
        let block = quant::NVFP4_BLOCK as u64;
        self.push(TensorInfo { name, shape: vec![rows, cols / 2], dtype: DType::U8 }, vec![packed]);
        let info = TensorInfo { name: scales, shape: vec![rows, cols / block], dtype: DType::F8_E4M3 };
        self.push(info, vec![codes]);
        self.push(TensorInfo { name: global, shape: vec![], dtype: DType::F32 }, vec![one]);
        Ok(())
    }

    fn push(&mut self, info: TensorInfo, fills: Vec<PlaneFill>) {
        self.index.insert(info.name.clone(), self.tensors.len());
        self.tensors.push(info);
        self.fills.push(fills);
    }

    fn place(&self, name: &str) -> Result<usize, FormatError> {
        self.index.get(name).copied().ok_or_else(|| FormatError::Tensor {
            path: self.path.clone(),
            tensor: name.into(),
            reason: "is missing".into(),
        })
    }
}

/// The format of a tensor of a `glm5_next` model: as its checkpoints have it where it is no matrix of a linear layer.
fn glm5_format(recipe: &Recipe, tensor: &glm5::Glm5Tensor) -> TensorFormat {
    let name = tensor.name.as_str();
    match tensor.kind {
        TensorKind::Linear if name.contains(".mlp.") => recipe.formats.mlp,
        TensorKind::Linear => recipe.formats.other,
        TensorKind::Vector => TensorFormat::F32,
        TensorKind::Matrix if name.ends_with("mlp.gate.weight") => TensorFormat::F32,
        TensorKind::Matrix if matches!(recipe.formats.other, TensorFormat::F32 | TensorFormat::F16) => {
            recipe.formats.other
        }
        TensorKind::Matrix => TensorFormat::BF16,
    }
}

impl TensorSource for SyntheticSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    fn data(&self, name: &str) -> Result<Cow<'_, [u8]>, FormatError> {
        let i = self.place(name)?;
        let info = &self.tensors[i];
        let mut bytes = vec![0; info.bytes() as usize];
        match self.fills[i].as_slice() {
            [fill] => fill.write(&mut bytes),
            fills => {
                let sizes = quant::plane_block_bytes(info.dtype).unwrap_or_default();
                let blocks = bytes.len() / info.dtype.block_bytes();
                let plane = |(fill, size): (&PlaneFill, &usize)| {
                    let mut plane = vec![0; blocks * size];
                    fill.write(&mut plane);
                    plane
                };
                let planes: Vec<Vec<u8>> = fills.iter().zip(sizes).map(plane).collect();
                let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
                quant::join(info.dtype, &planes, &mut bytes).map_err(|error| FormatError::Tensor {
                    path: self.path.clone(),
                    tensor: name.into(),
                    reason: error.to_string(),
                })?;
            }
        }
        Ok(Cow::Owned(bytes))
    }

    fn config(&self) -> Result<ModelConfig, FormatError> {
        match &self.recipe.family {
            Family::Llama(config) => Ok(config.clone()),
            Family::Glm5(_) => Err(FormatError::Config {
                path: self.path.clone(),
                field: "model_type".into(),
                reason: "is a glm5_next model; what was asked for is one of the llama family".into(),
            }),
        }
    }

    fn family(&self) -> Result<Family, FormatError> {
        Ok(self.recipe.family.clone())
    }

    fn synthetic(&self, name: &str) -> Option<&[PlaneFill]> {
        self.index.get(name).map(|&i| self.fills[i].as_slice())
    }
}

impl LinearWeight {
    /// How each plane of [`format`](Self::format) is filled, in their order, if the source is synthetic: a loader then fills
    /// them on the device instead of uploading what [`write_planes`](Self::write_planes) would write, the same bits.
    pub fn fills(&self, source: &dyn TensorSource) -> Option<Vec<PlaneFill>> {
        let names: &[&String] = match self.encoding() {
            WeightEncoding::Plain { weight, .. } => {
                return source.synthetic(weight).map(<[PlaneFill]>::to_vec);
            }
            WeightEncoding::F8Block128 { .. } => return None,
            WeightEncoding::Nvfp4 { packed, scales, global_name, .. } => &[packed, scales, global_name],
        };
        names.iter().map(|name| source.synthetic(name)?.first().copied()).collect()
    }
}
