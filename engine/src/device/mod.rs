//! Devices: CUDA and the simulated one, behind one interface.
//!
//! A [`Device`] gives memory ([`Buffer`], [`HostBuffer`]), [`Stream`]s, [`Module`]s and [`Event`]s; a stream
//! runs work in order or captures it as a [`Graph`], which is instantiated and replayed. Everything here
//! behaves alike on both kinds of device: the differences (a kernel's fault shows at the launch on the
//! simulated device, at the next synchronisation on CUDA) are named where they are.
//!
//! - [`spec`](DeviceSpec): what `--device` and `--devices` may say
//! - `buffer`, `stream`, `event`, `module`, `graph`: the public types
//! - [`capture`]: the capture state machine, pure
//! - `counters`: what a device did, in numbers
//! - `waits`: a thread's time, in waits for a device and outside them
//! - `cupti`: the device's own record of the kernels it ran
//! - `uploader`: much data on its way to a device
//! - `peer`: memory of other devices; [`links`]: whether what goes there arrives
//! - `backend`: the seam; `cuda` and `driver` on its one side, `sim` on the other
//! - `abi`: the interface of a module's entries, read from the PTX
//! - [`selftest`]: what must hold on any device, as tests and gates run it

mod abi;
mod backend;
mod buffer;
pub mod capture;
mod counters;
mod cuda;
mod cupti;
mod driver;
mod element;
mod error;
mod event;
mod graph;
pub mod links;
mod module;
mod peer;
mod registry;
pub mod selftest;
mod sim;
mod spec;
mod stream;
#[cfg(test)]
mod tests;
mod uploader;
mod waits;

pub use buffer::{Allocation, Buffer, BufferPlace, HostBuffer, RawBuffer};
pub use capture::{CaptureError, CaptureState, Violation};
pub use counters::{Copies, DeviceCounters};
pub use cupti::{KernelRecord, KernelTracer, TracerError};
pub use element::{Element, F8E4M3};
pub use error::{DeviceError, Result};
pub use event::Event;
pub use graph::{Graph, GraphEdge, GraphExec, GraphNode, KernelNode};
pub use module::{Dependence, Function, FunctionInfo, MAX_PARAMS, Module, ParamLayout};
pub use spec::{DeviceList, DeviceSpec, ParseDeviceListError, ParseDeviceSpecError};
pub use stream::{Access, LaunchParams, ParamAccess, Stream};
pub use uploader::Uploader;
pub use waits::{ThreadMeter, ThreadTimes};

use backend::{Backend, StreamHandle};
use counters::CounterCells;
use ptx_sim::system::System;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The two kinds of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// An NVIDIA GPU through the CUDA driver.
    Cuda,
    /// The simulated device, which executes PTX on the CPU.
    Sim,
}

impl DeviceKind {
    /// `cuda` or `sim`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Sim => "sim",
        }
    }
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// CUDA or simulated.
    pub kind: DeviceKind,
    /// Its number among the devices of its kind.
    pub ordinal: u32,
    /// Its model's name.
    pub name: String,
    /// Compute capability, (major, minor).
    pub compute: (u32, u32),
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// The multiprocessors' highest clock, in Hz; none for the simulated device.
    pub clock_hz: Option<u64>,
    /// Memory in bytes.
    pub total_memory: u64,
    /// Second-level cache in bytes.
    pub l2_bytes: u64,
    /// The most dynamic shared memory a block may ask for, in bytes.
    pub max_shared: u32,
    /// The CUDA version that the driver supports, (major, minor); none for the simulated device.
    pub driver_version: Option<(u32, u32)>,
    /// The release of the driver itself (`580.95.05`), where it can be found out.
    pub driver_release: Option<String>,
}

/// What all openings of a device share.
struct DeviceInner {
    backend: Box<dyn Backend>,
    info: DeviceInfo,
    in_use: AtomicU64,
    counters: CounterCells,
    /// Which other devices' memory it reaches, by ordinal, as far as that was asked for.
    peers: Mutex<HashMap<u32, bool>>,
    /// A stream for copies that name none, made when the first one is.
    service: Mutex<Option<StreamHandle>>,
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        if let Some(stream) = self.service.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.backend.stream_destroy(stream);
        }
    }
}

impl DeviceInner {
    fn new(backend: Box<dyn Backend>, info: DeviceInfo) -> Self {
        Self {
            backend,
            info,
            in_use: AtomicU64::new(0),
            counters: CounterCells::default(),
            peers: Mutex::default(),
            service: Mutex::new(None),
        }
    }
}

