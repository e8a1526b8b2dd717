//! A simulated machine: devices that share one address space, streams, events, capture into graphs, and
//! graphs that are updated and replayed.
//!
//! Work executes when it is submitted, in order of submission. That is one of the schedules that a GPU may
//! choose, so a program that depends on nothing else computes the same bits on both. [`Schedule`] picks other legal
//! orders, to show that nothing is missing: of a graph's nodes where its edges leave a choice, and of streams, which
//! then run as late as what waits for them allows.
//!
//! ```
//! use ptx_sim::system::{System, SystemConfig};
//! let system = System::new(SystemConfig { devices: 2, ..SystemConfig::default() });
//! let (a, b) = (system.allocate(0, 1024, "a")?, system.allocate(1, 1024, "b")?);
//! system.enable_peer_access(0, 1)?;
//! let stream = system.stream(0)?;
//! stream.fill(a, 7, 1024)?;
//! stream.copy(b, a, 1024)?; // to the other device
//! let mut byte = [0];
//! system.stream(1)?.download(&mut byte, b + 1023)?;
//! assert_eq!(byte, [7]);
//! # Ok::<(), ptx_sim::system::SystemError>(())
//! ```

mod event;
mod graph;
mod host;
mod queue;
mod stream;
#[cfg(test)]
mod tests;

pub use event::Event;
pub use graph::{Graph, GraphExec, KernelLaunch, Node, Operation, Place, Schedule};
pub use host::HostMemory;
pub use stream::Stream;

use crate::exec::ExecOptions;
use crate::fault::Fault;
use crate::memory::{Memory, MemoryError};
use queue::Queue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Why the simulated machine refused an operation. It did nothing then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SystemError {
    /// There is no device with this ordinal.
    #[error("there is no simulated device {ordinal}: the machine has {count}")]
    BadDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// How many devices there are.
        count: u32,
    },
    /// An allocation does not fit the device's memory.
    #[error(
        "simulated device {device} is out of memory: `{name}` asked for {asked} bytes, {free} of {total} are free"
    )]
    OutOfMemory {
        /// The device.
        device: u32,
        /// What the allocation was for.
        name: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// The device's memory in bytes.
        total: u64,
    },
    /// Two devices that are not connected.
    #[error(
        "simulated device {device} cannot have access to the memory of device {owner}: peer access is switched off"
    )]
    NoPeerAccess {
        /// The device that asks.
        device: u32,
        /// The device whose memory it is.
        owner: u32,
    },
    /// An address that is not what the operation needs.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A kernel's fault.
    #[error(transparent)]
    Fault(Box<Fault>),
    /// An operation that cannot be captured.
    #[error("{0} cannot be captured")]
    NotCapturable(&'static str),
    /// The stream is part of a capture already.
    #[error("the stream is capturing already")]
    AlreadyCapturing,
    /// The stream did not begin the capture that is to be ended.
    #[error("the stream did not begin a capture")]
    NotCapturing,
    /// Work of a stream that was drawn into a capture was not joined back.
    #[error(
        "the capture drew in a stream of device {device} and did not join it back: wait for an event recorded there"
    )]
    Unjoined {
        /// The device of the stream.
        device: u32,
    },
    /// A wait that would make a capture depend on work outside it.
    #[error("a captured stream cannot wait for an event that was recorded outside its capture")]
    Isolation,
    /// A range that is outside page-locked host memory.
    #[error("{bytes} bytes at offset {offset} are outside host memory of {size} bytes")]
    HostRange {
        /// First byte.
        offset: usize,
        /// Bytes.
        bytes: usize,
        /// The memory's size.
        size: usize,
    },
    /// The time of an event that was not recorded.
    #[error("the event was not recorded")]
    NotRecorded,
    /// A node that the update does not fit.
    #[error("graph node {index}: {reason}")]
    BadNode {
        /// Its index.
        index: usize,
        /// What is wrong.
        reason: String,
    },
}

impl From<Fault> for SystemError {
    fn from(fault: Fault) -> Self {
        Self::Fault(Box::new(fault))
    }
}

/// The result of an operation of the simulated machine.
pub type Result<T, E = SystemError> = std::result::Result<T, E>;

/// What a simulated machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemConfig {
    /// Devices, with ordinals from 0.
    pub devices: u32,
    /// Memory of each device, in bytes. The host's is taken only as it is touched.
    pub memory: u64,
    /// Whether devices can be given access to each other's memory.
    pub peer_access: bool,
    /// A connection between two devices that damages what is copied over it, for showing that this is noticed.
    pub bad_link: Option<BadLink>,
    /// Streams do not wait for events of other devices' streams, for showing that a missing wait is noticed.
    pub lost_waits: bool,
}

/// A connection that damages data: in each copy from one device to another that is long enough, one byte arrives changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLink {
    /// The device that is copied from.
    pub from: u32,
    /// The device that is copied to.
    pub to: u32,
    /// Which byte of a copy is changed; shorter copies arrive whole.
    pub offset: u64,
    /// The bits of it that arrive inverted.
    pub mask: u8,
}

impl Default for SystemConfig {
    /// 16 devices of 64 GiB, all connected, by sound links.
    fn default() -> Self {
        Self { devices: 16, memory: 64 << 30, peer_access: true, bad_link: None, lost_waits: false }
    }
}

