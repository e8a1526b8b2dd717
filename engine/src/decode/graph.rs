//! Captured walks: a pool of graphs, and what is done when the buffers that they bake are re-seated.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::Write;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use tracing::info;

use super::stage::{CaptureMode, Partition, Refusal, Stretch, partition};
use super::verify;
use crate::engine::Engine;
use crate::models::{Segment, Walk};
use crate::plan::{CaptureKey, CapturedPlan, Plan, PlanError, SignatureDiff};

/// What distinguishes the graphs of one session: which attention kernel, sized for how many chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketKey {
    /// The attention kernel.
    pub kernel: &'static str,
    /// Chunks of 64 keys that it is launched for.
    pub n_splits: u32,
}

impl fmt::Display for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, n_splits {})", self.kernel, self.n_splits)
    }
}

/// What is done when a buffer that a graph bakes has been re-seated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SeatPolicy {
    /// The stretch is launched eagerly from then on: the safe one.
    #[default]
    Latch,
    /// The changed nodes get their parameters anew, in the instantiated graph.
    Patch,
    /// The stretch is recorded anew.
    Recapture,
}

/// How a pool of graphs works.
#[derive(Debug, Clone, Copy)]
pub struct GraphOptions {
    /// What is captured.
    pub mode: CaptureMode,
    /// What is done about re-seated buffers.
    pub policy: SeatPolicy,
    /// Whether a graph's first replay is compared, bit for bit, with the same launches run eagerly from the same state.
    pub verify: bool,
    /// Faults that gates plant.
    #[doc(hidden)]
    pub fault: Option<GraphFault>,
}

impl Default for GraphOptions {
    /// The whole walk captured, stale graphs latched, first replays verified.
    fn default() -> Self {
        GraphOptions {
            mode: CaptureMode::default(),
            policy: SeatPolicy::default(),
            verify: true,
            fault: None,
        }
    }
}

/// A fault that a gate plants in a pool of graphs.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphFault {
    /// Stale pointers are not looked for.
    IgnoreSeats,
    /// A patch that changes nothing.
    PatchNothing,
    /// Nothing is replayed: walks run eagerly, and are not counted as replays.
    ReplayNothing,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphCounters {
    /// Graphs recorded for the first time.
    pub captures: u64,
    /// Graphs recorded anew because their pointers had gone stale.
    pub recaptures: u64,
    /// Times that a graph's stale nodes were patched.
    pub patches: u64,
    /// Nodes patched.
    pub patched_nodes: u64,
    /// Graphs given up for good.
    pub latches: u64,
    /// Graphs replayed.
    pub replays: u64,
    /// Stretches run launch by launch because their graph was given up.
    pub latched: u64,
    /// Layers in the graphs of the last bucket.
    pub captured_layers: u64,
    /// Nodes of the graphs of the last bucket.
    pub nodes: u64,
    /// First replays compared with an eager run.
    pub verified: u64,
    /// Time that the comparisons took, which bench figures leave out: the streams were idle before and after.
    pub verifying: Duration,
    /// Nodes read back from the device and compared with their launches.
    pub nodes_compared: u64,
    /// Pairs of launches whose order matters and is kept by the graphs' edges.
    pub pairs_covered: u64,
    /// Edges along which a launch begins before the one ahead of it has ended.
    pub early_edges: u64,
}

/// What tells the graphs of one pool apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StageKey {
    device: u32,
    layers: Option<RangeInclusive<u32>>,
    key: CaptureKey,
}

/// Where a walk belongs: the device and first layer of its stage, its bucket, and whether it draws the next token.
type Place = (u32, u32, BucketKey, bool);

/// The graphs of one session, of all its stages. Keyed by the device, the range of layers and all that a capture bakes.
#[derive(Debug, Default)]
pub struct GraphDecodeState {
    options: GraphOptions,
    pool: HashMap<StageKey, Entry>,
    // A key is some kilobytes derived from every launch; a session's walks are found by their bucket first.
    // A bucket has two: the next token is drawn, or the likeliest.
    by_bucket: HashMap<Place, Vec<Part>>,
    counters: GraphCounters,
    replayed: Vec<(BucketKey, u64)>,
    refused: BTreeSet<String>,
    /// Layers in graphs and their nodes, by device and first layer of the stage: of the last bucket prepared.
    extent: HashMap<(u32, u32), (u64, u64)>,
}

