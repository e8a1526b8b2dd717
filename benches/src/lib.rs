//! What the benchmarks share: the device that they run on.
//!
//! ```text
//! cargo bench -p bitwalk-benches --bench kernels [-- FILTER]      one launch of each kernel, bytes a second by its declared cost
//! cargo bench -p bitwalk-benches --bench decode                   one token of the fixture, eager and replayed
//! cargo bench -p bitwalk-benches --bench tokenizer
//! BITWALK_DEVICE=auto|cuda|cuda:N|sim                             where
//! ```

use bitwalk::device::{Device, DeviceSpec};

/// The device that `BITWALK_DEVICE` names, or the one that `auto` finds; says which.
///
/// # Panics
/// If the variable names no device, or it cannot be opened: a benchmark has nothing else to do then.
pub fn device() -> Device {
    let spec = std::env::var("BITWALK_DEVICE").unwrap_or_else(|_| "auto".to_owned());
    let spec: DeviceSpec = spec.parse().unwrap_or_else(|error| panic!("BITWALK_DEVICE: {error}"));
    let device = Device::open(spec).unwrap_or_else(|error| panic!("opening a device: {error}"));
    eprintln!("device {}", device.opened_because());
    device
}
