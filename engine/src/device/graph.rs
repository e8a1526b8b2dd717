//! Graphs: a captured list of nodes, read back from the device, instantiated, updated and replayed.

use super::backend::{ExecHandle, GraphHandle};
use super::buffer::Allocation;
use super::capture::Violation;
use super::error::{DeviceError, Result};
use super::module::Function;
use super::stream::{Keep, LaunchParams, Stream, forbid_in_capture};
use super::{Device, DeviceCounters};
use std::fmt;
use std::sync::Arc;

/// A kernel node as the device holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelNode {
    /// The entry's name.
    pub function: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The parameter block: each argument at its `.param` offset, zeros between.
    pub params: Vec<u8>,
}

/// A node of a captured graph, as read back from the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphNode {
    /// A kernel launch.
    Kernel(KernelNode),
    /// A copy of `bytes` bytes from address `src` to address `dst`, of device or page-locked host memory.
    Copy {
        /// Destination address.
        dst: u64,
        /// Source address.
        src: u64,
        /// Bytes.
        bytes: usize,
    },
    /// `bytes` bytes from address `dst` on set to `value`.
    Fill {
        /// Address.
        dst: u64,
        /// The value of each byte.
        value: u8,
        /// Bytes.
        bytes: usize,
    },
    /// Any other kind, by the device's name for it.
    Other(String),
}

impl GraphNode {
    /// The kernel node, if it is one.
    pub fn as_kernel(&self) -> Option<&KernelNode> {
        match self {
            Self::Kernel(node) => Some(node),
            _ => None,
        }
    }

    /// The kind in one word.
    pub fn kind(&self) -> &str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Other(kind) => kind,
        }
    }
}

/// A dependency: `to` runs after `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphEdge {
    /// Index of the earlier node in [`Graph::nodes`].
    pub from: usize,
    /// Index of the later node.
    pub to: usize,
    /// Whether `to` may start before `from` has ended and waits for it itself.
    pub programmatic: bool,
}

/// The device's graph object.
struct GraphOwner {
    device: Device,
    handle: GraphHandle,
}

impl Drop for GraphOwner {
    fn drop(&mut self) {
        self.device.backend().graph_destroy(self.handle);
    }
}

/// A captured graph. It keeps loaded the modules, and alive the memory of copies and fills, that its nodes
/// use; the memory behind kernel arguments is the caller's to name in [`Graph::instantiate`].
pub struct Graph {
    owner: GraphOwner,
    nodes: Vec<GraphNode>,
    edges: Vec<GraphEdge>,
    /// The function of each kernel node.
    functions: Vec<Option<Function>>,
    /// What one run does.
    counters: DeviceCounters,
    /// Held, never looked at.
    _keep: Vec<Keep>,
}

/// What a capture gathers on the host while the device records.
#[derive(Default)]
pub(super) struct Recorded {
    /// Modules and memory that the graph must keep.
    pub keep: Vec<Keep>,
    /// The functions launched, each once.
    pub functions: Vec<Function>,
    /// What one run does.
    pub counters: DeviceCounters,
}

impl Graph {
    pub(super) fn new(device: &Device, handle: GraphHandle, recorded: Recorded) -> Result<Self> {
        let owner = GraphOwner { device: device.clone(), handle };
        let contents = device.backend().graph_contents(handle)?;
        let find = |handle| recorded.functions.iter().find(|function| function.handle() == handle).cloned();
        let functions = contents.functions.iter().map(|handle| handle.and_then(find)).collect();
        Ok(Self {
            owner,
            nodes: contents.nodes,
            edges: contents.edges,
            functions,
            counters: DeviceCounters { graph_launches: 1, ..recorded.counters },
            _keep: recorded.keep,
        })
    }

    /// The device that it was captured on.
    pub fn device(&self) -> &Device {
        &self.owner.device
    }

    /// How many nodes it has.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes, in an order in which each comes after all that it depends on (for one stream: the order
    /// of submission). Read back from the device when the capture ended, not remembered from the launches.
    pub fn nodes(&self) -> &[GraphNode] {
        &self.nodes
    }

