//! From a tensor source to buffers on the device.
//!
//! - `loader`: what a model's parts ask for, by name and shape; it allocates the planes of a matrix and cuts the work in pieces
//! - `pipeline`: the threads that read the pieces, take them apart into planes and send those to the device

mod loader;
mod pipeline;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use thiserror::Error;

use super::split::stage_bytes;
use super::{HybridModel, StageRange};
use crate::config::Family;
use crate::device::DeviceError;
use crate::engine::Engine;
use crate::format::gguf::GgufFile;
use crate::format::{FormatError, TensorSource};
use crate::plan::PlanError;
use crate::quant::QuantError;

pub(super) use loader::Loader;

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
    /// The operating system gave no thread to load with.
    #[error("no thread to load with could be started")]
    Thread {
        /// What it said.
        source: std::io::Error,
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
        let total = stage_bytes(source, &family, range);
        let (mut model, loading) = loader::load(engine, source, total, progress, |loader| match family {
            Family::Llama(config) => HybridModel::load_llama(loader, config, range),
            Family::Glm5(config) => HybridModel::load_glm5(loader, &config, range),
        })?;
        model.loading = loading;
        Ok(model)
    }

    /// What loading it took.
    pub fn loading(&self) -> &LoadTimings {
        &self.loading
    }
}

/// What loading a model took. Times of several threads are added up, so that they may exceed the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadTimings {
    /// Bytes of the tensors in their source.
    pub stored_bytes: u64,
    /// Bytes of the weights on the device.
    pub device_bytes: u64,
    /// From the first tensor asked for to the last one on the device. Opening the file and the device are not in it, nor are
    /// kernels, which are loaded later ([`Engine::kernel_loads`]).
    pub total: Duration,
    /// Allocating device memory.
    pub allocating: Duration,
    /// Reading the source and taking its blocks apart into planes, in all threads.
    pub making: Duration,
    /// Waiting for copies and for page-locked memory, in all threads.
    pub waiting: Duration,
    /// Threads that read.
    pub threads: usize,
    /// Bytes of page-locked memory that they used.
    pub pinned_bytes: u64,
}

impl LoadTimings {
    /// Bytes of the source a second.
    pub fn rate(&self) -> f64 {
        self.stored_bytes as f64 / self.total.as_secs_f64().max(1e-9)
    }
}

/// Stages that were loaded one after the other.
impl AddAssign for LoadTimings {
    fn add_assign(&mut self, other: Self) {
        self.stored_bytes += other.stored_bytes;
        self.device_bytes += other.device_bytes;
        self.total += other.total;
        self.allocating += other.allocating;
        self.making += other.making;
        self.waiting += other.waiting;
        self.threads = self.threads.max(other.threads);
        self.pinned_bytes = self.pinned_bytes.max(other.pinned_bytes);
    }
}

impl fmt::Display for LoadTimings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.3} GB in {:.3} s, {:.2} GB/s ({} threads: {:.3} s of reading and repacking, {:.3} s of waiting for copies; {:.3} s of \
             allocating; {} MiB page-locked)",
            self.stored_bytes as f64 / 1e9,
            self.total.as_secs_f64(),
            self.rate() / 1e9,
            self.threads,
            self.making.as_secs_f64(),
            self.waiting.as_secs_f64(),
            self.allocating.as_secs_f64(),
            self.pinned_bytes.div_ceil(1 << 20)
        )
    }
}

/// Told how far loading is: bytes of the source that are loaded, and bytes in all.
pub type LoadProgress<'a> = &'a mut dyn FnMut(u64, u64);
