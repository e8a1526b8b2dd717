//! CUDA devices as a backend: `cust` for devices, contexts and modules, the driver API itself for the rest.
//!
//! Handles are the driver's own pointers. Every call makes the device's primary context current on the calling
//! thread first, which costs a thread-local comparison when it already is.

mod graph;
mod module;
mod open;

pub(super) use open::open;

use super::backend::{
    Backend, EventHandle, ExecHandle, FunctionHandle, GraphContents, GraphHandle, ModuleHandle,
    ResolvedFunction, StreamHandle,
};
use super::driver::newer::{LaunchAttribute, LaunchConfig, cuLaunchKernelEx};
use super::driver::{check, failure, last_failure};
use super::error::{DeviceError, Result};
use super::module::{FunctionInfo, MAX_PARAMS};
use super::stream::LaunchParams;
use cust_raw::*;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All CUDA devices are of one machine; no simulated machine has this number.
pub(super) const MACHINE: usize = 0;

const SUCCESS: CUresult = cudaError_enum::CUDA_SUCCESS;

thread_local! {
    /// The context that this layer made current on this thread.
    static CURRENT: Cell<CUcontext> = const { Cell::new(ptr::null_mut()) };
}

/// A function of a loaded module, for reading graphs back and naming what failed.
struct KnownFunction {
    info: Arc<FunctionInfo>,
    module: u64,
}

/// One CUDA device, through its primary context.
pub(super) struct CudaBackend {
    /// `cuda:0`
    name: String,
    device: cust::device::Device,
    driver: (u32, u32),
    context: CUcontext,
    /// The streams that there are. Held while one begins a capture and while all are waited for, so that none begins
    /// a capture in between.
    streams: Mutex<HashSet<u64>>,
    functions: Mutex<HashMap<u64, KnownFunction>>,
    /// The nodes of each captured graph, in the order they are shown in.
    nodes: Mutex<HashMap<u64, Vec<CUgraphNode>>>,
    /// The last function launched: a fault shows at a later synchronisation, and this is where to look first.
    last_launch: AtomicPtr<c_void>,
}

// SAFETY: contexts, functions and graph nodes are handles of the driver, which any thread may use once the context
// is current there; the tables are locked.
unsafe impl Send for CudaBackend {}
// SAFETY: as above.
unsafe impl Sync for CudaBackend {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's stream behind a handle.
fn raw_stream(stream: StreamHandle) -> CUstream {
    ptr::with_exposed_provenance_mut(stream.0 as usize)
}

fn raw_event(event: EventHandle) -> CUevent {
    ptr::with_exposed_provenance_mut(event.0 as usize)
}

fn raw_function(function: FunctionHandle) -> CUfunction {
    ptr::with_exposed_provenance_mut(function.0 as usize)
}

fn handle<T>(pointer: *mut T) -> u64 {
    pointer.expose_provenance() as u64
}

impl CudaBackend {
    /// Makes the context current on this thread.
    fn enter(&self) -> Result<()> {
        if CURRENT.get() != self.context {
            // SAFETY: primary contexts are retained for the life of the process.
            check(unsafe { cuCtxSetCurrent(self.context) }, "make the context current", &self.name)?;
            CURRENT.set(self.context);
        }
        Ok(())
    }

    fn check(&self, result: CUresult, call: &'static str) -> Result<()> {
        check(result, call, &self.name)
    }

    /// Like `check`, for calls that report the faults of earlier launches.
    fn check_work(&self, result: CUresult, call: &'static str) -> Result<()> {
        if result == SUCCESS {
            return Ok(());
        }
        let last = last_failure();
        // 700 to 719: faults of running kernels (illegal address, launch failure, misaligned address …).
        let function = handle(self.last_launch.load(Ordering::Relaxed));
        match lock(&self.functions).get(&function) {
            Some(known) if (700..720).contains(&last.code) => Err(DeviceError::LaunchFailed {
                kernel: known.info.name.clone(),
                device: self.name.clone(),
                reason: format!(
                    "{}, seen at {call}; this kernel was the last one launched, an earlier one may be at fault: \
                     `--device sim` or compute-sanitizer tells which",
                    last.text
                ),
            }),
            _ => Err(failure(call, &self.name)),
        }
    }

