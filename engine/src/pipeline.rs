//! A model over devices: its layers in contiguous stages, one a device in turn, the links between them checked first.

use std::sync::Arc;

use ptx_sim::system::System;
use thiserror::Error;

use crate::decode::{DecodeError, Session};
use crate::device::links::{self, CheckedLink, LinkError};
use crate::device::{Device, DeviceError, DeviceList, DeviceSpec};
use crate::engine::{Engine, EngineError};
use crate::format::TensorSource;
use crate::models::{HybridModel, LoadError, StageRange, split_by_bytes};
use crate::options::EngineOptions;

/// Why a model could not be spread over devices.
#[derive(Debug, Error)]
pub enum PipelineError {
    /// A device is not there, or does not work.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What one device sends does not arrive at another.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A device does not take the kernels.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model cannot be split so, or not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Nothing to load onto.
    #[error("a model needs at least one device: name one")]
    NoDevice,
    /// Weights went to another device than their stage's.
    #[error("stage {stage} belongs on {device}, and {bytes} bytes of it went to {other}")]
    Stray {
        /// The stage.
        stage: usize,
        /// Its device.
        device: String,
        /// Bytes found elsewhere.
        bytes: u64,
        /// Where.
        other: String,
    },
}

/// Opens the devices of a list, ordinals alone as devices of `kind`, simulated ones of `system`, and checks every link among
/// them both ways ([`links::check`]).
///
/// # Errors
/// A device that is not there; a link that delivers other bytes than were sent, by the names of its ends.
pub fn open_linked(
    list: &DeviceList,
    kind: DeviceSpec,
    system: &Arc<System>,
) -> Result<(Vec<Device>, Vec<CheckedLink>), PipelineError> {
    let devices = list.open_as(kind, system)?;
    let checked = if devices.len() > 1 { links::check(&devices)? } else { Vec::new() };
    Ok((devices, checked))
}

/// A model's stages in order.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// An engine and its part of the model each; one at least.
    pub stages: Vec<(Arc<Engine>, Arc<HybridModel>)>,
}

impl Pipeline {
    /// Loads a source's model in `stages` stages of about the same bytes, the devices taken in turn. `progress` is told the
    /// stage, the bytes of it that are done, and all of them.
    ///
    /// # Errors
    /// More stages than the model can be split into; those of engine and loading; weights on another device than their
    /// stage's.
    pub fn load(
        devices: &[Device],
        stages: u32,
        options: &EngineOptions,
        source: &dyn TensorSource,
        progress: &mut dyn FnMut(usize, u64, u64),
    ) -> Result<Pipeline, PipelineError> {
        let ranges = split_by_bytes(source, stages)?;
        let mut loaded = Vec::new();
        for (stage, range) in ranges.into_iter().enumerate() {
            let device = devices.get(stage % devices.len().max(1)).ok_or(PipelineError::NoDevice)?;
            let before: Vec<u64> = devices.iter().map(Device::bytes_in_use).collect();
            let engine = Arc::new(Engine::new(device.clone(), options.clone())?);
            let model = HybridModel::load_stage(&engine, source, Some(range), &mut |done, total| {
                progress(stage, done, total);
            })?;
            engine.synchronize()?;
            for (other, before) in devices.iter().zip(before) {
                let bytes = other.bytes_in_use().saturating_sub(before);
                if other != device && bytes > 0 {
                    let (device, other) = (device.to_string(), other.to_string());
                    return Err(PipelineError::Stray { stage, device, bytes, other });
                }
            }
            loaded.push((engine, Arc::new(model)));
        }
        Ok(Pipeline { stages: loaded })
    }

    /// A session with room for `capacity` positions.
    ///
    /// # Errors
    /// Those of [`Session::pipeline`].
    pub fn session(&self, capacity: u32) -> Result<Session, DecodeError> {
        Session::pipeline(&self.stages, capacity)
    }

