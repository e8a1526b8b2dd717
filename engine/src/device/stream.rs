//! Streams: work in order, and the captures that record it.

use super::backend::StreamHandle;
use super::buffer::{Buffer, HostBuffer};
use super::capture::{BodyOutcome, CaptureError, CaptureMachine, CaptureState, Violation};
use super::element::Element;
use super::error::{DeviceError, Result};
use super::graph::{Graph, Recorded};
use super::module::{Function, FunctionInfo};
use super::peer::Staging;
use super::waits::waiting;
use super::{Copies, Device, DeviceCounters, Event};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a launch does with the memory behind a pointer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Loads only.
    Read,
    /// Stores only: what was there before is never read.
    Write,
    /// Loads and stores.
    ReadWrite,
}

/// The access to one pointer parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParamAccess {
    /// The parameter's index in the entry's list.
    pub param: u16,
    /// What the kernel does there.
    pub access: Access,
    /// Bytes behind the pointer that the kernel may touch; 0 where that is not known.
    pub bytes: u64,
}

/// The configuration and arguments of one launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchParams<'a> {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The parameter block: each argument at its `.param` offset (little-endian, as in memory), in all
    /// [`FunctionInfo::param_bytes`] bytes.
    pub args: &'a [u8],
    /// What the kernel does with its pointers; the simulated device checks it. An empty list checks nothing.
    pub access: &'a [ParamAccess],
    /// All blocks are resident at once, so that they can wait for each other.
    pub cooperative: bool,
    /// The kernel may start before its predecessor in the stream has ended, and waits for it itself
    /// (`griddepcontrol.wait`). Without effect where that cannot be or means nothing: unless what was submitted to the
    /// stream just before is a launch (in the same capture, if there is one), in a cooperative launch, and for an entry
    /// without `griddepcontrol`, as all are that were compiled for less than compute capability 9.0.
    pub programmatic: bool,
}

impl LaunchParams<'_> {
    /// Checks the configuration against a function.
    pub(super) fn check(&self, info: &FunctionInfo) -> Result<()> {
        let bad = |reason: String| Err(DeviceError::BadLaunch { kernel: info.name.clone(), reason });
        if self.args.len() != info.param_bytes {
            return bad(format!("{} bytes of arguments given, {} needed", self.args.len(), info.param_bytes));
        }
        if self.grid.contains(&0) || self.block.contains(&0) {
            return bad(format!("grid {:?} or block {:?} has an empty dimension", self.grid, self.block));
        }
        if self.grid[0] > i32::MAX as u32 || self.grid[1] > 65_535 || self.grid[2] > 65_535 {
            return bad(format!("grid {:?} is past the limits [2147483647, 65535, 65535]", self.grid));
        }
        let threads = self.block.iter().map(|&n| u64::from(n)).product::<u64>();
        if threads > u64::from(info.max_threads) || self.block[2] > 64 {
            return bad(format!(
                "a block {:?} of {threads} threads, at most {} are possible",
                self.block, info.max_threads
            ));
        }
        if info.required_block.is_some_and(|required| required != self.block) {
            return bad(format!(
                "block {:?}, the kernel requires {:?}",
                self.block,
                info.required_block.unwrap_or_default()
            ));
        }
        Ok(())
    }
}

/// What a capture's graph must keep alive besides what the caller names: modules and page-locked memory.
pub(super) type Keep = Arc<dyn Any + Send + Sync>;

pub(super) struct StreamInner {
    device: Device,
    handle: StreamHandle,
    capturing: AtomicBool,
    /// What was submitted last is a launch: only after one may a kernel start early.
    after_launch: AtomicBool,
    machine: Mutex<CaptureMachine>,
    recorded: Mutex<Recorded>,
    /// Memory dropped during a capture: (device, address, bytes), freed when the capture has ended.
    deferred: Mutex<Vec<(Device, u64, usize)>>,
    /// For copies from and to devices that this one is not connected with, by ordinal.
    staging: Mutex<HashMap<u32, Staging>>,
}

thread_local! {
    /// The streams that this thread is capturing, innermost last. A capture is of the thread that began it
    /// (as the driver's thread-local capture mode has it), so what this thread does elsewhere counts too.
    static CAPTURING: RefCell<Vec<Arc<StreamInner>>> = const { RefCell::new(Vec::new()) };
}

