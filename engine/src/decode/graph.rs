//! Captured walks, one a bucket.

use std::collections::HashMap;
use std::fmt;

use tracing::info;

use crate::engine::Engine;
use crate::models::Walk;
use crate::plan::{CaptureKey, CapturedPlan, PlanError};

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

/// What has happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraphCounters {
    /// Graphs recorded.
    pub captures: u64,
    /// Graphs replayed.
    pub replays: u64,
    /// Walks run launch by launch because a graph's pointers had gone stale.
    pub latched: u64,
    /// Nodes read back from the device and compared with their launches.
    pub nodes_compared: u64,
    /// Pairs of launches whose order matters and is kept by the graphs' edges.
    pub pairs_covered: u64,
}

/// The graphs of one session. Keyed by all that a capture bakes; a graph whose buffers have been re-seated is latched:
/// its walks run eagerly from then on.
#[derive(Debug, Default)]
pub struct GraphDecodeState {
    pool: HashMap<CaptureKey, Entry>,
    // The key is some kilobytes derived from every launch; a session's walks are found by their bucket first.
    // A bucket has two: the next token is drawn, or the likeliest.
    by_bucket: HashMap<(BucketKey, bool), CaptureKey>,
    counters: GraphCounters,
    replayed: Vec<(BucketKey, u64)>,
}

#[derive(Debug)]
struct Entry {
    captured: CapturedPlan,
    latched: bool,
}

impl GraphDecodeState {
    /// No graphs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counters.
    pub fn counters(&self) -> GraphCounters {
        self.counters
    }

    /// The buckets that were replayed, in order of first replay, with the number of replays.
    pub fn replayed(&self) -> &[(BucketKey, u64)] {
        &self.replayed
    }

    /// The graph captured for a bucket; the one that takes the likeliest token where there are two.
    pub fn captured(&mut self, bucket: BucketKey) -> Option<&mut CapturedPlan> {
        let key = self.by_bucket.get(&(bucket, false)).or_else(|| self.by_bucket.get(&(bucket, true)))?;
        self.pool.get_mut(key).map(|entry| &mut entry.captured)
    }

    /// Runs one walk, body and head, by replay.
    ///
    /// # Errors
    /// A refused capture; what the device says.
    pub fn step(&mut self, engine: &Engine, walk: &Walk) -> Result<(), PlanError> {
        let bucket = BucketKey { kernel: walk.attention_kernel, n_splits: walk.n_splits };
        let place = (bucket, walk.sampled);
        if !self.by_bucket.contains_key(&place) {
            let plan = walk.body.then(&walk.head, walk.body.name());
            let key = plan.capture_key();
            if !self.pool.contains_key(&key) {
                let captured = plan.capture(engine.stream())?;
                self.counters.captures += 1;
                let proof = captured.proof();
                self.counters.nodes_compared += proof.nodes as u64;
                self.counters.pairs_covered += proof.pairs as u64;
                info!("captured {bucket}: {} nodes, {} ordered pairs", proof.nodes, proof.pairs);
                self.pool.insert(key.clone(), Entry { captured, latched: false });
            }
            self.by_bucket.insert(place, key);
        }
        let Some(entry) = self.by_bucket.get(&place).and_then(|key| self.pool.get_mut(key)) else {
            unreachable!("the bucket has just been captured")
        };
        if !entry.latched {
            let moved = entry.captured.stale();
            if let Some(first) = moved.first() {
                entry.latched = true;
                let (baked, now) = (first.baked, first.current);
                eprintln!(
                    "bitwalk: graph {bucket} latched: {} of its pointers moved, the first in {}, `{}`: {:#x} -> {:#x}",
                    moved.len(),
                    baked.label,
                    baked.param,
                    baked.address,
                    now.address
                );
            }
        }
        if entry.latched {
            self.counters.latched += 1;
            walk.body.run(engine.stream())?;
            return walk.head.run(engine.stream());
        }
        entry.captured.replay(engine.stream())?;
        self.counters.replays += 1;
        match self.replayed.iter_mut().find(|(key, _)| *key == bucket) {
            Some((_, count)) => *count += 1,
            None => self.replayed.push((bucket, 1)),
        }
        Ok(())
    }
}
