//! The walk of a chunk of tokens: plans, with what must happen between them on the host, if anything must.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::experts::HostExperts;
use crate::device::{Buffer, Device, DeviceError, Stream};
use crate::engine::Engine;
use crate::kernel::LaunchError;
use crate::plan::{Arena, Label, Plan, PlanBuilder, PlanError, Step};

/// The plans that process a chunk of tokens. `body` runs embedding and layers; then either `head` yields the logits of the
/// chunk's last token and the token after it, or `skip` moves on without them.
#[derive(Debug, Clone)]
pub struct Walk {
    /// Embedding and layers.
    pub body: Body,
    /// Norm, head, argmax or a draw; writes the next token and advances the position past the chunk.
    pub head: Plan,
    /// Advances the position past the chunk.
    pub skip: Plan,
    /// The logits of one token of the chunk, by its place, and nothing else. Empty for a chunk of one token.
    pub rows: Vec<Plan>,
    /// `[tokens, hidden]`, what the head reads: the residual before the final norm, or the normed mean of the streams.
    pub hidden: Buffer<f32>,
    /// Tokens of the chunk.
    pub tokens: u32,
    /// The first layer.
    pub first_layer: u32,
    /// What mixes tokens in each layer.
    pub mixers: Vec<MixerKind>,
    /// Chunks of keys that attention is sized for.
    pub n_splits: u32,
    /// The attention kernel, which with `n_splits` names the bucket.
    pub attention_kernel: &'static str,
    /// Whether the head draws the next token; else it takes the likeliest.
    pub sampled: bool,
}

/// What mixes tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixerKind {
    /// Grouped-query attention.
    Attention,
    /// Kimi Delta Attention.
    Kda,
    /// Latent attention.
    Latent,
}

impl Walk {
    /// Every launch that is known before the walk runs, body and head, as one plan: all of them where the host has no part
    /// in the walk.
    pub fn launches(&self) -> Plan {
        let steps = self.body.steps().chain(self.head.steps()).cloned();
        Plan::from_steps(self.body.name().to_owned(), steps.collect())
    }
}

/// A value in the middle of a walk that an observer may read: made only where a walk is built to be observed.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The layer, if it belongs to one.
    pub layer: Option<u32>,
    /// What it is.
    pub name: &'static str,
    /// Its extents, the chunk's tokens first.
    pub shape: Vec<usize>,
    /// Where it lies until the next segment runs.
    pub values: ProbeValues,
}

/// The elements of a [`Probe`].
#[derive(Debug, Clone)]
pub enum ProbeValues {
    /// float32.
    F32(Buffer<f32>),
    /// Indices or counts.
    U32(Buffer<u32>),
}

/// A part of a walk.
#[derive(Debug, Clone)]
pub enum Segment {
    /// Launches.
    Launches(Plan),
    /// Experts launched one by one, for a selection that is read back first.
    HostExperts(Box<HostExperts>),
    /// A place where an observer looks.
    Probe(Probe),
}

/// What watches a walk.
pub type Observer<'a> = &'a mut dyn FnMut(&Probe) -> Result<(), DeviceError>;

/// Embedding and layers.
#[derive(Debug, Clone)]
pub struct Body {
    name: String,
    segments: Vec<Segment>,
}

impl Body {
    /// The parts in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The launches that are known before the walk runs, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.segments.iter().flat_map(|segment| match segment {
            Segment::Launches(plan) => plan.steps(),
            _ => &[],
        })
    }

    /// Runs it launch by launch.
    ///
    /// # Errors
    /// The first launch that fails, by its place; what the device says.
    pub fn run(&self, engine: &Engine) -> Result<(), PlanError> {
        self.observed(engine, &mut |_| Ok(()))
    }

    /// [`Body::run`], with `observer` called at every probe.
    ///
    /// # Errors
    /// The same, and what `observer` says.
    pub fn observed(&self, engine: &Engine, observer: Observer<'_>) -> Result<(), PlanError> {
        for segment in &self.segments {
            match segment {
                Segment::Launches(plan) => plan.run(engine.stream())?,
                Segment::HostExperts(experts) => experts.run(engine)?,
                Segment::Probe(probe) => observer(probe)?,
            }
        }
        Ok(())
    }
}

impl Probe {
    /// The device that it is on.
    pub fn device(&self) -> &Device {
        match &self.values {
            ProbeValues::F32(buffer) => buffer.device(),
            ProbeValues::U32(buffer) => buffer.device(),
        }
    }

