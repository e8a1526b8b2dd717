//! The devices that are open in this process, so that opening one twice gives the same device.

use super::{DeviceInner, Result};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An open device: machine, ordinal, device.
type Entry = (usize, u32, Weak<DeviceInner>);

static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The device `ordinal` of `machine` when it is open, else what `open` gives.
///
/// A machine's number is not used again as long as one of its devices is open, since the device holds the machine.
pub(super) fn find_or_open(
    machine: usize,
    ordinal: u32,
    open: impl FnOnce() -> Result<DeviceInner>,
) -> Result<Arc<DeviceInner>> {
    let mut entries = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    entries.retain(|(_, _, device)| device.strong_count() > 0);
    let found = entries.iter().find(|(m, o, _)| (*m, *o) == (machine, ordinal));
    if let Some(device) = found.and_then(|(_, _, device)| device.upgrade()) {
        return Ok(device);
    }
    let device = Arc::new(open()?);
    entries.push((machine, ordinal, Arc::downgrade(&device)));
    Ok(device)
}
