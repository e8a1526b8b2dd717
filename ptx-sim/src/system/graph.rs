//! Graphs: operations with dependencies, captured from streams, updated and replayed.

use super::{HostMemory, Result, System, SystemError};
use crate::exec::{self, LaunchConfig, PointerAccess};
use crate::module::Kernel;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A kernel launch with everything that it takes.
#[derive(Debug, Clone)]
pub struct KernelLaunch {
    /// What to run.
    pub kernel: Arc<Kernel>,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter block.
    pub params: Box<[u8]>,
    /// Declared accesses, for the checkers.
    pub access: Box<[PointerAccess]>,
    /// All blocks are resident at once.
    pub cooperative: bool,
    /// Launched with programmatic dependence on the launch before it.
    pub programmatic: bool,
}

/// An end of a copy.
#[derive(Debug, Clone)]
pub enum Place {
    /// An address of device memory, of any device.
    Device(u64),
    /// A byte of page-locked host memory: what from its start.
    Host(Arc<HostMemory>, usize),
}

impl Place {
    /// The address, on the device or on the host.
    pub fn address(&self) -> u64 {
        match self {
            Self::Device(address) => *address,
            Self::Host(memory, offset) => memory.as_ptr() as u64 + *offset as u64,
        }
    }
}

/// What a stream does, or a graph's node.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A kernel launch.
    Kernel(KernelLaunch),
    /// A copy.
    Copy {
        /// Where to.
        dst: Place,
        /// Where from.
        src: Place,
        /// Bytes.
        bytes: u64,
    },
    /// Every byte of a range set to one value.
    Fill {
        /// The first byte's address.
        dst: u64,
        /// The value.
        byte: u8,
        /// Bytes.
        bytes: u64,
    },
}

impl Operation {
    /// Executes it on `device`.
    pub(super) fn execute(&self, system: &System, device: u32) -> Result<()> {
        let memory = system.memory();
        match self {
            Self::Kernel(launch) => {
                let config = LaunchConfig {
                    kernel: &launch.kernel,
                    grid: launch.grid,
                    block: launch.block,
                    dynamic_shared: launch.dynamic_shared,
                    params: &launch.params,
                    device,
                    access: &launch.access,
                    cooperative: launch.cooperative,
                    programmatic: launch.programmatic,
                };
                let stats = exec::run(memory, &config, &system.exec_options())?;
                system.executed.fetch_add(stats.warp_instructions, Ordering::Relaxed);
            }
            Self::Copy { dst: Place::Device(dst), src: Place::Device(src), bytes } => {
                memory.check_reach(device, *dst)?;
                memory.check_reach(device, *src)?;
                memory.copy(*dst, *src, *bytes)?;
                damage(system, *dst, *src, *bytes)?;
            }
            Self::Copy { dst, src, bytes } => {
                if let (Place::Device(address), _) | (_, Place::Device(address)) = (dst, src) {
                    memory.check_reach(device, *address)?;
                }
                let mut staged = vec![0; *bytes as usize];
                match src {
                    Place::Device(address) => memory.read(*address, &mut staged)?,
                    Place::Host(host, offset) => host.load(*offset, &mut staged)?,
                }
                match dst {
                    Place::Device(address) => memory.write(*address, &staged)?,
                    Place::Host(host, offset) => host.store(*offset, &staged)?,
                }
            }
            Self::Fill { dst, byte, bytes } => {
                memory.check_reach(device, *dst)?;
                memory.fill(*dst, *byte, *bytes)?;
            }
        }
        Ok(())
    }
}

/// Does to a copy what the machine's bad link does.
fn damage(system: &System, dst: u64, src: u64, bytes: u64) -> Result<()> {
    let (memory, Some(link)) = (system.memory(), system.config().bad_link) else { return Ok(()) };
    if link.offset < bytes && memory.device_of(src)? == link.from && memory.device_of(dst)? == link.to {
        let mut byte = [0];
        memory.read(dst + link.offset, &mut byte)?;
        memory.write(dst + link.offset, &[byte[0] ^ link.mask])?;
    }
    Ok(())
}

