//! What can go wrong with a device, each case with what to do about it.

use super::capture::CaptureError;
use super::spec::ParseDeviceSpecError;

/// An error of the device layer.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A device specification that cannot be read.
    #[error(transparent)]
    Spec(#[from] ParseDeviceSpecError),
    /// No NVIDIA driver library could be loaded.
    #[error(
        "no NVIDIA driver: {reason}. Install the NVIDIA driver (580 or newer), or run on the simulated device with `--device sim`"
    )]
    NoDriver {
        /// The loader's own words.
        reason: String,
    },
    /// The driver is there but older than what the PTX or a needed function asks for.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {}.{}, bitwalk's PTX needs CUDA {}.{} (driver 580 or newer). Update the driver, or use `--device sim`",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        /// CUDA version that the driver supports, (major, minor).
        found: (u32, u32),
        /// CUDA version that is needed, (major, minor).
        needed: (u32, u32),
    },
    /// The driver library lacks a function.
    #[error(
        "the NVIDIA driver library has no function `{symbol}`: it is older than bitwalk needs (580) or damaged. Update or reinstall the driver, or use `--device sim`"
    )]
    MissingSymbol {
        /// The function's name.
        symbol: &'static str,
    },
    /// There is a driver but no device.
    #[error(
        "the NVIDIA driver found no CUDA device (is CUDA_VISIBLE_DEVICES empty, or is this a container without GPU access?). Use `--device sim` to run without one"
    )]
    NoDevice,
    /// The ordinal is past the last device.
    #[error(
        "there is no device {kind}:{ordinal}: {count} {} available, ordinals 0 to {}", if *count == 1 { "is" } else { "are" }, count.saturating_sub(1)
    )]
    BadOrdinal {
        /// `cuda` or `sim`.
        kind: &'static str,
        /// The ordinal asked for.
        ordinal: u32,
        /// How many devices there are.
        count: u32,
    },
    /// An allocation did not fit.
    #[error(
        "{device} is out of memory: `{name}` asked for {asked} bytes, {free} of {total} bytes are free. Use a smaller model, cache capacity or KV type"
    )]
    OutOfMemory {
        /// The device, `cuda:0` or `sim:0`.
        device: String,
        /// What the allocation was for.
        name: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free when it was asked.
        free: u64,
        /// The device's memory in bytes.
        total: u64,
    },
    /// A buffer with no elements, or one whose size in bytes overflows.
    #[error("buffer `{name}`: {len} elements of {element_bytes} bytes cannot be allocated")]
    BadLength {
        /// What the buffer was for.
        name: String,
        /// Elements asked for.
        len: usize,
        /// Bytes an element.
        element_bytes: usize,
    },
    /// Lengths that must agree do not.
    #[error("{what}: `{name}` has {have} elements, {want} are needed")]
    LengthMismatch {
        /// The operation: write, read, copy …
        what: &'static str,
        /// The buffer's name.
        name: String,
        /// Its length in elements.
        have: usize,
        /// The length the other side has.
        want: usize,
    },
    /// A sub-range outside its buffer.
    #[error("slice {start}..{end} is outside buffer `{name}` of {len} elements")]
    BadSlice {
        /// The buffer's name.
        name: String,
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// The buffer's length.
        len: usize,
    },
    /// Objects of different devices in one operation that needs one device.
    #[error("{what} belongs to {have}, not to {want}")]
    WrongDevice {
        /// The object: kind and name.
        what: String,
        /// The device it belongs to.
        have: String,
        /// The device it was used with.
        want: String,
    },
    /// A replacement allocation that does not fit its buffer slot.
    #[error(
        "buffer `{name}` of {have} bytes cannot be re-seated on an allocation of {given} bytes: the sizes must be equal"
    )]
    BadReseat {
        /// The buffer's name.
        name: String,
        /// Bytes of the current allocation.
        have: usize,
        /// Bytes of the new one.
        given: usize,
    },
    /// PTX that the device refused.
    #[error("module `{module}` was refused by {device}: {reason}")]
    ModuleLoad {
        /// The module's name.
        module: String,
        /// The device.
        device: String,
        /// The compiler's or parser's words.
        reason: String,
    },
    /// An entry that a module does not have.
    #[error("module `{module}` has no entry `{entry}` (it has {})", available.join(", "))]
    NoEntry {
        /// The module's name.
        module: String,
        /// The entry asked for.
        entry: String,
        /// The entries it has.
        available: Vec<String>,
    },
    /// What the driver says of a function's parameters differs from the PTX.
    #[error("kernel `{kernel}`, {what}")]
    AbiMismatch {
        /// The entry.
        kernel: String,
        /// What differs: the PTX's value and the driver's.
        what: String,
    },
    /// A launch configuration that the kernel or the device cannot take.
    #[error("launch of `{kernel}`: {reason}")]
    BadLaunch {
        /// The entry.
        kernel: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A launch that failed, at submission or while running.
    #[error("launch of `{kernel}` failed on {device}: {reason}")]
    LaunchFailed {
        /// The entry.
        kernel: String,
        /// The device.
        device: String,
        /// The driver's or the simulator's words.
        reason: String,
    },
    /// A driver call, or the simulator's counterpart, failed.
    #[error("{call} failed on {device}: {reason}")]
    Call {
        /// The operation.
        call: &'static str,
        /// The device.
        device: String,
        /// The driver's or the simulator's words.
        reason: String,
    },
    /// An operation that a capture forbids.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A graph node that the operation cannot be applied to.
    #[error("graph node {index}: {reason}")]
    BadNode {
        /// The node's index in `Graph::nodes`.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// An operation of the device's that this machine does not support.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// The operation.
        what: String,
    },
}

/// The device layer's result.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;
