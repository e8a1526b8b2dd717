//! Live ranges, slots in the frame, and the final code.

use std::collections::HashMap;

use super::builder::{Builder, Class, Draft, Next, Place};
use super::flow::{Block, graph};
use crate::ops::check::CheckExit;
use crate::ops::control::{BranchIndexed, Exit, Join, NO_JOIN};
use crate::ops::{Op, select};

/// A special register with a value that does not change while a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    Zero,
    One,
}

impl Special {
    pub(crate) fn parse(name: &str) -> Option<Special> {
        let (base, axis) = match name.rsplit_once('.') {
            Some((base, "x")) => (base, Some(0)),
            Some((base, "y")) => (base, Some(1)),
            Some((base, "z")) => (base, Some(2)),
            Some(_) => return None,
            None => (name, None),
        };
        Some(match (base, axis) {
            ("%tid", Some(axis)) => Special::Tid(axis),
            ("%ntid", Some(axis)) => Special::Ntid(axis),
            ("%ctaid", Some(axis)) => Special::Ctaid(axis),
            ("%nctaid", Some(axis)) => Special::Nctaid(axis),
            // Every block is a cluster of its own.
            ("%clusterid", Some(axis)) => Special::Ctaid(axis),
            ("%nclusterid", Some(axis)) => Special::Nctaid(axis),
            ("%cluster_ctaid", Some(_)) | ("%cluster_ctarank", None) => Special::Zero,
            ("%cluster_nctaid", Some(_)) | ("%cluster_nctarank", None) => Special::One,
            ("%laneid", None) => Special::LaneId,
            ("%warpid", None) => Special::WarpId,
            ("%nwarpid", None) => Special::NWarpId,
            ("%lanemask_eq", None) => Special::LaneMaskEq,
            ("%lanemask_lt", None) => Special::LaneMaskLt,
            ("%lanemask_le", None) => Special::LaneMaskLe,
            ("%lanemask_gt", None) => Special::LaneMaskGt,
            ("%lanemask_ge", None) => Special::LaneMaskGe,
            // One multiprocessor, one grid.
            ("%smid" | "%gridid", None) => Special::Zero,
            ("%nsmid", None) => Special::One,
            _ => return None,
        })
    }
}

/// What a place of the frame holds before the code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// A 32-bit constant in every lane.
    Word(u32),
    /// A 64-bit constant in every lane.
    Wide(u64),
    /// A predicate.
    Mask(u32),
    /// A special register.
    Special(Special),
    /// The 32-bit value at this byte of the parameters, in every lane.
    Param32(u32),
    /// The 64-bit value at this byte of the parameters, in every lane.
    Param64(u32),
}

/// A decoded kernel.
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    /// The PTX line of each op.
    pub(crate) lines: Vec<u32>,
    pub(crate) extra: Vec<u32>,
    /// Size of a frame in bytes, a multiple of 64.
    pub(crate) frame_bytes: usize,
    /// Constants and special registers: offset in the frame and value.
    pub(crate) fills: Vec<(u32, Fill)>,
    /// Registers that may be read before they are written: offset and bytes, zeroed for every block so that runs repeat.
    pub(crate) zeroed: Vec<(u32, u32)>,
    /// The module's variables that the code names.
    pub(crate) symbols: Vec<usize>,
    pub(crate) static_shared: u32,
    /// Where dynamic shared memory begins.
    pub(crate) dynamic_offset: u32,
    pub(crate) local_bytes: u32,
    /// The line where the kernel can end without having passed `griddepcontrol.wait`.
    pub(crate) unwaited: Option<u32>,
}

// SAFETY: an `Op` holds a function pointer and numbers.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code").field("ops", &self.ops.len()).field("frame_bytes", &self.frame_bytes).finish()
    }
}

/// Functions for which liveness would need more bits than this are refused.
const MAX_LIVENESS_BITS: usize = 1 << 31;

fn size(class: Class) -> u32 {
    match class {
        Class::W32 => 128,
        Class::W64 => 256,
        Class::Pred => 4,
    }
}