    /// The values as they are now.
    ///
    /// # Errors
    /// What the device says; values that are no floats.
    pub fn floats(&self, stream: &Stream) -> Result<Vec<f32>, DeviceError> {
        match &self.values {
            ProbeValues::F32(buffer) => {
                let mut values = vec![0.0; buffer.len()];
                stream.read(buffer, &mut values)?;
                Ok(values)
            }
            ProbeValues::U32(_) => Ok(Vec::new()),
        }
    }

    /// The values as they are now.
    ///
    /// # Errors
    /// What the device says.
    pub fn indices(&self, stream: &Stream) -> Result<Vec<u32>, DeviceError> {
        match &self.values {
            ProbeValues::U32(buffer) => {
                let mut values = vec![0; buffer.len()];
                stream.read(buffer, &mut values)?;
                Ok(values)
            }
            ProbeValues::F32(_) => Ok(Vec::new()),
        }
    }
}

/// Builds a [`Body`]: a [`PlanBuilder`] that can be interrupted.
pub(super) struct BodyBuilder<'e> {
    plan: PlanBuilder<'e>,
    arena: Arena,
    name: String,
    segments: Vec<Segment>,
    layer: Option<u32>,
    probing: bool,
    tokens: u32,
}

impl fmt::Debug for BodyBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyBuilder")
            .field("name", &self.name)
            .field("segments", &self.segments.len())
            .finish()
    }
}

impl<'e> BodyBuilder<'e> {
    /// An empty body for chunks of `tokens`; with `probing`, probes are kept.
    pub fn new(engine: &'e Engine, arena: &Arena, name: String, tokens: u32, probing: bool) -> Self {
        let plan = PlanBuilder::new(engine, arena, name.clone());
        BodyBuilder { plan, arena: arena.clone(), name, segments: Vec::new(), layer: None, probing, tokens }
    }

    /// Tokens of the chunk.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Where scratch comes from. A clone, so that taking scratch does not hold the builder.
    pub fn scratch(&self) -> Arena {
        self.arena.clone()
    }

    /// The layer that launches belong to.
    pub fn current_layer(&self) -> Option<u32> {
        self.layer
    }

    /// What follows belongs to this layer (or to none).
    pub fn enter(&mut self, layer: Option<u32>) {
        self.layer = layer;
        self.plan.layer(layer);
    }

    /// An observer may look at `values`, `[tokens, …]`, here.
    pub fn probe(&mut self, name: &'static str, values: &Buffer<f32>, shape: &[u32]) {
        self.look(name, shape, || ProbeValues::F32(values.clone()));
    }

    /// [`BodyBuilder::probe`] of indices.
    pub fn probe_indices(&mut self, name: &'static str, values: &Buffer<u32>, shape: &[u32]) {
        self.look(name, shape, || ProbeValues::U32(values.clone()));
    }

    fn look(&mut self, name: &'static str, shape: &[u32], values: impl FnOnce() -> ProbeValues) {
        if self.probing {
            let shape = [self.tokens].iter().chain(shape).map(|&n| n as usize).collect();
            let probe = Probe { layer: self.layer, name, shape, values: values() };
            self.interrupt(Segment::Probe(probe));
        }
    }

    /// The error for a cache whose slot is not the layer's.
    pub fn wrong_slot(&self, kernel: &'static str, argument: &'static str, kind: &str) -> PlanError {
        let reason = format!("the cache holds {kind} for this layer: make it for this model");
        let at = Label { layer: self.layer, what: "cache" };
        PlanError::Launch { at, source: LaunchError { kernel, argument, reason } }
    }

    /// Ends the launches so far and goes on after `segment`.
    pub fn interrupt(&mut self, segment: Segment) {
        let launches = self.plan.split(self.name.clone());
        self.plan.layer(self.layer);
        if !launches.steps().is_empty() {
            self.segments.push(Segment::Launches(launches));
        }
        self.segments.push(segment);
    }

    /// The body, and the builder for the plan that follows it.
    pub fn finish(mut self, next: &str) -> (Body, PlanBuilder<'e>) {
        let launches = self.plan.split(next);
        if !launches.steps().is_empty() {
            self.segments.push(Segment::Launches(launches));
        }
        (Body { name: self.name, segments: self.segments }, self.plan)
    }
}

impl<'e> Deref for BodyBuilder<'e> {
    type Target = PlanBuilder<'e>;
    fn deref(&self) -> &PlanBuilder<'e> {
        &self.plan
    }
}

impl DerefMut for BodyBuilder<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.plan
    }
}
