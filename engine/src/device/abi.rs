//! The binary interface of a module's entries, read from the PTX itself: the same for both devices.

use super::error::{DeviceError, Result};
use super::module::FunctionInfo;

/// What the PTX says of each entry of a module. Opcodes that the simulator does not know are no error here.
///
/// # Errors
/// [`DeviceError::ModuleLoad`] for text that is not PTX; for any text, as long as the PTX reader is not connected.
pub(super) fn entries(module: &str, _ptx: &str, device: &str) -> Result<Vec<FunctionInfo>> {
    let reason = "the PTX reader is not connected yet".to_owned();
    Err(DeviceError::ModuleLoad { module: module.to_owned(), device: device.to_owned(), reason })
}
