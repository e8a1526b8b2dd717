//! Plans: lists of launches over buffers that were allocated before.
//!
//! A [`Plan`] holds no value that varies from step to step: those live on the device. So the same plan is run launch by
//! launch (eager), or recorded once and replayed, and a captured plan cannot go stale but by a buffer being re-seated,
//! which its [`PointerSignature`] shows.

mod arena;
mod capture;
mod check;
mod proof;
mod signature;
#[cfg(test)]
mod tests;

use std::fmt;

pub use arena::{Arena, Scratch};
pub use capture::{CaptureKey, CapturedPlan};
use check::PlanChecker;
pub use proof::GraphProof;
pub use signature::{PointerSignature, SignatureDiff, SlotPlace};
use thiserror::Error;

use crate::device::{
    Buffer, CaptureError, DeviceError, Element, Function, LaunchParams, ParamAccess, Stream,
};
use crate::engine::{Engine, EngineError};
use crate::kernel::{ArgSlot, Capturable, Cost, Launch, LaunchError};

/// Why a plan could not be built or run.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A launch's arguments do not fit its declaration.
    #[error("{at}: {source}")]
    Launch {
        /// Where in the plan.
        at: Label,
        /// What is wrong.
        source: LaunchError,
    },
    /// The kernel is not loaded.
    #[error("{at}: {source}")]
    Engine {
        /// Where in the plan.
        at: Label,
        /// What is wrong.
        source: Box<EngineError>,
    },
    /// The device failed.
    #[error("{at}: {source}")]
    Device {
        /// Where in the plan.
        at: Label,
        /// What is wrong.
        source: DeviceError,
    },
    /// The device failed outside any launch.
    #[error(transparent)]
    Memory(#[from] DeviceError),
    /// The capture was refused, or broke.
    #[error("capturing {plan}: {source}")]
    Capture {
        /// The plan's name.
        plan: String,
        /// Why.
        source: Box<CaptureError>,
    },
    /// Two arguments of one launch overlap, and one of them is written.
    #[error(
        "{at}: arguments `{argument}` and `{other}` overlap in buffer `{buffer}`, and one of them is written: \
             give the launch separate buffers"
    )]
    Aliasing {
        /// Where in the plan.
        at: Label,
        /// An argument.
        argument: &'static str,
        /// The other.
        other: &'static str,
        /// The buffer of the first.
        buffer: String,
    },
    /// Scratch is read that no launch before has written.
    #[error(
        "{at}: argument `{argument}` reads bytes {from}..{to} of scratch `{buffer}`, which no launch before wrote whole"
    )]
    Unwritten {
        /// Where in the plan.
        at: Label,
        /// The argument.
        argument: &'static str,
        /// The buffer.
        buffer: String,
        /// First byte.
        from: u64,
        /// One past the last byte.
        to: u64,
    },
    /// Scratch is used after it was given back.
    #[error(
        "{at}: argument `{argument}` is scratch `{buffer}`, which was given back before this launch: its memory may \
             serve another buffer; keep it until the last launch that uses it"
    )]
    Lifetime {
        /// Where in the plan.
        at: Label,
        /// The argument.
        argument: &'static str,
        /// The buffer.
        buffer: String,
    },
    /// A captured graph does not hold what the plan says.
    #[error("captured {plan}: {reason}")]
    Proof {
        /// The plan's name.
        plan: String,
        /// The difference.
        reason: String,
    },
}

/// Where in a walk a launch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The layer, if it belongs to one.
    pub layer: Option<u32>,
    /// What the launch is for.
    pub what: &'static str,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layer {layer}, {}", self.what),
            None => f.write_str(self.what),
        }
    }
}

/// One launch of a plan, its function resolved.
#[derive(Debug, Clone)]
pub struct Step {
    /// Where it stands.
    pub label: Label,
    /// The kernel and its arguments.
    pub launch: Launch,
    function: Function,
    access: Vec<ParamAccess>,
}

impl Step {
    /// The resolved function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Runs `f` with the launch's parameters as of this moment.
    pub fn with_params<R>(&self, f: impl FnOnce(&LaunchParams<'_>) -> R) -> R {
        let args = self.launch.args.encode();
        f(&LaunchParams {
            grid: self.launch.grid,
            block: self.launch.block,
            shared: self.launch.shared,
            args: &args,
            access: &self.access,
            cooperative: self.launch.decl.cooperative,
            programmatic: self.launch.decl.dependent,
        })
    }

    /// Launches it.
    ///
    /// # Errors
    /// What the device says.
    pub fn run(&self, stream: &Stream) -> Result<(), PlanError> {
        self.with_params(|params| stream.launch(&self.function, params))
            .map_err(|source| PlanError::Device { at: self.label, source })
    }
}

/// A list of launches.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    name: String,
    steps: Vec<Step>,
}

