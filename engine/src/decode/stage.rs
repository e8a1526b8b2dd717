//! A walk taken apart into what is captured and what is not.

use std::fmt;
use std::ops::RangeInclusive;

use crate::models::{HostExperts, MixerKind, Segment, Walk};
use crate::plan::{Plan, Step};

/// What of a walk is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CaptureMode {
    /// Everything that can be: the whole walk where the host has no part in it.
    #[default]
    Whole,
    /// Maximal runs of recurrent layers, the others launched eagerly between them: a base line, and a way around a fault.
    RecurrentRuns,
    /// Nothing: every walk is launched.
    Nothing,
}

/// Why some layers are not captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The layers.
    pub layers: Vec<u32>,
    /// Why.
    pub reason: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<String> = self.layers.iter().map(u32::to_string).collect();
        write!(f, "layers {} are not captured: {}", layers.join(", "), self.reason)
    }
}

/// A stretch of a walk.
#[derive(Debug, Clone)]
pub(super) enum Stretch {
    /// Captured as one graph.
    Captured {
        /// Its launches.
        plan: Plan,
        /// Its layers; nothing where it has none.
        layers: Option<RangeInclusive<u32>>,
    },
    /// Launched one by one.
    Gap(Vec<Segment>),
}

/// A walk, eligible stretches and gaps in order, decided before anything is captured.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    pub stretches: Vec<Stretch>,
    pub refusals: Vec<Refusal>,
}

enum Item<'a> {
    Step(&'a Step),
    Host(&'a HostExperts),
}

impl Item<'_> {
    fn layer(&self) -> Option<u32> {
        match self {
            Item::Step(step) => step.label.layer,
            Item::Host(experts) => experts.layer(),
        }
    }
}

/// Decides what of `walk`, body and head, is captured.
pub(super) fn partition(walk: &Walk, mode: CaptureMode) -> Partition {
    if mode == CaptureMode::Nothing {
        let head = Segment::Launches(walk.head.clone());
        let segments = walk.body.segments().iter().cloned().chain([head]).collect();
        return Partition { stretches: vec![Stretch::Gap(segments)], refusals: Vec::new() };
    }
    let mut items = Vec::new();
    for segment in walk.body.segments() {
        match segment {
            Segment::Launches(plan) => items.extend(plan.steps().iter().map(Item::Step)),
            Segment::HostExperts(experts) => items.push(Item::Host(experts)),
            Segment::Probe(_) => {}
        }
    }
    items.extend(walk.head.steps().iter().map(Item::Step));

    let hosted: Vec<u32> = items
        .iter()
        .filter_map(|item| match item {
            Item::Host(experts) => experts.layer(),
            Item::Step(_) => None,
        })
        .collect();
    let mut refusals = Vec::new();
    if !hosted.is_empty() {
        refusals
            .push(Refusal { layers: hosted.clone(), reason: "the host launches their experts one by one" });
    }
    let mut eager = hosted;
    if mode == CaptureMode::RecurrentRuns {
        let others = walk.mixers.iter().enumerate().filter(|(_, mixer)| **mixer != MixerKind::Kda);
        let layers: Vec<u32> = others.map(|(layer, _)| walk.first_layer + layer as u32).collect();
        if !layers.is_empty() {
            let reason = "only runs of recurrent layers are captured (mode recurrent-runs)";
            refusals.push(Refusal { layers: layers.clone(), reason });
        }
        eager.extend(layers);
    }

    // Launches that belong to no layer go with those before them, the first ones with those after.
    let mut runs: Vec<(bool, Vec<Item<'_>>)> = Vec::new();
    for item in items {
        let captured = match (item.layer(), runs.last()) {
            (Some(layer), _) => !eager.contains(&layer),
            (None, Some((captured, _))) => *captured,
            (None, None) => true,
        };
        match runs.last_mut() {
            Some((last, items)) if *last == captured => items.push(item),
            _ => runs.push((captured, vec![item])),
        }
    }
    let stretches = runs.into_iter().map(|(captured, items)| {
        let name = walk.body.name();
        if captured { captured_stretch(name, &items) } else { Stretch::Gap(gap(name, &items)) }
    });
    Partition { stretches: stretches.collect(), refusals }
}

fn captured_stretch(name: &str, items: &[Item<'_>]) -> Stretch {
    let steps = items.iter().filter_map(|item| match item {
        Item::Step(step) => Some((*step).clone()),
        Item::Host(_) => None, // its layer is not captured
    });
    let layers = items.iter().filter_map(Item::layer).min().zip(items.iter().filter_map(Item::layer).max());
    let layers = layers.map(|(first, last)| first..=last);
    let name = match &layers {
        Some(layers) => format!("{name}, layers {}..={}", layers.start(), layers.end()),
        None => name.to_owned(),
    };
    Stretch::Captured { plan: Plan::from_steps(name, steps.collect()), layers }
}

fn gap(name: &str, items: &[Item<'_>]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut steps: Vec<Step> = Vec::new();
    let flush = |steps: &mut Vec<Step>, segments: &mut Vec<Segment>| {
        if !steps.is_empty() {
            segments.push(Segment::Launches(Plan::from_steps(name.to_owned(), std::mem::take(steps))));
        }
    };
    for item in items {
        match item {
            Item::Step(step) => steps.push((*step).clone()),
            Item::Host(experts) => {
                flush(&mut steps, &mut segments);
                segments.push(Segment::HostExperts(Box::new((*experts).clone())));
            }
        }
    }
    flush(&mut steps, &mut segments);
    segments
}
