//! A model split over devices, for gates.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bitwalk::decode::Session;
use bitwalk::device::{Device, DeviceError, DeviceList, DeviceSpec, links};
use bitwalk::engine::Engine;
use bitwalk::models::{Checkpoint, HybridModel};
use bitwalk::options::EngineOptions;
use bitwalk::pipeline;
use ptx_sim::system::{Schedule, System, SystemConfig};

use crate::context::GateContext;

/// Devices of one machine with these ordinals, of the kind that the context asks for: see [`open_list`].
///
/// # Errors
/// Those of [`open_list`].
pub fn open_devices(cx: &GateContext, ordinals: &[u32]) -> Result<Vec<Device>> {
    open_list(cx, &DeviceList::Auto(ordinals.to_vec()))
}

/// The first `count` devices of one machine, or as many as it has.
///
/// # Errors
/// Those of [`open_list`].
pub fn open_up_to(cx: &GateContext, count: u32) -> Result<Vec<Device>> {
    for count in (2..=count).rev() {
        let devices = open_devices(cx, &(0..count).collect::<Vec<_>>());
        match &devices {
            Err(error) if matches!(error.downcast_ref(), Some(DeviceError::BadOrdinal { .. })) => {}
            _ => return devices,
        }
    }
    open_devices(cx, &[0])
}

/// Devices of one machine, opened once; ordinals alone are of the kind that the context asks for. What the devices send to
/// each other was checked: a corrupt link is an error that names it.
///
/// Simulated devices of several run their streams as late as what waits for them allows, so that a wait which is missing
/// between two stages shows in the result.
///
/// # Errors
/// A device that is not there, a link that delivers other bytes than were sent.
pub fn open_list(cx: &GateContext, list: &DeviceList) -> Result<Vec<Device>> {
    let cuda = |ordinals: &[u32]| DeviceList::Cuda(ordinals.to_vec()).open();
    let devices = match (list, cx.device) {
        (DeviceList::Sim(count), _) => {
            open_simulated(&(0..*count).collect::<Vec<_>>(), SystemConfig::default())?
        }
        (DeviceList::Cuda(ordinals), _) | (DeviceList::Auto(ordinals), DeviceSpec::Cuda(_)) => {
            cuda(ordinals)?
        }
        (DeviceList::Auto(ordinals), DeviceSpec::Sim(_)) => {
            open_simulated(ordinals, SystemConfig::default())?
        }
        (DeviceList::Auto(ordinals), DeviceSpec::Auto) => match cx.open_cuda()? {
            Ok(_) => cuda(ordinals)?,
            Err(_) => open_simulated(ordinals, SystemConfig::default())?,
        },
    };
    check_links(&devices)?;
    Ok(devices)
}

/// Devices of a simulated machine of its own, of this configuration but with as many devices as it takes.
///
/// # Errors
/// None that this configuration can give.
pub fn open_simulated(ordinals: &[u32], config: SystemConfig) -> Result<Vec<Device>> {
    let most = ordinals.iter().max().map_or(1, |most| most + 1);
    let system = System::new(SystemConfig { devices: most.max(1), ..config });
    if ordinals.len() > 1 {
        system.set_schedule(Schedule::Deferred);
    }
    Ok(ordinals.iter().map(|&ordinal| Device::open_in(&system, ordinal)).collect::<Result<_, _>>()?)
}

/// Checks the links among devices, once a process: opening the same ones again does not change what is between them.
fn check_links(devices: &[Device]) -> Result<()> {
    static CHECKED: Mutex<Vec<Vec<String>>> = Mutex::new(Vec::new());
    let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let mut checked = CHECKED.lock().unwrap_or_else(PoisonError::into_inner);
    if names.len() > 1 && !checked.contains(&names) {
        links::check(devices)?;
        checked.push(names);
    }
    Ok(())
}

/// A model's stages on their devices.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// An engine and a part of the model each.
    pub stages: Vec<(Arc<Engine>, Arc<HybridModel>)>,
    name: String,
}

impl Pipeline {
    /// Loads `path` in `stages` stages, the devices taken in turn.
    ///
    /// # Errors
    /// Those of engine and checkpoint; memory on another device than its stage's.
    pub fn load(
        cx: &GateContext,
        devices: &[Device],
        stages: u32,
        options: &EngineOptions,
        path: &Path,
    ) -> Result<Pipeline> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = Checkpoint::open(path)?;
        let bar = cx.bar(0, &format!("loading {name}"));
        let mut progress = |stage: usize, done, total| {
            bar.set_message(format!("loading {name}, stage {stage}"));
            bar.set_length(total);
            bar.set_position(done);
        };
        let loaded = pipeline::Pipeline::load(devices, stages, options, file.source(), &mut progress);
        bar.finish_and_clear();
        let loaded = loaded.with_context(|| format!("loading {}", path.display()))?;
        Ok(Pipeline { stages: loaded.stages, name })
    }

    /// A session with room for `capacity` positions.
    ///
    /// # Errors
    /// A capacity that the model does not have.
    pub fn session(&self, capacity: usize) -> Result<Session> {
        Ok(Session::pipeline(&self.stages, u32::try_from(capacity)?)?)
    }

    /// The same weights under other options: engines of their own over the models as they are loaded.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn with_options(&self, options: &EngineOptions) -> Result<Pipeline> {
        let loaded = pipeline::Pipeline { stages: self.stages.clone() }.with_options(options)?;
        Ok(Pipeline { stages: loaded.stages, name: self.name.clone() })
    }

    /// The same name, with one stage in place of all.
    pub fn with_stage(&self, engine: Arc<Engine>, model: Arc<HybridModel>) -> Pipeline {
        Pipeline { stages: vec![(engine, model)], name: self.name.clone() }
    }

    /// Tokens of the vocabulary.
    pub fn vocab(&self) -> u32 {
        self.stages[0].1.config().vocab
    }

    /// Layers of the model.
    pub fn layers(&self) -> u32 {
        self.stages[0].1.range().total
    }

    /// Model, devices, target, program.
    pub fn label(&self) -> String {
        let devices: Vec<String> =
            self.stages.iter().map(|(engine, _)| engine.device().to_string()).collect();
        let (engine, _) = &self.stages[0];
        format!(
            "{} on {} ({}), {}",
            self.name,
            devices.join(" + "),
            engine.arch().name(),
            engine.options().program()
        )
    }
}