impl Plan {
    /// A plan of these launches, which other plans were taken apart into.
    pub(crate) fn from_steps(name: String, steps: Vec<Step>) -> Plan {
        Plan { name, steps }
    }

    /// The plan's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The launches in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs every launch.
    ///
    /// # Errors
    /// The first launch that fails, by its place.
    pub fn run(&self, stream: &Stream) -> Result<(), PlanError> {
        self.steps.iter().try_for_each(|step| step.run(stream))
    }

    /// What all launches move and compute.
    pub fn cost(&self) -> Cost {
        self.steps.iter().fold(Cost::default(), |sum, step| Cost {
            read: sum.read + step.launch.cost.read,
            write: sum.write + step.launch.cost.write,
            flops: sum.flops + step.launch.cost.flops,
        })
    }

    /// This plan followed by `next`.
    pub fn then(&self, next: &Plan, name: impl Into<String>) -> Plan {
        Plan { name: name.into(), steps: self.steps.iter().chain(&next.steps).cloned().collect() }
    }
}

/// Bytes of dynamic shared memory that a launch may have without asking.
const UNASKED_SHARED: u32 = 48 << 10;

/// Builds a [`Plan`], remembering where it is so that errors can say so.
#[derive(Debug)]
pub struct PlanBuilder<'e> {
    engine: &'e Engine,
    arena: Arena,
    checker: PlanChecker,
    layer: Option<u32>,
    plan: Plan,
}

impl<'e> PlanBuilder<'e> {
    /// An empty plan for `engine`, whose scratch comes from `arena`.
    pub fn new(engine: &'e Engine, arena: &Arena, name: impl Into<String>) -> Self {
        let plan = Plan { name: name.into(), steps: Vec::new() };
        PlanBuilder { engine, arena: arena.clone(), checker: PlanChecker::default(), layer: None, plan }
    }

    /// Where the plan's scratch comes from.
    pub fn arena(&self) -> Arena {
        self.arena.clone()
    }

    /// Finishes the plan and begins one called `name`, which is only ever run after it: it may read what this one wrote.
    pub fn split(&mut self, name: impl Into<String>) -> Plan {
        self.layer = None;
        std::mem::replace(&mut self.plan, Plan { name: name.into(), steps: Vec::new() })
    }

    /// `buffer` is written by launches outside the plan, before what follows is run.
    pub fn written_elsewhere<T: Element>(&mut self, buffer: &Buffer<T>) -> &mut Self {
        self.checker.write(&self.arena, &buffer.raw());
        self
    }

    /// The engine that the plan is for.
    pub fn engine(&self) -> &'e Engine {
        self.engine
    }

    /// What follows belongs to this layer (or to none).
    pub fn layer(&mut self, layer: Option<u32>) -> &mut Self {
        self.layer = layer;
        self
    }

    /// Appends a launch.
    ///
    /// # Errors
    /// Arguments that do not fit or get in each other's way, scratch that is not written yet or given back already, a kernel
    /// that is not loaded; all name the layer and `what`.
    pub fn push(
        &mut self,
        what: &'static str,
        launch: Result<impl Capturable, LaunchError>,
    ) -> Result<&mut Self, PlanError> {
        let label = Label { layer: self.layer, what };
        let launch = launch.map_err(|source| PlanError::Launch { at: label, source })?.into_launch();
        let function = self
            .engine
            .function(launch.decl)
            .map_err(|source| PlanError::Engine { at: label, source: Box::new(source) })?
            .clone();
        launch
            .expect_device(self.engine.device())
            .map_err(|source| PlanError::Device { at: label, source })?;
        self.checker.launch(&self.arena, label, &launch)?;
        if launch.shared > UNASKED_SHARED {
            // One value for all plans that launch the function: the device keeps the last one that it was given.
            let room = self.engine.device().info().max_shared.saturating_sub(function.info().static_shared);
            function.allow_shared(room).map_err(|source| PlanError::Device { at: label, source })?;
        }
        let pointers = launch.args.slots().iter().enumerate();
        let access = pointers.filter_map(|(index, slot)| match slot {
            ArgSlot::Pointer { buffer, access, .. } => {
                let bytes = buffer.bytes() as u64;
                Some(ParamAccess { param: index as u16, access: *access, bytes })
            }
            _ => None,
        });
        let access = access.collect();
        self.plan.steps.push(Step { label, launch, function, access });
        Ok(self)
    }

    /// The plan.
    pub fn finish(self) -> Plan {
        self.plan
    }
}