fn current_capture() -> Option<Arc<StreamInner>> {
    // A destructor may run while the thread's locals are being torn down: nothing is captured then.
    CAPTURING.try_with(|stack| stack.borrow().last().cloned()).ok().flatten()
}

/// Refuses an operation when this thread is capturing.
pub(super) fn forbid_in_capture(violation: impl FnOnce() -> Violation) -> Result<(), CaptureError> {
    match current_capture() {
        Some(stream) => stream.forbid(violation()),
        None => Ok(()),
    }
}

/// Takes charge of freeing memory when this thread is capturing; says whether it did.
pub(super) fn defer_free(device: &Device, address: u64, bytes: usize, name: &str) -> bool {
    let Some(stream) = current_capture() else { return false };
    // Noted in the machine; a destructor has nobody to return the error to.
    let _ = stream.forbid(Violation::Free(name.to_owned()));
    stream.deferred().push((device.clone(), address, bytes));
    true
}

impl StreamInner {
    fn machine(&self) -> MutexGuard<'_, CaptureMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deferred(&self) -> MutexGuard<'_, Vec<(Device, u64, usize)>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forbid(&self, violation: Violation) -> Result<(), CaptureError> {
        self.machine().forbid(violation).map_or(Ok(()), Err)
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        self.device.backend().stream_destroy(self.handle);
    }
}

/// A queue of work on one device: what is submitted to it runs in order. Clones are the same stream.
///
/// Streams do not synchronise with the device's default stream, nor with each other except through
/// [`Event`]s.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