    /// The dependencies, sorted. Read back like the nodes.
    pub fn edges(&self) -> &[GraphEdge] {
        &self.edges
    }

    /// Makes the graph executable. `keep_alive` are the allocations that its kernels' arguments point at; the
    /// result owns them.
    ///
    /// # Errors
    /// [`DeviceError::Call`]; in a capture, [`super::CaptureError::Forbidden`].
    pub fn instantiate(self, keep_alive: Vec<Arc<Allocation>>) -> Result<GraphExec> {
        forbid_in_capture(|| Violation::Synchronisation("instantiate a graph"))?;
        let exec = self.device().backend().graph_instantiate(self.owner.handle)?;
        let device = self.device().clone();
        Ok(GraphExec { exec: ExecOwner { device, handle: exec }, graph: self, keep_alive })
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes, {} edges, {})", self.nodes.len(), self.edges.len(), self.device())
    }
}

/// The device's executable graph.
struct ExecOwner {
    device: Device,
    handle: ExecHandle,
}

impl Drop for ExecOwner {
    fn drop(&mut self) {
        self.device.backend().exec_destroy(self.handle);
    }
}

/// An instantiated graph. Fields are dropped in order: the executable graph first, then the graph, then the
/// buffers that both bake.
pub struct GraphExec {
    exec: ExecOwner,
    graph: Graph,
    keep_alive: Vec<Arc<Allocation>>,
}

impl GraphExec {
    /// The graph it was made from. Parameter updates do not change it.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The allocations that it keeps alive.
    pub fn keep_alive(&self) -> &[Arc<Allocation>] {
        &self.keep_alive
    }

    /// Keeps another allocation alive, for the arguments of an update.
    pub fn keep(&mut self, allocation: Arc<Allocation>) {
        if !self.keep_alive.iter().any(|kept| kept.id() == allocation.id()) {
            self.keep_alive.push(allocation);
        }
    }

    /// Lets go of kept allocations that `needed` says no to, after updates that no longer point at them.
    pub fn release(&mut self, needed: impl FnMut(&Arc<Allocation>) -> bool) {
        self.keep_alive.retain(needed);
    }

    /// Queues one run of the whole graph.
    ///
    /// # Errors
    /// A stream of another device, a failed submission, or (simulated device) a fault of a kernel; in a capture,
    /// [`super::CaptureError::Forbidden`]: graphs are not nested.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        stream.device().expect_same(self.graph.device(), "graph", "captured")?;
        forbid_in_capture(|| Violation::Synchronisation("launch of a graph"))?;
        stream.launched(false);
        self.exec.device.backend().exec_launch(self.exec.handle, stream.handle())?;
        self.exec.device.count(self.graph.counters);
        Ok(())
    }

    /// Replaces configuration and arguments of kernel node `node` (its index in [`Graph::nodes`]) for all
    /// launches from here on; the function stays. Launches under way are not changed.
    ///
    /// # Errors
    /// [`DeviceError::BadNode`] for an index that is no kernel node, [`DeviceError::BadLaunch`], a failed call.
    pub fn set_kernel_params(
        &mut self,
        node: usize,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        args: &[u8],
    ) -> Result<()> {
        let bad = |reason: String| DeviceError::BadNode { index: node, reason };
        let found = self
            .graph
            .nodes
            .get(node)
            .ok_or_else(|| bad(format!("the graph has {} nodes", self.graph.nodes.len())))?;
        let kernel =
            found.as_kernel().ok_or_else(|| bad(format!("it is a {} node, not a kernel", found.kind())))?;
        let function = self.graph.functions.get(node).and_then(Option::as_ref);
        let function = function
            .ok_or_else(|| bad(format!("`{}` was not launched through this layer", kernel.function)))?;
        let params =
            LaunchParams { grid, block, shared, args, access: &[], cooperative: false, programmatic: false };
        params.check(function.info())?;
        let backend = self.exec.device.backend();
        backend.exec_set_kernel_params(
            self.exec.handle,
            self.graph.owner.handle,
            node,
            function.handle(),
            function.info(),
            &params,
        )
    }
}

impl fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphExec({:?}, {} allocations kept)", self.graph, self.keep_alive.len())
    }
}
