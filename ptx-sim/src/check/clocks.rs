//! What happened before what.
//!
//! Vector clocks in the manner of FastTrack (Flanagan and Freund, 2009). An agent is a warp. It comes to know what others
//! did at barriers, and through memory: what it did and knew by its last fence it releases with an ordered, atomic or
//! volatile write (a releasing write fences first), and whoever reads that place with an ordered, atomic or volatile read
//! acquires it. A fence of the block's scope, and a write of that scope, release to the block only.
//!
//! That is the PTX memory model but for two leniencies, both for what is common and works: a relaxed read acquires at once,
//! without the fence that should follow it; and what a warp fenced, another may release after a barrier of both, without a
//! fence of its own there (all threads fence, the block's barrier, one thread counts).

use std::collections::HashMap;
use std::rc::Rc;

/// For each warp of a block, up to which of its times its actions are known.
pub(crate) type Times = [u32; 32];

/// What is known of other blocks.
pub(crate) type Foreign = Option<Rc<HashMap<u32, Times>>>;

/// What was released through places in global memory, to all blocks of the launch.
#[derive(Default)]
pub(crate) struct Released(HashMap<u64, HashMap<u32, Times>>);

fn join(into: &mut Times, from: &Times) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

fn join_foreign(into: &mut Foreign, from: &Foreign) {
    match (into.as_mut(), from) {
        (_, None) => {}
        (None, Some(_)) => into.clone_from(from),
        (Some(mine), Some(theirs)) if Rc::ptr_eq(mine, theirs) => {}
        (Some(mine), Some(theirs)) => {
            let mine = Rc::make_mut(mine);
            for (block, times) in theirs.iter() {
                join(mine.entry(*block).or_insert([0; 32]), times);
            }
        }
    }
}

/// Everything that a warp had done and knew at one time.
#[derive(Clone, Default)]
struct Knowledge {
    own: Times,
    foreign: Foreign,
}

impl Knowledge {
    fn join(&mut self, from: &Knowledge) {
        join(&mut self.own, &from.own);
        join_foreign(&mut self.foreign, &from.foreign);
    }
}

/// What was fenced: for the block, and for all blocks.
type Fenced = [Option<Knowledge>; 2];

fn join_fenced(into: &mut Fenced, from: &Fenced) {
    for (into, from) in into.iter_mut().zip(from) {
        match (into.as_mut(), from) {
            (_, None) => {}
            (None, Some(_)) => into.clone_from(from),
            (Some(mine), Some(theirs)) => mine.join(theirs),
        }
    }
}

/// The clocks of one block's warps.
pub(crate) struct Clocks {
    number: u32,
    time: u32,
    warps: Vec<Knowledge>,
    /// For each warp, the time since which its lanes have not synchronised.
    lanes: Vec<u32>,
    /// What each warp may release.
    published: Vec<Fenced>,
    /// What was brought to each barrier.
    arrived: [(Knowledge, Fenced); 16],
    /// What was released through places in shared or global memory, to this block.
    places: HashMap<u64, Times>,
}

impl Clocks {
    /// For blocks of `warps` warps.
    pub(crate) fn new(warps: u32) -> Clocks {
        let warps = warps as usize;
        Clocks {
            number: 0,
            time: 0,
            warps: vec![Knowledge::default(); warps],
            lanes: vec![0; warps],
            published: vec![[None, None]; warps],
            arrived: Default::default(),
            places: HashMap::new(),
        }
    }

    /// Block `number` begins.
    pub(crate) fn begin(&mut self, number: u32) {
        self.number = number;
        self.time = self.warps.len() as u32;
        for (index, warp) in self.warps.iter_mut().enumerate() {
            *warp = Knowledge::default();
            warp.own[index] = index as u32 + 1;
        }
        self.lanes.fill(0);
        self.published.fill([None, None]);
        self.arrived = Default::default();
        self.places.clear();
    }

    /// The time of a warp, from 1.
    #[inline(always)]
    pub(crate) fn now(&self, warp: usize) -> u32 {
        self.warps[warp].own[warp]
    }

    /// What a warp knows of its block.
    #[inline(always)]
    pub(crate) fn known(&self, warp: usize) -> &Times {
        &self.warps[warp].own
    }

    /// The time since which the lanes of a warp have not synchronised.
    #[inline(always)]
    pub(crate) fn lanes_since(&self, warp: usize) -> u32 {
        self.lanes[warp]
    }

    /// Whether what warp `other` of block `block` did at its time `at` comes before what `warp` does now.
    #[inline(always)]
    pub(crate) fn ordered(&self, warp: usize, block: u32, other: usize, at: u32) -> bool {
        let knows = &self.warps[warp];
        if block == self.number {
            return other == warp || knows.own[other] >= at;
        }
        knows.foreign.as_ref().and_then(|all| all.get(&block)).is_some_and(|times| times[other] >= at)
    }

    fn tick(&mut self, warp: usize) {
        self.time += 1;
        self.warps[warp].own[warp] = self.time;
    }

    /// The lanes of a warp synchronise.
    pub(crate) fn lanes_meet(&mut self, warp: usize) {
        self.tick(warp);
        self.lanes[warp] = self.time;
    }

