//! Modules and functions: resolved once when a module is loaded, so that a launch looks nothing up.

use super::Device;
use super::backend::{FunctionHandle, ModuleHandle};
use super::error::{DeviceError, Result};
use std::fmt;
use std::sync::Arc;

pub use ptx_sim::Dependence;

/// One parameter of an entry, as its `.param` declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamLayout {
    /// Bytes from the start of the parameter block.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

/// What is known of a function once its module is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// The module's name.
    pub module: String,
    /// The entry's name.
    pub name: String,
    /// Its parameters in order, from the PTX.
    pub params: Vec<ParamLayout>,
    /// Bytes of the whole parameter block.
    pub param_bytes: usize,
    /// The most threads a block may have: the least of the device's, the entry's `.maxntid` and what its
    /// registers allow.
    pub max_threads: u32,
    /// The block shape that `.reqntid` demands, if it does.
    pub required_block: Option<[u32; 3]>,
    /// Bytes of shared memory that the entry declares itself.
    pub static_shared: u32,
    /// Registers a thread, where the device tells.
    pub registers: Option<u32>,
    /// What the entry does around `griddepcontrol.wait`.
    pub dependence: Dependence,
    /// Parameters that the driver's own description was compared with (`cuFuncGetParamInfo`).
    pub params_checked_by_driver: usize,
}

/// The most parameters that an entry may have here; the pointer array of a launch has this size.
pub const MAX_PARAMS: usize = 64;

/// A module as the device holds it; unloaded when the module and its last function are gone.
struct LoadedModule {
    device: Device,
    handle: ModuleHandle,
    name: String,
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        self.device.backend().module_unload(self.handle);
    }
}

struct ModuleInner {
    loaded: Arc<LoadedModule>,
    functions: Vec<Function>,
}

/// A module loaded on one device, its functions resolved.
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

impl Module {
    pub(super) fn load(device: &Device, name: &str, ptx: &str) -> Result<Self> {
        let (handle, resolved) = device.backend().module_load(name, ptx)?;
        let loaded = Arc::new(LoadedModule { device: device.clone(), handle, name: name.to_owned() });
        let mut functions = Vec::with_capacity(resolved.len());
        for function in resolved {
            let info = function.info;
            if info.params.len() > MAX_PARAMS {
                let reason = format!(
                    "entry `{}` has {} parameters, at most {MAX_PARAMS} are supported",
                    info.name,
                    info.params.len()
                );
                return Err(DeviceError::ModuleLoad {
                    module: name.to_owned(),
                    device: device.to_string(),
                    reason,
                });
            }
            let inner = FunctionInner { handle: function.handle, info, module: loaded.clone() };
            functions.push(Function(Arc::new(inner)));
        }
        Ok(Self(Arc::new(ModuleInner { loaded, functions })))
    }

    /// The module's name.
    pub fn name(&self) -> &str {
        &self.0.loaded.name
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.loaded.device
    }

    /// The functions of all its entries.
    pub fn functions(&self) -> &[Function] {
        &self.0.functions
    }

    /// The function of the entry with this name.
    ///
    /// # Errors
    /// [`DeviceError::NoEntry`], with the entries that there are.
    pub fn function(&self, entry: &str) -> Result<Function> {
        let found = self.0.functions.iter().find(|function| function.name() == entry);
        found.cloned().ok_or_else(|| DeviceError::NoEntry {
            module: self.name().to_owned(),
            entry: entry.to_owned(),
            available: self.0.functions.iter().map(|function| function.name().to_owned()).collect(),
        })
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module(`{}`, {} entries, {})", self.name(), self.0.functions.len(), self.device())
    }
}

struct FunctionInner {
    handle: FunctionHandle,
    info: FunctionInfo,
    module: Arc<LoadedModule>,
}

/// An entry of a loaded module. Holding it, or a graph that launches it, keeps the module loaded.
#[derive(Clone)]
pub struct Function(Arc<FunctionInner>);

impl Function {
    pub(super) fn handle(&self) -> FunctionHandle {
        self.0.handle
    }

    /// The entry's name.
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// The device that it is loaded on.
    pub fn device(&self) -> &Device {
        &self.0.module.device
    }

    /// Parameters, limits and the like.
    pub fn info(&self) -> &FunctionInfo {
        &self.0.info
    }

    /// Allows launches with up to `bytes` of dynamic shared memory, past the 48 KiB that need no permission.
    ///
    /// # Errors
    /// [`DeviceError::Call`] when the device has less.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        self.device().backend().function_allow_shared(self.handle(), bytes)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Function {}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function(`{}` of `{}`, {})", self.name(), self.0.info.module, self.device())
    }
}