#[derive(Debug)]
enum Part {
    Captured(StageKey),
    Gap(Vec<Segment>),
}

#[derive(Debug)]
struct Entry {
    captured: CapturedPlan,
    latched: bool,
}

impl GraphDecodeState {
    /// No graphs yet; [`GraphOptions::default`].
    pub fn new() -> Self {
        Self::default()
    }

    /// No graphs yet.
    pub fn with_options(options: GraphOptions) -> Self {
        GraphDecodeState { options, ..Self::default() }
    }

    /// How it works.
    pub fn options(&self) -> GraphOptions {
        self.options
    }

    /// The counters.
    pub fn counters(&self) -> GraphCounters {
        let captured_layers = self.extent.values().map(|(layers, _)| layers).sum();
        let nodes = self.extent.values().map(|(_, nodes)| nodes).sum();
        GraphCounters { captured_layers, nodes, ..self.counters }
    }

    /// The buckets that were replayed, in order of first replay, with the number of walks.
    pub fn replayed(&self) -> &[(BucketKey, u64)] {
        &self.replayed
    }

    /// The first graph captured for a bucket; the one that takes the likeliest token where there are two.
    pub fn captured(&mut self, bucket: BucketKey) -> Option<&mut CapturedPlan> {
        let places = self.by_bucket.iter().filter(|((_, _, key, _), _)| *key == bucket);
        let (_, parts) = places.min_by_key(|((_, first, _, sampled), _)| (*first, *sampled))?;
        let key = parts.iter().find_map(|part| match part {
            Part::Captured(key) => Some(key),
            Part::Gap(_) => None,
        })?;
        self.pool.get_mut(key).map(|entry| &mut entry.captured)
    }

    /// Runs one walk, body and head: captured stretches by replay, the others launch by launch.
    ///
    /// # Errors
    /// A broken capture; what the device says.
    pub fn step(&mut self, engine: &Engine, walk: &Walk) -> Result<(), PlanError> {
        let bucket = BucketKey { kernel: walk.attention_kernel, n_splits: walk.n_splits };
        let place = (engine.ordinal(), walk.first_layer, bucket, walk.sampled);
        if !self.by_bucket.contains_key(&place) {
            let parts = self.prepare(engine, walk, bucket)?;
            self.by_bucket.insert(place, parts);
        }
        let Some(parts) = self.by_bucket.get(&place) else {
            unreachable!("the bucket has just been prepared")
        };
        let mut replayed = false;
        for part in parts {
            match part {
                Part::Gap(segments) => {
                    for segment in segments {
                        match segment {
                            Segment::Launches(plan) => plan.run(engine.stream())?,
                            Segment::HostExperts(experts) => experts.run(engine)?,
                            Segment::Probe(_) => {}
                        }
                    }
                }
                Part::Captured(key) => {
                    let Some(entry) = self.pool.get_mut(key) else {
                        unreachable!("the bucket's graphs are in the pool")
                    };
                    replayed |= entry.run(engine, self.options, &mut self.counters)?;
                }
            }
        }
        if replayed {
            match self.replayed.iter_mut().find(|(key, _)| *key == bucket) {
                Some((_, count)) => *count += 1,
                None => self.replayed.push((bucket, 1)),
            }
        }
        Ok(())
    }

    /// Captures what of a walk can be.
    fn prepare(&mut self, engine: &Engine, walk: &Walk, bucket: BucketKey) -> Result<Vec<Part>, PlanError> {
        let Partition { stretches, refusals } = partition(walk, self.options.mode);
        refusals.iter().for_each(|refusal| self.refuse(refusal));
        let mut parts = Vec::new();
        let (mut layers, mut nodes) = (0, 0);
        for stretch in stretches {
            let (plan, range) = match stretch {
                Stretch::Gap(segments) => {
                    parts.push(Part::Gap(segments));
                    continue;
                }
                Stretch::Captured { plan, layers } => (plan, layers),
            };
            layers += range.as_ref().map_or(0, |range| u64::from(range.end() - range.start()) + 1);
            nodes += plan.steps().len() as u64;
            let key = StageKey { device: engine.ordinal(), layers: range, key: plan.capture_key() };
            if !self.pool.contains_key(&key) {
                let captured = capture(engine, &plan, &mut self.counters)?;
                self.counters.captures += 1;
                let proof = captured.proof();
                info!(
                    "captured {bucket}: {} nodes, {} ordered pairs, {} edges of dependent launch",
                    proof.nodes, proof.pairs, proof.early
                );
                let latched = !trusted(engine, self.options, &captured, &mut self.counters)?;
                self.pool.insert(key.clone(), Entry { captured, latched });
            }
            parts.push(Part::Captured(key));
        }
        self.extent.insert((engine.ordinal(), walk.first_layer), (layers, nodes));
        Ok(parts)
    }

