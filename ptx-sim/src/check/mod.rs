//! The checkers beyond bounds and alignment.
//!
//! A launch with checks runs code that was decoded with a check op before each access, fence, wait and exit; code without
//! checks has none of them and pays nothing. Checks judge by what orders accesses (barriers, fences with flags and atomics),
//! not by the order in which the simulator happens to run warps and blocks. Checked launches run on one CPU thread.

mod block;
mod order;
mod shadow;

use std::collections::HashMap;

use std::cell::RefCell;

use crate::exec::{Checks, LaunchConfig};
use crate::fault::FaultKind;
use crate::memory::{OFFSET_BITS, Slot, slot_of};
use crate::ops::memory::Window;

use block::BlockCheck;
use order::Order;
use shadow::{Cells, words};

/// What a check found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) kind: FaultKind,
    pub(crate) allocation: Option<String>,
}

/// How an instruction accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Access {
    /// A plain load.
    Load,
    /// A plain store.
    Store,
    /// A load that orders: acquiring, relaxed or volatile.
    OrderedLoad,
    /// A relaxed or volatile store.
    RelaxedStore,
    /// A releasing store.
    ReleaseStore,
    /// An atomic operation without release.
    RelaxedAtomic,
    /// An atomic operation with release.
    ReleaseAtomic,
}

impl Access {
    /// In the order of their numbers.
    pub(crate) const ALL: [Access; 7] = [
        Access::Load,
        Access::Store,
        Access::OrderedLoad,
        Access::RelaxedStore,
        Access::ReleaseStore,
        Access::RelaxedAtomic,
        Access::ReleaseAtomic,
    ];

    pub(crate) fn reads(self) -> bool {
        !matches!(self, Access::Store | Access::RelaxedStore | Access::ReleaseStore)
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Access::Load | Access::OrderedLoad)
    }

    /// An operation that cannot race with another of its kind.
    pub(crate) fn atomic(self) -> bool {
        !matches!(self, Access::Load | Access::Store)
    }

    pub(crate) fn acquires(self) -> bool {
        matches!(self, Access::OrderedLoad | Access::RelaxedAtomic | Access::ReleaseAtomic)
    }

    pub(crate) fn releases(self) -> bool {
        self.writes() && self.atomic()
    }
}

/// What launches leave behind for the next one: kept in the memory.
#[derive(Default)]
pub(crate) struct History {
    cells: Cells,
    launches: u32,
}

/// A pointer parameter's declaration.
struct Declared {
    start: u64,
    param: u16,
    access: crate::exec::Access,
}

/// What the checks know about a launch while it runs.
pub(crate) struct LaunchCheck<'a> {
    checks: Checks,
    history: &'a mut History,
    order: Order,
    /// By slot: the declared pointers into it, by address.
    declared: HashMap<usize, Vec<Declared>>,
    /// By slot: whether plain loads need no look, because the whole allocation holds values and is only read.
    quiet: Vec<bool>,
    programmatic: bool,
    launch: u32,
    grid: [u32; 3],
}

impl<'a> LaunchCheck<'a> {
    /// Begins a launch.
    pub(crate) fn new(
        checks: Checks,
        history: &'a mut History,
        config: &LaunchConfig<'_>,
        slots: &[Slot],
    ) -> Self {
        history.launches += 1;
        let launch = history.launches;
        let mut declared: HashMap<usize, Vec<Declared>> = HashMap::new();
        for pointer in config.access {
            let Some(param) = config.kernel.params.get(usize::from(pointer.param)) else { continue };
            let at = param.offset as usize;
            let Some(bytes) = config.params.get(at..at + 8).filter(|_| param.size == 8) else { continue };
            let start = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            if let Some(slot) = slot_of(start).filter(|&slot| slot < slots.len()) {
                declared.entry(slot).or_default().push(Declared {
                    start,
                    param: pointer.param,
                    access: pointer.access,
                });
            }
        }
        for list in declared.values_mut() {
            list.sort_by_key(|d| d.start);
        }
        let quiet = slots
            .iter()
            .enumerate()
            .map(|(slot, memory)| {
                let read_only = declared
                    .get(&slot)
                    .is_some_and(|list| list.iter().all(|d| d.access == crate::exec::Access::Read));
                // Memory that only host copies wrote cannot be what an earlier launch has yet to deliver.
                read_only && memory.settled() && !config.programmatic
            })
            .collect();
        LaunchCheck {
            checks,
            history,
            order: Order::default(),
            declared,
            quiet,
            programmatic: config.programmatic && checks.has(Checks::DEPENDENCY),
            launch,
            grid: config.grid,
        }
    }