    /// The same weights under other options: engines of their own over the models as they are loaded.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn with_options(&self, options: &EngineOptions) -> Result<Pipeline, PipelineError> {
        let stages = self.stages.iter().map(|(engine, model)| {
            Ok((Arc::new(Engine::new(engine.device().clone(), options.clone())?), model.clone()))
        });
        Ok(Pipeline { stages: stages.collect::<Result<_, PipelineError>>()? })
    }

    /// The devices that it is on, each once, in order of the first stage on each.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for (engine, _) in &self.stages {
            if !devices.contains(engine.device()) {
                devices.push(engine.device().clone());
            }
        }
        devices
    }

    /// Bytes in use on all of them.
    pub fn bytes_in_use(&self) -> u64 {
        self.devices().iter().map(Device::bytes_in_use).sum()
    }

    /// The stages' layers.
    pub fn ranges(&self) -> impl Iterator<Item = StageRange> {
        self.stages.iter().map(|(_, model)| model.range())
    }

    /// Waits until every stage's stream is idle.
    ///
    /// # Errors
    /// A launch that failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.stages.iter().try_for_each(|(engine, _)| engine.synchronize())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ptx_sim::system::{BadLink, SystemConfig};

    use super::*;
    use crate::models::Checkpoint;

    fn machine(bad_link: Option<BadLink>) -> Arc<System> {
        System::new(SystemConfig { devices: 3, bad_link, ..SystemConfig::default() })
    }

    fn fixture(name: &str) -> Checkpoint {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gates/fixtures");
        Checkpoint::open(&folder.join(name)).unwrap()
    }

    #[test]
    fn a_corrupt_link_is_refused_before_anything_is_loaded() {
        let bad = BadLink { from: 1, to: 0, offset: 100, mask: 1 };
        let error = open_linked(&DeviceList::Sim(2), DeviceSpec::Auto, &machine(Some(bad))).unwrap_err();
        let words = error.to_string();
        assert!(words.contains("the link from sim:1 to sim:0 is corrupt"), "{words}");
        // Devices that the link does not join are sound, and so is one alone.
        let list = DeviceList::Auto(vec![0, 2]);
        let (devices, checked) = open_linked(&list, DeviceSpec::Sim(0), &machine(Some(bad))).unwrap();
        assert_eq!((devices.len(), checked.len()), (2, 2));
        let alone = open_linked(&DeviceList::Sim(1), DeviceSpec::Auto, &machine(Some(bad))).unwrap();
        assert!(alone.0.len() == 1 && alone.1.is_empty());
    }

    #[test]
    fn stages_take_the_devices_in_turn_and_cover_the_layers() {
        let file = fixture("tiny-llama.gguf");
        let devices = DeviceList::Sim(2).open_in(&machine(None)).unwrap();
        let options = EngineOptions::default();
        let mut told = Vec::new();
        let pipeline = Pipeline::load(&devices, 3, &options, file.source(), &mut |stage, done, total| {
            assert!(done <= total);
            told.push(stage);
        });
        let pipeline = pipeline.unwrap();
        told.dedup();
        assert_eq!(told, [0, 1, 2]);
        let on: Vec<String> = pipeline.stages.iter().map(|(e, _)| e.device().to_string()).collect();
        assert_eq!(on, ["sim:0", "sim:1", "sim:0"]);
        let ranges: Vec<StageRange> = pipeline.ranges().collect();
        assert!(ranges[0].is_first() && ranges[2].is_last());
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].first));
        let weights: u64 = pipeline.stages.iter().map(|(_, model)| model.bytes()).sum();
        assert!(pipeline.bytes_in_use() >= weights && pipeline.devices().len() == 2);
    }

    #[test]
    fn a_split_that_the_model_does_not_have_names_file_and_stages() {
        let devices = DeviceList::Sim(1).open_in(&machine(None)).unwrap();
        let load = |devices: &[Device], stages| {
            let file = fixture("tiny-llama.gguf");
            let options = EngineOptions::default();
            let loaded = Pipeline::load(devices, stages, &options, file.source(), &mut |_, _, _| {});
            loaded.map(|_| ()).unwrap_err()
        };
        for stages in [0, 60] {
            let words = load(&devices, stages).to_string();
            assert!(
                words.contains("tiny-llama.gguf") && words.contains(&format!("into {stages} stages")),
                "{words}"
            );
        }
        assert!(matches!(load(&[], 1), PipelineError::NoDevice));
    }
}
