//! The engine: a device, the kernels loaded on it, a stream and the options that they run under.

use std::borrow::Cow;
use std::collections::HashMap;

use bitwalk_kernels::Arch;
use thiserror::Error;

use crate::device::{Buffer, Device, DeviceError, Element, Function, Stream};
use crate::kernel::{AbiMismatch, EntryParam, KERNELS, KernelDecl};
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
        "{device} has compute capability {major}.{minor}, PTX for {arch} needs {needed}: use another `--ptx` target"
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

/// A device with every declared kernel resolved on it.
#[derive(Debug)]
pub struct Engine {
    device: Device,
    stream: Stream,
    functions: HashMap<&'static str, Function>,
    options: EngineOptions,
    arch: Arch,
    abi_params: usize,
}

impl Engine {
    /// Loads the PTX on `device`, resolves every declared kernel once and compares its parameters with the declaration.
    /// Kernels of modules called `test_…` belong to tests, which load them themselves.
    ///
    /// # Errors
    /// A module that does not load, a kernel without an entry, an entry with other parameters.
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
        let mut modules = HashMap::new();
        for ptx in bitwalk_kernels::modules(arch) {
            let module = device
                .load_module(ptx.name, &edit(ptx.name, ptx.text))
                .map_err(|source| EngineError::Module { module: ptx.name, arch: arch.name(), source })?;
            modules.insert(ptx.name, module);
        }
        let mut functions = HashMap::new();
        let mut abi_params = 0;
        for decl in KERNELS.iter().copied().filter(|decl| !decl.module.starts_with("test_")) {
            let function = modules
                .get(decl.module)
                .and_then(|module| module.function(decl.entry).ok())
                .ok_or(EngineError::NoEntry { kernel: decl.name, module: decl.module, entry: decl.entry })?;
            let info = function.info();
            let params: Vec<EntryParam> = info
                .params
                .iter()
                .map(|p| EntryParam { offset: p.offset, size: p.size, align: p.align })
                .collect();
            decl.check_abi(&params, info.max_threads)?;
            abi_params += params.len();
            functions.insert(decl.name, function.clone());
        }
        let stream = device.stream()?;
        Ok(Engine { device, stream, functions, options, arch, abi_params })
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

    /// The PTX target that was loaded.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// PTX parameters that were compared with declarations when the kernels were loaded.
    pub fn abi_params(&self) -> usize {
        self.abi_params
    }

    /// The function of a declared kernel.
    ///
    /// # Errors
    /// If the kernel was not in [`KERNELS`] when the engine was made.
    pub fn function(&self, decl: &'static KernelDecl) -> Result<&Function, EngineError> {
        self.functions.get(decl.name).ok_or(EngineError::NoEntry {
            kernel: decl.name,
            module: decl.module,
            entry: decl.entry,
        })
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
