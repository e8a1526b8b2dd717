//! Registers that are only another name for something else.
//!
//! nvcc's PTX is in single-assignment form: a register that one unguarded `mov` defines equals the mov's source wherever it
//! is used, as long as the source does not change either. Uses then name the source itself (a constant, a special register, a
//! parameter, another such register), and the mov is not executed.

use super::builder::{Builder, Class, Place};
use super::frame::Special;
use super::modifiers::Modifiers;
use crate::ptx::ast::{Instruction, Operand, RegId, Space, Type};
use crate::ptx::resolve::Item;

/// Chains of copies longer than this are not followed to their end.
const MAX_CHAIN: u32 = 64;

impl Builder<'_> {
    /// Fills `replaced`.
    pub(super) fn find_copies(&mut self) {
        let n = self.body.registers.len();
        let body = self.body;
        let mut writes = vec![0u32; n];
        let mut copy: Vec<Option<&Instruction>> = vec![None; n];
        for item in &body.items {
            let Item::Inst(inst) = item else { continue };
            let Some(first) = inst.operands.first() else { continue };
            // Counting a source that stands first (a barrier's number) as written too does no harm.
            written(first, &mut |register| {
                writes[register.0 as usize] += 1 + u32::from(inst.guard.is_some())
            });
            if let (Operand::Reg(register), None) = (first, &inst.guard) {
                copy[register.0 as usize] = Some(inst);
            }
        }
        self.replaced = vec![None; n];
        for register in 0..n {
            if writes[register] == 1 {
                self.replaced[register] = self.original(RegId(register as u32), &writes, &copy, 0);
            }
        }
    }

    /// What a register that is written once is a copy of.
    fn original(
        &self,
        register: RegId,
        writes: &[u32],
        copy: &[Option<&Instruction>],
        depth: u32,
    ) -> Option<Place> {
        let index = register.0 as usize;
        if depth > MAX_CHAIN || writes[index] != 1 {
            return None;
        }
        let [_, source] = &copy[index]?.operands[..] else { return None };
        let mut modifiers = Modifiers::new(&copy[index]?.opcode);
        let class = self.classes[index]?;
        match modifiers.base() {
            "mov" => {}
            "cvta" => {
                modifiers.ignore(&["to"]);
                if !modifiers.take("global") && !modifiers.take("const") {
                    return None;
                }
            }
            "ld" => {
                let ty = modifiers.find(Type::parse)?;
                let Operand::Address(base, offset) = source else { return None };
                let (Space::Param, at) = self.static_address(base)? else { return None };
                let at = at.checked_add_signed(*offset)?;
                let fits = at + u64::from(ty.bytes()) <= self.params.1.into();
                if !modifiers.take("param")
                    || modifiers.finish().is_err()
                    || !fits
                    || Class::of(ty) != Ok(class)
                {
                    return None;
                }
                return match ty.bits() {
                    32 => Some(Place::Param32(at as u32)),
                    64 => Some(Place::Param64(at as u32)),
                    _ => None,
                };
            }
            _ => return None,
        }
        let ty = modifiers.find(Type::parse)?;
        if modifiers.finish().is_err() || Class::of(ty) != Ok(class) || class == Class::Pred {
            return None;
        }
        match source {
            Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => super::builder::constant(source, ty),
            Operand::Special(name) if class == Class::W32 => Special::parse(name).map(Place::Special),
            Operand::Name(_) | Operand::Local(_) | Operand::Offset(..) => {
                let (_, at) = self.static_address(source)?;
                Some(if class == Class::W64 { Place::Const64(at) } else { Place::Const32(at as u32) })
            }
            Operand::Reg(other)
                if self.classes[other.0 as usize] == Some(class) && writes[other.0 as usize] == 1 =>
            {
                let place = self.original(*other, writes, copy, depth + 1);
                Some(place.unwrap_or(Place::Register(other.0)))
            }
            _ => None,
        }
    }

    /// Whether an instruction need not be executed because its register is another name for its source.
    pub(super) fn is_copy(&self, inst: &Instruction) -> bool {
        match inst.operands.first() {
            Some(Operand::Reg(register)) if inst.guard.is_none() => {
                self.replaced.get(register.0 as usize).is_some_and(Option::is_some)
            }
            _ => false,
        }
    }
}

/// Calls `visit` for each register that an instruction with this first operand writes.
fn written(first: &Operand, visit: &mut impl FnMut(RegId)) {
    match first {
        Operand::Reg(register) => visit(*register),
        Operand::Pair(a, b) => {
            written(a, visit);
            written(b, visit);
        }
        Operand::Vector(list) => list.iter().for_each(|operand| written(operand, visit)),
        _ => {}
    }
}
