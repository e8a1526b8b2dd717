//! Checks of shared and local memory: values, and races between the warps and lanes of a block.

use super::cells::Cells;
use super::clocks::Clocks;
use super::{Access, Finding};
use crate::exec::Checks;
use crate::fault::FaultKind;

const INITIALISED: u8 = 1;
const WRITTEN: u8 = 2;
/// The last write was an ordered, atomic or volatile one.
const WRITE_ATOMIC: u8 = 4;
/// All reads since were.
const READ_ATOMIC: u8 = 8;

/// What is known about a unit of shared memory.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The block that this is about; another one's cell is as good as none.
    epoch: u32,
    /// Time and access of the last write.
    wrote_at: u32,
    wrote_in: u32,
    /// Warps that read since, and the time and access of the last read.
    readers: u32,
    read_at: u32,
    read_in: u32,
    /// Lanes that read since they synchronised, where one warp is the only reader.
    lanes: u32,
    /// Where each warp's time of reading stands, where several read; 0 for nowhere.
    times: u32,
    writer: u8,
    lane: u8,
    flags: u8,
}

/// One access of one lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub(super) warp: usize,
    pub(super) lane: u32,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) access: Access,
    /// Tells this instruction's execution from others.
    pub(super) instance: u32,
}

/// What the checks know about a block's shared and local memory.
pub(super) struct Shared {
    races: bool,
    values: bool,
    epoch: u32,
    cells: Cells<Cell>,
    times: Vec<[u32; 32]>,
    /// For each byte of each thread's local memory, whether it holds a value.
    local: Vec<bool>,
    local_bytes: usize,
}

impl Shared {
    pub(super) fn new(checks: Checks, warps: u32, local_bytes: u32) -> Shared {
        Shared {
            races: checks.has(Checks::RACE),
            values: checks.has(Checks::UNINITIALISED),
            epoch: 0,
            cells: Cells::default(),
            times: Vec::new(),
            local: vec![false; local_bytes as usize * 32 * warps as usize],
            local_bytes: local_bytes as usize,
        }
    }

    /// A block begins.
    pub(super) fn begin(&mut self) {
        self.epoch += 1;
        self.times.clear();
        self.local.fill(false);
    }

    /// A lane accesses shared memory, within its bounds.
    pub(super) fn access(&mut self, clocks: &Clocks, at: Lane) -> Result<(), Finding> {
        let Lane { warp, access, .. } = at;
        let now = clocks.now(warp);
        for cell in self.cells.touched(at.offset, at.bytes) {
            if cell.epoch != self.epoch {
                *cell = Cell { epoch: self.epoch, ..Cell::default() };
            }
            if self.values && access.reads() && cell.flags & INITIALISED == 0 {
                return Err(FaultKind::Uninitialised { space: "shared", bytes: at.bytes }.into());
            }
            if self.races {
                race(cell, &self.times, clocks, at)?;
            }
            if access.writes() {
                let atomic = if access.atomic() { WRITE_ATOMIC } else { 0 };
                let reads = cell.flags & READ_ATOMIC;
                cell.flags = INITIALISED | WRITTEN | atomic;
                (cell.writer, cell.lane) = (warp as u8, at.lane as u8);
                (cell.wrote_at, cell.wrote_in) = (now, at.instance);
                if access.atomic() && reads != 0 {
                    // Polls go on beside what they poll for.
                    cell.flags |= reads;
                } else {
                    (cell.readers, cell.lanes) = (0, 0);
                }
            } else {
                read(cell, &mut self.times, clocks, at);
            }
        }
        Ok(())
    }

    /// A thread accesses its local memory, within its bounds; `thread` counts within the block.
    pub(super) fn local(
        &mut self,
        thread: usize,
        offset: u64,
        bytes: u32,
        access: Access,
    ) -> Result<(), Finding> {
        let start = thread * self.local_bytes + offset as usize;
        let Some(range) = self.local.get_mut(start..start + bytes as usize) else { return Ok(()) };
        if self.values && access.reads() && range.contains(&false) {
            return Err(FaultKind::Uninitialised { space: "local", bytes }.into());
        }
        if access.writes() {
            range.fill(true);
        }
        Ok(())
    }
}

/// Whether an access races with what was done to the cell before.
fn race(cell: &Cell, times: &[[u32; 32]], clocks: &Clocks, at: Lane) -> Result<(), Finding> {
    let Lane { warp, lane, access, instance, .. } = at;
    let found = |other: usize, wrote: bool| {
        let (other, writes) = (other as u32, access.writes());
        Err(FaultKind::SharedRace { other, wrote, writes, lanes: other as usize == warp }.into())
    };
    let known = clocks.known(warp);
    if cell.flags & WRITTEN != 0 && !(access.atomic() && cell.flags & WRITE_ATOMIC != 0) {
        let writer = usize::from(cell.writer);
        let unordered = if writer != warp {
            known[writer] < cell.wrote_at
        } else {
            // Which lane of one instruction writes last is for other tools to ask.
            u32::from(cell.lane) != lane
                && cell.wrote_at >= clocks.lanes_since(warp)
                && cell.wrote_in != instance
        };
        if unordered {
            return found(writer, true);
        }
    }
    if !access.writes() || cell.readers == 0 || (access.atomic() && cell.flags & READ_ATOMIC != 0) {
        return Ok(());
    }
    if cell.readers & (cell.readers - 1) == 0 {
        let reader = cell.readers.trailing_zeros() as usize;
        let unordered = if reader != warp {
            known[reader] < cell.read_at
        } else {
            cell.lanes & !(1 << lane) != 0
                && cell.read_at >= clocks.lanes_since(warp)
                && cell.read_in != instance
        };
        return if unordered { found(reader, false) } else { Ok(()) };
    }
    let read_at = times[cell.times as usize - 1];
    let racing =
        |&other: &usize| other != warp && cell.readers >> other & 1 != 0 && known[other] < read_at[other];
    match (0..32).find(racing) {
        Some(other) => found(other, false),
        None => Ok(()),
    }
}

/// Remembers a read.
fn read(cell: &mut Cell, times: &mut Vec<[u32; 32]>, clocks: &Clocks, at: Lane) {
    let (warp, now) = (at.warp, clocks.now(at.warp));
    let bit = 1u32 << warp;
    if cell.readers & !bit == 0 {
        let since = cell.readers != 0 && cell.read_at >= clocks.lanes_since(warp);
        cell.lanes = if since { cell.lanes } else { 0 } | 1 << at.lane;
    } else {
        if cell.times == 0 {
            times.push([0; 32]);
            cell.times = times.len() as u32;
        }
        let read_at = &mut times[cell.times as usize - 1];
        if cell.readers & (cell.readers - 1) == 0 {
            read_at[cell.readers.trailing_zeros() as usize] = cell.read_at;
        }
        read_at[warp] = now;
    }
    let all_atomic = at.access.atomic() && (cell.readers == 0 || cell.flags & READ_ATOMIC != 0);
    cell.flags = cell.flags & !READ_ATOMIC | if all_atomic { READ_ATOMIC } else { 0 };
    cell.readers |= bit;
    (cell.read_at, cell.read_in) = (now, at.instance);
}
