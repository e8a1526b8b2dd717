//! One block: its warps, their memory, its barriers.

use std::cell::RefCell;

use super::Launch;
use super::warp::{Arrival, BarrierRequest, BlockContext, Pending, State, Warp};
use crate::check::{BlockChecker, LaunchCheck};
use crate::decode::{Fill, Special};
use crate::fault::{Fault, FaultKind};
use crate::ops::Op;

/// A warp runs this many ops before the next one has its turn, so that one that spins on memory does not keep out the one
/// it waits for.
const SLICE: u64 = 8192;

/// 64 bytes, aligned.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(#[allow(dead_code, reason = "written through raw pointers")] [u8; 64]);

/// Memory that a block runs in, kept from launch to launch.
pub(crate) type Arena = Vec<Line>;

/// How far a block got.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All its warps are done.
    Done,
    /// Some can go on.
    More,
}

#[derive(Debug, Clone, Copy)]
struct Barrier {
    arrived: u32,
    /// Warps expected; 0 for all of the block that are still there.
    expected: u32,
    /// The warp that arrived first, and where.
    first: (usize, *const Op),
    /// Warps that wait, as a mask.
    waiting: u32,
    any: bool,
    all: bool,
    count: u32,
}

impl Default for Barrier {
    fn default() -> Barrier {
        let first = (0, std::ptr::null());
        Barrier { arrived: 0, expected: 0, first, waiting: 0, any: false, all: true, count: 0 }
    }
}

/// A place to run blocks of one launch in, one after the other.
pub(crate) struct Runner<'a> {
    launch: &'a Launch<'a>,
    arena: Arena,
    warps: Vec<Warp>,
    barriers: [Barrier; 16],
    reductions: Box<[u32; 16]>,
    block: [u32; 3],
    shared: *mut u8,
    local_each: usize,
    pub(crate) executed: u64,
    checker: Option<Box<BlockChecker<'a>>>,
}

fn lines(bytes: usize) -> usize {
    bytes.div_ceil(64)
}

