//! The simulated device as a backend: handles over `ptx_sim::system`.

use super::abi;
use super::backend::{
    Backend, EventHandle, ExecHandle, FunctionHandle, GraphContents, GraphHandle, ModuleHandle,
    ResolvedFunction, StreamHandle,
};
use super::error::{DeviceError, Result};
use super::graph::{GraphEdge, GraphNode, KernelNode};
use super::module::FunctionInfo;
use super::stream::{Access, LaunchParams};
use super::{DeviceInfo, DeviceKind};
use ptx_sim::system::{self, HostMemory, KernelLaunch, Operation, Place, System, SystemError};
use ptx_sim::{Kernel, PointerAccess};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The most shared memory of a block on compute capability 9.0: 227 KiB.
const MAX_SHARED: u32 = 227 << 10;

/// Objects by handle. Handles are unique in the process, so that one of another device is never mistaken.
#[derive(Debug)]
struct Table<T>(RwLock<HashMap<u64, T>>);

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

impl<T: Clone> Table<T> {
    fn new() -> Self {
        Self(RwLock::default())
    }

    fn insert(&self, object: T) -> u64 {
        let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        self.put(handle, object);
        handle
    }

    fn put(&self, handle: u64, object: T) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    fn get(&self, handle: u64) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    fn remove(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }
}

/// One device of a simulated machine.
#[derive(Debug)]
pub(super) struct SimBackend {
    system: Arc<System>,
    ordinal: u32,
    streams: Table<Arc<system::Stream>>,
    kernels: Table<Arc<Kernel>>,
    /// The kernels of each module.
    modules: Table<Vec<u64>>,
    graphs: Table<Arc<system::Graph>>,
    execs: Table<Arc<system::GraphExec>>,
}

/// Page-locked memory is of the process, by its address: what is locked for one device is locked for all.
fn pinned() -> &'static Table<Arc<HostMemory>> {
    static PINNED: std::sync::OnceLock<Table<Arc<HostMemory>>> = std::sync::OnceLock::new();
    PINNED.get_or_init(Table::new)
}

/// Events are of the process: streams of one device wait for events of another.
fn events() -> &'static Table<Arc<system::Event>> {
    static EVENTS: std::sync::OnceLock<Table<Arc<system::Event>>> = std::sync::OnceLock::new();
    EVENTS.get_or_init(Table::new)
}

/// The number of a simulated machine.
pub(super) fn machine(system: &Arc<System>) -> usize {
    Arc::as_ptr(system) as usize
}

/// Opens device `ordinal` of `system`.
pub(super) fn open(system: &Arc<System>, ordinal: u32) -> Result<(SimBackend, DeviceInfo)> {
    let config = system.config();
    if ordinal >= config.devices {
        return Err(DeviceError::BadOrdinal { kind: "sim", ordinal, count: config.devices });
    }
    let info = DeviceInfo {
        kind: DeviceKind::Sim,
        ordinal,
        name: "ptx-sim".to_owned(),
        // What the simulator executes: the subset of both PTX targets, the Hopper one included.
        compute: (9, 0),
        sm_count: 132,
        clock_hz: None,
        total_memory: config.memory,
        l2_bytes: 50 << 20,
        max_shared: MAX_SHARED,
        driver_version: None,
        driver_release: None,
    };
    let backend = SimBackend {
        system: system.clone(),
        ordinal,
        streams: Table::new(),
        kernels: Table::new(),
        modules: Table::new(),
        graphs: Table::new(),
        execs: Table::new(),
    };
    Ok((backend, info))
}

impl SimBackend {
    fn device(&self) -> String {
        format!("sim:{}", self.ordinal)
    }

    fn call(&self, call: &'static str, reason: impl ToString) -> DeviceError {
        DeviceError::Call { call, device: self.device(), reason: reason.to_string() }
    }

