//! A warp: what its ops read and write while they run.

use crate::fault::FaultKind;
use crate::memory::Slot;
use crate::ops::Op;

/// Why a warp left the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It can go on at `pc`.
    Ready,
    /// It waits at a barrier.
    Barrier,
    /// All its threads have left the kernel.
    Done,
    /// It faulted.
    Faulted,
}

/// What a warp does at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Waits until all have arrived.
    Sync,
    /// Arrives and goes on.
    Arrive,
    /// Waits, and combines a predicate over all threads.
    Reduce,
}

/// A warp's request to the block's barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BarrierRequest {
    pub(crate) id: u32,
    /// Threads expected; 0 for all of the block.
    pub(crate) threads: u32,
    pub(crate) arrival: Arrival,
    /// The predicate of each lane, for [`Arrival::Reduce`].
    pub(crate) predicate: u32,
}

/// Lanes that wait for others: at a reconvergence point, or on the other side of a branch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// Where the lanes come together; null for the kernel's end.
    pub(crate) join: *const Op,
    /// Where these lanes go on; equal to `join` for the entry that brings them together.
    pub(crate) pc: *const Op,
    pub(crate) mask: u32,
}

/// A fault as the op that found it sees it.
#[derive(Debug)]
pub(crate) struct RawFault {
    pub(crate) op: *const Op,
    pub(crate) lane: u32,
    pub(crate) kind: FaultKind,
    pub(crate) address: Option<u64>,
    pub(crate) allocation: Option<String>,
}

/// The part of a launch's state that ops need and that all warps of a block share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockContext {
    pub(crate) shared: *mut u8,
    pub(crate) shared_bytes: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) params: *const u8,
    pub(crate) param_bytes: u32,
    pub(crate) slots: *const Slot,
    pub(crate) slot_count: usize,
    /// Addresses of the module's variables, by index.
    pub(crate) symbols: *const u64,
    /// Operand lists that do not fit an op.
    pub(crate) extra: *const u32,
    /// Result of the last reduction at each barrier: bits 0 any, 1 all, and the count above.
    pub(crate) reductions: *const [u32; 16],
    /// The block's checker, in launches with checks.
    pub(crate) checker: *mut (),
    /// Bytes of local memory a thread has.
    pub(crate) local_bytes: u32,
    pub(crate) started: std::time::Instant,
}

/// A warp.
pub(crate) struct Warp {
    /// Registers, predicates and constants.
    pub(crate) frame: *mut u8,
    /// The lanes that execute.
    pub(crate) mask: u32,
    /// The mask to restore after a guarded instruction.
    pub(crate) saved: u32,
    /// Lanes whose threads left the kernel.
    pub(crate) exited: u32,
    /// Lanes that executed `griddepcontrol.wait`.
    pub(crate) waited: u32,
    /// Each lane's carry flag.
    pub(crate) carry: u32,
    pub(crate) block: BlockContext,
    /// Local memory of the 32 threads, one after the other.
    pub(crate) local: *mut u8,
    pub(crate) stack: Vec<Pending>,
    pub(crate) pc: *const Op,
    pub(crate) state: State,
    /// Number of the warp in its block.
    pub(crate) index: u32,
    pub(crate) request: BarrierRequest,
    pub(crate) fault: Option<Box<RawFault>>,
}

impl Warp {
    /// Leaves the loop: the warp goes on at `pc` when the scheduler lets it.
    #[inline(always)]
    pub(crate) fn stop(&mut self, state: State, pc: *const Op) -> *const Op {
        self.state = state;
        self.pc = pc;
        std::ptr::null()
    }

    /// Leaves the loop with a fault.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(
        &mut self,
        op: &Op,
        lane: u32,
        kind: FaultKind,
        address: Option<u64>,
        allocation: Option<String>,
    ) -> *const Op {
        self.fault = Some(Box::new(RawFault { op, lane, kind, address, allocation }));
        self.stop(State::Faulted, op)
    }

    /// The lowest active lane.
    pub(crate) fn first_lane(&self) -> u32 {
        self.mask.trailing_zeros() & 31
    }

    /// Switches to the lanes that wait on top of the stack, after the current ones have left or arrived; `None` when
    /// no lane is left.
    pub(crate) fn resume(&mut self) -> *const Op {
        while let Some(top) = self.stack.pop() {
            let mask = top.mask & !self.exited;
            if mask != 0 {
                self.mask = mask;
                return top.pc;
            }
        }
        self.mask = 0;
        self.stop(State::Done, std::ptr::null())
    }
}
