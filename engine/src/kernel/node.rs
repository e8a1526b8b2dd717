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

#[cfg(test)]
mod tests {
    use ptx_sim::system::{System, SystemConfig};

    use super::*;
    use crate::device::{Buffer, Device, Function, Stream};
    use crate::kernel::{Case, kernel};

    const PTX: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry test_store(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

    fn no_cases() -> Vec<Case> {
        Vec::new()
    }

    fn store(out: &mut [u32], value: u32) {
        out[0] = value;
    }

    #[kernel(module = "test_node", entry = "test_store", reference = store, cases = no_cases, tol = 0)]
    #[launch(grid = (1, 1, 1), block = (1, 1, 1))]
    #[cost(read = 0, write = 4, flops = 0)]
    fn test_store(
        #[out]
        #[len(1)]
        out: &mut [u32],
        #[node] value: u32,
    );

    #[kernel(module = "test_node", entry = "test_other", reference = store, cases = no_cases, tol = 0)]
    #[launch(grid = (1, 1, 1), block = (1, 1, 1))]
    #[cost(read = 0, write = 4, flops = 0)]
    fn test_other(
        #[out]
        #[len(1)]
        out: &mut [u32],
        value: u32,
    );

    fn open() -> (Stream, Function, Buffer<u32>) {
        let device = Device::open_in(&System::new(SystemConfig::default()), 0).unwrap();
        let function = device.load_module("test_node", PTX).unwrap().function("test_store").unwrap();
        let out = Buffer::from_slice(&device, &[0], "out").unwrap();
        (device.stream().unwrap(), function, out)
    }

    #[test]
    fn a_node_argument_is_set_by_name_for_the_replays_to_come() {
        let (stream, function, out) = open();
        let launch = test_store(&out, 5).unwrap();
        let graph = stream.capture(|stream| launch.submit(stream, &function)).unwrap();
        let mut node = Node::<TestStore>::new(&graph, 0, &launch).unwrap();
        let mut exec = graph.instantiate(vec![out.allocation()]).unwrap();
        let replay = |exec: &GraphExec| {
            exec.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            out.to_vec().unwrap()[0]
        };
        assert_eq!(replay(&exec), 5);
        node.set_value(&mut exec, 9).unwrap();
        assert_eq!((replay(&exec), replay(&exec)), (9, 9));
        node.set_value(&mut exec, 11).unwrap();
        assert_eq!(replay(&exec), 11);
        // The handle knows what the node has now: pointer, then value.
        assert_eq!(node.launch().args.encode()[8..], [11, 0, 0, 0]);
        assert_eq!(launch.args.encode()[8..], [5, 0, 0, 0]);
    }

    #[test]
    fn a_handle_belongs_to_its_launch() {
        let (stream, function, out) = open();
        let launch = test_store(&out, 5).unwrap();
        let graph = stream.capture(|stream| launch.submit(stream, &function)).unwrap();
        let error =
            |index, launch: &Launch| Node::<TestStore>::new(&graph, index, launch).unwrap_err().to_string();
        let other = test_other(&out, 5).unwrap();
        assert_eq!(error(0, &other), "a handle for kernel test_store cannot hold a launch of test_other");
        assert!(error(1, &launch).ends_with("it has 1 nodes"), "{}", error(1, &launch));
        let changed = test_store(&out, 6).unwrap();
        assert!(
            error(0, &changed).ends_with("it was captured with other arguments"),
            "{}",
            error(0, &changed)
        );
        let error = Node::<TestOther>::new(&graph, 0, &other).unwrap_err().to_string();
        assert!(error.ends_with("it launches `test_store`"), "{error}");
    }
}
