//! A plan recorded as a graph.

use std::sync::Arc;

use super::{GraphProof, Plan, PlanError, PointerSignature, SignatureDiff};
use crate::device::{Access, Allocation, Buffer, GraphExec, Stream};
use crate::kernel::ArgSlot;

/// All that a captured plan bakes except addresses, as bytes: functions, grids, blocks, shared sizes, scalars and which
/// buffers. Derived from the launches, so it cannot leave anything out; two plans of one key record the same graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaptureKey(Vec<u8>);

impl Plan {
    /// The plan's key.
    pub fn capture_key(&self) -> CaptureKey {
        let mut key = Vec::new();
        for step in self.steps() {
            let launch = &step.launch;
            key.extend(launch.decl.module.bytes().chain([b'.']).chain(launch.decl.entry.bytes()).chain([0]));
            for n in launch.grid.iter().chain(&launch.block).chain([&launch.shared]) {
                key.extend(n.to_le_bytes());
            }
            key.extend([u8::from(launch.decl.cooperative), u8::from(launch.decl.dependent)]);
            for slot in launch.args.slots() {
                match slot {
                    ArgSlot::Pointer { buffer, .. } => {
                        key.extend(buffer.id().to_le_bytes());
                        key.extend((buffer.byte_offset() as u64).to_le_bytes());
                    }
                    ArgSlot::Null { .. } => key.extend([0xff; 8]),
                    ArgSlot::Scalar { value, .. } => key.extend(value.bytes().0),
                }
            }
        }
        CaptureKey(key)
    }

    /// Records the plan on `stream` and instantiates it. The graph read back from the device is compared node by node
    /// with the plan before it is trusted.
    ///
    /// # Errors
    /// A refused or broken capture; a graph that differs from the plan.
    pub fn capture(&self, stream: &Stream) -> Result<CapturedPlan, PlanError> {
        let mut failed = None;
        let captured = stream.capture(|stream| {
            self.run(stream).map_err(|error| {
                let reason = error.to_string();
                failed = Some(error);
                reason
            })
        });
        let graph = match captured {
            Ok(graph) => graph,
            Err(source) => {
                return Err(failed.unwrap_or_else(|| PlanError::Capture {
                    plan: self.name.clone(),
                    source: Box::new(source),
                }));
            }
        };
        let proof = self.prove(&graph)?;
        let signature = self.signature();
        let exec = graph.instantiate(self.allocations()).map_err(PlanError::Memory)?;
        Ok(CapturedPlan { plan: self.clone(), exec, signature, proof })
    }

    /// Every allocation that the plan's launches may write, whole.
    pub fn written(&self) -> Vec<Buffer<u8>> {
        let mut all: Vec<Arc<Allocation>> = Vec::new();
        for slot in self.steps().iter().flat_map(|step| step.launch.args.slots()) {
            if let ArgSlot::Pointer { buffer, access, .. } = slot
                && *access != Access::Read
            {
                let allocation = buffer.allocation();
                if !all.iter().any(|known| known.id() == allocation.id()) {
                    all.push(allocation);
                }
            }
        }
        all.into_iter().filter_map(|allocation| Buffer::from_allocation(allocation).ok()).collect()
    }

    /// Every allocation that the plan's launches point into.
    pub fn allocations(&self) -> Vec<Arc<Allocation>> {
        let mut all: Vec<Arc<Allocation>> = Vec::new();
        for step in self.steps() {
            for slot in step.launch.args.slots() {
                if let ArgSlot::Pointer { buffer, .. } = slot {
                    let allocation = buffer.allocation();
                    if !all.iter().any(|known| known.id() == allocation.id()) {
                        all.push(allocation);
                    }
                }
            }
        }
        all
    }
}

/// A plan with its instantiated graph.
#[derive(Debug)]
pub struct CapturedPlan {
    plan: Plan,
    exec: GraphExec,
    signature: PointerSignature,
    proof: GraphProof,
}

impl CapturedPlan {
    /// Queues one replay.
    ///
    /// # Errors
    /// What the device says.
    pub fn replay(&self, stream: &Stream) -> Result<(), PlanError> {
        self.exec.launch(stream).map_err(PlanError::Memory)
    }

    /// The plan that was recorded.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The pointers that the graph holds.
    pub fn signature(&self) -> &PointerSignature {
        &self.signature
    }

    /// What was proven of the graph before it was trusted.
    pub fn proof(&self) -> GraphProof {
        self.proof
    }

    /// The plan's pointers that have moved since the graph was made.
    pub fn stale(&self) -> Vec<SignatureDiff> {
        self.plan.moved_since(&self.signature)
    }

    /// Gives the launches whose pointers have moved their current parameters, and leaves all other nodes alone. Returns
    /// how many nodes were updated.
    ///
    /// # Errors
    /// What the device says; the graph must not be replayed then.
    pub fn patch(&mut self) -> Result<usize, PlanError> {
        let mut steps: Vec<usize> = self.stale().iter().map(|diff| diff.step).collect();
        steps.dedup();
        let needed = self.plan.allocations();
        for allocation in &needed {
            self.exec.keep(allocation.clone());
        }
        for &index in &steps {
            let step = &self.plan.steps()[index];
            step.with_params(|p| self.exec.set_kernel_params(index, p.grid, p.block, p.shared, p.args))
                .map_err(|source| PlanError::Device { at: step.label, source })?;
        }
        self.exec.release(|kept| needed.iter().any(|allocation| allocation.id() == kept.id()));
        self.signature = self.plan.signature();
        Ok(steps.len())
    }

    /// Takes the pointers as patched, and patches nothing: a fault that a gate plants.
    #[doc(hidden)]
    pub fn pretend_patched(&mut self) {
        self.signature = self.plan.signature();
    }

    /// The instantiated graph.
    pub fn exec(&mut self) -> &mut GraphExec {
        &mut self.exec
    }
}
