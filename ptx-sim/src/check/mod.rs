//! The checkers beyond bounds and alignment.
//!
//! A launch with checks runs code that was decoded with a check op before each access, fence, wait and exit; code without
//! checks has none of them and pays nothing. Checks judge by what orders accesses ([`clocks`]), not by the order in which the
//! simulator happens to run warps and blocks. Checked launches run on one CPU thread.

mod cells;
mod clocks;
mod global;
mod shared;

use std::cell::RefCell;

use crate::exec::Checks;
use crate::fault::FaultKind;
use crate::memory::{OFFSET_BITS, Slot};
use crate::ops::memory::Window;

use clocks::Clocks;
use shared::{Lane, Shared};

pub(crate) use global::{History, LaunchCheck};

/// What a check found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) kind: FaultKind,
    pub(crate) allocation: Option<String>,
}

impl From<FaultKind> for Finding {
    fn from(kind: FaultKind) -> Finding {
        Finding { kind, allocation: None }
    }
}

/// How an instruction accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    const READS: u8 = 1;
    const WRITES: u8 = 2;
    const ATOMIC: u8 = 4;
    const FENCES: u8 = 8;
    const NARROW: u8 = 16;

    /// A plain load.
    pub(crate) const LOAD: Access = Access(Access::READS);
    /// A plain store.
    pub(crate) const STORE: Access = Access(Access::WRITES);
    /// A load that orders: acquiring, relaxed or volatile.
    pub(crate) const ORDERED_LOAD: Access = Access(Access::READS | Access::ATOMIC);
    /// A relaxed or volatile store.
    pub(crate) const ORDERED_STORE: Access = Access(Access::WRITES | Access::ATOMIC);
    /// An atomic operation.
    pub(crate) const UPDATE: Access = Access(Access::READS | Access::WRITES | Access::ATOMIC);

    /// With release semantics.
    pub(crate) fn releasing(self) -> Access {
        Access(self.0 | Access::FENCES)
    }

    /// Of the block's scope.
    pub(crate) fn narrow(self) -> Access {
        Access(self.0 | Access::NARROW)
    }

    /// The number that an op keeps it as.
    pub(crate) fn code(self) -> u32 {
        self.0.into()
    }

    /// The access of a number.
    pub(crate) fn of(code: u32) -> Access {
        Access(code as u8)
    }

    pub(crate) fn reads(self) -> bool {
        self.0 & Access::READS != 0
    }

    pub(crate) fn writes(self) -> bool {
        self.0 & Access::WRITES != 0
    }

    /// An operation that cannot race with another of its kind.
    pub(crate) fn atomic(self) -> bool {
        self.0 & Access::ATOMIC != 0
    }

    /// Whether it releases all that went before.
    fn fences(self) -> bool {
        self.0 & Access::FENCES != 0
    }

    /// Whether it counts for other blocks.
    fn wide(self) -> bool {
        self.0 & Access::NARROW == 0
    }
}

/// One instruction's accesses, as its check op sees them.
pub(crate) struct Accesses<'a> {
    pub(crate) warp: u32,
    /// The lanes that make them.
    pub(crate) lanes: u32,
    /// By lane: which memory, and the offset there (for global memory the address).
    pub(crate) places: &'a [(Window, u64); 32],
    pub(crate) bytes: u32,
    pub(crate) access: Access,
    /// Lanes that executed `griddepcontrol.wait`.
    pub(crate) waited: u32,
}

/// What a block's check ops and barriers talk to.
pub(crate) struct BlockChecker<'a> {
    launch: &'a RefCell<LaunchCheck<'a>>,
    slots: &'a [Slot],
    clocks: Clocks,
    shared: Shared,
    barriers: bool,
    /// The op by which the first warp arrived at each barrier that all threads of the block take.
    place: [Option<usize>; 16],
    number: u32,
    instances: u32,
}