impl Builder<'_> {
    /// Lays out the frame and turns the drafts into code.
    pub(crate) fn finish(mut self, static_shared: u32, local_bytes: u32) -> Result<Code, String> {
        // A function that falls off its end returns.
        if self.drafts.last().is_none_or(|d| !matches!(d.next, Next::End | Next::Jump(_)))
            || self.labels.values().any(|&at| at == self.drafts.len())
        {
            if self.checked {
                self.raw::<CheckExit>([Place::Raw(0); 5], 0);
            }
            self.raw::<Exit>([Place::Raw(0); 5], 0).next = Next::End;
        }
        let blocks = graph(&self.drafts, &self.labels)?;
        let unwaited = unwaited(&self.drafts, &blocks);
        let ranges = self.live_ranges(&blocks)?;
        let mut frame = Frame::default();
        let slots = frame.assign(&ranges, &self.classes);
        let joins: Vec<bool> = {
            let mut joins = vec![false; blocks.len()];
            for block in &blocks {
                let splits = matches!(self.drafts[block.end - 1].next, Next::Branch(_) | Next::Table(_));
                if let (true, Some(join)) = (splits, block.join) {
                    joins[join] = true;
                }
            }
            joins
        };
        // Where each block begins in the final code.
        let mut starts = Vec::with_capacity(blocks.len());
        let mut at = 0;
        for (block, &join) in blocks.iter().zip(&joins) {
            starts.push(at);
            at += block.end - block.start + usize::from(join);
        }
        let block_of: HashMap<usize, usize> =
            blocks.iter().enumerate().map(|(b, block)| (block.start, b)).collect();
        let mut code = Code {
            ops: Vec::with_capacity(at),
            lines: Vec::with_capacity(at),
            extra: Vec::new(),
            frame_bytes: 0,
            fills: Vec::new(),
            zeroed: Vec::new(),
            symbols: self.symbols.clone(),
            static_shared,
            dynamic_offset: self.dynamic_offset as u32,
            local_bytes,
            unwaited,
        };
        for (b, block) in blocks.iter().enumerate() {
            if joins[b] {
                let run = select::<Join>(self.level);
                code.ops.push(Op { run, d: 0, a: 0, b: 0, c: 0, e: 0, imm: 0 });
                code.lines.push(self.drafts[block.start].line);
            }
            for draft in &self.drafts[block.start..block.end] {
                let mut fields = [0; 5];
                for (field, place) in fields.iter_mut().zip(draft.fields) {
                    *field = frame.offset(place, &slots);
                }
                let [d, a, b, c, e] = fields;
                let mut op = Op { run: draft.run, d, a, b, c, e, imm: draft.imm };
                if !draft.extra.is_empty() {
                    op.imm = code.extra.len() as i32;
                    code.extra.extend(draft.extra.iter().map(|(place, _)| frame.offset(*place, &slots)));
                }
                let here = code.ops.len() as i64;
                let distance = |label| starts[block_of[&self.labels[label]]] as i64 - here;
                let join = block.join.map_or(NO_JOIN, |j| (starts[j] as i64 - here) as u32);
                match &draft.next {
                    Next::Jump(label) => op.imm = distance(label) as i32,
                    Next::Branch(label) => {
                        op.imm = distance(label) as i32;
                        op.b = join;
                    }
                    Next::Table(labels) => {
                        op.run = select::<BranchIndexed>(self.level);
                        op.b = join;
                        op.c = code.extra.len() as u32;
                        op.imm = labels.len() as i32;
                        code.extra.extend(labels.iter().map(|label| distance(label) as u32));
                    }
                    Next::Follow | Next::MayEnd | Next::End => {}
                }
                code.ops.push(op);
                code.lines.push(draft.line);
            }
        }
        code.zeroed = ranges
            .iter()
            .filter(|range| range.uninitialised)
            .map(|range| {
                let register = range.register as usize;
                (slots[&range.register], size(self.classes[register].unwrap_or(Class::W32)))
            })
            .collect();
        code.fills = frame.fills;
        code.frame_bytes = (frame.bytes as usize).next_multiple_of(64);
        Ok(code)
    }

    /// Where each register is live, as one stretch of positions: op `i` reads at `2 i` and writes at `2 i + 1`.
    fn live_ranges(&self, blocks: &[Block]) -> Result<Vec<Range>, String> {
        // Registers that occur, numbered densely.
        let mut dense = HashMap::new();
        let mut registers = Vec::new();
        for draft in &self.drafts {
            draft.each(|register, _, _| {
                dense.entry(register).or_insert_with(|| {
                    registers.push(register);
                    registers.len() - 1
                });
            });
        }
        let words = registers.len().div_ceil(64);
        if words.saturating_mul(blocks.len()).saturating_mul(64 * 4) > MAX_LIVENESS_BITS {
            return Err("the function is too large".into());
        }
        let mut gen_: Vec<Vec<u64>> = vec![vec![0; words]; blocks.len()];
        let mut kill = gen_.clone();
        for (b, block) in blocks.iter().enumerate() {
            for draft in &self.drafts[block.start..block.end] {
                draft.each(|register, reads, _| {
                    let n = dense[&register];
                    if reads && kill[b][n / 64] >> (n % 64) & 1 == 0 {
                        gen_[b][n / 64] |= 1 << (n % 64);
                    }
                });
                draft.each(|register, _, writes| {
                    let n = dense[&register];
                    if writes {
                        kill[b][n / 64] |= 1 << (n % 64);
                    }
                });
            }
        }
        let mut live_in = gen_.clone();
        let mut live_out = vec![vec![0u64; words]; blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for b in (0..blocks.len()).rev() {
                for w in 0..words {
                    let out = blocks[b].successors.iter().fold(0, |out, &s| out | live_in[s][w]);
                    let into = gen_[b][w] | out & !kill[b][w];
                    changed |= into != live_in[b][w];
                    live_out[b][w] = out;
                    live_in[b][w] = into;
                }
            }
        }
        let mut ranges: Vec<Range> = registers
            .iter()
            .map(|&register| Range { register, first: usize::MAX, last: 0, uninitialised: false })
            .collect();
        let mut touch = |n: usize, at: usize| {
            let range: &mut Range = &mut ranges[n];
            range.first = range.first.min(at);
            range.last = range.last.max(at);
        };
        for (b, block) in blocks.iter().enumerate() {
            for n in 0..registers.len() {
                let bit = |set: &[u64]| set[n / 64] >> (n % 64) & 1 == 1;
                if bit(&live_in[b]) {
                    touch(n, 2 * block.start);
                }
                if bit(&live_out[b]) {
                    touch(n, 2 * block.end - 1);
                }
            }
            for (i, draft) in self.drafts[block.start..block.end].iter().enumerate() {
                let at = 2 * (block.start + i);
                draft.each(|register, reads, writes| {
                    if reads {
                        touch(dense[&register], at);
                    }
                    if writes {
                        touch(dense[&register], at + 1);
                    }
                });
            }
        }
        for (n, range) in ranges.iter_mut().enumerate() {
            range.uninitialised = live_in[0][n / 64] >> (n % 64) & 1 == 1;
        }
        Ok(ranges)
    }
}