    /// Whether plain loads in a slot need no look.
    pub(crate) fn quiet(&self, slot: usize) -> bool {
        self.quiet.get(slot).copied().unwrap_or(false)
    }

    /// A block is done.
    pub(crate) fn finish_block(&mut self, block: u32) {
        self.order.finish(block);
    }

    /// A block executed a fence.
    pub(crate) fn fence(&mut self, block: u32) {
        self.order.fence(block);
    }

    /// A thread leaves the kernel.
    ///
    /// # Errors
    /// When it should have waited for the launch before.
    pub(crate) fn exit(&self, waited: bool) -> Result<(), Finding> {
        if self.programmatic && !waited {
            let what = "a thread leaves a dependent launch without griddepcontrol.wait".to_string();
            return Err(Finding { kind: FaultKind::Dependency(what), allocation: None });
        }
        Ok(())
    }

    /// The declaration that covers an address: that of the nearest pointer below it.
    fn declaration(&self, slot: usize, address: u64) -> Option<&Declared> {
        self.declared.get(&slot)?.iter().rev().find(|d| d.start <= address)
    }

    /// A thread of `block` accesses global memory. The access is within the slot's bounds.
    ///
    /// # Errors
    /// What the checks object to.
    pub(crate) fn global(
        &mut self,
        slots: &[Slot],
        block: u32,
        address: u64,
        bytes: u32,
        access: Access,
        waited: bool,
    ) -> Result<(), Finding> {
        let Some(slot) = slot_of(address).filter(|&slot| slot < slots.len()) else { return Ok(()) };
        let memory = &slots[slot];
        let found = |kind| Err(Finding { kind, allocation: Some(memory.name().to_string()) });
        let declared = self.declaration(slot, address).map(|d| (d.param, d.access));
        let out = matches!(declared, Some((_, crate::exec::Access::Write)));
        if self.checks.has(Checks::ACCESS)
            && access.writes()
            && let Some((param, crate::exec::Access::Read)) = declared
        {
            return found(FaultKind::ReadOnly { param });
        }
        if access == Access::ReleaseStore || access == Access::ReleaseAtomic {
            self.order.fence(block);
        }
        if access.acquires() {
            self.order.acquire(block, address);
        }
        let (launch, checks, programmatic) = (self.launch, self.checks, self.programmatic);
        let (order, grid) = (&self.order, self.grid);
        let place = |block: u32| [block % grid[0], block / grid[0] % grid[1], block / grid[0] / grid[1]];
        let now = order.now(block);
        let conflicts = checks.has(Checks::BLOCK);
        let read_only = matches!(declared, Some((_, crate::exec::Access::Read)));
        let cells = &mut self.history.cells;
        let mut fresh = true; // all bytes were written in this launch
        words(address, bytes, |word, mask| {
            if read_only && !access.writes() {
                // Nobody writes it in this launch, but the one before may have.
                if programmatic
                    && !waited
                    && cells
                        .peek(word)
                        .is_some_and(|cell| cell.launch + 1 == launch && cell.ever_written & mask != 0)
                {
                    return found(early(access));
                }
                fresh = false;
                return Ok(());
            }
            let cell = cells.cell(word);
            if cell.launch != launch {
                let before = cell.launch + 1 == launch;
                let touched = cell.ever_written | if access.writes() { cell.read } else { 0 };
                if programmatic && !waited && before && touched & mask != 0 {
                    return found(early(access));
                }
                *cell = shadow::Cell { launch, ..shadow::Cell::default() };
            }
            if conflicts {
                let atomic = access.atomic() && cell.atomic;
                if cell.written & mask != 0 && !atomic && !order.ordered(block, cell.writer, cell.wrote_at) {
                    let (wrote, writes) = (true, access.writes());
                    return found(FaultKind::BlockConflict { other: place(cell.writer), wrote, writes });
                }
                let reads_before = access.writes() && cell.read & mask != 0;
                let atomic = access.atomic() && cell.read_atomic;
                if reads_before && !atomic && !order.ordered(block, cell.reader, cell.read_at) {
                    return found(FaultKind::BlockConflict {
                        other: place(cell.reader),
                        wrote: false,
                        writes: true,
                    });
                }
            }
            fresh &= cell.ever_written & mask == mask;
            if access.writes() {
                (cell.written, cell.writer, cell.wrote_at) = (mask, block, now);
                cell.ever_written |= mask;
                cell.atomic = access.atomic();
            }
            if access.reads() && !access.writes() {
                (cell.read, cell.reader, cell.read_at) = (mask, block, now);
                cell.read_atomic = access.atomic();
            }
            Ok(())
        })?;
        if access.reads() && !fresh {
            if out && checks.has(Checks::ACCESS) {
                let param = declared.map_or(0, |(param, _)| param);
                return found(FaultKind::OutRead { param });
            }
            if checks.has(Checks::UNINITIALISED)
                && !memory.initialised(address & ((1 << OFFSET_BITS) - 1), bytes)
            {
                return found(FaultKind::Uninitialised { space: "global", bytes });
            }
        }
        if access.writes() {
            memory.mark(address & ((1 << OFFSET_BITS) - 1), bytes);
        }
        if access.releases() {
            self.order.release(block, address);
        }
        Ok(())
    }
}

