//! Graphs: read back from the driver, instantiated, updated.

use super::{CudaBackend, SUCCESS, argument_pointers, handle, lock};
use crate::device::backend::{ExecHandle, FunctionHandle, GraphContents, GraphHandle};
use crate::device::driver::failure;
use crate::device::driver::newer::{EdgeData, cuGraphGetEdges_v2};
use crate::device::error::{DeviceError, Result};
use crate::device::graph::{GraphEdge, GraphNode, KernelNode};
use crate::device::module::FunctionInfo;
use crate::device::stream::LaunchParams;
use cust_raw::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::mem::MaybeUninit;
use std::ptr;

fn raw_graph(graph: GraphHandle) -> CUgraph {
    ptr::with_exposed_provenance_mut(graph.0 as usize)
}

pub(super) fn raw_exec(exec: ExecHandle) -> CUgraphExec {
    ptr::with_exposed_provenance_mut(exec.0 as usize)
}

/// The names of node types by the driver's number (`CUgraphNodeType` of CUDA 13.0).
const NODE_TYPES: [&str; 14] = [
    "kernel",
    "copy",
    "fill",
    "host function",
    "child graph",
    "empty",
    "event wait",
    "event record",
    "semaphore signal",
    "semaphore wait",
    "allocation",
    "free",
    "batched memory operation",
    "conditional",
];

impl CudaBackend {
    /// Reads nodes and edges, in an order in which each node comes after all that it depends on; among nodes that
    /// may come next, the one that the driver lists first.
    pub(super) fn read_graph(&self, graph: GraphHandle) -> Result<GraphContents> {
        self.enter()?;
        let listed = self.list_nodes(graph)?;
        let position: HashMap<u64, usize> =
            listed.iter().enumerate().map(|(at, node)| (handle(*node), at)).collect();
        let mut edges = Vec::new();
        for (from, to, data) in self.list_edges(graph)? {
            let (from, to) = (position.get(&handle(from)), position.get(&handle(to)));
            let (Some(&from), Some(&to)) = (from, to) else {
                return Err(self.odd_graph("an edge of an unknown node"));
            };
            edges.push(GraphEdge { from, to, programmatic: data.kind == 1 });
        }
        let order = topological(listed.len(), &edges).ok_or_else(|| self.odd_graph("a cycle"))?;
        let mut place = vec![0; listed.len()];
        order.iter().enumerate().for_each(|(at, &node)| place[node] = at);
        for edge in &mut edges {
            (edge.from, edge.to) = (place[edge.from], place[edge.to]);
        }
        edges.sort_unstable();
        let ordered: Vec<CUgraphNode> = order.iter().map(|&node| listed[node]).collect();
        let mut contents = GraphContents { nodes: Vec::new(), functions: Vec::new(), edges };
        for &node in &ordered {
            let (read, function) = self.read_node(node)?;
            contents.nodes.push(read);
            contents.functions.push(function);
        }
        lock(&self.nodes).insert(graph.0, ordered);
        Ok(contents)
    }

    fn odd_graph(&self, what: &str) -> DeviceError {
        let reason = format!("the driver's graph has {what}");
        DeviceError::Call { call: "read a graph", device: self.name.clone(), reason }
    }

    fn list_nodes(&self, graph: GraphHandle) -> Result<Vec<CUgraphNode>> {
        let mut count = 0;
        // SAFETY: with no array the driver writes the count only.
        let result = unsafe { cuGraphGetNodes(raw_graph(graph), ptr::null_mut(), &mut count) };
        self.check(result, "count a graph's nodes")?;
        if count == 0 {
            return Ok(Vec::new()); // the driver refuses an array of none
        }
        let mut nodes = vec![ptr::null_mut(); count];
        // SAFETY: the array holds `count` nodes.
        let result = unsafe { cuGraphGetNodes(raw_graph(graph), nodes.as_mut_ptr(), &mut count) };
        self.check(result, "list a graph's nodes")?;
        nodes.truncate(count);
        Ok(nodes)
    }

