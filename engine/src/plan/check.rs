//! What a plan is checked for while it is built: launches whose arguments get in each other's way, reads of scratch that
//! nothing has written, and scratch that is used after it was given back.

use std::collections::HashMap;

use super::{Arena, Label, PlanError};
use crate::device::{Access, RawBuffer};
use crate::kernel::{ArgSlot, Launch};

/// Bytes of a buffer, from its slot's start.
type Range = std::ops::Range<u64>;

/// The checks of one plan, or of several that follow each other.
#[derive(Debug, Default)]
pub(super) struct PlanChecker {
    /// By scratch buffer: what has been written so far, disjoint and sorted.
    written: HashMap<u64, Vec<Range>>,
}

struct Pointer<'a> {
    param: &'static str,
    buffer: &'a RawBuffer,
    access: Access,
    /// Addresses: two buffers may be views of one allocation.
    range: Range,
}

impl PlanChecker {
    /// Checks the next launch of the plan.
    pub fn launch(&mut self, arena: &Arena, at: Label, launch: &Launch) -> Result<(), PlanError> {
        let pointers: Vec<Pointer<'_>> = launch
            .args
            .slots()
            .iter()
            .filter_map(|slot| match slot {
                ArgSlot::Pointer { buffer, access, .. } => {
                    let (param, start) = (launch.decl.params[slot.param()].name, buffer.address());
                    Some(Pointer {
                        param,
                        buffer,
                        access: *access,
                        range: start..start + buffer.bytes() as u64,
                    })
                }
                _ => None,
            })
            .collect();
        for (index, a) in pointers.iter().enumerate() {
            self.lifetime(arena, at, a)?;
            if let Some(b) = pointers[index + 1..].iter().find(|b| conflict(a, b)) {
                let (argument, other) = (a.param, b.param);
                return Err(PlanError::Aliasing { at, argument, other, buffer: a.buffer.name().to_owned() });
            }
        }
        for pointer in pointers.iter().filter(|p| p.access != Access::Write) {
            self.read(arena, at, pointer)?;
        }
        for pointer in pointers.iter().filter(|p| p.access != Access::Read) {
            self.write(arena, pointer.buffer);
        }
        Ok(())
    }

    fn lifetime(&self, arena: &Arena, at: Label, pointer: &Pointer<'_>) -> Result<(), PlanError> {
        if arena.is_dead(pointer.buffer.id()) {
            let buffer = pointer.buffer.name().to_owned();
            return Err(PlanError::Lifetime { at, argument: pointer.param, buffer });
        }
        Ok(())
    }

    fn read(&self, arena: &Arena, at: Label, pointer: &Pointer<'_>) -> Result<(), PlanError> {
        let buffer = pointer.buffer;
        if !arena.is_scratch(buffer.id()) {
            return Ok(());
        }
        let wanted = bytes_of(buffer);
        let written = self.written.get(&buffer.id()).map_or(&[][..], Vec::as_slice);
        // The written ranges are merged, so a range that is covered lies in one of them.
        if written.iter().any(|range| range.start <= wanted.start && wanted.end <= range.end) {
            return Ok(());
        }
        let buffer = buffer.name().to_owned();
        Err(PlanError::Unwritten { at, argument: pointer.param, buffer, from: wanted.start, to: wanted.end })
    }

    /// `buffer` has been written whole.
    pub fn write(&mut self, arena: &Arena, buffer: &RawBuffer) {
        if !arena.is_scratch(buffer.id()) {
            return;
        }
        let mut new = bytes_of(buffer);
        let ranges = self.written.entry(buffer.id()).or_default();
        ranges.retain(|range| {
            let touches = range.start <= new.end && new.start <= range.end;
            if touches {
                new = new.start.min(range.start)..new.end.max(range.end);
            }
            !touches
        });
        ranges.push(new);
    }
}

fn bytes_of(buffer: &RawBuffer) -> Range {
    let start = buffer.byte_offset() as u64;
    start..start + buffer.bytes() as u64
}

fn conflict(a: &Pointer<'_>, b: &Pointer<'_>) -> bool {
    let overlap = a.range.start < b.range.end && b.range.start < a.range.end;
    overlap && (a.access != Access::Read || b.access != Access::Read)
}
