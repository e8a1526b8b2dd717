//! What the benchmarks share: the device that they run on, and the timing of every kernel.
//!
//! ```text
//! cargo xtask bench [FILTER]                                      every kernel, with a table and a picture at the end
//! cargo bench -p bitwalk-benches --bench kernels [-- FILTER]      the same without
//! cargo bench -p bitwalk-benches --bench decode                   one token of the fixture, eager and replayed
//! cargo bench -p bitwalk-benches --bench repack                   blocks to planes on one core, bytes of the file a second
//! cargo bench -p bitwalk-benches --bench tokenizer
//! BITWALK_DEVICE=auto|cuda|cuda:N|sim                             where
//! ```
//!
//! - [`kernels`]: criterion over every declared kernel, timed by the device's events
//! - [`roofline`]: the picture of what they reach

pub mod kernels;
pub mod roofline;
mod rotation;
#[cfg(test)]
mod tests;

use bitwalk::device::Device;
use bitwalk::options::RunOptions;

/// The device that `BITWALK_DEVICE` names, or the one that `auto` finds; says which.
///
/// # Panics
/// If the variable names no device, or it cannot be opened: a benchmark has nothing else to do then.
pub fn device() -> Device {
    let options = RunOptions::from_env().unwrap_or_else(|error| panic!("{error}"));
    let device = Device::open(options.device).unwrap_or_else(|error| panic!("opening a device: {error}"));
    eprintln!("device {}", device.opened_because());
    device
}
