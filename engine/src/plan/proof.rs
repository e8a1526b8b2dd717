//! Proofs of a recorded graph: that it holds what the plan says, and that its edges keep every order that matters.

use super::{Plan, PlanError};
use crate::device::{Access, Graph};
use crate::kernel::ArgSlot;

/// What was compared before a graph was trusted. Both are above zero, or the graph was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphProof {
    /// Nodes read back from the device and compared with the plan's launches, byte for byte.
    pub nodes: usize,
    /// Pairs of launches of which one writes what the other reads or writes, each ordered by the graph's edges.
    pub pairs: usize,
}

/// Memory that a launch touches.
struct Touch {
    step: usize,
    start: u64,
    end: u64,
    write: bool,
}

impl Plan {
    /// Compares the recorded nodes with the launches, and the recorded edges with the order that the launches' accesses
    /// ask for.
    pub(super) fn prove(&self, graph: &Graph) -> Result<GraphProof, PlanError> {
        let fail = |reason| PlanError::Proof { plan: self.name.clone(), reason };
        let nodes = self.prove_nodes(graph).map_err(fail)?;
        let edges: Vec<(usize, usize)> = graph.edges().iter().map(|edge| (edge.from, edge.to)).collect();
        let pairs = self.prove_order(&edges).map_err(fail)?;
        if nodes == 0 || (nodes > 1 && pairs == 0) {
            return Err(fail(format!("{nodes} nodes and {pairs} ordered pairs prove nothing")));
        }
        Ok(GraphProof { nodes, pairs })
    }

    /// One kernel node a launch, in order, with the same function, geometry and parameter bytes.
    fn prove_nodes(&self, graph: &Graph) -> Result<usize, String> {
        let nodes = graph.nodes();
        if nodes.len() != self.steps.len() {
            return Err(format!("{} nodes for {} launches", nodes.len(), self.steps.len()));
        }
        for (index, (node, step)) in nodes.iter().zip(&self.steps).enumerate() {
            let Some(kernel) = node.as_kernel() else {
                return Err(format!("node {index} is a {}, but {} was recorded", node.kind(), step.label));
            };
            let launch = &step.launch;
            let same = kernel.function == launch.decl.entry
                && (kernel.grid, kernel.block, kernel.shared) == (launch.grid, launch.block, launch.shared)
                && kernel.params == launch.args.encode()[..];
            if !same {
                return Err(format!("node {index} ({}) holds {kernel:?}, not what was recorded", step.label));
            }
        }
        Ok(nodes.len())
    }

    /// Every pair of launches of which one writes what the other reads or writes (read after write, write after read,
    /// write after write) has a path from the earlier to the later along `edges`, pairs of launches by index. Returns the
    /// number of such pairs. What a capture proves of its graph; public for those who plant faults.
    ///
    /// # Errors
    /// A pair without a path, in words.
    pub fn prove_order(&self, edges: &[(usize, usize)]) -> Result<usize, String> {
        let count = self.steps.len();
        // after[i]: which launches are ordered after launch i. Edges lead from earlier to later launches, or the graph
        // does not hold this plan; so one pass from the back closes the relation.
        let mut after = vec![vec![false; count]; count];
        for from in (0..count).rev() {
            let (earlier, later) = after.split_at_mut(from + 1);
            let after_from = &mut earlier[from];
            for &(_, to) in edges.iter().filter(|edge| edge.0 == from) {
                if to <= from || to >= count {
                    return Err(format!(
                        "an edge leads from node {from} to node {to}, against the plan's order"
                    ));
                }
                after_from[to] = true;
                for (mine, through) in after_from.iter_mut().zip(&later[to - from - 1]) {
                    *mine |= through;
                }
            }
        }
        let touches = self.touches();
        let mut conflicting = vec![false; count * count];
        for write in touches.iter().filter(|touch| touch.write) {
            for other in &touches {
                if other.step != write.step && write.start < other.end && other.start < write.end {
                    let (first, second) = (write.step.min(other.step), write.step.max(other.step));
                    conflicting[first * count + second] = true;
                }
            }
        }
        let mut pairs = 0;
        for (index, _) in conflicting.iter().enumerate().filter(|(_, conflict)| **conflict) {
            let (first, second) = (index / count, index % count);
            if !after[first][second] {
                let (a, b) = (self.steps[first].label, self.steps[second].label);
                return Err(format!(
                    "no path orders node {first} ({a}) before node {second} ({b}), which need it"
                ));
            }
            pairs += 1;
        }
        Ok(pairs)
    }

    fn touches(&self) -> Vec<Touch> {
        let steps = self.steps.iter().enumerate();
        steps
            .flat_map(|(step, s)| {
                s.launch.args.slots().iter().filter_map(move |slot| match slot {
                    ArgSlot::Pointer { buffer, access, .. } => {
                        let start = buffer.address();
                        let (end, write) = (start + buffer.bytes() as u64, *access != Access::Read);
                        Some(Touch { step, start, end, write })
                    }
                    _ => None,
                })
            })
            .collect()
    }
}