    fn list_edges(&self, graph: GraphHandle) -> Result<Vec<(CUgraphNode, CUgraphNode, EdgeData)>> {
        let graph = raw_graph(graph);
        let mut count = 0;
        // SAFETY: with no arrays the driver writes the count only.
        let result = unsafe {
            cuGraphGetEdges_v2(graph, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), &mut count)
        };
        self.check(result, "count a graph's edges")?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
        let mut data = vec![EdgeData::default(); count];
        // SAFETY: the arrays hold `count` elements each.
        let result = unsafe {
            cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)
        };
        self.check(result, "list a graph's edges")?;
        Ok(from
            .into_iter()
            .zip(to)
            .zip(data)
            .take(count)
            .map(|((from, to), data)| (from, to, data))
            .collect())
    }

    fn read_node(&self, node: CUgraphNode) -> Result<(GraphNode, Option<FunctionHandle>)> {
        // Newer drivers have types that the enum lacks: it is read as the integer that it is.
        let mut kind = 0u32;
        // SAFETY: the enum has the size of a C int, and `kind` is valid for the write.
        let result = unsafe { cuGraphNodeGetType(node, ptr::from_mut(&mut kind).cast()) };
        self.check(result, "ask for a node's type")?;
        Ok(match kind {
            0 => return self.read_kernel(node),
            1 => (self.read_copy(node)?, None),
            2 => (self.read_fill(node)?, None),
            other => {
                let name = NODE_TYPES.get(other as usize);
                (GraphNode::Other(name.map_or_else(|| format!("type {other}"), ToString::to_string)), None)
            }
        })
    }

    fn read_kernel(&self, node: CUgraphNode) -> Result<(GraphNode, Option<FunctionHandle>)> {
        let mut params = MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
        // The function without a suffix, with the structure that has no `kern` and `ctx`: versions are by symbol.
        // SAFETY: `params` is that structure.
        let result = unsafe { cuGraphKernelNodeGetParams(node, params.as_mut_ptr()) };
        self.check(result, "read a kernel node")?;
        // SAFETY: all fields are integers and pointers, for which zero is a value; the driver has filled them.
        let params = unsafe { params.assume_init() };
        let Some(info) = self.known(params.func) else {
            return Ok((GraphNode::Other("kernel of an unknown module".to_owned()), None));
        };
        if params.kernelParams.is_null() && !info.params.is_empty() {
            return Err(self.odd_graph("a kernel node without parameters"));
        }
        let mut block = vec![0u8; info.param_bytes];
        for (index, param) in info.params.iter().enumerate() {
            // SAFETY: the driver owns an array with a pointer for each parameter of the function, each to as many bytes as
            // the parameter has (compared with `cuFuncGetParamInfo` when the module was loaded).
            unsafe {
                let value = (*params.kernelParams.add(index)).cast::<u8>();
                ptr::copy_nonoverlapping(value, block[param.offset..].as_mut_ptr(), param.size);
            }
        }
        let read = KernelNode {
            function: info.name.clone(),
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared: params.sharedMemBytes,
            params: block,
        };
        Ok((GraphNode::Kernel(read), Some(FunctionHandle(handle(params.func)))))
    }

    fn read_copy(&self, node: CUgraphNode) -> Result<GraphNode> {
        let mut params = MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
        // SAFETY: `params` is the structure that the function fills.
        let result = unsafe { cuGraphMemcpyNodeGetParams(node, params.as_mut_ptr()) };
        self.check(result, "read a copy node")?;
        let params = params.as_ptr();
        const HOST: u32 = 1;
        // SAFETY: zeroed and then filled; the two memory types are read as the integers that they are, since a newer driver
        // may use values that the enum lacks.
        let (src, dst, bytes) = unsafe {
            let src_type = ptr::addr_of!((*params).srcMemoryType).cast::<u32>().read();
            let dst_type = ptr::addr_of!((*params).dstMemoryType).cast::<u32>().read();
            let src = if src_type == HOST { (*params).srcHost as u64 } else { (*params).srcDevice };
            let dst = if dst_type == HOST { (*params).dstHost as u64 } else { (*params).dstDevice };
            let rows = (*params).Height.max(1) * (*params).Depth.max(1);
            (
                src + (*params).srcXInBytes as u64,
                dst + (*params).dstXInBytes as u64,
                (*params).WidthInBytes * rows,
            )
        };
        Ok(GraphNode::Copy { dst, src, bytes })
    }

    fn read_fill(&self, node: CUgraphNode) -> Result<GraphNode> {
        let mut params = MaybeUninit::<CUDA_MEMSET_NODE_PARAMS>::zeroed();
        // SAFETY: `params` is the structure that the function fills.
        let result = unsafe { cuGraphMemsetNodeGetParams(node, params.as_mut_ptr()) };
        self.check(result, "read a fill node")?;
        // SAFETY: integers only, zeroed and then filled.
        let params = unsafe { params.assume_init() };
        let bytes = params.width * params.elementSize as usize * params.height.max(1);
        Ok(GraphNode::Fill { dst: params.dst, value: params.value as u8, bytes })
    }

    pub(super) fn instantiate(&self, graph: GraphHandle) -> Result<ExecHandle> {
        self.enter()?;
        let mut exec = ptr::null_mut();
        // SAFETY: `exec` is valid for the write, the graph is alive.
        let result = unsafe { cuGraphInstantiateWithFlags(&mut exec, raw_graph(graph), 0) };
        self.check(result, "instantiate a graph")?;
        Ok(ExecHandle(handle(exec)))
    }

    pub(super) fn destroy_graph(&self, graph: GraphHandle) {
        lock(&self.nodes).remove(&graph.0);
        // SAFETY: its owner destroys it once.
        self.release_with("destroy a graph", || unsafe { cuGraphDestroy(raw_graph(graph)) });
    }

    pub(super) fn set_kernel_params(
        &self,
        exec: ExecHandle,
        graph: GraphHandle,
        index: usize,
        function: FunctionHandle,
        info: &FunctionInfo,
        params: &LaunchParams,
    ) -> Result<()> {
        self.enter()?;
        let node = lock(&self.nodes).get(&graph.0).and_then(|nodes| nodes.get(index).copied());
        let node =
            node.ok_or_else(|| DeviceError::BadNode { index, reason: "there is no such node".to_owned() })?;
        let mut pointers = argument_pointers(info, params.args);
        let node_params = CUDA_KERNEL_NODE_PARAMS {
            func: Self::function(function),
            gridDimX: params.grid[0],
            gridDimY: params.grid[1],
            gridDimZ: params.grid[2],
            blockDimX: params.block[0],
            blockDimY: params.block[1],
            blockDimZ: params.block[2],
            sharedMemBytes: params.shared,
            kernelParams: pointers.as_mut_ptr(),
            extra: ptr::null_mut(),
        };
        // SAFETY: the node is of the graph that `exec` was made from; the driver copies the parameters.
        let result = unsafe { cuGraphExecKernelNodeSetParams(raw_exec(exec), node, &node_params) };
        if result == SUCCESS {
            return Ok(());
        }
        match failure("update a kernel node", &self.name) {
            DeviceError::Call { reason, .. } => Err(DeviceError::BadNode { index, reason }),
            other => Err(other),
        }
    }
}

/// An order of `count` nodes in which each comes after all that it depends on, the lowest number first where there is a
/// choice; none when there is a cycle.
fn topological(count: usize, edges: &[GraphEdge]) -> Option<Vec<usize>> {
    let mut waiting = vec![0usize; count];
    let mut followers = vec![Vec::new(); count];
    for edge in edges {
        waiting[edge.to] += 1;
        followers[edge.from].push(edge.to);
    }
    let mut ready: BinaryHeap<_> = (0..count).filter(|&node| waiting[node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &follower in &followers[node] {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                ready.push(Reverse(follower));
            }
        }
    }
    (order.len() == count).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_after_what_they_depend_on() {
        let edge = |from, to| GraphEdge { from, to, programmatic: false };
        assert_eq!(topological(3, &[edge(2, 1), edge(1, 0)]), Some(vec![2, 1, 0]));
        assert_eq!(topological(4, &[edge(0, 3), edge(0, 1), edge(1, 2), edge(3, 2)]), Some(vec![0, 1, 3, 2]));
        assert_eq!(topological(2, &[edge(0, 1), edge(1, 0)]), None);
        assert_eq!(topological(0, &[]), Some(Vec::new()));
    }
}
