//! The engine: a device, the kernels loaded on it, a stream and the options that they run under.

use std::borrow::Cow;

use bitwalk_kernels::Arch;
use thiserror::Error;

use crate::device::{Buffer, Device, DeviceError, Element, Function, Stream};
use crate::kernel::{AbiMismatch, KernelDecl};
pub use crate::modules::KernelLoads;
use crate::modules::Modules;
use crate::options::EngineOptions;

/// Why an engine could not be made.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A PTX module could not be loaded.
    #[error("PTX module {module} for {arch}: {source}")]
    Module {
        /// The module.
        module: &'static str,
        /// The target it was compiled for.
        arch: &'static str,
        /// Why.
        source: DeviceError,
    },
    /// A declared kernel has no compiled entry.
    #[error(
        "kernel {kernel} names entry {entry} of module {module}, which is not there: run `cargo xtask ptx`"
    )]
    NoEntry {
        /// The kernel.
        kernel: &'static str,
        /// The module.
        module: &'static str,
        /// The entry.
        entry: &'static str,
    },
    /// A compiled entry is not what was declared.
    #[error(transparent)]
    Abi(#[from] AbiMismatch),
    /// The device cannot run what was asked for.
    #[error(
        "{device} has compute capability {major}.{minor}, PTX for {arch} needs {needed}: ask for another target (`BITWALK_PTX`)"
    )]
    Arch {
        /// The device.
        device: String,
        /// Its compute capability.
        major: u32,
        /// Its compute capability.
        minor: u32,
        /// The target asked for.
        arch: &'static str,
        /// What that needs.
        needed: &'static str,
    },
}

/// A device with the declared kernels, each of which is loaded when it is first asked for.
#[derive(Debug)]
pub struct Engine {
    device: Device,
    stream: Stream,
    modules: Modules,
    options: EngineOptions,
    arch: Arch,
}

impl Engine {
    /// An engine on `device`. A kernel's PTX is loaded, and its parameters are compared with the declaration, when the first
    /// plan that holds it is built ([`Engine::function`]). Kernels of modules called `test_…` belong to tests, which load them
    /// themselves.
    ///
    /// # Errors
    /// A device that cannot run the PTX target, a stream that it does not give.
    pub fn new(device: Device, options: EngineOptions) -> Result<Engine, EngineError> {
        Engine::with_edited_ptx(device, options, &|_, text| Cow::Borrowed(text))
    }

    /// [`Engine::new`], with every module's PTX passed through `edit`, which is given the module's name: how the gates
    /// plant a fault in a kernel.
    ///
    /// # Errors
    /// The same.
    #[doc(hidden)]
    pub fn with_edited_ptx(
        device: Device,
        options: EngineOptions,
        edit: &dyn Fn(&str, &'static str) -> Cow<'static, str>,
    ) -> Result<Engine, EngineError> {
        let (major, minor) = device.info().compute;
        let arch = options.ptx.unwrap_or(if major >= 9 { Arch::Compute90 } else { Arch::Compute80 });
        let needed = match arch {
            Arch::Compute80 => (8, 0, "8.0"),
            Arch::Compute90 => (9, 0, "9.0"),
        };
        if (major, minor) < (needed.0, needed.1) {
            let device = device.to_string();
            return Err(EngineError::Arch { device, major, minor, arch: arch.name(), needed: needed.2 });
        }
        let modules = Modules::new(&device, arch, edit);
        let stream = device.stream()?;
        Ok(Engine { device, stream, modules, options, arch })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.device.info().name
    }

    /// The device's ordinal among those of its kind.
    pub fn ordinal(&self) -> u32 {
        self.device.info().ordinal
    }

    /// The stream that walks run on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The options.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The PTX target whose kernels are loaded.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Kernels that were loaded so far, and what that took.
    pub fn kernel_loads(&self) -> KernelLoads {
        self.modules.loads()
    }

    /// The function of a declared kernel. The first call loads it, which takes a GPU's driver tens of milliseconds; later ones
    /// look it up. Any thread may ask.
    ///
    /// # Errors
    /// [`EngineError::NoEntry`] for a kernel that has no compiled entry, or was not in
    /// [`KERNELS`](crate::kernel::KERNELS) when the engine was made; [`EngineError::Module`] for PTX that does not load, and
    /// for a kernel that was not loaded before a capture and is asked for within it; [`EngineError::Abi`] for an entry with other
    /// parameters than were declared, or that does not wait for the launch ahead as it was declared to.
    pub fn function(&self, decl: &'static KernelDecl) -> Result<&Function, EngineError> {
        self.modules.function(decl)
    }

    /// A buffer whose contents are undefined until something writes them.
    ///
    /// # Errors
    /// Out of memory.
    pub fn uninit<T: Element>(&self, len: usize, name: &str) -> Result<Buffer<T>, DeviceError> {
        Buffer::new(&self.device, len, name)
    }

    /// Copies `data` to the start of `buffer`; done when it returns.
    ///
    /// # Errors
    /// If `data` is longer than the buffer.
    pub fn copy_into<T: Element>(&self, buffer: &Buffer<T>, data: &[T]) -> Result<(), DeviceError> {
        self.stream.write(buffer, data)
    }

    /// Waits until the stream is idle.
    ///
    /// # Errors
    /// A launch that failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.stream.synchronize()
    }
}