    /// An operation of a destructor, which can only log its failure. A driver that is shutting down is no failure.
    fn release_with(&self, what: &str, call: impl FnOnce() -> CUresult) {
        if self.enter().is_ok() && call() != SUCCESS {
            const DEINITIALIZED: u32 = 4;
            let last = last_failure();
            if last.code != DEINITIALIZED {
                tracing::error!("{}: {what}: {}", self.name, last.text);
            }
        }
    }
}

impl std::fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaBackend({})", self.name)
    }
}

/// Pointers to the arguments in a parameter block, as the driver takes them.
fn argument_pointers(info: &FunctionInfo, args: &[u8]) -> [*mut c_void; MAX_PARAMS] {
    let mut pointers = [ptr::null_mut(); MAX_PARAMS];
    for (pointer, param) in pointers.iter_mut().zip(&info.params) {
        // The driver only reads through these, despite the type.
        *pointer = args[param.offset..].as_ptr().cast_mut().cast();
    }
    pointers
}

impl Backend for CudaBackend {
    fn machine(&self) -> usize {
        MACHINE
    }

    fn allocate(&self, bytes: usize, name: &str) -> Result<u64> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: `address` is valid for the write.
        let result = unsafe { cuMemAlloc_v2(&mut address, bytes) };
        if result == cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, total) = self.memory_info()?;
            return Err(DeviceError::OutOfMemory {
                device: self.name.clone(),
                name: name.to_owned(),
                asked: bytes as u64,
                free,
                total,
            });
        }
        self.check(result, "allocate memory")?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        // SAFETY: an `Allocation` frees its own address once. The driver waits for work that may use it.
        self.release_with("free memory", || unsafe { cuMemFree_v2(address) });
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        self.enter()?;
        let (free, total) = cust::memory::mem_get_info().map_err(|_| failure("memory info", &self.name))?;
        Ok((free as u64, total as u64))
    }

    fn pinned_allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        const PORTABLE: u32 = 1; // page-locked for every context
        self.enter()?;
        let mut memory = ptr::null_mut();
        // SAFETY: `memory` is valid for the write.
        self.check(unsafe { cuMemHostAlloc(&mut memory, bytes, PORTABLE) }, "allocate page-locked memory")?;
        let memory = NonNull::new(memory.cast::<u8>());
        let memory = memory.ok_or_else(|| failure("allocate page-locked memory", &self.name))?;
        // SAFETY: the driver gave `bytes` bytes at `memory`.
        unsafe { memory.write_bytes(0, bytes) };
        Ok(memory)
    }

    fn pinned_free(&self, memory: NonNull<u8>, _bytes: usize) {
        // SAFETY: `memory` came from `cuMemHostAlloc` and is freed once, by its owner.
        self.release_with("free page-locked memory", || unsafe { cuMemFreeHost(memory.as_ptr().cast()) });
    }

    fn enable_peer_access(&self, ordinal: u32) -> Result<bool> {
        let peer =
            cust::device::Device::get_device(ordinal).map_err(|_| failure("find a device", &self.name))?;
        let mut possible = 0;
        // SAFETY: `possible` is valid for the write; both devices exist.
        let result = unsafe { cuDeviceCanAccessPeer(&mut possible, self.device.as_raw(), peer.as_raw()) };
        self.check(result, "ask for peer access")?;
        if possible == 0 {
            return Ok(false);
        }
        let context = open::primary_context(ordinal, peer)?;
        self.enter()?;
        // SAFETY: both contexts are retained.
        let result = unsafe { cuCtxEnablePeerAccess(context, 0) };
        // So it is when the device was opened before in this process: the context outlives the opening.
        if result != cudaError_enum::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
            self.check(result, "enable peer access")?;
        }
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // Stream by stream: waiting for the context is invalid, and spoils the capture, while any stream of it
        // captures, which may be another thread's.
        for &stream in &*lock(&self.streams) {
            let stream = StreamHandle(stream);
            let mut status = 0u32;
            // SAFETY: the stream is alive as long as it is listed; the status, a C enum, is read as the integer it is.
            let result =
                unsafe { cuStreamIsCapturing(raw_stream(stream), ptr::from_mut(&mut status).cast()) };
            self.check_work(result, "ask whether a stream captures")?;
            if status == 0 {
                self.stream_synchronize(stream)?;
            }
        }
        Ok(())
    }

    fn stream_create(&self) -> Result<StreamHandle> {
        const NON_BLOCKING: u32 = 1;
        self.enter()?;
        let mut stream = ptr::null_mut();
        // Not through `cust`: its `Stream::new` removes NON_BLOCKING, so that every stream would wait for the default one.
        // SAFETY: `stream` is valid for the write.
        self.check(unsafe { cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, 0) }, "create a stream")?;
        lock(&self.streams).insert(handle(stream));
        Ok(StreamHandle(handle(stream)))
    }

    fn stream_destroy(&self, stream: StreamHandle) {
        lock(&self.streams).remove(&stream.0);
        // SAFETY: its owner destroys it once; the driver lets queued work finish.
        self.release_with("destroy a stream", || unsafe { cuStreamDestroy_v2(raw_stream(stream)) });
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is alive.
        self.check_work(unsafe { cuStreamSynchronize(raw_stream(stream)) }, "synchronise")
    }

    fn upload(&self, stream: StreamHandle, dst: u64, src: &[u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: a buffer holds `src.len()` bytes at `dst`; `src` outlives the copy, which is waited for.
        let result = unsafe { cuMemcpyHtoDAsync_v2(dst, src.as_ptr().cast(), src.len(), raw_stream(stream)) };
        self.check_work(result, "copy to the device")?;
        self.stream_synchronize(stream)
    }

    fn download(&self, stream: StreamHandle, dst: &mut [u8], src: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: as in `upload`, the other way round.
        let result =
            unsafe { cuMemcpyDtoHAsync_v2(dst.as_mut_ptr().cast(), src, dst.len(), raw_stream(stream)) };
        self.check_work(result, "copy to the host")?;
        self.stream_synchronize(stream)
    }

    fn upload_pinned(
        &self,
        stream: StreamHandle,
        dst: u64,
        src: NonNull<u8>,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.enter()?;
        // SAFETY: the page-locked memory holds `bytes` bytes from `offset` on, as the trait demands.
        let src = unsafe { src.as_ptr().add(offset) };
        // SAFETY: both sides hold `bytes` bytes and outlive the copy, as the trait demands.
        let result = unsafe { cuMemcpyHtoDAsync_v2(dst, src.cast(), bytes, raw_stream(stream)) };
        self.check_work(result, "copy to the device")
    }

    fn download_pinned(&self, stream: StreamHandle, dst: NonNull<u8>, src: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: as above.
        let result = unsafe { cuMemcpyDtoHAsync_v2(dst.as_ptr().cast(), src, bytes, raw_stream(stream)) };
        self.check_work(result, "copy to the host")
    }

    fn copy(&self, stream: StreamHandle, dst: u64, src: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        // The form that finds out from the addresses which devices they are of.
        // SAFETY: both are ranges of live allocations.
        let result = unsafe { cuMemcpyAsync(dst, src, bytes, raw_stream(stream)) };
        self.check_work(result, "copy on the device")
    }

    fn fill(&self, stream: StreamHandle, dst: u64, byte: u8, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: `dst` is a range of a live allocation.
        self.check_work(unsafe { cuMemsetD8Async(dst, byte, bytes, raw_stream(stream)) }, "fill")
    }

    fn module_load(&self, name: &str, ptx: &str) -> Result<(ModuleHandle, Vec<ResolvedFunction>)> {
        self.load(name, ptx)
    }

    fn module_unload(&self, module: ModuleHandle) {
        self.unload(module);
    }

    fn function_allow_shared(&self, function: FunctionHandle, bytes: u32) -> Result<()> {
        self.enter()?;
        let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function's module is loaded.
        let result = unsafe { cuFuncSetAttribute(raw_function(function), attribute, bytes as i32) };
        self.check(result, "allow shared memory")
    }

    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()> {
        self.enter()?;
        let mut pointers = argument_pointers(info, params.args);
        let (raw, stream) = (raw_function(function), raw_stream(stream));
        let ([gx, gy, gz], [bx, by, bz]) = (params.grid, params.block);
        let result = if params.cooperative || params.programmatic {
            let mut attributes = [LaunchAttribute::COOPERATIVE, LaunchAttribute::PROGRAMMATIC];
            let attributes = match (params.cooperative, params.programmatic) {
                (true, true) => &mut attributes[..],
                (true, false) => &mut attributes[..1],
                _ => &mut attributes[1..],
            };
            let config = LaunchConfig {
                grid: params.grid,
                block: params.block,
                shared_bytes: params.shared,
                stream,
                attributes: attributes.as_ptr(),
                attribute_count: attributes.len() as u32,
            };
            // SAFETY: `pointers` has an argument of the right size for each parameter, checked by the caller against
            // `info`; configuration and attributes live through the call.
            unsafe { cuLaunchKernelEx(&config, raw, pointers.as_mut_ptr(), ptr::null_mut()) }
        } else {
            // SAFETY: as above.
            unsafe {
                cuLaunchKernel(
                    raw,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    params.shared,
                    stream,
                    pointers.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        };
        if result != SUCCESS {
            let device = self.name.clone();
            let last = last_failure();
            if last.absent.is_some() {
                return Err(failure("launch", &device));
            }
            return Err(DeviceError::LaunchFailed { kernel: info.name.clone(), device, reason: last.text });
        }
        self.last_launch.store(raw.cast(), Ordering::Relaxed);
        Ok(())
    }

    fn event_create(&self) -> Result<EventHandle> {
        self.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is valid for the write.
        self.check(unsafe { cuEventCreate(&mut raw, 0) }, "create an event")?;
        Ok(EventHandle(handle(raw)))
    }

    fn event_destroy(&self, event: EventHandle) {
        // SAFETY: its owner destroys it once.
        self.release_with("destroy an event", || unsafe { cuEventDestroy_v2(raw_event(event)) });
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: both are alive.
        self.check_work(unsafe { cuEventRecord(raw_event(event), raw_stream(stream)) }, "record an event")
    }

    fn event_wait(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: both are alive.
        self.check_work(
            unsafe { cuStreamWaitEvent(raw_stream(stream), raw_event(event), 0) },
            "wait for an event",
        )
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the event is alive.
        self.check_work(unsafe { cuEventSynchronize(raw_event(event)) }, "event synchronise")
    }

    fn event_elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32> {
        self.enter()?;
        let mut elapsed = 0.0;
        // SAFETY: `elapsed` is valid for the write; both events are alive.
        let result = unsafe { cuEventElapsedTime(&mut elapsed, raw_event(start), raw_event(end)) };
        self.check_work(result, "event elapsed time")?;
        Ok(elapsed)
    }

    fn capture_begin(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let _none_waits = lock(&self.streams);
        // SAFETY: the stream is alive.
        self.check(unsafe { cuStreamBeginCapture_v2(raw_stream(stream), mode) }, "begin capture")
    }

    fn capture_end(&self, stream: StreamHandle) -> Result<GraphHandle> {
        self.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` is valid for the write.
        self.check(unsafe { cuStreamEndCapture(raw_stream(stream), &mut graph) }, "end capture")?;
        if graph.is_null() {
            let reason = "the driver gave no graph".to_owned();
            return Err(DeviceError::Call { call: "end capture", device: self.name.clone(), reason });
        }
        Ok(GraphHandle(handle(graph)))
    }

    fn graph_contents(&self, graph: GraphHandle) -> Result<GraphContents> {
        self.read_graph(graph)
    }

    fn graph_instantiate(&self, graph: GraphHandle) -> Result<ExecHandle> {
        self.instantiate(graph)
    }

    fn graph_destroy(&self, graph: GraphHandle) {
        self.destroy_graph(graph);
    }

    fn exec_launch(&self, exec: ExecHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: both are alive.
        let result = unsafe { cuGraphLaunch(graph::raw_exec(exec), raw_stream(stream)) };
        self.check_work(result, "launch a graph")
    }

    fn exec_set_kernel_params(
        &self,
        exec: ExecHandle,
        graph: GraphHandle,
        index: usize,
        function: FunctionHandle,
        info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()> {
        self.set_kernel_params(exec, graph, index, function, info, params)
    }

    fn exec_destroy(&self, exec: ExecHandle) {
        // SAFETY: its owner destroys it once; the driver lets a run under way finish.
        self.release_with("destroy an executable graph", || unsafe {
            cuGraphExecDestroy(graph::raw_exec(exec))
        });
    }
}
