//! Which buffers a plan points at, and where they are.

use super::{Label, Plan};
use crate::kernel::ArgSlot;

/// One pointer of a plan at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotPlace {
    /// The launch it belongs to.
    pub label: Label,
    /// The declared parameter.
    pub param: &'static str,
    /// The buffer's id, which a re-seat keeps.
    pub id: u64,
    /// How often it had been re-seated.
    pub generation: u64,
    /// Its address.
    pub address: u64,
}

/// Every pointer that a plan's launches hold, in order: what a graph bakes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PointerSignature(pub Vec<SlotPlace>);

/// A pointer that has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureDiff {
    /// What was baked.
    pub baked: SlotPlace,
    /// What the buffer is now.
    pub current: SlotPlace,
    /// Index of the launch in the plan.
    pub step: usize,
}

impl Plan {
    fn places(&self) -> impl Iterator<Item = (usize, SlotPlace)> {
        self.steps().iter().enumerate().flat_map(|(index, step)| {
            step.launch.args.slots().iter().filter_map(move |slot| match slot {
                ArgSlot::Pointer { param, buffer, .. } => {
                    let place = buffer.place();
                    let param = step.launch.decl.params[usize::from(*param)].name;
                    let (id, generation, address) = (place.id, place.generation, place.address);
                    Some((index, SlotPlace { label: step.label, param, id, generation, address }))
                }
                _ => None,
            })
        })
    }

    /// The plan's pointers now.
    pub fn signature(&self) -> PointerSignature {
        PointerSignature(self.places().map(|(_, place)| place).collect())
    }

    /// The pointers that have moved since `baked` was taken of this plan. Allocates only when there are some.
    pub fn moved_since(&self, baked: &PointerSignature) -> Vec<SignatureDiff> {
        self.places()
            .zip(&baked.0)
            .filter(|((_, current), baked)| current != *baked)
            .map(|((step, current), baked)| SignatureDiff { baked: *baked, current, step })
            .collect()
    }
}
