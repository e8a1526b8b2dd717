//! Checks within one block: shared and local memory, barriers.

use std::collections::HashMap;

use super::{Access, Finding};
use crate::exec::Checks;
use crate::fault::FaultKind;

/// The accesses to one word of four bytes of shared memory.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// Bytes that hold a value.
    initialised: u8,
    /// Bytes the last writer wrote; 0 for no writer.
    written: u8,
    atomic: bool,
    writer: u8,
    wrote_at: u32,
    /// Bytes read since; 0 for no reader.
    read: u8,
    /// Warps that read them, none before another.
    readers: u32,
    /// The earliest of these readers' times.
    read_at: u32,
}

/// What the checks know about a block while it runs.
pub(crate) struct BlockCheck {
    checks: Checks,
    shared: Vec<Cell>,
    /// For each byte of each thread's local memory, whether it holds a value.
    local: Vec<bool>,
    local_bytes: usize,
    /// For each warp, up to which time of each other warp it knows what that warp did.
    clocks: Vec<[u32; 32]>,
    time: u32,
    /// What arrived at each barrier so far.
    arrived: [[u32; 32]; 16],
    /// The op at which the first warp arrived at each barrier.
    place: [Option<usize>; 16],
    /// What was released through each location.
    locations: HashMap<u64, [u32; 32]>,
}

fn join(into: &mut [u32; 32], from: &[u32; 32]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

impl BlockCheck {
    /// For blocks of `warps` warps.
    pub(crate) fn new(checks: Checks, warps: u32, shared_bytes: u32, local_bytes: u32) -> BlockCheck {
        BlockCheck {
            checks,
            shared: vec![Cell::default(); (shared_bytes as usize).div_ceil(4)],
            local: vec![false; local_bytes as usize * 32 * warps as usize],
            local_bytes: local_bytes as usize,
            clocks: vec![[0; 32]; warps as usize],
            time: 0,
            arrived: [[0; 32]; 16],
            place: [None; 16],
            locations: HashMap::new(),
        }
    }

    /// A new block begins.
    pub(crate) fn begin(&mut self) {
        self.shared.fill(Cell::default());
        self.local.fill(false);
        self.time = self.clocks.len() as u32;
        for (warp, clock) in self.clocks.iter_mut().enumerate() {
            *clock = [0; 32];
            clock[warp] = warp as u32 + 1;
        }
        self.arrived = [[0; 32]; 16];
        self.place = [None; 16];
        self.locations.clear();
    }

    /// A warp arrives at a barrier by the op at position `at`.
    ///
    /// # Errors
    /// When another warp arrived there by another instruction.
    pub(crate) fn arrive(
        &mut self,
        warp: usize,
        barrier: usize,
        at: usize,
        waits: bool,
    ) -> Result<(), Finding> {
        if self.checks.has(Checks::BARRIER) && waits {
            match self.place[barrier] {
                Some(other) if other != at => {
                    let what =
                        format!("warps of a block meet at barrier {barrier} by different instructions");
                    return Err(Finding { kind: FaultKind::Divergence(what), allocation: None });
                }
                _ => self.place[barrier] = Some(at),
            }
        }
        join(&mut self.arrived[barrier], &self.clocks[warp]);
        self.time += 1;
        self.clocks[warp][warp] = self.time;
        Ok(())
    }

    /// A barrier is complete: the warps in `waiting` know what all that arrived did.
    pub(crate) fn complete(&mut self, barrier: usize, waiting: u32) {
        for (warp, clock) in self.clocks.iter_mut().enumerate() {
            if waiting >> warp & 1 != 0 {
                join(clock, &self.arrived[barrier]);
            }
        }
        self.arrived[barrier] = [0; 32];
        self.place[barrier] = None;
    }

    /// A warp synchronises through a location in shared or global memory.
    pub(crate) fn synchronise(&mut self, warp: usize, location: u64, access: Access) {
        if access.acquires()
            && let Some(clock) = self.locations.get(&location)
        {
            join(&mut self.clocks[warp], clock);
        }
        if access.releases() {
            let clock = self.clocks[warp];
            join(self.locations.entry(location).or_insert([0; 32]), &clock);
            self.time += 1;
            self.clocks[warp][warp] = self.time;
        }
    }

    /// A warp accesses shared memory at `offset`.
    ///
    /// # Errors
    /// A race, or a read of bytes without a value.
    pub(crate) fn shared(
        &mut self,
        warp: usize,
        offset: u64,
        bytes: u32,
        access: Access,
    ) -> Result<(), Finding> {
        let clock = self.clocks[warp];
        let (races, values) = (self.checks.has(Checks::RACE), self.checks.has(Checks::UNINITIALISED));
        let cells = &mut self.shared;
        super::shadow::words(offset, bytes, |address, mask| {
            let Some(cell) = cells.get_mut((address / 4) as usize) else { return Ok(()) };
            if values && access.reads() && cell.initialised & mask != mask {
                let kind = FaultKind::Uninitialised { space: "shared", bytes };
                return Err(Finding { kind, allocation: None });
            }
            if races {
                let atomic = access.atomic() && cell.atomic;
                let others = cell.written & mask != 0 && usize::from(cell.writer) != warp;
                if others && !atomic && clock[usize::from(cell.writer)] < cell.wrote_at {
                    let kind = FaultKind::SharedRace {
                        other: cell.writer.into(),
                        wrote: true,
                        writes: access.writes(),
                    };
                    return Err(Finding { kind, allocation: None });
                }
                if access.writes() && cell.read & mask != 0 {
                    let unordered = |&other: &usize| {
                        other != warp && cell.readers >> other & 1 != 0 && clock[other] < cell.read_at
                    };
                    if let Some(other) = (0..32).find(unordered) {
                        let kind = FaultKind::SharedRace { other: other as u32, wrote: false, writes: true };
                        return Err(Finding { kind, allocation: None });
                    }
                }
            }
            if access.writes() {
                cell.initialised |= mask;
                (cell.written, cell.writer, cell.wrote_at) = (mask, warp as u8, clock[warp]);
                cell.atomic = access.atomic();
                cell.read &= !mask;
                if cell.read == 0 {
                    cell.readers = 0;
                }
            } else {
                // Readers that this one comes after need not be remembered.
                if cell.read == 0 || (0..32).all(|w| cell.readers >> w & 1 == 0 || clock[w] >= cell.read_at) {
                    (cell.readers, cell.read, cell.read_at) = (0, 0, clock[warp]);
                }
                cell.read |= mask;
                cell.readers |= 1 << warp;
                cell.read_at = cell.read_at.min(clock[warp]);
            }
            Ok(())
        })
    }

    /// A thread accesses its local memory at `offset`; `thread` counts within the block.
    ///
    /// # Errors
    /// A read of bytes without a value.
    pub(crate) fn local(
        &mut self,
        thread: usize,
        offset: u64,
        bytes: u32,
        access: Access,
    ) -> Result<(), Finding> {
        let start = thread * self.local_bytes + offset as usize;
        let Some(range) = self.local.get_mut(start..start + bytes as usize) else { return Ok(()) };
        if access.writes() {
            range.fill(true);
        } else if self.checks.has(Checks::UNINITIALISED) && range.iter().any(|&known| !known) {
            let kind = FaultKind::Uninitialised { space: "local", bytes };
            return Err(Finding { kind, allocation: None });
        }
        Ok(())
    }
}