/// A device. Clones are the same device, and so is what is opened again while it is open: memory in use and
/// transfers are counted together.
#[derive(Clone)]
pub struct Device {
    inner: Arc<DeviceInner>,
    because: Arc<str>,
}

impl Device {
    /// Opens the device that `spec` asks for.
    ///
    /// # Errors
    /// [`DeviceError::NoDriver`], [`DeviceError::DriverTooOld`], [`DeviceError::MissingSymbol`],
    /// [`DeviceError::NoDevice`], [`DeviceError::BadOrdinal`], [`DeviceError::Call`]. `auto` falls back to the
    /// simulated device only when there is no driver or no device; a GPU that is there and does not work is
    /// an error.
    pub fn open(spec: DeviceSpec) -> Result<Self> {
        match spec {
            DeviceSpec::Cuda(ordinal) => Self::cuda(ordinal),
            DeviceSpec::Sim(ordinal) => Self::simulated(&System::shared(), ordinal, ""),
            DeviceSpec::Auto => match Self::cuda(0) {
                Err(DeviceError::NoDriver { .. }) => {
                    Self::simulated(&System::shared(), 0, ", since no NVIDIA driver was found")
                }
                Err(DeviceError::NoDevice) => {
                    Self::simulated(&System::shared(), 0, ", since the NVIDIA driver found no device")
                }
                other => other,
            },
        }
    }

    /// Opens a device of a simulated machine of the caller's own, with its own memory and limits.
    ///
    /// # Errors
    /// [`DeviceError::BadOrdinal`].
    pub fn open_in(system: &Arc<System>, ordinal: u32) -> Result<Self> {
        Self::simulated(system, ordinal, "")
    }

    /// Opens another device of this one's machine: of CUDA's devices, or of the same simulated machine.
    ///
    /// # Errors
    /// [`DeviceError::BadOrdinal`] when there is none with this ordinal.
    pub fn sibling(&self, ordinal: u32) -> Result<Self> {
        match self.backend().simulated_machine() {
            Some(system) => Self::simulated(&system, ordinal, ""),
            None => Self::cuda(ordinal),
        }
    }

    fn cuda(ordinal: u32) -> Result<Self> {
        let inner = registry::find_or_open(cuda::MACHINE, ordinal, || {
            let (backend, info) = cuda::open(ordinal)?;
            Ok(DeviceInner::new(Box::new(backend), info))
        })?;
        let info = &inner.info;
        let (major, minor) = info.driver_version.unwrap_or_default();
        let release = info.driver_release.as_deref().unwrap_or("of unknown release");
        let because = format!("cuda:{ordinal} {}, driver {release} (CUDA {major}.{minor})", info.name);
        Ok(Self { inner, because: because.into() })
    }

    fn simulated(system: &Arc<System>, ordinal: u32, reason: &str) -> Result<Self> {
        let inner = registry::find_or_open(sim::machine(system), ordinal, || {
            let (backend, info) = sim::open(system, ordinal)?;
            Ok(DeviceInner::new(Box::new(backend), info))
        })?;
        Ok(Self { inner, because: format!("sim:{ordinal}{reason}").into() })
    }

    fn backend(&self) -> &dyn Backend {
        &*self.inner.backend
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// The line to print about what was opened: `cuda:0 NVIDIA H200, driver 580.95.05 (CUDA 13.0)`, or
    /// `sim:0, since no NVIDIA driver was found`.
    pub fn opened_because(&self) -> &str {
        &self.because
    }

    /// Allocates `bytes` bytes, 256-byte aligned, contents undefined. `name` says what for in messages.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] with what was asked and what is free, [`DeviceError::BadLength`] for zero
    /// bytes, [`DeviceError::Capture`] during a capture.
    pub fn alloc(&self, bytes: usize, name: &str) -> Result<Arc<Allocation>> {
        if bytes == 0 || bytes > isize::MAX as usize {
            return Err(DeviceError::BadLength { name: name.to_owned(), len: bytes, element_bytes: 1 });
        }
        stream::forbid_in_capture(|| Violation::Allocation(name.to_owned()))?;
        let address = self.backend().allocate(bytes, name)?;
        self.inner.in_use.fetch_add(bytes as u64, Ordering::Relaxed);
        self.count(DeviceCounters { allocations: 1, ..DeviceCounters::default() });
        Ok(Arc::new(Allocation::new(self.clone(), address, bytes, name)))
    }

    /// Frees what `alloc` allocated; an [`Allocation`] calls it once.
    fn release(&self, address: u64, bytes: usize) {
        self.backend().free(address);
        self.inner.in_use.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.count(DeviceCounters { frees: 1, ..DeviceCounters::default() });
    }

    /// Bytes of device memory (free, total), those of other processes counted.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        self.backend().memory_info()
    }

