//! Checks of global memory: values, declared accesses, conflicts between blocks and warps, dependence between launches.

use std::collections::HashMap;

use super::cells::Cells;
use super::clocks::{Clocks, Released};
use super::shared::Lane;
use super::{Access, Finding};
use crate::exec::{self, Checks, LaunchConfig};
use crate::fault::FaultKind;
use crate::memory::{OFFSET_BITS, Slot, slot_of};

const WRITE_ATOMIC: u8 = 1;
/// The write was atomic for its own block only.
const WRITE_NARROW: u8 = 2;
/// The first and the second remembered read were atomic.
const READ_ATOMIC: [u8; 2] = [4, 8];

/// A warp of the grid, counted over all its blocks.
type Agent = u32;

/// What is known about a unit of global memory.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The launch that wrote it last, from 1; 0 for none.
    wrote: u32,
    writer: Agent,
    wrote_at: u32,
    /// The launch that read it last.
    read: u32,
    /// Two of its readers since the last write, and their times (0 for no reader).
    readers: [Agent; 2],
    read_at: [u32; 2],
    flags: u8,
}

/// What launches leave behind for the next one: kept in the memory.
#[derive(Default)]
pub(crate) struct History {
    /// By slot.
    cells: Vec<Cells<Cell>>,
    launches: u32,
    /// The first of the launches that the latest one may overlap.
    overlaps: u32,
    /// Whether the latest launch lets the next begin before its own wait.
    early: bool,
    /// What those launches are declared to read: launch, first address, the one past the last.
    reads: Vec<(u32, u64, u64)>,
}

/// A pointer parameter's declaration.
struct Declared {
    param: u16,
    access: exec::Access,
    /// First address and the one past the last; where the length is not declared, up to the next pointer.
    start: u64,
    end: u64,
    /// Plain loads need no look: all bytes hold values, and the launch writes none.
    quiet: bool,
}

/// What the checks know about a launch while it runs.
pub(crate) struct LaunchCheck<'a> {
    pub(super) checks: Checks,
    history: &'a mut History,
    released: Released,
    declared: Declarations,
    programmatic: bool,
    launch: u32,
    /// The first of the launches that may still be running before the wait.
    overlaps: u32,
    grid: [u32; 3],
    warps: u32,
}

/// By slot, the declared pointers into it by address. There are few: a list is faster than a map.
type Declarations = Vec<(usize, Vec<Declared>)>;

fn of_slot(declared: &Declarations, slot: usize) -> Option<&[Declared]> {
    declared.iter().find(|(s, _)| *s == slot).map(|(_, list)| &list[..])
}

fn declarations(config: &LaunchConfig<'_>, slots: &[Slot]) -> Declarations {
    let mut declared: HashMap<usize, Vec<Declared>> = HashMap::new();
    for pointer in config.access {
        let Some(param) = config.kernel.params.get(usize::from(pointer.param)) else { continue };
        let at = param.offset as usize;
        let Some(bytes) = config.params.get(at..at + 8).filter(|_| param.size == 8) else { continue };
        let start = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        if let Some(slot) = slot_of(start).filter(|&slot| slot < slots.len()) {
            let end = start.saturating_add(pointer.bytes);
            let (param, access) = (pointer.param, pointer.access);
            declared.entry(slot).or_default().push(Declared { param, access, start, end, quiet: false });
        }
    }
    for (&slot, list) in &mut declared {
        list.sort_by_key(|d| (d.start, d.end));
        let limit = ((slot as u64 + 1) << OFFSET_BITS) + slots[slot].size;
        for i in 0..list.len() {
            if list[i].end == list[i].start {
                let next = list.iter().map(|d| d.start).find(|&start| start > list[i].start);
                list[i].end = next.unwrap_or(limit);
            }
        }
    }
    declared.into_iter().collect()
}

impl<'a> LaunchCheck<'a> {
    /// Begins a launch.
    ///
    /// # Errors
    /// Arguments that overlap, one of them written: the finding and the address.
    pub(crate) fn new(
        checks: Checks,
        history: &'a mut History,
        config: &LaunchConfig<'_>,
        slots: &[Slot],
    ) -> Result<Self, (Finding, u64)> {
        history.launches += 1;
        let launch = history.launches;
        if launch.is_multiple_of(1024) {
            // What was freed never comes back.
            for (cells, _) in history.cells.iter_mut().zip(slots).filter(|(_, slot)| slot.freed()) {
                *cells = Cells::default();
            }
        }
        if history.cells.len() < slots.len() {
            history.cells.resize_with(slots.len(), Cells::default);
        }
        if !(config.programmatic && history.early) {
            history.overlaps = if config.programmatic { launch - 1 } else { launch };
        }
        let overlaps = history.overlaps;
        history.reads.retain(|&(reader, ..)| reader >= overlaps);
        history.early = false;
        let mut declared = declarations(config, slots);
        if checks.has(Checks::ACCESS) {
            for &(slot, ref list) in &declared {
                if let Some((a, b)) = aliases(list) {
                    let (read, written) = if b.access == exec::Access::Read { (b, a) } else { (a, b) };
                    let kind = FaultKind::Aliasing { written: written.param, other: read.param };
                    let allocation = Some(slots[slot].name().to_string());
                    return Err((Finding { kind, allocation }, b.start));
                }
            }
        }
        let programmatic = config.programmatic && checks.has(Checks::DEPENDENCY);
        for (slot, list) in &mut declared {
            for d in list {
                let length = d.end - d.start;
                let known = || slots[*slot].initialised(d.start & ((1 << OFFSET_BITS) - 1), length);
                d.quiet = d.access == exec::Access::Read
                    && !programmatic
                    && (!checks.has(Checks::UNINITIALISED) || known());
            }
        }
        let check = LaunchCheck {
            checks,
            history,
            released: Released::default(),
            declared,
            programmatic,
            launch,
            overlaps,
            grid: config.grid,
            warps: config.block.iter().product::<u32>().div_ceil(32),
        };
        Ok(check)
    }