/// A simulated machine.
pub struct System {
    config: SystemConfig,
    memory: Memory,
    /// Held from the check of a device's limit to the allocation, so that two threads cannot both pass it.
    allocating: Mutex<()>,
    options: Mutex<Settings>,
    /// The streams' work, as long as there are the streams.
    queues: Mutex<Vec<Weak<Queue>>>,
    /// Warp instructions that kernels have executed.
    executed: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Settings {
    exec: ExecOptions,
    schedule: Schedule,
}

impl System {
    /// A machine of its own.
    pub fn new(config: SystemConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            memory: Memory::new(),
            allocating: Mutex::new(()),
            options: Mutex::default(),
            queues: Mutex::default(),
            executed: AtomicU64::new(0),
        })
    }

    /// The machine that the whole process shares, of the default configuration.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<System>> = OnceLock::new();
        SHARED.get_or_init(|| Self::new(SystemConfig::default())).clone()
    }

    /// What the machine has.
    pub fn config(&self) -> SystemConfig {
        self.config
    }

    /// The memory of all devices.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How kernels are run.
    pub fn exec_options(&self) -> ExecOptions {
        self.settings().exec
    }

    /// Sets how kernels are run from here on: threads, checks, budget. For reads of global memory that has no value to be
    /// found, this must come before the allocations.
    pub fn set_exec_options(&self, options: ExecOptions) {
        if options.checks.has(crate::Checks::UNINITIALISED) {
            self.memory.track_values();
        }
        self.settings().exec = options;
    }

    /// Warp instructions that kernels have executed so far, on all devices.
    pub fn warp_instructions(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// The order in which work runs.
    pub fn schedule(&self) -> Schedule {
        self.settings().schedule
    }

    /// Sets the order in which what is submitted from here on runs.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.settings().schedule = schedule;
    }

    /// Has all work of a device's streams done, or of all devices'.
    ///
    /// # Errors
    /// The first failing operation's, of those that [`Schedule::Deferred`] put off.
    pub fn synchronize(&self, device: Option<u32>) -> Result<()> {
        let queues: Vec<Arc<Queue>> = {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.retain(|queue| queue.strong_count() > 0);
            queues.iter().filter_map(Weak::upgrade).collect()
        };
        queues
            .iter()
            .filter(|queue| device.is_none_or(|device| queue.device == device))
            .try_for_each(|queue| queue.run(self))
    }

    /// Checks that a device exists.
    ///
    /// # Errors
    /// [`SystemError::BadDevice`].
    pub fn check_device(&self, ordinal: u32) -> Result<()> {
        let count = self.config.devices;
        if ordinal < count { Ok(()) } else { Err(SystemError::BadDevice { ordinal, count }) }
    }

    /// Lets kernels and copies of `device` reach the memory of `owner`; doing it twice is no error.
    ///
    /// # Errors
    /// [`SystemError::BadDevice`], [`SystemError::NoPeerAccess`] when the machine is configured without.
    pub fn enable_peer_access(&self, device: u32, owner: u32) -> Result<()> {
        self.check_device(device)?;
        self.check_device(owner)?;
        if !self.config.peer_access && device != owner {
            return Err(SystemError::NoPeerAccess { device, owner });
        }
        self.memory.enable_peer_access(device, owner);
        Ok(())
    }

    /// Allocates zeroed memory on a device. `name` is used in messages.
    ///
    /// # Errors
    /// [`SystemError::OutOfMemory`] past the device's memory, [`SystemError::BadDevice`], and
    /// [`SystemError::Memory`] for zero bytes or when the host has no room.
    pub fn allocate(&self, device: u32, bytes: u64, name: &str) -> Result<u64> {
        self.check_device(device)?;
        let _held = self.allocating.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, total) = self.memory_info(device)?;
        if bytes > free {
            return Err(SystemError::OutOfMemory {
                device,
                name: name.to_owned(),
                asked: bytes,
                free,
                total,
            });
        }
        Ok(self.memory.allocate(device, bytes, name)?)
    }

    /// Frees an allocation, after all work of all streams.
    ///
    /// # Errors
    /// [`SystemError::Memory`] when `address` is not the start of a live allocation; what [`System::synchronize`] says, and
    /// the memory is freed then too.
    pub fn free(&self, address: u64) -> Result<()> {
        let done = self.synchronize(None);
        self.memory.free(address)?;
        done
    }

    /// Bytes (free, total) of a device's memory.
    ///
    /// # Errors
    /// [`SystemError::BadDevice`].
    pub fn memory_info(&self, device: u32) -> Result<(u64, u64)> {
        self.check_device(device)?;
        let total = self.config.memory;
        Ok((total.saturating_sub(self.memory.bytes_in_use(device)), total))
    }

    /// A new stream of a device.
    ///
    /// # Errors
    /// [`SystemError::BadDevice`].
    pub fn stream(self: &Arc<Self>, device: u32) -> Result<Stream> {
        self.check_device(device)?;
        let queue = Queue::new(device);
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&queue));
        Ok(Stream::new(self.clone(), queue))
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("System").field("config", &self.config).finish_non_exhaustive()
    }
}