    /// Bytes allocated through this device now.
    pub fn bytes_in_use(&self) -> u64 {
        self.inner.in_use.load(Ordering::Relaxed)
    }

    /// A new stream.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn stream(&self) -> Result<Stream> {
        Stream::new(self)
    }

    /// A new event.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn event(&self) -> Result<Event> {
        Event::new(self)
    }

    /// Loads PTX and resolves all its entries. `name` is the module's in messages.
    ///
    /// # Errors
    /// [`DeviceError::ModuleLoad`] with the compiler's words, [`DeviceError::DriverTooOld`] for a PTX version
    /// that the driver does not know, [`DeviceError::AbiMismatch`] when the driver's view of a parameter
    /// differs from the PTX, [`DeviceError::Capture`] during a capture.
    pub fn load_module(&self, name: &str, ptx: &str) -> Result<Module> {
        stream::forbid_in_capture(|| Violation::ModuleLoad(name.to_owned()))?;
        Module::load(self, name, ptx)
    }

    /// Warp instructions that the simulated machine of this device has executed so far, on all its devices; none of a GPU.
    pub fn warp_instructions(&self) -> Option<u64> {
        self.backend().simulated_machine().map(|system| system.warp_instructions())
    }

    /// What was done through this device so far. What graphs do counts at each of their launches.
    pub fn counters(&self) -> DeviceCounters {
        self.inner.counters.read()
    }

    fn count(&self, counters: DeviceCounters) {
        self.inner.counters.add(counters);
    }

    /// Waits for all work of all streams of the device.
    ///
    /// # Errors
    /// A fault of an earlier launch; in a capture, [`CaptureError::Forbidden`].
    pub fn synchronize(&self) -> Result<()> {
        stream::forbid_in_capture(|| Violation::Synchronisation("device synchronize"))?;
        waits::waiting(|| self.backend().synchronize())
    }

    /// Runs `copy` on the stream for copies that name none.
    fn serve(&self, copy: impl FnOnce(StreamHandle) -> Result<()>) -> Result<()> {
        let mut service = self.inner.service.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = match *service {
            Some(stream) => stream,
            None => *service.insert(self.backend().stream_create()?),
        };
        copy(stream)
    }

    /// Copies `data` to `dst`, which no other work uses yet; done when it returns.
    fn upload<T: Element>(&self, dst: &Buffer<T>, data: &[T]) -> Result<()> {
        stream::forbid_in_capture(|| Violation::PageableCopy(dst.name().to_owned()))?;
        self.serve(|stream| self.backend().upload(stream, dst.address(), bytemuck::cast_slice(data)))?;
        self.count(DeviceCounters::to_device(dst.bytes()));
        Ok(())
    }

    /// Copies `src` to `data` after all work of all streams; done when it returns.
    fn download<T: Element>(&self, src: &Buffer<T>, data: &mut [T]) -> Result<()> {
        stream::forbid_in_capture(|| Violation::PageableCopy(src.name().to_owned()))?;
        self.backend().synchronize()?;
        self.serve(|stream| self.backend().download(stream, bytemuck::cast_slice_mut(data), src.address()))?;
        self.count(DeviceCounters::to_host(src.bytes()));
        Ok(())
    }

    /// Checks that `other` is this device.
    fn expect_same(&self, other: &Device, what: &'static str, name: &str) -> Result<()> {
        if self == other { Ok(()) } else { Err(self.wrong_device(other, what, name)) }
    }

    /// Checks that `other` is of the same kind and machine, so that the two can copy to each other.
    fn expect_peer(&self, other: &Device, what: &'static str, name: &str) -> Result<()> {
        let peers = self.backend().machine() == other.backend().machine();
        if peers { Ok(()) } else { Err(self.wrong_device(other, what, name)) }
    }

    fn wrong_device(&self, other: &Device, what: &'static str, name: &str) -> DeviceError {
        let (have, want) = (other.to_string(), self.to_string());
        DeviceError::WrongDevice { what: format!("{what} `{name}`"), have, want }
    }
}

/// Two devices are equal when they are the same hardware (or the same simulated device of one machine).
impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
            || (self.info().ordinal == other.info().ordinal
                && self.backend().machine() == other.backend().machine())
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.info().kind.name(), self.info().ordinal)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self} {})", self.info().name)
    }
}