/// The line of an end that a path leads to without an unguarded `griddepcontrol.wait`.
fn unwaited(drafts: &[Draft], blocks: &[Block]) -> Option<u32> {
    let mut seen = vec![false; blocks.len()];
    let mut open = vec![0];
    while let Some(index) = open.pop() {
        let Some(block) = blocks.get(index).filter(|_| !std::mem::replace(&mut seen[index], true)) else {
            continue;
        };
        // A block's end, if it is one of the kernel's, is its last op.
        if drafts[block.start..block.end].iter().any(|draft| draft.waits && !draft.guarded) {
            continue;
        }
        if block.ends {
            return Some(drafts[block.end - 1].line);
        }
        open.extend(&block.successors);
    }
    None
}

impl Draft {
    /// Calls `visit(register, reads, writes)` for each register operand.
    fn each(&self, mut visit: impl FnMut(u32, bool, bool)) {
        for (i, place) in self.fields.iter().enumerate() {
            if let Place::Register(register) = *place {
                let writes = self.defs >> i & 1 == 1;
                visit(register, !writes || self.guarded, writes);
            }
        }
        for &(place, writes) in &self.extra {
            if let Place::Register(register) = place {
                visit(register, !writes || self.guarded, writes);
            }
        }
    }
}

/// A register's life.
struct Range {
    register: u32,
    first: usize,
    last: usize,
    /// Some path reads it before it is written.
    uninitialised: bool,
}

#[derive(Default)]
struct Frame {
    bytes: u32,
    fills: Vec<(u32, Fill)>,
    known: HashMap<Place, u32>,
}

impl Frame {
    /// Gives registers slots so that those alive together have different ones (linear scan). Writes are masked, so what
    /// holds for one thread's path holds for a warp whose lanes take different ones.
    fn assign(&mut self, ranges: &[Range], classes: &[Option<Class>]) -> HashMap<u32, u32> {
        let mut slots = HashMap::new();
        for class in [Class::W32, Class::W64, Class::Pred] {
            let mut order: Vec<&Range> =
                ranges.iter().filter(|r| classes[r.register as usize] == Some(class)).collect();
            order.sort_by_key(|r| (r.first, r.register));
            self.bytes = self.bytes.next_multiple_of(64);
            let mut free: std::collections::BTreeSet<u32> = std::collections::BTreeSet::new();
            let mut busy: std::collections::BTreeSet<(usize, u32)> = std::collections::BTreeSet::new();
            for range in order {
                while let Some(&(last, slot)) = busy.first() {
                    if last >= range.first {
                        break;
                    }
                    busy.remove(&(last, slot));
                    free.insert(slot);
                }
                let slot = free.pop_first().unwrap_or_else(|| {
                    let slot = self.bytes;
                    self.bytes += size(class);
                    slot
                });
                busy.insert((range.last, slot));
                slots.insert(range.register, slot);
            }
        }
        slots
    }

    fn offset(&mut self, place: Place, slots: &HashMap<u32, u32>) -> u32 {
        let (bytes, fill) = match place {
            Place::Raw(value) => return value,
            Place::Register(register) => return slots[&register],
            Place::Const32(value) => (128, Fill::Word(value)),
            Place::Const64(value) => (256, Fill::Wide(value)),
            Place::ConstPred(value) => (4, Fill::Mask(if value { u32::MAX } else { 0 })),
            Place::Special(special) => (128, Fill::Special(special)),
            Place::Param32(at) => (128, Fill::Param32(at)),
            Place::Param64(at) => (256, Fill::Param64(at)),
        };
        if let Some(&at) = self.known.get(&place) {
            return at;
        }
        let at = self.bytes.next_multiple_of(bytes.min(64));
        self.bytes = at + bytes;
        self.fills.push((at, fill));
        self.known.insert(place, at);
        at
    }
}
