//! What every gate is given: a device, files, and how much to do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use bitwalk::device::{Device, DeviceError, DeviceKind, DeviceSpec};
use bitwalk_kernels::Arch;
use indicatif::{ProgressBar, ProgressStyle};
use ptx_sim::exec::{Checks, ExecOptions};
use ptx_sim::system::{System, SystemConfig};

use crate::cli::Usage;
use crate::outcome::Need;

/// The model in the repository, made by `cargo xtask fixture`; `FIXTURE` with `.json` is its golden data.
pub const FIXTURE: &str = "tiny-llama.gguf";

/// Beside it, the model whose weights are in formats with rows of whole blocks of 256.
pub const K_FIXTURE: &str = "tiny-llama-k.gguf";

/// The environment of a run.
#[derive(Debug, Clone)]
pub struct GateContext {
    /// The device to run on.
    pub device: DeviceSpec,
    /// A real model to take as well, if one was named.
    pub model: Option<PathBuf>,
    /// Do less: for a first look, never for a proof.
    pub quick: bool,
    /// Print nothing while running: the result is printed as JSON.
    pub json: bool,
    /// What may not be skipped.
    pub require: Vec<Need>,
    /// Arguments of the one gate that was named.
    pub args: Vec<String>,
}

impl GateContext {
    /// The context of a program that runs one gate with the defaults.
    pub fn new(device: DeviceSpec) -> Self {
        GateContext { device, model: None, quick: false, json: false, require: Vec::new(), args: Vec::new() }
    }

    /// Whether lines are printed as they come.
    pub fn live(&self) -> bool {
        !self.json
    }

    /// Opens the device asked for; the simulated one with every check.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open(&self) -> Result<Device> {
        self.open_with(Checks::ALL)
    }

    /// Opens the device asked for, to run the model `path` on it; the simulated one with every check for the fixture, and
    /// with none for a real model, whose walks would take too long.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open_for(&self, path: &Path) -> Result<Device> {
        self.open_with(checks_for(path))
    }

    fn open_with(&self, checks: Checks) -> Result<Device> {
        match self.device {
            DeviceSpec::Sim(ordinal) => simulated(ordinal, None, checks),
            spec => {
                let device = Device::open(spec)?;
                // No GPU was found.
                if device.info().kind == DeviceKind::Sim {
                    return simulated(device.info().ordinal, None, checks);
                }
                Ok(device)
            }
        }
    }

    /// Opens a CUDA device: the one asked for, or the first. `None` where there is none, with the reason.
    ///
    /// # Errors
    /// A GPU that is there and does not work; the simulated device having been asked for is no error.
    pub fn open_cuda(&self) -> Result<Result<Device, String>> {
        let spec = match self.device {
            DeviceSpec::Cuda(ordinal) => DeviceSpec::Cuda(ordinal),
            DeviceSpec::Auto => DeviceSpec::Cuda(0),
            DeviceSpec::Sim(_) => return Ok(Err("--device sim was asked for".to_owned())),
        };
        match Device::open(spec) {
            Ok(device) => Ok(Ok(device)),
            Err(error @ (DeviceError::NoDriver { .. } | DeviceError::NoDevice)) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The GGUF fixture.
    ///
    /// # Errors
    /// If it is not found.
    pub fn fixture(&self) -> Result<PathBuf> {
        find_file("fixtures", FIXTURE)
    }

    /// The GGUF fixture of Q4_K, Q5_0, Q5_K and Q6_K.
    ///
    /// # Errors
    /// If it is not found.
    pub fn k_fixture(&self) -> Result<PathBuf> {
        find_file("fixtures", K_FIXTURE)
    }

    /// A progress bar on the terminal, invisible where stderr is none.
    pub fn bar(&self, steps: usize, what: &str) -> ProgressBar {
        let bar = if self.json { ProgressBar::hidden() } else { ProgressBar::new(steps as u64) };
        if let Ok(style) = ProgressStyle::with_template("  {msg:40} {bar:30} {pos}/{len} {per_sec} {eta}") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar
    }
}

/// The simulated machine's checks for runs of a model: all for the fixture, none for any other.
pub fn checks_for(path: &Path) -> Checks {
    let fixture = path.file_name().is_some_and(|name| name == FIXTURE || name == K_FIXTURE);
    if fixture { Checks::ALL } else { Checks::NONE }
}

/// A device of a simulated machine of its own, so that gates do not share settings or memory. `threads` is how many of
/// the CPU's run it; all of them by default. Launches with checks take one, whatever is asked for.
///
/// # Errors
/// An ordinal past the machine's devices.
pub fn simulated(ordinal: u32, threads: Option<usize>, checks: Checks) -> Result<Device> {
    let system: Arc<System> = System::new(SystemConfig::default());
    let all = ExecOptions::default().threads;
    system.set_exec_options(ExecOptions {
        threads: threads.unwrap_or(all),
        checks,
        ..ExecOptions::default()
    });
    Ok(Device::open_in(&system, ordinal)?)
}

/// The PTX targets that a device runs, the older first.
pub fn targets(device: &Device) -> Vec<Arch> {
    let (major, minor) = device.info().compute;
    match Arch::for_capability(major, minor) {
        None => vec![],
        Some(Arch::Compute80) => vec![Arch::Compute80],
        Some(Arch::Compute90) => vec![Arch::Compute80, Arch::Compute90],
    }
}

/// Finds `name` in the folder `kind` (`fixtures` or `models`): beside the executable, where `cargo xtask dist`
/// puts it, or in the repository that the executable or the current folder is in.
///
/// # Errors
/// The places that were looked at.
pub fn find_file(kind: &str, name: &str) -> Result<PathBuf> {
    folders(kind)
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .with_context(|| format!("no {name} in any of {:?}", folders(kind)))
}

/// The existing folders called `kind`, nearest first.
pub fn folders(kind: &str) -> Vec<PathBuf> {
    let exe = std::env::current_exe().ok();
    let current = std::env::current_dir().ok();
    let mut found: Vec<PathBuf> = Vec::new();
    for start in exe.as_deref().and_then(Path::parent).into_iter().chain(current.as_deref()) {
        for ancestor in start.ancestors() {
            for relative in ["", "gates"] {
                let folder = ancestor.join(relative).join(kind);
                if folder.is_dir() && !found.contains(&folder) {
                    found.push(folder);
                }
            }
        }
    }
    found
}

/// The file of a model given by path, or by a word that begins the name of one file in a `models` folder (`smollm2`).
///
/// # Errors
/// If there is none, or more than one.
pub fn model_file(name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    let missing = || {
        let folders = folders("models");
        format!(
            "{name}: no such file, and no model in {folders:?} is called so: `cargo xtask model NAME` fetches one"
        )
    };
    let wanted = name.to_lowercase();
    for folder in folders("models") {
        let mut found = Vec::new();
        for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
            let file = entry?.path();
            let begins = file
                .file_name()
                .is_some_and(|name| name.to_string_lossy().to_lowercase().starts_with(&wanted));
            if begins && file.is_file() {
                found.push(file);
            }
        }
        match &found[..] {
            [] => {}
            [file] => return Ok(file.clone()),
            several => return Err(Usage(format!("{name} may be any of {several:?}")).into()),
        }
    }
    Err(Usage(missing()).into())
}