impl<'a> Runner<'a> {
    /// Prepares frames for all warps of a block in `arena`.
    pub(crate) fn new(
        launch: &'a Launch<'a>,
        mut arena: Arena,
        check: Option<&'a RefCell<LaunchCheck<'a>>>,
    ) -> Runner<'a> {
        let code = launch.code;
        let warps = launch.warps as usize;
        let frame = lines(code.frame_bytes);
        let local = lines(code.local_bytes as usize * 32);
        let shared = lines(launch.shared_bytes as usize);
        arena.resize(warps * (frame + local) + shared, Line([0; 64]));
        let base = arena.as_mut_ptr().cast::<u8>();
        let at = |line: usize| base.wrapping_add(64 * line);
        let mut runner = Runner {
            launch,
            warps: Vec::with_capacity(warps),
            barriers: [Barrier::default(); 16],
            reductions: Box::new([0; 16]),
            block: [0; 3],
            shared: at(warps * (frame + local)),
            local_each: 64 * local,
            executed: 0,
            arena,
            checker: check.map(|check| {
                Box::new(BlockChecker::new(check, &launch.slots, launch.warps, code.local_bytes))
            }),
        };
        let checker = runner.checker.as_deref_mut().map_or(std::ptr::null_mut(), |checker| &raw mut *checker);
        let context = BlockContext {
            shared: runner.shared,
            shared_bytes: launch.shared_bytes,
            dynamic_shared: launch.config.dynamic_shared,
            params: launch.config.params.as_ptr(),
            param_bytes: launch.config.params.len() as u32,
            slots: launch.slots.as_ptr(),
            slot_count: launch.slots.len(),
            symbols: launch.symbols.as_ptr(),
            extra: code.extra.as_ptr(),
            reductions: &raw const *runner.reductions,
            checker: checker.cast(),
            local_bytes: code.local_bytes,
            started: launch.started,
        };
        for index in 0..launch.warps {
            let warp = Warp {
                frame: at(index as usize * frame),
                mask: 0,
                saved: 0,
                exited: 0,
                waited: 0,
                carry: 0,
                block: context,
                local: at(warps * frame + index as usize * local),
                stack: Vec::new(),
                pc: std::ptr::null(),
                state: State::Ready,
                index,
                request: BarrierRequest { id: 0, threads: 0, arrival: Arrival::Sync, predicate: 0 },
                fault: None,
            };
            for &(offset, fill) in &code.fills {
                if !matches!(fill, Fill::Special(Special::Ctaid(_))) {
                    runner.fill(&warp, offset, fill);
                }
            }
            runner.warps.push(warp);
        }
        runner
    }

    /// Gives the memory back.
    pub(crate) fn into_arena(self) -> Arena {
        self.arena
    }

    fn fill(&self, warp: &Warp, offset: u32, fill: Fill) {
        // SAFETY: the fills lie within the frame, with 128 bytes for words, 256 for wide values, 4 for masks; the decoder
        // checked that parameters lie within their block, and the launch that it has its size.
        unsafe {
            let place = warp.frame.add(offset as usize);
            match fill {
                Fill::Word(value) => place.cast::<[u32; 32]>().write([value; 32]),
                Fill::Wide(value) => place.cast::<[u64; 32]>().write([value; 32]),
                Fill::Param32(at) => {
                    let value = warp.block.params.add(at as usize).cast::<u32>().read_unaligned();
                    place.cast::<[u32; 32]>().write([value; 32]);
                }
                Fill::Param64(at) => {
                    let value = warp.block.params.add(at as usize).cast::<u64>().read_unaligned();
                    place.cast::<[u64; 32]>().write([value; 32]);
                }
                Fill::Mask(value) => place.cast::<u32>().write(value),
                Fill::Special(special) => {
                    place
                        .cast::<[u32; 32]>()
                        .write(std::array::from_fn(|lane| self.special(special, warp, lane as u32)));
                }
            }
        }
    }

    fn special(&self, special: Special, warp: &Warp, lane: u32) -> u32 {
        let config = self.launch.config;
        match special {
            Special::Tid(axis) => thread_of(warp.index * 32 + lane, config.block)[usize::from(axis)],
            Special::Ntid(axis) => config.block[usize::from(axis)],
            Special::Ctaid(axis) => self.block[usize::from(axis)],
            Special::Nctaid(axis) => config.grid[usize::from(axis)],
            Special::LaneId => lane,
            Special::WarpId => warp.index,
            Special::NWarpId => self.launch.warps,
            Special::LaneMaskEq => 1 << lane,
            Special::LaneMaskLt => (1 << lane) - 1,
            Special::LaneMaskLe => u32::MAX >> (31 - lane),
            Special::LaneMaskGt => !(u32::MAX >> (31 - lane)),
            Special::LaneMaskGe => u32::MAX << lane,
            Special::Zero => 0,
            Special::One => 1,
        }
    }

    /// Puts all warps at the kernel's start, for block number `number` of the grid.
    pub(crate) fn begin(&mut self, number: u64) {
        let grid = self.launch.config.grid.map(u64::from);
        self.block = [number % grid[0], number / grid[0] % grid[1], number / grid[0] / grid[1]]
            .map(|index| index as u32);
        let code = self.launch.code;
        // SAFETY: the arena holds the block's shared memory, and for each warp its frame and local memory.
        unsafe {
            self.shared.write_bytes(0, self.launch.shared_bytes as usize);
            for warp in &self.warps {
                warp.local.write_bytes(0, self.local_each);
                for &(offset, bytes) in &code.zeroed {
                    let place = warp.frame.add(offset as usize);
                    match bytes {
                        128 => place.cast::<[u32; 32]>().write([0; 32]),
                        256 => place.cast::<[u64; 32]>().write([0; 32]),
                        _ => place.cast::<u32>().write(0),
                    }
                }
            }
        }
        for &(offset, fill) in &code.fills {
            if let Fill::Special(Special::Ctaid(axis)) = fill {
                for warp in &self.warps {
                    self.fill(warp, offset, Fill::Word(self.block[usize::from(axis)]));
                }
            }
        }
        self.barriers = [Barrier::default(); 16];
        if let Some(checker) = &mut self.checker {
            checker.begin(number);
        }
        for warp in &mut self.warps {
            let threads = self.launch.threads - 32 * warp.index;
            warp.mask = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
            // Threads that do not exist count as gone.
            warp.exited = !warp.mask;
            warp.waited = 0;
            warp.stack.clear();
            warp.pc = code.ops.as_ptr();
            warp.state = State::Ready;
        }
    }

    /// Runs the block to its end.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn finish(&mut self) -> Result<(), Box<Fault>> {
        while self.round()? == Progress::More {}
        Ok(())
    }

    /// Gives every warp that can run one turn.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn round(&mut self) -> Result<Progress, Box<Fault>> {
        let mut ran = false;
        for index in 0..self.warps.len() {
            if self.warps[index].state != State::Ready {
                continue;
            }
            ran = true;
            let warp = &mut self.warps[index];
            // SAFETY: the op belongs to the code that laid out the warp's frame.
            let executed = unsafe { slice(warp) };
            self.executed += executed;
            self.launch.spend(executed).map_err(|kind| self.fault_at(index, self.warps[index].pc, kind))?;
            match self.warps[index].state {
                State::Ready => {}
                State::Barrier => self.arrive(index)?,
                State::Done => self.leave(),
                State::Faulted => return Err(self.fault(index)),
            }
        }
        if ran {
            return Ok(Progress::More);
        }
        if self.warps.iter().all(|warp| warp.state == State::Done) {
            if self.checker.as_ref().is_some_and(|checker| checker.barriers()) {
                self.complete()?;
            }
            return Ok(Progress::Done);
        }
        Err(self.deadlock())
    }

    fn live(&self) -> u32 {
        self.warps.iter().filter(|warp| warp.state != State::Done).count() as u32
    }

    fn arrive(&mut self, index: usize) -> Result<(), Box<Fault>> {
        let request = self.warps[index].request;
        let id = request.id as usize;
        // `pc` is where the warp would go on: the barrier stands before it.
        let at = self.warps[index].pc.wrapping_sub(1);
        if let Some(checker) = &mut self.checker
            && let Err(finding) = checker.arrive(index, id, at as usize, request.threads == 0)
        {
            return Err(self.fault_at(index, at, finding.kind));
        }
        let lanes = !self.warps[index].exited;
        let barrier = &mut self.barriers[id];
        let expected = request.threads / 32;
        if barrier.arrived == 0 {
            *barrier = Barrier { expected, first: (index, at), ..Barrier::default() };
        } else if barrier.expected != expected {
            let threads = |warps: u32| match warps {
                0 => "all threads".to_string(),
                warps => format!("{} threads", 32 * warps),
            };
            let (before, now) = (threads(barrier.expected), threads(expected));
            let what = format!("barrier {id} is for {before} where warps wait, and for {now} here");
            return Err(self.fault_at(index, at, FaultKind::Divergence(what)));
        }
        barrier.arrived += 1;
        match request.arrival {
            Arrival::Arrive => self.warps[index].state = State::Ready,
            Arrival::Sync => barrier.waiting |= 1 << index,
            Arrival::Reduce => {
                barrier.waiting |= 1 << index;
                barrier.any |= request.predicate != 0;
                barrier.all &= request.predicate & lanes == lanes;
                barrier.count += request.predicate.count_ones();
            }
        }
        self.release(id);
        Ok(())
    }

    /// Lets the waiting warps of a barrier go when all have arrived.
    fn release(&mut self, id: usize) {
        let live = self.live();
        let barrier = &mut self.barriers[id];
        let expected = if barrier.expected == 0 { live } else { barrier.expected };
        if barrier.arrived == 0 || barrier.arrived < expected {
            return;
        }
        self.reductions[id] = u32::from(barrier.any) | u32::from(barrier.all) << 1 | barrier.count << 2;
        if let Some(checker) = &mut self.checker {
            checker.complete(id, barrier.waiting);
        }
        for (index, warp) in self.warps.iter_mut().enumerate() {
            if barrier.waiting >> index & 1 != 0 {
                warp.state = State::Ready;
            }
        }
        *barrier = Barrier::default();
    }

    /// A warp left: barriers that wait for all who are still there may be complete.
    fn leave(&mut self) {
        for id in 0..16 {
            if self.barriers[id].arrived > 0 && self.barriers[id].expected == 0 {
                self.release(id);
            }
        }
    }

    /// Whether every barrier that warps arrived at was completed.
    fn complete(&self) -> Result<(), Box<Fault>> {
        match self.barriers.iter().enumerate().find(|(_, barrier)| barrier.arrived > 0) {
            None => Ok(()),
            Some((id, barrier)) => {
                let (arrived, expected) = (barrier.arrived, barrier.expected);
                let what =
                    format!("{arrived} of {expected} warps arrived at barrier {id}, and the block ends");
                let (index, at) = barrier.first;
                Err(self.describe(index, at, 0, FaultKind::MissedArrival(what), None, None))
            }
        }
    }

    fn deadlock(&self) -> Box<Fault> {
        let waiting: Vec<String> = self
            .warps
            .iter()
            .filter(|warp| warp.state == State::Barrier)
            .map(|warp| format!("warp {} at barrier {}", warp.index, warp.request.id))
            .collect();
        let index = self.warps.iter().position(|warp| warp.state == State::Barrier).unwrap_or(0);
        // `pc` is where the warp would go on: the barrier stands before it.
        let at = self.warps[index].pc.wrapping_sub(1);
        self.fault_at(
            index,
            at,
            FaultKind::Deadlock(format!("{}, and nobody else will arrive", waiting.join(", "))),
        )
    }

    fn fault_at(&self, index: usize, op: *const Op, kind: FaultKind) -> Box<Fault> {
        let lane = (!self.warps[index].exited).trailing_zeros() & 31;
        self.describe(index, op, lane, kind, None, None)
    }

    fn fault(&mut self, index: usize) -> Box<Fault> {
        let raw = self.warps[index].fault.take();
        match raw {
            Some(raw) => self.describe(index, raw.op, raw.lane, raw.kind, raw.address, raw.allocation),
            None => self.fault_at(index, std::ptr::null(), FaultKind::Trap),
        }
    }

    fn describe(
        &self,
        index: usize,
        op: *const Op,
        lane: u32,
        kind: FaultKind,
        address: Option<u64>,
        allocation: Option<String>,
    ) -> Box<Fault> {
        let code = self.launch.code;
        let position = (op as usize).wrapping_sub(code.ops.as_ptr() as usize) / size_of::<Op>();
        Box::new(Fault {
            module: self.launch.config.kernel.module.clone(),
            entry: self.launch.config.kernel.name.clone(),
            line: code.lines.get(position).copied().unwrap_or(0),
            block: self.block,
            thread: thread_of(index as u32 * 32 + lane, self.launch.config.block),
            kind,
            address,
            allocation,
        })
    }
}

/// A thread's index by dimension.
fn thread_of(linear: u32, block: [u32; 3]) -> [u32; 3] {
    [linear % block[0], linear / block[0] % block[1], linear / block[0] / block[1]]
}

/// Runs a warp until it stops or its slice ends; the number of ops executed.
///
/// # Safety
/// `warp.pc` must be an op of the code that the warp's frame was laid out for.
unsafe fn slice(warp: &mut Warp) -> u64 {
    let mut op = warp.pc;
    let mut executed = 0;
    // SAFETY: the caller's promise; each op returns an op of the same code, or null.
    unsafe {
        loop {
            op = ((*op).run)(warp, &*op);
            executed += 1;
            if op.is_null() {
                return executed;
            }
            if executed == SLICE {
                warp.pc = op;
                return executed;
            }
        }
    }
}

const _: () = assert!(size_of::<Pending>() == 24 && size_of::<Op>() == 32);