    /// Says once why layers are not captured.
    fn refuse(&mut self, refusal: &Refusal) {
        let line = refusal.to_string();
        if !self.refused.contains(&line) {
            say(format_args!("{line}"));
            self.refused.insert(line);
        }
    }
}

/// Compares a graph's first replay with an eager run, where that is asked for; whether the graph may be used. One that may
/// not is latched.
fn trusted(
    engine: &Engine,
    options: GraphOptions,
    captured: &CapturedPlan,
    counters: &mut GraphCounters,
) -> Result<bool, PlanError> {
    if !options.verify {
        return Ok(true);
    }
    engine.synchronize()?;
    let begun = Instant::now();
    let difference = verify::first_replay(engine, captured, |captured| match options.fault {
        Some(GraphFault::ReplayNothing) => Ok(()),
        _ => captured.replay(engine.stream()),
    })?;
    counters.verified += 1;
    counters.verifying += begun.elapsed();
    if let Some(difference) = &difference {
        let name = captured.plan().name();
        say(format_args!("graph of {name} latched: its first replay differs, {difference}"));
        counters.latches += 1;
    }
    Ok(difference.is_none())
}

/// A line on stderr; that nobody reads it is no fault of the walk's.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "bitwalk: {line}");
}

fn capture(engine: &Engine, plan: &Plan, counters: &mut GraphCounters) -> Result<CapturedPlan, PlanError> {
    let captured = plan.capture(engine.stream())?;
    let proof = captured.proof();
    counters.nodes_compared += proof.nodes as u64;
    counters.pairs_covered += proof.pairs as u64;
    counters.early_edges += proof.early as u64;
    Ok(captured)
}

impl Entry {
    /// Runs the stretch; whether by replay.
    fn run(
        &mut self,
        engine: &Engine,
        options: GraphOptions,
        counters: &mut GraphCounters,
    ) -> Result<bool, PlanError> {
        if !self.latched && options.fault != Some(GraphFault::IgnoreSeats) {
            let moved = self.captured.stale();
            if !moved.is_empty() {
                self.reseated(engine, options, &moved, counters)?;
            }
        }
        if self.latched {
            counters.latched += 1;
            self.captured.plan().run(engine.stream())?;
            return Ok(false);
        }
        if options.fault == Some(GraphFault::ReplayNothing) {
            self.captured.plan().run(engine.stream())?;
            return Ok(false);
        }
        self.captured.replay(engine.stream())?;
        counters.replays += 1;
        Ok(true)
    }

    /// Deals with pointers that have moved, as the policy says.
    fn reseated(
        &mut self,
        engine: &Engine,
        options: GraphOptions,
        moved: &[SignatureDiff],
        counters: &mut GraphCounters,
    ) -> Result<(), PlanError> {
        let plan = self.captured.plan().clone();
        let action = match options.policy {
            SeatPolicy::Latch => "latched",
            SeatPolicy::Patch => "patched",
            SeatPolicy::Recapture => "re-captured",
        };
        say(format_args!("graph of {} {action}: {} of its pointers moved", plan.name(), moved.len()));
        for diff in moved {
            let (baked, now) = (diff.baked, diff.current);
            say(format_args!(
                "sig_diff= {}, `{}`: {:#x} -> {:#x}",
                baked.label, baked.param, baked.address, now.address
            ));
        }
        match options.policy {
            SeatPolicy::Latch => {
                self.latched = true;
                counters.latches += 1;
            }
            SeatPolicy::Patch => {
                counters.patches += 1;
                if options.fault == Some(GraphFault::PatchNothing) {
                    self.captured.pretend_patched();
                } else {
                    counters.patched_nodes += self.captured.patch()? as u64;
                }
            }
            SeatPolicy::Recapture => {
                self.captured = capture(engine, &plan, counters)?;
                counters.recaptures += 1;
                self.latched = !trusted(engine, options, &self.captured, counters)?;
            }
        }
        Ok(())
    }
}
