//! Finding and opening a CUDA device, with an error for each way in which there is none.

use super::{CURRENT, CudaBackend, lock};
use crate::device::driver::{failure, last_failure, require};
use crate::device::error::{DeviceError, Result};
use crate::device::{DeviceInfo, DeviceKind};
use cust::context::Context;
use cust::device::{Device, DeviceAttribute};
use cust::{CudaApiVersion, CudaFlags};
use cust_raw::CUcontext;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;

/// Codes of `cuInit` that mean there is nothing to use: no device, and a stub library without a driver.
const CODE_NO_DEVICE: u32 = 100;
const CODE_STUB_LIBRARY: u32 = 34;
/// The library is of another version than the kernel module.
const CODE_DRIVER_MISMATCH: u32 = 803;

/// Starts the driver and counts its devices.
fn devices() -> Result<u32> {
    require()?;
    if cust::init(CudaFlags::empty()).is_err() {
        let last = last_failure();
        return Err(match last.code {
            CODE_NO_DEVICE => DeviceError::NoDevice,
            CODE_STUB_LIBRARY | CODE_DRIVER_MISMATCH => DeviceError::NoDriver { reason: last.text },
            _ => failure("start the driver", "cuda"),
        });
    }
    match Device::num_devices().map_err(|_| failure("count devices", "cuda"))? {
        0 => Err(DeviceError::NoDevice),
        count => Ok(count),
    }
}

/// Opens CUDA device `ordinal`.
///
/// # Errors
/// [`DeviceError::NoDriver`], [`DeviceError::MissingSymbol`], [`DeviceError::NoDevice`],
/// [`DeviceError::BadOrdinal`], [`DeviceError::Call`].
pub(in crate::device) fn open(ordinal: u32) -> Result<(CudaBackend, DeviceInfo)> {
    let count = devices()?;
    if ordinal >= count {
        return Err(DeviceError::BadOrdinal { kind: "cuda", ordinal, count });
    }
    let name = format!("cuda:{ordinal}");
    let failed = |call| move |_| failure(call, &format!("cuda:{ordinal}"));
    let device = Device::get_device(ordinal).map_err(failed("find the device"))?;
    let context = primary_context(ordinal, device)?;
    let attribute = |attribute| device.get_attribute(attribute).map_err(failed("ask for an attribute"));
    let count_of = |which| attribute(which).map(|value| u32::try_from(value).unwrap_or(0));
    let version = CudaApiVersion::get().map_err(failed("ask for the driver's version"))?;
    let driver = (version.major().unsigned_abs(), version.minor().unsigned_abs());
    let info = DeviceInfo {
        kind: DeviceKind::Cuda,
        ordinal,
        name: device.name().map_err(failed("ask for the device's name"))?,
        compute: (
            count_of(DeviceAttribute::ComputeCapabilityMajor)?,
            count_of(DeviceAttribute::ComputeCapabilityMinor)?,
        ),
        sm_count: count_of(DeviceAttribute::MultiprocessorCount)?,
        clock_hz: Some(u64::from(count_of(DeviceAttribute::ClockRate)?) * 1000), // told in kHz
        total_memory: device.total_memory().map_err(failed("ask for the device's memory"))? as u64,
        l2_bytes: u64::from(count_of(DeviceAttribute::L2CacheSize)?),
        max_shared: opt_in_shared(device).map_err(|()| failure("ask for an attribute", &name))?,
        driver_version: Some(driver),
        driver_release: release(),
    };
    let backend = CudaBackend {
        name,
        device,
        driver,
        context,
        streams: Mutex::new(HashSet::new()),
        functions: Mutex::new(HashMap::new()),
        nodes: Mutex::new(HashMap::new()),
        last_launch: AtomicPtr::new(ptr::null_mut()),
    };
    Ok((backend, info))
}

/// The primary context of a device, retained once and for the life of the process: a context that is destroyed and made
/// anew may have the old one's address, and threads remember which context is current by its address.
pub(super) fn primary_context(ordinal: u32, device: Device) -> Result<CUcontext> {
    static RETAINED: Mutex<Vec<(u32, Context)>> = Mutex::new(Vec::new());
    let mut retained = lock(&RETAINED);
    if let Some((_, context)) = retained.iter().find(|(known, _)| *known == ordinal) {
        return Ok(context.as_raw());
    }
    let context = Context::new(device)
        .map_err(|_| failure("retain the primary context", &format!("cuda:{ordinal}")))?;
    let raw = context.as_raw();
    // `Context::new` has made it current on this thread.
    CURRENT.set(raw);
    retained.push((ordinal, context));
    Ok(raw)
}

/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`, which `cust` does not list.
fn opt_in_shared(device: Device) -> Result<u32, ()> {
    let attribute = cust_raw::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let mut value = 0;
    // SAFETY: `value` is valid for the write, and the device exists.
    let result = unsafe { cust_raw::cuDeviceGetAttribute(&mut value, attribute, device.as_raw()) };
    if result == super::SUCCESS { u32::try_from(value).map_err(|_| ()) } else { Err(()) }
}

/// The driver's release (`580.95.05`), as Linux's kernel module tells it.
fn release() -> Option<String> {
    release_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn release_in(text: &str) -> Option<String> {
    let words = text.lines().find(|line| line.starts_with("NVRM version:"))?.split_whitespace();
    let number = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    words.into_iter().find(number).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_found_in_the_kernel_module_s_text() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\nGCC version: gcc 12.2.0\n";
        assert_eq!(release_in(text).as_deref(), Some("580.95.05"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n";
        assert_eq!(release_in(open).as_deref(), Some("570.124.06"));
        assert_eq!(release_in("nothing of the kind 1.2\n"), None);
    }
}
