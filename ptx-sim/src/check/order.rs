//! What happened before what, between the blocks of a launch.
//!
//! Vector clocks in the manner of FastTrack (Flanagan and Freund, 2009), one agent a block. A block releases through a
//! location what it had done by its last fence, or by the store itself if that is a release; it acquires through a
//! location with an atomic operation or with an acquiring, relaxed or volatile load. That is the PTX memory model but
//! for one leniency: a relaxed load acquires at once, without the fence that should follow it.

use std::collections::HashMap;

/// For each block, up to which of its clock values its actions are known.
type Clock = Vec<u32>;

fn join(into: &mut Clock, from: &Clock) {
    if into.len() < from.len() {
        into.resize(from.len(), 0);
    }
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

#[derive(Default)]
struct Agent {
    /// What this block knows of others.
    known: Clock,
    /// What it had done and known at its last fence.
    published: Option<Clock>,
    /// Its own time, which each fence advances.
    now: u32,
}

/// The order between blocks.
#[derive(Default)]
pub(crate) struct Order {
    agents: HashMap<u32, Agent>,
    locations: HashMap<u64, Clock>,
}

impl Order {
    /// The time of `block`.
    pub(crate) fn now(&self, block: u32) -> u32 {
        self.agents.get(&block).map_or(0, |agent| agent.now)
    }

    /// Whether what `other` did at its time `at` is ordered before what `block` does now.
    pub(crate) fn ordered(&self, block: u32, other: u32, at: u32) -> bool {
        block == other
            || self
                .agents
                .get(&block)
                .is_some_and(|agent| agent.known.get(other as usize).is_some_and(|&t| t > at))
    }

    /// `block` executed a fence.
    pub(crate) fn fence(&mut self, block: u32) {
        let agent = self.agents.entry(block).or_default();
        agent.now += 1;
        let mut clock = agent.known.clone();
        if clock.len() <= block as usize {
            clock.resize(block as usize + 1, 0);
        }
        // Times below `now` are published; clocks count one past what is known, so that 0 is nothing.
        clock[block as usize] = agent.now;
        agent.published = Some(clock);
    }

    /// `block` stored to `location` with an ordered, atomic or volatile operation.
    pub(crate) fn release(&mut self, block: u32, location: u64) {
        if let Some(published) = self.agents.get(&block).and_then(|agent| agent.published.as_ref()) {
            join(self.locations.entry(location).or_default(), published);
        }
    }

    /// `block` read `location` with an ordered, atomic or volatile operation.
    pub(crate) fn acquire(&mut self, block: u32, location: u64) {
        if let Some(clock) = self.locations.get(&location) {
            join(&mut self.agents.entry(block).or_default().known, clock);
        }
    }

    /// `block` is done: what it knew is no longer needed.
    pub(crate) fn finish(&mut self, block: u32) {
        if let Some(agent) = self.agents.get_mut(&block) {
            agent.known = Vec::new();
            agent.published = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_and_a_flag_order_what_went_before() {
        let mut order = Order::default();
        let wrote = order.now(3);
        order.release(3, 100); // without a fence nothing is released
        order.acquire(5, 100);
        assert!(!order.ordered(5, 3, wrote));
        order.fence(3);
        let later = order.now(3);
        order.release(3, 100);
        assert!(!order.ordered(5, 3, wrote), "not before it is read");
        order.acquire(5, 100);
        assert!(order.ordered(5, 3, wrote));
        assert!(!order.ordered(5, 3, later), "what came after the fence is not ordered");
        assert!(!order.ordered(3, 5, 0));
        // On to a third block, through another location.
        order.fence(5);
        order.release(5, 200);
        order.acquire(9, 200);
        assert!(order.ordered(9, 3, wrote));
    }
}
