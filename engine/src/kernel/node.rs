//! Typed handles of captured kernel nodes.

use std::marker::PhantomData;

use thiserror::Error;

use super::{Kernel, Launch, Scalar, SlotClass};
use crate::device::{DeviceError, Graph, GraphExec};

/// Why a launch and a graph's node do not belong together.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The launch is of another kernel than the handle's.
    #[error("a handle for kernel {wanted} cannot hold a launch of {given}")]
    OtherKernel {
        /// The handle's kernel.
        wanted: &'static str,
        /// The launch's kernel.
        given: &'static str,
    },
    /// The node is no kernel node, or of another entry, or was captured with other arguments.
    #[error("node {index} of the graph is not the launch of kernel {kernel}: {reason}")]
    OtherNode {
        /// Index in the graph.
        index: usize,
        /// The launch's kernel.
        kernel: &'static str,
        /// What differs.
        reason: String,
    },
}

/// A captured launch of kernel `K`: where it is in the graph, and the arguments that it has now.
///
/// Its `#[node]` arguments are set through the trait that the declaration generates (`AttnNode::set_n` for a kernel
/// `attn` with `#[node] n: u32`). The trait is implemented for the handle of that kernel only, so setting an argument
/// through another kernel's handle does not compile.
#[derive(Debug)]
pub struct Node<K> {
    index: usize,
    launch: Launch,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> Node<K> {
    /// The handle of node `index` of `graph`, captured from `launch`.
    ///
    /// # Errors
    /// [`NodeError`], when the launch is of another kernel, or the node is not that launch.
    pub fn new(graph: &Graph, index: usize, launch: &Launch) -> Result<Self, NodeError> {
        let kernel = K::DECL.name;
        if !std::ptr::eq(launch.decl, K::DECL) {
            return Err(NodeError::OtherKernel { wanted: kernel, given: launch.decl.name });
        }
        let other = |reason: String| NodeError::OtherNode { index, kernel, reason };
        let node =
            graph.nodes().get(index).ok_or_else(|| other(format!("it has {} nodes", graph.node_count())))?;
        let node = node.as_kernel().ok_or_else(|| other(format!("it is a {} node", node.kind())))?;
        if node.function != launch.decl.entry {
            return Err(other(format!("it launches `{}`", node.function)));
        }
        if (node.grid, node.block, node.shared) != (launch.grid, launch.block, launch.shared) {
            return Err(other("its grid, block or shared memory differ".to_owned()));
        }
        if node.params != launch.args.encode().as_slice() {
            return Err(other("it was captured with other arguments".to_owned()));
        }
        Ok(Node { index, launch: launch.clone(), kernel: PhantomData })
    }

    /// The node's index in the graph.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The launch with the arguments that the node has now.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Sets the `#[node]` scalar that is parameter `param`; called by generated code, which knows its type.
    #[doc(hidden)]
    pub fn set_scalar<S: Scalar>(
        &mut self,
        exec: &mut GraphExec,
        param: usize,
        value: S,
    ) -> Result<(), DeviceError> {
        let mut args = self.launch.args.clone();
        args.set_scalar(param, SlotClass::Node, value.value());
        exec.set_kernel_params(
            self.index,
            self.launch.grid,
            self.launch.block,
            self.launch.shared,
            &args.encode(),
        )?;
        self.launch.args = args;
        Ok(())
    }
}