/// A node of a graph.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it does.
    pub operation: Operation,
    /// The device whose stream captured it.
    pub device: u32,
    /// Indices of the nodes that it runs after, ascending, all below its own.
    pub after: Vec<usize>,
}

/// A captured graph. Its nodes are in order of submission, which is one of the orders that its dependencies
/// allow.
#[derive(Debug, Clone)]
pub struct Graph {
    pub(super) system: Arc<System>,
    pub(super) nodes: Vec<Node>,
}

impl Graph {
    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The dependencies as (earlier, later), sorted.
    pub fn edges(&self) -> Vec<(usize, usize)> {
        let mut edges: Vec<_> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(to, node)| node.after.iter().map(move |&from| (from, to)))
            .collect();
        edges.sort_unstable();
        edges
    }

    /// An executable copy of the graph.
    pub fn instantiate(&self) -> GraphExec {
        GraphExec { system: self.system.clone(), nodes: Mutex::new(self.nodes.clone()) }
    }
}

/// The order in which work runs. Each respects what orders it; a graph that misses an edge, or a program that misses a wait,
/// may give other results in one of them than in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// At submission, and so in its order.
    #[default]
    Submission,
    /// At submission; of a graph's nodes that may run, always the one submitted last.
    LatestFirst,
    /// Streams do nothing until something waits for it: a synchronisation, a copy from or to pageable memory, a free, or
    /// another stream's wait for an event. What is not waited for then has not happened. Failures show at the wait.
    Deferred,
}

/// An executable graph.
#[derive(Debug)]
pub struct GraphExec {
    system: Arc<System>,
    nodes: Mutex<Vec<Node>>,
}

impl GraphExec {
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of a node as it is now, updates included.
    pub fn node(&self, index: usize) -> Option<Node> {
        self.nodes().get(index).cloned()
    }

    /// Replaces a kernel node's configuration and parameters; kernel, declared accesses and launch attributes
    /// stay.
    ///
    /// # Errors
    /// [`SystemError::BadNode`] when there is no such kernel node or `params` has another length.
    pub fn set_kernel_params(
        &self,
        index: usize,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
        params: &[u8],
    ) -> Result<()> {
        let bad = |reason: &str| SystemError::BadNode { index, reason: reason.to_owned() };
        let mut nodes = self.nodes();
        let node = nodes.get_mut(index).ok_or_else(|| bad("there is no such node"))?;
        let Operation::Kernel(launch) = &mut node.operation else { return Err(bad("it is no kernel node")) };
        if launch.params.len() != params.len() {
            return Err(bad("the parameter block has another length"));
        }
        launch.grid = grid;
        launch.block = block;
        launch.dynamic_shared = dynamic_shared;
        launch.params.copy_from_slice(params);
        Ok(())
    }

    /// Its nodes as they are now, for one run.
    pub(super) fn snapshot(&self) -> Vec<Node> {
        self.nodes().clone()
    }

    /// Runs all nodes. The caller orders it with a stream.
    pub(super) fn run(&self) -> Result<()> {
        run_nodes(&self.system, &self.nodes())
    }
}

/// Runs a graph's nodes.
pub(super) fn run_nodes(system: &System, nodes: &[Node]) -> Result<()> {
    match system.schedule() {
        Schedule::Submission | Schedule::Deferred => {
            nodes.iter().try_for_each(|node| node.operation.execute(system, node.device))
        }
        Schedule::LatestFirst => latest_first(nodes)
            .into_iter()
            .try_for_each(|index| nodes[index].operation.execute(system, nodes[index].device)),
    }
}

/// The order that takes, of the nodes whose predecessors have run, always the last.
fn latest_first(nodes: &[Node]) -> Vec<usize> {
    let mut waiting: Vec<usize> = nodes.iter().map(|node| node.after.len()).collect();
    let mut followers = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for &before in &node.after {
            followers[before].push(index);
        }
    }
    let mut ready: std::collections::BinaryHeap<usize> =
        (0..nodes.len()).filter(|&index| waiting[index] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(index) = ready.pop() {
        order.push(index);
        for &follower in &followers[index] {
            waiting[follower] -= 1;
            if waiting[follower] == 0 {
                ready.push(follower);
            }
        }
    }
    order
}
