//! The binary interface of a module's entries, read from the PTX itself: the same for both devices.

use super::error::{DeviceError, Result};
use super::module::{FunctionInfo, ParamLayout};
use ptx_sim::{EntryAbi, census};

/// The most threads that a block may have on any device so far.
pub(super) const MAX_BLOCK: u32 = 1024;

/// What the PTX says of each entry of a module. Opcodes that the simulator does not know are no error here.
///
/// # Errors
/// [`DeviceError::ModuleLoad`] for text that is not PTX.
pub(super) fn entries(module: &str, ptx: &str, device: &str) -> Result<Vec<FunctionInfo>> {
    let census = census(module, ptx).map_err(|error| DeviceError::ModuleLoad {
        module: module.to_owned(),
        device: device.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(census.entries.iter().map(|entry| function_info(module, entry)).collect())
}

fn function_info(module: &str, entry: &EntryAbi) -> FunctionInfo {
    let product = |shape: [u32; 3]| shape.iter().fold(1u32, |all, &n| all.saturating_mul(n));
    FunctionInfo {
        module: module.to_owned(),
        name: entry.name.clone(),
        params: entry
            .params
            .iter()
            .map(|param| ParamLayout {
                offset: param.offset as usize,
                size: param.size as usize,
                align: param.align as usize,
            })
            .collect(),
        param_bytes: entry.param_bytes as usize,
        max_threads: entry.req_ntid.or(entry.max_ntid).map_or(MAX_BLOCK, product).min(MAX_BLOCK),
        required_block: entry.req_ntid,
        static_shared: u32::try_from(entry.static_shared).unwrap_or(u32::MAX),
        registers: None,
        dependence: entry.dependence.clone(),
        params_checked_by_driver: 0,
    }
}