impl<'a> BlockChecker<'a> {
    /// For blocks of `warps` warps, with `local_bytes` of local memory a thread.
    pub(crate) fn new(
        launch: &'a RefCell<LaunchCheck<'a>>,
        slots: &'a [Slot],
        warps: u32,
        local_bytes: u32,
    ) -> BlockChecker<'a> {
        let checks = launch.borrow().checks;
        BlockChecker {
            launch,
            slots,
            clocks: Clocks::new(warps),
            shared: Shared::new(checks, warps, local_bytes),
            barriers: checks.has(Checks::BARRIER),
            place: [None; 16],
            number: 0,
            instances: 0,
        }
    }

    /// Block number `number` of the grid begins.
    pub(crate) fn begin(&mut self, number: u64) {
        self.number = number as u32; // grids with more blocks would never end
        self.clocks.begin(self.number);
        self.shared.begin();
        self.place = [None; 16];
    }

    /// Whether barriers are checked.
    pub(crate) fn barriers(&self) -> bool {
        self.barriers
    }

    /// A warp arrives at a barrier by the op at position `at`, `whole` when the barrier is for all threads of the block.
    ///
    /// # Errors
    /// When another warp arrived there by another instruction: then the block's threads do not all execute one barrier.
    pub(crate) fn arrive(
        &mut self,
        warp: usize,
        barrier: usize,
        at: usize,
        whole: bool,
    ) -> Result<(), Finding> {
        if self.barriers && whole {
            match self.place[barrier] {
                Some(other) if other != at => {
                    let what =
                        format!("warps of a block meet at barrier {barrier} by different instructions");
                    return Err(FaultKind::Divergence(what).into());
                }
                _ => self.place[barrier] = Some(at),
            }
        }
        self.clocks.arrive(warp, barrier);
        Ok(())
    }

    /// A barrier is complete: the warps in `waiting` go on.
    pub(crate) fn complete(&mut self, barrier: usize, waiting: u32) {
        self.clocks.complete(barrier, waiting);
        self.place[barrier] = None;
    }

    /// The lanes of a warp synchronise.
    pub(crate) fn lanes_meet(&mut self, warp: u32) {
        self.clocks.lanes_meet(warp as usize);
    }

    /// A warp executes a fence.
    pub(crate) fn fence(&mut self, warp: u32, wide: bool) {
        self.clocks.fence(warp as usize, wide);
    }

    /// A thread lets the next launch begin.
    pub(crate) fn trigger(&self, waited: bool) {
        self.launch.borrow_mut().trigger(waited);
    }

    /// A thread leaves without having waited for the launch before.
    ///
    /// # Errors
    /// When it had to.
    pub(crate) fn exit(&self) -> Result<(), Finding> {
        self.launch.borrow().exit(false)
    }

    /// Whether plain loads from `first` up to `last`, `bytes` from there included, need no look.
    #[inline(always)]
    pub(crate) fn quiet(&self, first: u64, last: u64, bytes: u32) -> bool {
        let slot = (first >> OFFSET_BITS) as usize;
        self.launch.borrow().quiet(slot.wrapping_sub(1), first, last + u64::from(bytes))
    }

    /// The lanes of a warp access memory, each within its bounds.
    ///
    /// # Errors
    /// What the checks object to, and the lane.
    pub(crate) fn accesses(&mut self, at: &Accesses<'_>) -> Result<(), (u32, Finding)> {
        self.instances = self.instances.wrapping_add(1);
        let mut launch = self.launch.borrow_mut();
        let mut left = at.lanes;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let (window, offset) = at.places[lane as usize];
            let one = Lane {
                warp: at.warp as usize,
                lane,
                offset,
                bytes: at.bytes,
                access: at.access,
                instance: self.instances,
            };
            let result = match window {
                Window::Global => {
                    let waited = at.waited >> lane & 1 != 0;
                    launch.access(self.slots, &mut self.clocks, self.number, one, waited)
                }
                Window::Shared => self.shared_access(one),
                Window::Local => {
                    let thread = 32 * one.warp + lane as usize;
                    self.shared.local(thread, offset, at.bytes, at.access)
                }
                Window::Param => Ok(()),
            };
            result.map_err(|finding| (lane, finding))?;
        }
        Ok(())
    }

    fn shared_access(&mut self, at: Lane) -> Result<(), Finding> {
        if at.access.atomic() {
            if at.access.fences() {
                self.clocks.fence(at.warp, at.access.wide());
            }
            if at.access.reads() {
                self.clocks.acquire(at.warp, at.offset, None);
            }
        }
        self.shared.access(&self.clocks, at)?;
        if at.access.atomic() && at.access.writes() {
            self.clocks.release(at.warp, at.offset, None);
        }
        Ok(())
    }
}