    /// All blocks are done.
    pub(crate) fn finish(&mut self) {
        let declared = self.declared.iter().flat_map(|(_, list)| list);
        // What else is read left its trace in the cells.
        let reads = declared.filter(|d| d.access == exec::Access::Read);
        self.history.reads.extend(reads.map(|d| (self.launch, d.start, d.end)));
    }

    /// A thread lets the next launch begin.
    pub(crate) fn trigger(&mut self, waited: bool) {
        self.history.early |= self.programmatic && !waited;
    }

    /// A thread leaves the kernel, or could.
    ///
    /// # Errors
    /// When it should have waited for the launch before.
    pub(crate) fn exit(&self, waited: bool) -> Result<(), Finding> {
        if self.programmatic && !waited {
            let what = "a thread leaves a dependent launch without griddepcontrol.wait".to_string();
            return Err(FaultKind::Dependency(what).into());
        }
        Ok(())
    }

    /// Whether the launch must wait for the one before it.
    pub(crate) fn must_wait(&self) -> bool {
        self.programmatic
    }

    /// Whether plain loads of `bytes` from `first` on need no look.
    #[inline(always)]
    pub(super) fn quiet(&self, slot: usize, first: u64, end: u64) -> bool {
        let Some(list) = of_slot(&self.declared, slot) else { return false };
        list.iter().any(|d| d.quiet && d.start <= first && end <= d.end)
    }

    /// A lane of block `block` accesses global memory, within its allocation's bounds.
    ///
    /// # Errors
    /// What the checks object to.
    pub(super) fn access(
        &mut self,
        slots: &[Slot],
        clocks: &mut Clocks,
        block: u32,
        at: Lane,
        waited: bool,
    ) -> Result<(), Finding> {
        let Lane { warp, offset: address, bytes, access, .. } = at;
        let Some(slot) = slot_of(address).filter(|&slot| slot < slots.len()) else { return Ok(()) };
        let memory = &slots[slot];
        let found = |kind| Err(Finding { kind, allocation: Some(memory.name().to_string()) });
        let mut out = None;
        let mut read_only = false;
        if let Some(list) = of_slot(&self.declared, slot) {
            let end = address + u64::from(bytes);
            let Some(d) = list.iter().rev().find(|d| d.start <= address && end <= d.end) else {
                if self.checks.has(Checks::ACCESS) {
                    return found(FaultKind::OutsideArguments { writes: access.writes() });
                }
                return Ok(());
            };
            read_only = d.access == exec::Access::Read;
            if d.access == exec::Access::Write {
                out = Some(d.param);
            }
            if read_only && access.writes() {
                if self.checks.has(Checks::ACCESS) {
                    return found(FaultKind::ReadOnly { param: d.param });
                }
                read_only = false;
            }
        }
        if access.atomic() {
            if access.fences() {
                clocks.fence(warp, access.wide());
            }
            if access.reads() {
                clocks.acquire(warp, address, access.wide().then_some(&self.released));
            }
        }
        let offset = address & ((1 << OFFSET_BITS) - 1);
        let early = self.programmatic && !waited;
        if early && access.writes() {
            let end = address + u64::from(bytes);
            if self.history.reads.iter().any(|&(_, start, stop)| start < end && address < stop) {
                return found(ahead(access));
            }
        }
        let earlier = |launch: u32| launch >= self.overlaps && launch != 0 && launch < self.launch;
        let cells = &mut self.history.cells[slot];
        let mut fresh = !read_only; // all was written in this launch
        if read_only {
            // Nobody writes it in this launch, but the one before may have.
            if early && cells.seen(offset, bytes).iter().any(|cell| earlier(cell.wrote)) {
                return found(ahead(access));
            }
        } else {
            let agent = block * self.warps + warp as u32;
            for cell in cells.touched(offset, bytes) {
                if early && (earlier(cell.wrote) || (access.writes() && earlier(cell.read))) {
                    return found(ahead(access));
                }
                if self.checks.has(Checks::BLOCK) {
                    let other = conflict(cell, clocks, self.launch, self.warps, (block, agent), at);
                    if let Some((other, wrote)) = other {
                        return found(self.conflict(block, other, wrote, access));
                    }
                }
                fresh &= cell.wrote == self.launch;
                if access.writes() {
                    write(cell, self.launch, agent, clocks.now(warp), access);
                } else {
                    read(cell, self.launch, (agent, clocks.now(warp)), access, |reader, time| {
                        clocks.ordered(warp, reader / self.warps, (reader % self.warps) as usize, time)
                    });
                }
            }
        }
        if access.reads() && !fresh {
            if let Some(param) = out
                && self.checks.has(Checks::ACCESS)
            {
                return found(FaultKind::OutRead { param });
            }
            if self.checks.has(Checks::UNINITIALISED) && !memory.initialised(offset, bytes.into()) {
                return found(FaultKind::Uninitialised { space: "global", bytes });
            }
        }
        if access.writes() {
            memory.mark(offset, bytes);
            if access.atomic() {
                clocks.release(warp, address, access.wide().then_some(&mut self.released));
            }
        }
        Ok(())
    }