impl Stream {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let handle = device.backend().stream_create()?;
        Ok(Self(Arc::new(StreamInner {
            device: device.clone(),
            handle,
            capturing: AtomicBool::new(false),
            after_launch: AtomicBool::new(false),
            machine: Mutex::default(),
            recorded: Mutex::default(),
            deferred: Mutex::default(),
            staging: Mutex::default(),
        })))
    }

    pub(super) fn handle(&self) -> StreamHandle {
        self.0.handle
    }

    /// Notes that what was submitted last is a launch, or something else. Returns what it was before.
    pub(super) fn launched(&self, launch: bool) -> bool {
        self.0.after_launch.swap(launch, Ordering::AcqRel)
    }

    pub(super) fn staging(&self) -> MutexGuard<'_, HashMap<u32, Staging>> {
        self.0.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device that it runs on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Where the stream is with capturing.
    pub fn capture_state(&self) -> CaptureState {
        self.0.machine().state()
    }

    /// The capture that what is submitted now belongs to: this thread's, or this stream's by another thread.
    fn capture_under_way(&self) -> Option<Arc<StreamInner>> {
        current_capture().or_else(|| self.0.capturing.load(Ordering::Acquire).then(|| self.0.clone()))
    }

    pub(super) fn forbid(&self, violation: impl FnOnce() -> Violation) -> Result<()> {
        match self.capture_under_way() {
            Some(stream) => Ok(stream.forbid(violation())?),
            None => Ok(()),
        }
    }

    /// Notes a failed submission: a capture under way is refused, even when its body goes on.
    fn noted(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result
            && !matches!(error, DeviceError::Capture(_))
            && let Some(stream) = self.capture_under_way()
        {
            // The caller gets the error itself.
            let _ = stream.forbid(Violation::Failure(error.to_string()));
        }
        result
    }

    /// Notes a submission: in a capture the graph keeps `what` alive and does what `counters` say at each run, otherwise
    /// it is done now.
    fn submitted(&self, counters: DeviceCounters, what: impl FnOnce() -> Keep) {
        match self.capture_under_way() {
            Some(stream) => {
                let mut recorded = stream.recorded();
                recorded.keep.push(what());
                recorded.counters += counters;
            }
            None => self.device().count(counters),
        }
    }

    /// Copies `data` to `dst` after all work submitted before; done when it returns.
    ///
    /// # Errors
    /// A length other than the buffer's, a buffer of another device, a failed copy; in a capture,
    /// [`CaptureError::Forbidden`] (a pageable copy).
    pub fn write<T: Element>(&self, dst: &Buffer<T>, data: &[T]) -> Result<()> {
        same_length("write", dst.name(), dst.len(), data.len())?;
        self.device().expect_same(dst.device(), "buffer", dst.name())?;
        self.forbid(|| Violation::PageableCopy(dst.name().to_owned()))?;
        self.launched(false);
        let backend = self.device().backend();
        waiting(|| backend.upload(self.handle(), dst.address(), bytemuck::cast_slice(data)))?;
        self.device().count(DeviceCounters::to_device(dst.bytes()));
        Ok(())
    }

    /// Copies `src` to `data` after all work submitted before; done when it returns.
    ///
    /// # Errors
    /// As [`Stream::write`].
    pub fn read<T: Element>(&self, src: &Buffer<T>, data: &mut [T]) -> Result<()> {
        same_length("read", src.name(), src.len(), data.len())?;
        self.device().expect_same(src.device(), "buffer", src.name())?;
        self.forbid(|| Violation::PageableCopy(src.name().to_owned()))?;
        self.launched(false);
        let backend = self.device().backend();
        waiting(|| backend.download(self.handle(), bytemuck::cast_slice_mut(data), src.address()))?;
        self.device().count(DeviceCounters::to_host(src.bytes()));
        Ok(())
    }

    /// Queues a copy of `src` to `dst`; after a synchronisation `dst` holds it. May be captured; the graph
    /// keeps both alive.
    ///
    /// # Errors
    /// Lengths that differ, another device, a failed submission.
    pub fn read_pinned<T: Element>(&self, src: &Buffer<T>, dst: &HostBuffer<T>) -> Result<()> {
        self.noted(self.submit_read_pinned(src, dst))
    }

    fn submit_read_pinned<T: Element>(&self, src: &Buffer<T>, dst: &HostBuffer<T>) -> Result<()> {
        same_length("read_pinned", src.name(), src.len(), dst.len())?;
        self.device().expect_same(src.device(), "buffer", src.name())?;
        let allocation = src.allocation();
        let address = allocation.address() + src.byte_offset() as u64;
        self.launched(false);
        self.device().backend().download_pinned(self.handle(), dst.memory.start, address, src.bytes())?;
        self.submitted(DeviceCounters::to_host(src.bytes()), || Arc::new((allocation, dst.memory.clone())));
        Ok(())
    }

    /// Queues a copy of `src` to `dst`. May be captured; the graph keeps both alive and reads `src` anew at
    /// each replay.
    ///
    /// # Errors
    /// Lengths that differ, another device, a failed submission.
    pub fn write_pinned<T: Element>(&self, dst: &Buffer<T>, src: &HostBuffer<T>) -> Result<()> {
        self.noted(self.submit_write_pinned(dst, src))
    }

    fn submit_write_pinned<T: Element>(&self, dst: &Buffer<T>, src: &HostBuffer<T>) -> Result<()> {
        same_length("write_pinned", dst.name(), dst.len(), src.len())?;
        self.device().expect_same(dst.device(), "buffer", dst.name())?;
        let allocation = dst.allocation();
        let address = allocation.address() + dst.byte_offset() as u64;
        self.launched(false);
        self.device().backend().upload_pinned(self.handle(), address, src.memory.start, 0, dst.bytes())?;
        self.submitted(DeviceCounters::to_device(dst.bytes()), || Arc::new((allocation, src.memory.clone())));
        Ok(())
    }

    /// Queues a copy of `src` to `dst`, one of which may lie on another device of the same kind. May be captured; the
    /// graph keeps both alive.
    ///
    /// Between devices that are not connected ([`Device::peer_access`]) the copy goes through page-locked host memory, in
    /// order with this stream's work all the same; such a copy cannot be captured.
    ///
    /// # Errors
    /// Lengths that differ, devices of different kinds, neither of them the stream's, a failed submission; in a capture,
    /// [`CaptureError::Forbidden`] for a copy through the host and for devices that [`Device::peer_access`] was not asked
    /// about before.
    pub fn copy<T: Element>(&self, dst: &Buffer<T>, src: &Buffer<T>) -> Result<()> {
        self.noted(self.submit_copy(dst, src))
    }

    fn submit_copy<T: Element>(&self, dst: &Buffer<T>, src: &Buffer<T>) -> Result<()> {
        same_length("copy", dst.name(), dst.len(), src.len())?;
        let device = self.device();
        device.expect_peer(dst.device(), "buffer", dst.name())?;
        device.expect_peer(src.device(), "buffer", src.name())?;
        let other = match (dst.device() == device, src.device() == device) {
            (true, true) => None,
            (true, false) => Some(src.device()),
            (false, true) => Some(dst.device()),
            (false, false) => return Err(device.wrong_device(dst.device(), "buffer", dst.name())),
        };
        if let Some(other) = other
            && !device.peer_access(other)?
        {
            return self.copy_staged(dst, src);
        }
        let (to, from) = (dst.allocation(), src.allocation());
        let (dst_address, src_address) =
            (to.address() + dst.byte_offset() as u64, from.address() + src.byte_offset() as u64);
        self.launched(false);
        device.backend().copy(self.handle(), dst_address, src_address, dst.bytes())?;
        let mut counters = DeviceCounters::default();
        if other.is_some() {
            counters.peer = Copies::one(dst.bytes());
        }
        self.submitted(counters, || Arc::new((to, from)));
        Ok(())
    }

    /// Queues setting every byte of `dst` to `byte`. May be captured; the graph keeps `dst` alive.
    ///
    /// # Errors
    /// A buffer of another device, a failed submission.
    pub fn fill<T: Element>(&self, dst: &Buffer<T>, byte: u8) -> Result<()> {
        self.noted(self.submit_fill(dst, byte))
    }

    fn submit_fill<T: Element>(&self, dst: &Buffer<T>, byte: u8) -> Result<()> {
        self.device().expect_same(dst.device(), "buffer", dst.name())?;
        let allocation = dst.allocation();
        let address = allocation.address() + dst.byte_offset() as u64;
        self.launched(false);
        self.device().backend().fill(self.handle(), address, byte, dst.bytes())?;
        self.submitted(DeviceCounters::default(), || allocation);
        Ok(())
    }

    /// Queues a launch. In a capture the graph keeps the function's module loaded, and the caller names the
    /// allocations behind the arguments when the graph is instantiated.
    ///
    /// # Errors
    /// [`DeviceError::BadLaunch`] for a configuration that the kernel cannot take, before the device sees it;
    /// [`DeviceError::LaunchFailed`], with the kernel's name, when the device refuses it. On CUDA a fault while
    /// the kernel runs shows at the next synchronisation.
    pub fn launch(&self, function: &Function, params: &LaunchParams<'_>) -> Result<()> {
        self.noted(self.submit_launch(function, params))
    }

    fn submit_launch(&self, function: &Function, params: &LaunchParams<'_>) -> Result<()> {
        self.device().expect_same(function.device(), "function", function.name())?;
        params.check(function.info())?;
        let early = self.launched(false)
            && params.programmatic
            && !params.cooperative
            && function.info().dependence.controls.is_some();
        let params = LaunchParams { programmatic: early, ..*params };
        self.device().backend().launch(self.handle(), function.handle(), function.info(), &params)?;
        self.launched(true);
        match self.capture_under_way() {
            Some(stream) => {
                let mut recorded = stream.recorded();
                recorded.counters.graph_kernels += 1;
                if !recorded.functions.contains(function) {
                    recorded.functions.push(function.clone());
                }
            }
            None => self.device().count(DeviceCounters { kernel_launches: 1, ..DeviceCounters::default() }),
        }
        Ok(())
    }

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// A fault of an earlier launch; in a capture, [`CaptureError::Forbidden`].
    pub fn synchronize(&self) -> Result<()> {
        self.forbid(|| Violation::Synchronisation("synchronize"))?;
        waiting(|| self.device().backend().stream_synchronize(self.handle()))
    }

    /// Records `event` after the work submitted so far.
    ///
    /// # Errors
    /// An event of another device, a failed call.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.device().expect_same(event.device(), "event", "event")?;
        self.launched(false);
        self.device().backend().event_record(event.handle(), self.handle())
    }

    /// Makes work submitted from here on wait for `event`, which may be of another device of the same kind.
    /// In a capture this draws the other stream into the capture, or joins it back.
    ///
    /// # Errors
    /// A device of another kind, a failed call.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device().expect_peer(event.device(), "event", "event")?;
        self.launched(false);
        self.device().backend().event_wait(event.handle(), self.handle())
    }

    /// Records what `body` submits to this stream (and to streams that it draws in through events) as a graph
    /// instead of running it.
    ///
    /// The capture is ended whatever happens: on success, when `body` returns an error, and when it panics
    /// (the panic then goes on). The stream is usable afterwards. The capture belongs to this thread: what
    /// other threads do on other streams is no part of it.
    ///
    /// # Errors
    /// [`CaptureError::Refused`] for an allocation, a free, a module load, a host synchronisation or a pageable
    /// copy in `body`; [`CaptureError::Body`] for its own error; [`CaptureError::Empty`] when it submitted
    /// nothing; [`CaptureError::AlreadyCapturing`]; [`CaptureError::Device`].
    pub fn capture<E>(&self, body: impl FnOnce(&Stream) -> Result<(), E>) -> Result<Graph, CaptureError>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut ending = CaptureInProgress::begin(self)?;
        let outcome = match body(self) {
            Ok(()) => BodyOutcome::Returned,
            Err(error) => BodyOutcome::Failed(error.into()),
        };
        ending.end(outcome)
    }

    fn device_failure(&self, call: &'static str, error: &DeviceError) -> CaptureError {
        CaptureError::Device { call, device: self.device().to_string(), reason: error.to_string() }
    }
}