    /// A warp arrives at a barrier.
    pub(crate) fn arrive(&mut self, warp: usize, barrier: usize) {
        let (knows, fenced) = &mut self.arrived[barrier];
        knows.join(&self.warps[warp]);
        join_fenced(fenced, &self.published[warp]);
        self.lanes_meet(warp);
    }

    /// A barrier is complete: the warps in `waiting` know what all that arrived did and knew.
    pub(crate) fn complete(&mut self, barrier: usize, waiting: u32) {
        let (brought, fenced) = std::mem::take(&mut self.arrived[barrier]);
        for (index, warp) in self.warps.iter_mut().enumerate() {
            if waiting >> index & 1 != 0 {
                warp.join(&brought);
                join_fenced(&mut self.published[index], &fenced);
            }
        }
    }

    /// A warp executes a fence, of the block's scope or of a wider one.
    pub(crate) fn fence(&mut self, warp: usize, wide: bool) {
        let knows = self.warps[warp].clone();
        let fenced = [Some(knows.clone()), wide.then_some(knows)];
        join_fenced(&mut self.published[warp], &fenced);
        self.tick(warp);
    }

    /// A warp writes to a place with an ordered, atomic or volatile operation, after what it fenced.
    pub(crate) fn release(&mut self, warp: usize, place: u64, wide: Option<&mut Released>) {
        if let Some(knows) = &self.published[warp][0] {
            join(self.places.entry(place).or_insert([0; 32]), &knows.own);
        }
        if let (Some(released), Some(knows)) = (wide, &self.published[warp][1]) {
            let there = released.0.entry(place).or_default();
            join(there.entry(self.number).or_insert([0; 32]), &knows.own);
            for (block, times) in knows.foreign.iter().flat_map(|all| all.iter()) {
                join(there.entry(*block).or_insert([0; 32]), times);
            }
        }
    }

    /// A warp reads a place with an ordered, atomic or volatile operation.
    pub(crate) fn acquire(&mut self, warp: usize, place: u64, wide: Option<&Released>) {
        let knows = &mut self.warps[warp];
        if let Some(times) = self.places.get(&place) {
            join(&mut knows.own, times);
        }
        for (block, times) in wide.and_then(|released| released.0.get(&place)).into_iter().flatten() {
            if *block == self.number {
                join(&mut knows.own, times);
                continue;
            }
            let foreign = Rc::make_mut(knows.foreign.get_or_insert_default());
            join(foreign.entry(*block).or_insert([0; 32]), times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> Clocks {
        let mut clocks = Clocks::new(2);
        clocks.begin(number);
        clocks
    }

    #[test]
    fn a_fence_and_a_flag_order_what_went_before() {
        let mut released = Released::default();
        let (mut three, mut five, mut nine) = (block(3), block(5), block(9));
        let wrote = three.now(0);
        three.release(0, 100, Some(&mut released)); // without a fence nothing is released
        five.acquire(1, 100, Some(&released));
        assert!(!five.ordered(1, 3, 0, wrote));
        three.fence(0, false); // nor by a fence of the block's scope
        three.release(0, 100, Some(&mut released));
        five.acquire(1, 100, Some(&released));
        assert!(!five.ordered(1, 3, 0, wrote));
        three.fence(0, true);
        let later = three.now(0);
        three.release(0, 100, Some(&mut released));
        assert!(!five.ordered(1, 3, 0, wrote), "not before it is read");
        five.acquire(1, 100, Some(&released));
        assert!(five.ordered(1, 3, 0, wrote) && !five.ordered(0, 3, 0, wrote));
        assert!(!five.ordered(1, 3, 0, later), "what came after the fence is not ordered");
        assert!(!five.ordered(1, 3, 1, 2), "nor what another warp did");
        // On to a third block, through another place.
        five.fence(1, true);
        five.release(1, 200, Some(&mut released));
        nine.acquire(0, 200, Some(&released));
        assert!(nine.ordered(0, 3, 0, wrote) && nine.ordered(0, 5, 1, 2));
    }

    #[test]
    fn barriers_pass_on_what_others_brought() {
        let mut released = Released::default();
        let (mut one, mut two) = (block(1), block(2));
        let wrote = one.now(1);
        one.arrive(0, 0);
        one.arrive(1, 0);
        one.complete(0, 3);
        assert!(one.ordered(0, 1, 1, wrote));
        let later = one.now(1);
        assert!(!one.ordered(0, 1, 1, later));
        // The first warp's fence covers what it knows of the second.
        one.fence(0, true);
        one.release(0, 7, Some(&mut released));
        two.acquire(0, 7, Some(&released));
        assert!(two.ordered(0, 1, 1, wrote) && !two.ordered(0, 1, 1, later));
        // What the second warp fences, the first may release after a barrier.
        let wrote = one.now(1);
        one.fence(1, true);
        one.release(0, 8, Some(&mut released));
        two.acquire(0, 8, Some(&released));
        assert!(!two.ordered(0, 1, 1, wrote));
        one.arrive(0, 0);
        one.arrive(1, 0);
        one.complete(0, 3);
        one.release(0, 8, Some(&mut released));
        two.acquire(0, 8, Some(&released));
        assert!(two.ordered(0, 1, 1, wrote));
        // And a barrier passes it on.
        two.arrive(0, 3);
        two.arrive(1, 3);
        two.complete(3, 2);
        assert!(two.ordered(1, 1, 1, wrote));
    }
}