    fn conflict(&self, block: u32, other: Agent, wrote: bool, access: Access) -> FaultKind {
        let (from, writes) = (other / self.warps, access.writes());
        if from == block {
            return FaultKind::GlobalRace { other: other % self.warps, wrote, writes };
        }
        let [x, y, _] = self.grid;
        FaultKind::BlockConflict { other: [from % x, from / x % y, from / x / y], wrote, writes }
    }
}

/// Two overlapping arguments, one of them written.
fn aliases(list: &[Declared]) -> Option<(&Declared, &Declared)> {
    let pairs = list.iter().enumerate().flat_map(|(i, a)| list[i + 1..].iter().map(move |b| (a, b)));
    pairs
        .into_iter()
        .find(|(a, b)| b.start < a.end && (a.access != exec::Access::Read || b.access != exec::Access::Read))
}

/// The agent whose earlier access to the cell nothing orders before this one, and whether it wrote.
#[inline(always)]
fn conflict(
    cell: &Cell,
    clocks: &Clocks,
    launch: u32,
    warps: u32,
    (block, agent): (u32, Agent),
    at: Lane,
) -> Option<(Agent, bool)> {
    let ordered = |other: Agent, time: u32| {
        other == agent || clocks.ordered(at.warp, other / warps, (other % warps) as usize, time)
    };
    let wide = at.access.wide();
    if cell.wrote == launch && !ordered(cell.writer, cell.wrote_at) {
        let near = cell.writer / warps == block;
        let excused = at.access.atomic()
            && cell.flags & WRITE_ATOMIC != 0
            && (near || (wide && cell.flags & WRITE_NARROW == 0));
        if !excused {
            return Some((cell.writer, true));
        }
    }
    if at.access.writes() && cell.read == launch {
        for (i, excuse) in READ_ATOMIC.into_iter().enumerate() {
            let time = cell.read_at[i];
            let excused = at.access.atomic() && cell.flags & excuse != 0;
            if time != 0 && !excused && !ordered(cell.readers[i], time) {
                return Some((cell.readers[i], false));
            }
        }
    }
    None
}

#[inline(always)]
fn write(cell: &mut Cell, launch: u32, agent: Agent, now: u32, access: Access) {
    (cell.wrote, cell.writer, cell.wrote_at) = (launch, agent, now);
    if access.atomic() {
        // Polls go on beside what they poll for.
        cell.flags |= WRITE_ATOMIC;
        cell.flags = cell.flags & !WRITE_NARROW | if access.wide() { 0 } else { WRITE_NARROW };
    } else {
        cell.flags = 0;
        cell.read_at = [0; 2];
    }
}

/// Remembers a read, in the place of one that it comes after if there is such a one.
#[inline(always)]
fn read(
    cell: &mut Cell,
    launch: u32,
    (agent, now): (Agent, u32),
    access: Access,
    ordered: impl Fn(Agent, u32) -> bool,
) {
    if cell.read != launch {
        cell.read = launch;
        cell.read_at = [0; 2];
    }
    let of = |i: usize| cell.read_at[i] != 0 && cell.readers[i] == agent;
    let free = |i: usize| cell.read_at[i] == 0 || ordered(cell.readers[i], cell.read_at[i]);
    let i = match () {
        () if of(0) => 0,
        () if of(1) => 1,
        () if free(0) => 0,
        () => 1,
    };
    // A plain read is the one to remember.
    let plain = !access.atomic() || (of(i) && cell.flags & READ_ATOMIC[i] == 0);
    cell.flags = cell.flags & !READ_ATOMIC[i] | if plain { 0 } else { READ_ATOMIC[i] };
    (cell.readers[i], cell.read_at[i]) = (agent, now);
}

fn ahead(access: Access) -> FaultKind {
    let verb = if access.writes() { "writes" } else { "reads" };
    FaultKind::Dependency(format!("{verb} what a launch before uses, ahead of griddepcontrol.wait"))
}