    /// Says what of the simulated machine failed in which call.
    fn failed(&self, call: &'static str) -> impl FnOnce(SystemError) -> DeviceError {
        let device = self.device();
        move |error| match error {
            SystemError::Fault(fault) => {
                DeviceError::LaunchFailed { kernel: fault.entry.clone(), device, reason: fault.to_string() }
            }
            SystemError::OutOfMemory { name, asked, free, total, .. } => {
                DeviceError::OutOfMemory { device, name, asked, free, total }
            }
            SystemError::BadNode { index, reason } => DeviceError::BadNode { index, reason },
            other => DeviceError::Call { call, device, reason: other.to_string() },
        }
    }

    fn stream(&self, stream: StreamHandle) -> Result<Arc<system::Stream>> {
        self.streams.get(stream.0).ok_or_else(|| self.call("use of a stream", "unknown stream"))
    }

    fn event(&self, event: EventHandle) -> Result<Arc<system::Event>> {
        events().get(event.0).ok_or_else(|| self.call("use of an event", "unknown event"))
    }

    fn host(&self, memory: NonNull<u8>) -> Result<Arc<HostMemory>> {
        let host = pinned().get(memory.as_ptr() as u64);
        host.ok_or_else(|| self.call("use of page-locked memory", "unknown memory"))
    }

    fn graph(&self, graph: GraphHandle) -> Result<Arc<system::Graph>> {
        self.graphs.get(graph.0).ok_or_else(|| self.call("use of a graph", "unknown graph"))
    }

    fn exec(&self, exec: ExecHandle) -> Result<Arc<system::GraphExec>> {
        self.execs.get(exec.0).ok_or_else(|| self.call("use of an executable graph", "unknown graph"))
    }
}

fn pointer_access(params: &LaunchParams) -> Box<[PointerAccess]> {
    let access = params.access.iter().map(|declared| PointerAccess {
        param: declared.param,
        access: match declared.access {
            Access::Read => ptx_sim::Access::Read,
            Access::Write => ptx_sim::Access::Write,
            Access::ReadWrite => ptx_sim::Access::ReadWrite,
        },
        bytes: declared.bytes,
    });
    access.collect()
}

impl Backend for SimBackend {
    fn machine(&self) -> usize {
        machine(&self.system)
    }

    fn simulated_machine(&self) -> Option<Arc<System>> {
        Some(self.system.clone())
    }

    fn allocate(&self, bytes: usize, name: &str) -> Result<u64> {
        self.system.allocate(self.ordinal, bytes as u64, name).map_err(|error| match error {
            // The host ran out before the simulated device did.
            SystemError::Memory(error) => self.call("allocate", error),
            other => self.failed("allocate")(other),
        })
    }

    fn free(&self, address: u64) {
        if let Err(error) = self.system.free(address) {
            tracing::error!("{}: free of {address:#x}: {error}", self.device());
        }
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        self.system.memory_info(self.ordinal).map_err(self.failed("memory info"))
    }

