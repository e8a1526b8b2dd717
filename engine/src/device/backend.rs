//! What a device must be able to do: the seam between the public types of this module and their two backends.
//!
//! The calls mirror the CUDA driver API; objects are opaque handles that the public types own and release.
//! Each handle passed in was made by the same backend unless the method says otherwise.

use super::error::Result;
use super::graph::{GraphEdge, GraphNode};
use super::module::FunctionInfo;
use super::stream::LaunchParams;
use ptx_sim::system::System;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) struct $name(pub u64);
    )* };
}

handles! {
    /// A stream.
    StreamHandle;
    /// An event.
    EventHandle;
    /// A loaded module.
    ModuleHandle;
    /// A function of a loaded module; it lives as long as its module.
    FunctionHandle;
    /// A captured graph.
    GraphHandle;
    /// An instantiated graph.
    ExecHandle;
}

/// A function as a backend resolved it.
#[derive(Debug)]
pub(super) struct ResolvedFunction {
    pub handle: FunctionHandle,
    pub info: FunctionInfo,
}

/// A graph as read back from the device.
#[derive(Debug)]
pub(super) struct GraphContents {
    pub nodes: Vec<GraphNode>,
    /// The function of each kernel node.
    pub functions: Vec<Option<FunctionHandle>>,
    pub edges: Vec<GraphEdge>,
}

/// One device of one kind.
pub(super) trait Backend: Send + Sync + Debug {
    /// Equal for devices that can reach each other: 0 for all CUDA devices, else the simulated machine.
    fn machine(&self) -> usize;
    /// The simulated machine, if it is one.
    fn simulated_machine(&self) -> Option<Arc<System>> {
        None
    }
    fn allocate(&self, bytes: usize, name: &str) -> Result<u64>;
    /// Frees an allocation. Errors cannot be acted on by a destructor: they are logged.
    fn free(&self, address: u64);
    /// Bytes (free, total).
    fn memory_info(&self) -> Result<(u64, u64)>;
    /// Page-locked host memory that the device can reach, zeroed.
    fn pinned_allocate(&self, bytes: usize) -> Result<NonNull<u8>>;
    /// Frees page-locked memory of `pinned_allocate`, of the same size.
    fn pinned_free(&self, memory: NonNull<u8>, bytes: usize);
    /// Lets kernels and copies of this device reach the memory of device `ordinal` of the same kind; false when the two are
    /// not connected.
    fn enable_peer_access(&self, ordinal: u32) -> Result<bool>;

    /// Waits for all work of all streams.
    fn synchronize(&self) -> Result<()>;

    fn stream_create(&self) -> Result<StreamHandle>;
    fn stream_destroy(&self, stream: StreamHandle);
    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()>;

    /// Copies from pageable host memory; done when it returns.
    fn upload(&self, stream: StreamHandle, dst: u64, src: &[u8]) -> Result<()>;
    /// Copies to pageable host memory; done when it returns.
    fn download(&self, stream: StreamHandle, dst: &mut [u8], src: u64) -> Result<()>;
    /// Queues a copy of `bytes` bytes from page-locked host memory, from its byte `offset` on; it outlives the copy and every
    /// graph that holds it.
    fn upload_pinned(
        &self,
        stream: StreamHandle,
        dst: u64,
        src: NonNull<u8>,
        offset: usize,
        bytes: usize,
    ) -> Result<()>;
    /// Queues a copy to page-locked host memory, which outlives the copy and every graph that holds it.
    fn download_pinned(&self, stream: StreamHandle, dst: NonNull<u8>, src: u64, bytes: usize) -> Result<()>;
    /// Queues a copy between device memories, of this device or of another that it reaches.
    fn copy(&self, stream: StreamHandle, dst: u64, src: u64, bytes: usize) -> Result<()>;
    fn fill(&self, stream: StreamHandle, dst: u64, byte: u8, bytes: usize) -> Result<()>;

    fn module_load(&self, name: &str, ptx: &str) -> Result<(ModuleHandle, Vec<ResolvedFunction>)>;
    fn module_unload(&self, module: ModuleHandle);
    /// Raises the dynamic shared memory that a function may be launched with.
    fn function_allow_shared(&self, function: FunctionHandle, bytes: u32) -> Result<()>;
    fn launch(
        &self,
        stream: StreamHandle,
        function: FunctionHandle,
        info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()>;

    fn event_create(&self) -> Result<EventHandle>;
    fn event_destroy(&self, event: EventHandle);
    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;
    /// Makes the stream wait for the event, which may be of another device of the same kind.
    fn event_wait(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;
    fn event_synchronize(&self, event: EventHandle) -> Result<()>;
    /// Milliseconds from `start` to `end`, both recorded and complete.
    fn event_elapsed_ms(&self, start: EventHandle, end: EventHandle) -> Result<f32>;

    fn capture_begin(&self, stream: StreamHandle) -> Result<()>;
    /// Ends the capture; the stream is usable afterwards even when this fails.
    fn capture_end(&self, stream: StreamHandle) -> Result<GraphHandle>;

    fn graph_contents(&self, graph: GraphHandle) -> Result<GraphContents>;
    fn graph_instantiate(&self, graph: GraphHandle) -> Result<ExecHandle>;
    fn graph_destroy(&self, graph: GraphHandle);
    fn exec_launch(&self, exec: ExecHandle, stream: StreamHandle) -> Result<()>;
    /// Replaces the launch parameters of kernel node `index` of `graph` in `exec`, instantiated from it.
    fn exec_set_kernel_params(
        &self,
        exec: ExecHandle,
        graph: GraphHandle,
        index: usize,
        function: FunctionHandle,
        info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()>;
    fn exec_destroy(&self, exec: ExecHandle);
}