/// What a block's check ops and barriers talk to.
pub(crate) struct BlockChecker<'a> {
    launch: &'a RefCell<LaunchCheck<'a>>,
    slots: &'a [Slot],
    block: BlockCheck,
    number: u32,
}

impl<'a> BlockChecker<'a> {
    /// For blocks of `warps` warps.
    pub(crate) fn new(
        launch: &'a RefCell<LaunchCheck<'a>>,
        slots: &'a [Slot],
        warps: u32,
        shared_bytes: u32,
        local_bytes: u32,
    ) -> BlockChecker<'a> {
        let block = BlockCheck::new(launch.borrow().checks, warps, shared_bytes, local_bytes);
        BlockChecker { launch, slots, block, number: 0 }
    }

    /// Block number `number` of the grid begins.
    pub(crate) fn begin(&mut self, number: u64) {
        self.number = number as u32; // grids with more blocks would never end
        self.block.begin();
    }

    /// The block is done.
    pub(crate) fn finish(&mut self) {
        self.launch.borrow_mut().finish_block(self.number);
    }

    /// A warp arrives at a barrier (see [`BlockCheck::arrive`]).
    pub(crate) fn arrive(
        &mut self,
        warp: usize,
        barrier: usize,
        at: usize,
        waits: bool,
    ) -> Result<(), Finding> {
        self.block.arrive(warp, barrier, at, waits)
    }

    /// A barrier is complete.
    pub(crate) fn complete(&mut self, barrier: usize, waiting: u32) {
        self.block.complete(barrier, waiting);
    }

    /// Whether plain loads in a slot need no look.
    pub(crate) fn quiet(&self, slot: usize) -> bool {
        self.launch.borrow().quiet(slot)
    }

    /// The block executed a fence.
    pub(crate) fn fence(&mut self) {
        self.launch.borrow_mut().fence(self.number);
    }

    /// A thread leaves without having waited for the launch before.
    ///
    /// # Errors
    /// When it had to.
    pub(crate) fn exit(&self) -> Result<(), Finding> {
        self.launch.borrow().exit(false)
    }

    /// A thread accesses memory, within its bounds. `offset` is the address for global memory.
    ///
    /// # Errors
    /// What the checks object to.
    pub(crate) fn access(
        &mut self,
        warp: u32,
        lane: u32,
        window: Window,
        offset: u64,
        bytes: u32,
        access: Access,
        waited: bool,
    ) -> Result<(), Finding> {
        if access.atomic() && matches!(window, Window::Global | Window::Shared) {
            self.block.synchronise(warp as usize, offset, access);
        }
        match window {
            Window::Global => {
                self.launch.borrow_mut().global(self.slots, self.number, offset, bytes, access, waited)
            }
            Window::Shared => self.block.shared(warp as usize, offset, bytes, access),
            Window::Local => self.block.local(32 * warp as usize + lane as usize, offset, bytes, access),
            Window::Param => Ok(()),
        }
    }
}

fn early(access: Access) -> FaultKind {
    let verb = if access.writes() { "writes" } else { "reads" };
    FaultKind::Dependency(format!("{verb} what the launch before uses, ahead of griddepcontrol.wait"))
}
