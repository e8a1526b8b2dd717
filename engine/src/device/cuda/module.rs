//! Loading PTX: version check, the driver's compiler with its log, functions resolved and compared with the PTX.

use super::{CudaBackend, KnownFunction, SUCCESS, handle, lock, raw_function};
use crate::device::abi;
use crate::device::backend::{FunctionHandle, ModuleHandle, ResolvedFunction};
use crate::device::driver::newer::{cuFuncGetParamInfo, cuFuncLoad};
use crate::device::driver::{check_ptx_version, last_failure};
use crate::device::error::{DeviceError, Result};
use crate::device::module::FunctionInfo;
use cust_raw::*;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

/// Bytes for the compiler's words; what does not fit is cut off.
const LOG_BYTES: usize = 16 << 10;

/// Codes by which the driver says that it cannot compile PTX of this version or target.
const CODE_UNSUPPORTED_PTX_VERSION: u32 = 222;
const CODE_NO_BINARY_FOR_GPU: u32 = 209;

fn raw_module(module: ModuleHandle) -> CUmodule {
    ptr::with_exposed_provenance_mut(module.0 as usize)
}

/// Unloads a module unless it is kept.
struct Loading<'a> {
    backend: &'a CudaBackend,
    module: Option<ModuleHandle>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(module) = self.module {
            self.backend.unload(module);
        }
    }
}

impl CudaBackend {
    pub(super) fn load(&self, name: &str, ptx: &str) -> Result<(ModuleHandle, Vec<ResolvedFunction>)> {
        check_ptx_version(ptx, self.driver)?;
        let entries = abi::entries(name, ptx, &self.name)?;
        self.enter()?;
        let module = self.compile(name, ptx)?;
        let mut loading = Loading { backend: self, module: Some(module) };
        let mut resolved = Vec::with_capacity(entries.len());
        for info in entries {
            resolved.push(self.resolve(module, info)?);
        }
        loading.module = None;
        let known = resolved.iter().map(|function| {
            let info = Arc::new(function.info.clone());
            (function.handle.0, KnownFunction { info, module: module.0 })
        });
        lock(&self.functions).extend(known);
        Ok((module, resolved))
    }

    fn refused(&self, module: &str, reason: String) -> DeviceError {
        DeviceError::ModuleLoad { module: module.to_owned(), device: self.name.clone(), reason }
    }

    /// Has the driver compile the text.
    fn compile(&self, name: &str, ptx: &str) -> Result<ModuleHandle> {
        let text =
            CString::new(ptx).map_err(|_| self.refused(name, "the PTX holds a zero byte".to_owned()))?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // The size is passed in the pointer itself.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = ptr::null_mut();
        // SAFETY: the text ends in a zero, the options and their values are two each, and the log lives through the call.
        let result = unsafe {
            cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if result == SUCCESS {
            return Ok(ModuleHandle(handle(module)));
        }
        let last = last_failure();
        let words = String::from_utf8_lossy(&log);
        let words = words.trim_end_matches('\0').trim();
        let mut reason = last.text;
        if !words.is_empty() {
            reason = format!("{reason}: {words}");
        }
        if last.code == CODE_UNSUPPORTED_PTX_VERSION || last.code == CODE_NO_BINARY_FOR_GPU {
            let (major, minor) = self.driver;
            reason = format!(
                "{reason} (the driver supports CUDA {major}.{minor}; is the PTX for another target?)"
            );
        }
        Err(self.refused(name, reason))
    }

    /// Finds an entry's function, loads its code, and compares what the driver says of it with the PTX.
    fn resolve(&self, module: ModuleHandle, mut info: FunctionInfo) -> Result<ResolvedFunction> {
        let entry = CString::new(info.name.as_str());
        let entry =
            entry.map_err(|_| self.refused(&info.module, "an entry's name holds a zero byte".to_owned()))?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, the name ends in a zero.
        let result = unsafe { cuModuleGetFunction(&mut function, raw_module(module), entry.as_ptr()) };
        self.check(result, "find a function")?;
        // Loading is lazy by default and synchronises: have it done now, not within the first capture.
        // SAFETY: the function is of a loaded module.
        self.check(unsafe { cuFuncLoad(function) }, "load a function")?;
        // As much of the first-level cache as there is for shared memory, for every function alike: a multiprocessor divides the
        // two anew only when it is empty, so blocks of launches that ask for different divisions never stand beside each other.
        let carveout = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        // SAFETY: the function is of a loaded module.
        self.check(unsafe { cuFuncSetAttribute(function, carveout, 100) }, "divide the first-level cache")?;
        let attribute = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: `value` is valid for the write.
            let result = unsafe { cuFuncGetAttribute(&mut value, attribute, function) };
            self.check(result, "ask for a function's attribute")?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let threads = attribute(CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        let shared = attribute(CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        info.registers = Some(attribute(CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_NUM_REGS)?);
        info.max_threads = info.max_threads.min(threads);
        info.static_shared = shared;
        info.params_checked_by_driver = self.compare_params(function, &info)?;
        Ok(ResolvedFunction { handle: FunctionHandle(handle(function)), info })
    }

    /// Compares every parameter's offset and size with the driver's, and that it has no more of them.
    fn compare_params(&self, function: CUfunction, info: &FunctionInfo) -> Result<usize> {
        let mismatch = |index: usize, expected: String, found: String| {
            let what = format!("parameter {index}: the PTX says {expected}, the driver {found}");
            Err(DeviceError::AbiMismatch { kernel: info.name.clone(), what })
        };
        let ask = |index: usize| {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both are valid for the write; an index past the last parameter is an error code.
            let result = unsafe { cuFuncGetParamInfo(function, index, &mut offset, &mut size) };
            (result == SUCCESS).then_some((offset, size))
        };
        let words = |(offset, size): (usize, usize)| format!("{size} bytes at offset {offset}");
        for (index, param) in info.params.iter().enumerate() {
            let expected = (param.offset, param.size);
            match ask(index) {
                Some(found) if found == expected => {}
                Some(found) => return mismatch(index, words(expected), words(found)),
                None => return mismatch(index, words(expected), last_failure().text),
            }
        }
        match ask(info.params.len()) {
            Some(found) => mismatch(info.params.len(), "that there is none".to_owned(), words(found)),
            None => Ok(info.params.len()),
        }
    }

    pub(super) fn unload(&self, module: ModuleHandle) {
        lock(&self.functions).retain(|_, known| known.module != module.0);
        // SAFETY: its owner unloads it once; functions and graphs hold the owner.
        self.release_with("unload a module", || unsafe { cuModuleUnload(raw_module(module)) });
    }

    /// What is known of a function that the driver named.
    pub(super) fn known(&self, function: CUfunction) -> Option<Arc<FunctionInfo>> {
        lock(&self.functions).get(&handle(function)).map(|known| known.info.clone())
    }

    /// The driver's function behind a handle.
    pub(super) fn function(function: FunctionHandle) -> CUfunction {
        raw_function(function)
    }
}