    fn pinned_allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        let memory = Arc::new(HostMemory::new(bytes));
        let start = NonNull::new(memory.as_ptr().cast::<u8>().cast_mut());
        let start = start.ok_or_else(|| self.call("allocate page-locked memory", "null"))?;
        pinned().put(start.as_ptr() as u64, memory);
        Ok(start)
    }

    fn pinned_free(&self, memory: NonNull<u8>, _bytes: usize) {
        pinned().remove(memory.as_ptr() as u64);
    }

    fn enable_peer_access(&self, ordinal: u32) -> Result<bool> {
        match self.system.enable_peer_access(self.ordinal, ordinal) {
            Ok(()) => Ok(true),
            Err(SystemError::NoPeerAccess { .. }) => Ok(false),
            Err(error) => Err(self.failed("enable peer access")(error)),
        }
    }

    fn synchronize(&self) -> Result<()> {
        self.system.synchronize(Some(self.ordinal)).map_err(self.failed("synchronise"))
    }

    fn stream_create(&self) -> Result<StreamHandle> {
        let stream = self.system.stream(self.ordinal).map_err(self.failed("create a stream"))?;
        Ok(StreamHandle(self.streams.insert(Arc::new(stream))))
    }

    fn stream_destroy(&self, stream: StreamHandle) {
        self.streams.remove(stream.0);
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.stream(stream)?.synchronize().map_err(self.failed("synchronise"))
    }

    fn upload(&self, stream: StreamHandle, dst: u64, src: &[u8]) -> Result<()> {
        self.stream(stream)?.upload(dst, src).map_err(self.failed("copy to the device"))
    }

    fn download(&self, stream: StreamHandle, dst: &mut [u8], src: u64) -> Result<()> {
        self.stream(stream)?.download(dst, src).map_err(self.failed("copy to the host"))
    }

    fn upload_pinned(
        &self,
        stream: StreamHandle,
        dst: u64,
        src: NonNull<u8>,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let host = self.host(src)?;
        let copied = self.stream(stream)?.upload_pinned(dst, host, offset, bytes as u64);
        copied.map_err(self.failed("copy to the device"))
    }

    fn download_pinned(&self, stream: StreamHandle, dst: NonNull<u8>, src: u64, bytes: usize) -> Result<()> {
        let host = self.host(dst)?;
        self.stream(stream)?.download_pinned(host, src, bytes as u64).map_err(self.failed("copy to the host"))
    }

    fn copy(&self, stream: StreamHandle, dst: u64, src: u64, bytes: usize) -> Result<()> {
        self.stream(stream)?.copy(dst, src, bytes as u64).map_err(self.failed("copy on the device"))
    }

    fn fill(&self, stream: StreamHandle, dst: u64, byte: u8, bytes: usize) -> Result<()> {
        self.stream(stream)?.fill(dst, byte, bytes as u64).map_err(self.failed("fill"))
    }

    fn module_load(&self, name: &str, ptx: &str) -> Result<(ModuleHandle, Vec<ResolvedFunction>)> {
        let refused = |reason: String| DeviceError::ModuleLoad {
            module: name.to_owned(),
            device: self.device(),
            reason,
        };
        let module = ptx_sim::Module::parse(name, ptx).map_err(|error| refused(error.to_string()))?;
        let entries = abi::entries(name, ptx, &self.device())?;
        let mut kernels = Vec::with_capacity(entries.len());
        for info in &entries {
            let kernel = module.entry(&info.name);
            kernels.push(
                kernel.cloned().ok_or_else(|| refused(format!("entry `{}` was not decoded", info.name)))?,
            );
        }
        let handles: Vec<u64> = kernels.into_iter().map(|kernel| self.kernels.insert(kernel)).collect();
        let resolved = handles.iter().zip(entries);
        let resolved = resolved
            .map(|(&handle, info)| ResolvedFunction { handle: FunctionHandle(handle), info })
            .collect();
        Ok((ModuleHandle(self.modules.insert(handles)), resolved))
    }

    fn module_unload(&self, module: ModuleHandle) {
        for kernel in self.modules.get(module.0).unwrap_or_default() {
            self.kernels.remove(kernel);
        }
        self.modules.remove(module.0);
    }

    fn function_allow_shared(&self, _function: FunctionHandle, bytes: u32) -> Result<()> {
        if bytes > MAX_SHARED {
            let reason = format!("{bytes} bytes asked for, a block can have {MAX_SHARED}");
            return Err(self.call("allow shared memory", reason));
        }
        Ok(())
    }

    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()> {
        let kernel = self.kernels.get(function.0).ok_or_else(|| self.call("launch", "unknown function"))?;
        let launch = KernelLaunch {
            kernel,
            grid: params.grid,
            block: params.block,
            dynamic_shared: params.shared,
            params: params.args.into(),
            access: pointer_access(params),
            cooperative: params.cooperative,
            programmatic: params.programmatic,
        };
        if u64::from(params.shared) + u64::from(info.static_shared) > u64::from(MAX_SHARED) {
            let reason = format!(
                "{} + {} bytes of shared memory, a block can have {MAX_SHARED}",
                params.shared, info.static_shared
            );
            return Err(DeviceError::BadLaunch { kernel: info.name.clone(), reason });
        }
        self.stream(stream)?.launch(launch).map_err(self.failed("launch"))
    }

    fn event_create(&self) -> Result<EventHandle> {
        Ok(EventHandle(events().insert(Arc::new(system::Event::new()))))
    }

    fn event_destroy(&self, event: EventHandle) {
        events().remove(event.0);
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.stream(stream)?.record(&*self.event(event)?);
        Ok(())
    }

    fn event_wait(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.stream(stream)?.wait(&*self.event(event)?).map_err(self.failed("wait for an event"))
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.event(event)?.synchronize(&self.system).map_err(self.failed("event synchronise"))
    }

    fn event_elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32> {
        system::Event::elapsed_ms(&*self.event(start)?, &*self.event(end)?)
            .map_err(self.failed("event elapsed time"))
    }

    fn capture_begin(&self, stream: StreamHandle) -> Result<()> {
        self.stream(stream)?.begin_capture().map_err(self.failed("begin capture"))
    }

    fn capture_end(&self, stream: StreamHandle) -> Result<GraphHandle> {
        let graph = self.stream(stream)?.end_capture().map_err(self.failed("end capture"))?;
        Ok(GraphHandle(self.graphs.insert(Arc::new(graph))))
    }

    fn graph_contents(&self, graph: GraphHandle) -> Result<GraphContents> {
        let graph = self.graph(graph)?;
        let mut contents = GraphContents { nodes: Vec::new(), functions: Vec::new(), edges: Vec::new() };
        for node in graph.nodes() {
            let (read, function) = match &node.operation {
                Operation::Kernel(launch) => {
                    let read = KernelNode {
                        function: launch.kernel.name.clone(),
                        grid: launch.grid,
                        block: launch.block,
                        shared: launch.dynamic_shared,
                        params: launch.params.to_vec(),
                    };
                    (GraphNode::Kernel(read), self.function_of(&launch.kernel))
                }
                Operation::Copy { dst, src, bytes } => {
                    let (dst, src): (&Place, &Place) = (dst, src);
                    (GraphNode::Copy { dst: dst.address(), src: src.address(), bytes: *bytes as usize }, None)
                }
                Operation::Fill { dst, byte, bytes } => {
                    (GraphNode::Fill { dst: *dst, value: *byte, bytes: *bytes as usize }, None)
                }
            };
            contents.nodes.push(read);
            contents.functions.push(function);
        }
        let programmatic = |to: usize| match &graph.nodes()[to].operation {
            Operation::Kernel(launch) => launch.programmatic,
            _ => false,
        };
        let edges = graph.edges().into_iter();
        contents.edges =
            edges.map(|(from, to)| GraphEdge { from, to, programmatic: programmatic(to) }).collect();
        Ok(contents)
    }

    fn graph_instantiate(&self, graph: GraphHandle) -> Result<ExecHandle> {
        Ok(ExecHandle(self.execs.insert(Arc::new(self.graph(graph)?.instantiate()))))
    }

    fn graph_destroy(&self, graph: GraphHandle) {
        self.graphs.remove(graph.0);
    }

    fn exec_launch(&self, exec: ExecHandle, stream: StreamHandle) -> Result<()> {
        self.stream(stream)?.launch_graph(&*self.exec(exec)?).map_err(self.failed("launch a graph"))
    }

    fn exec_set_kernel_params(
        &self,
        exec: ExecHandle,
        _graph: GraphHandle,
        index: usize,
        _function: FunctionHandle,
        _info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()> {
        let exec = self.exec(exec)?;
        exec.set_kernel_params(index, params.grid, params.block, params.shared, params.args)
            .map_err(self.failed("update a kernel node"))
    }

    fn exec_destroy(&self, exec: ExecHandle) {
        self.execs.remove(exec.0);
    }
}

impl SimBackend {
    /// The handle of a kernel of a loaded module.
    fn function_of(&self, kernel: &Arc<Kernel>) -> Option<FunctionHandle> {
        let kernels = self.kernels.0.read().unwrap_or_else(PoisonError::into_inner);
        kernels
            .iter()
            .find(|(_, known)| Arc::ptr_eq(known, kernel))
            .map(|(&handle, _)| FunctionHandle(handle))
    }
}
