//! Proofs of a recorded graph: that it holds what the plan says, and that its edges keep every order that matters.

use std::collections::HashSet;

use super::{Plan, PlanError};
use crate::device::{Access, Graph, GraphEdge};
use crate::kernel::ArgSlot;

/// What was compared before a graph was trusted. Nodes are above zero, and pairs where there are two nodes, or the graph was
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphProof {
    /// Nodes read back from the device and compared with the plan's launches, byte for byte.
    pub nodes: usize,
    /// Pairs of launches of which one writes what the other reads or writes, each ordered by the graph's edges.
    pub pairs: usize,
    /// Edges along which a launch begins before the one ahead of it has ended, and waits for it itself.
    pub early: usize,
}

/// Memory that a launch touches.
struct Touch {
    step: usize,
    start: u64,
    end: u64,
    write: bool,
    /// The parameter, if it may be read before the launch waits for the one ahead.
    early: Option<&'static str>,
}

impl Plan {
    /// Compares the recorded nodes with the launches, and the recorded edges with the order that the launches' accesses
    /// ask for.
    pub(super) fn prove(&self, graph: &Graph) -> Result<GraphProof, PlanError> {
        let fail = |reason| PlanError::Proof { plan: self.name.clone(), reason };
        let nodes = self.prove_nodes(graph).map_err(fail)?;
        let pairs = self.prove_order(graph.edges()).map_err(fail)?;
        let early = graph.edges().iter().filter(|edge| edge.programmatic).count();
        if nodes == 0 || (nodes > 1 && pairs == 0) {
            return Err(fail(format!("{nodes} nodes and {pairs} ordered pairs prove nothing")));
        }
        Ok(GraphProof { nodes, pairs, early })
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
    /// write after write) has a path from the earlier to the later along `edges`, between launches by index. Returns the
    /// number of such pairs. What a capture proves of its graph; public for those who plant faults.
    ///
    /// Along a programmatic edge the later launch begins before the earlier one has ended, and the edge orders only what
    /// it does after its wait: so it counts only if the later launch waits on every path, and stores nothing before. Since it
    /// waits before it ends, what lies behind it is ordered after all ahead of it: launch N + 2 after launch N by way of launch
    /// N + 1's wait. What a launch reads before its wait (weights), or by the non-coherent path, must not be written by a launch
    /// that may not have ended when it begins: the launch ahead, and where that triggers before its own wait, those that it
    /// may itself run beside.
    ///
    /// # Errors
    /// A pair without a path, in words.
    pub fn prove_order(&self, edges: &[GraphEdge]) -> Result<usize, String> {
        let count = self.steps.len();
        let mut into: Vec<Vec<GraphEdge>> = vec![Vec::new(); count];
        for edge in edges {
            let (from, to) = (edge.from, edge.to);
            if to <= from || to >= count {
                return Err(format!("an edge leads from node {from} to node {to}, against the plan's order"));
            }
            into[to].push(*edge);
        }
        // ended[j], began[j]: which launches have ended before launch j goes on after its wait, and before it begins at all.
        // Edges lead from earlier to later launches, so one pass closes the relations.
        let (mut ended, mut began): (Vec<Vec<bool>>, Vec<Vec<bool>>) = (Vec::new(), Vec::new());
        for (to, edges) in into.iter().enumerate() {
            let (mut after_wait, mut at_start) = (vec![false; count], vec![false; count]);
            for edge in edges {
                if edge.programmatic && !self.steps[to].function().info().dependence.waits() {
                    continue; // it begins when the other lets it, and nothing more
                }
                after_wait[edge.from] = true;
                at_start[edge.from] |= !edge.programmatic;
                ended[edge.from].iter().zip(&mut after_wait).for_each(|(known, after)| *after |= known);
                let early = edge.programmatic
                    && self.steps[edge.from].function().info().dependence.early_trigger.is_some();
                let ahead = if early { &began[edge.from] } else { &ended[edge.from] };
                ahead.iter().zip(&mut at_start).for_each(|(known, at)| *at |= known);
            }
            ended.push(after_wait);
            began.push(at_start);
        }
        let mut pairs = HashSet::new();
        let touches = self.touches();
        for write in touches.iter().filter(|touch| touch.write) {
            for other in &touches {
                if other.step == write.step || write.start >= other.end || other.start >= write.end {
                    continue;
                }
                let (first, second) = (write.step.min(other.step), write.step.max(other.step));
                let label = |step: usize| format!("node {step} ({})", self.steps[step].label);
                if !ended[second][first] {
                    return Err(format!(
                        "no path orders {} before {}, which need it",
                        label(first),
                        label(second)
                    ));
                }
                if let Some(param) = other.early.filter(|_| other.step == second && !began[second][first]) {
                    return Err(format!(
                        "{} may read `{param}` before it waits, or by the non-coherent path, while {}, which writes it, still runs",
                        label(second),
                        label(first)
                    ));
                }
                pairs.insert((first, second));
            }
        }
        Ok(pairs.len())
    }

    fn touches(&self) -> Vec<Touch> {
        let steps = self.steps.iter().enumerate();
        steps
            .flat_map(|(step, s)| {
                let dependence = &s.function().info().dependence;
                s.launch.args.slots().iter().enumerate().filter_map(move |(index, slot)| match slot {
                    ArgSlot::Pointer { buffer, access, .. } => {
                        let start = buffer.address();
                        let (end, write) = (start + buffer.bytes() as u64, *access != Access::Read);
                        let mut early = dependence.early_reads.iter().chain(&dependence.constant_reads);
                        let early = early
                            .any(|&param| usize::from(param) == index && dependence.controls.is_some())
                            .then(|| s.launch.decl.params[slot.param()].name);
                        Some(Touch { step, start, end, write, early })
                    }
                    _ => None,
                })
            })
            .collect()
    }
}