/// A capture that is under way; dropping it, as a panic does, ends it.
struct CaptureInProgress<'a> {
    stream: &'a Stream,
    ended: bool,
}

impl<'a> CaptureInProgress<'a> {
    fn begin(stream: &'a Stream) -> Result<Self, CaptureError> {
        if let Some(outer) = current_capture() {
            // A second capture by this thread would be part of the first one's forbidden list anyway.
            return outer.machine().begin().and(Err(CaptureError::AlreadyCapturing));
        }
        stream.0.machine().begin()?;
        if let Err(error) = stream.device().backend().capture_begin(stream.handle()) {
            let error = stream.device_failure("begin capture", &error);
            stream.0.machine().finish(BodyOutcome::Returned, Err(error))?;
        }
        stream.launched(false);
        *stream.0.recorded() = Recorded::default();
        stream.0.capturing.store(true, Ordering::Release);
        CAPTURING.with(|stack| stack.borrow_mut().push(stream.0.clone()));
        Ok(Self { stream, ended: false })
    }

    fn end(&mut self, outcome: BodyOutcome) -> Result<Graph, CaptureError> {
        self.ended = true;
        let stream = self.stream;
        CAPTURING.with(|stack| stack.borrow_mut().retain(|other| !Arc::ptr_eq(other, &stream.0)));
        let captured = stream.device().backend().capture_end(stream.handle());
        stream.0.capturing.store(false, Ordering::Release);
        stream.launched(false);
        let recorded = std::mem::take(&mut *stream.0.recorded());
        for (device, address, bytes) in std::mem::take(&mut *stream.0.deferred()) {
            device.release(address, bytes);
        }
        let graph = captured
            .and_then(|handle| Graph::new(stream.device(), handle, recorded))
            .map_err(|error| stream.device_failure("end capture", &error));
        let (graph, nodes) = match graph {
            Ok(graph) => {
                let count = graph.node_count();
                (Some(graph), Ok(count))
            }
            Err(error) => (None, Err(error)),
        };
        stream.0.machine().finish(outcome, nodes)?;
        // `finish` accepts only a graph that is there.
        graph.ok_or(CaptureError::Empty)
    }
}

impl Drop for CaptureInProgress<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A panic in the body: it goes on, so the refusal has no reader.
            let _ = self.end(BodyOutcome::Panicked);
        }
    }
}

fn same_length(what: &'static str, name: &str, have: usize, want: usize) -> Result<()> {
    if have == want {
        Ok(())
    } else {
        Err(DeviceError::LengthMismatch { what, name: name.to_owned(), have, want })
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:#x} of {}, {:?})", self.0.handle.0, self.device(), self.capture_state())
    }
}
