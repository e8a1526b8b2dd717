//! From a function's syntax to a flat array of ops.
//!
//! Instructions become ops over *places* (numbered registers, constants, special registers) in [`Builder`]; then the
//! control-flow graph gives each divergent branch its join ([`flow`]), live ranges give registers their slots in the
//! frame ([`frame`]), and places become frame offsets.

mod builder;
mod control;
mod convert;
mod copies;
mod float;
mod flow;
mod frame;
mod half;
mod int;
mod memory;
mod modifiers;
mod moves;
mod tensor;
mod warp;

use crate::census::{align_up, shared_variables};
use crate::ops::Level;
use crate::ptx::ast::{Function, ModuleAst, Operand, Space};
use crate::ptx::resolve::{Item, resolve};

pub(crate) use builder::Builder;
pub(crate) use frame::{Code, Fill, Special};
pub(crate) use modifiers::Modifiers;

/// Line and message.
pub(crate) type Error = (u32, String);

/// Bytes of local memory a thread may have (the hardware's limit).
const MAX_LOCAL: u64 = 512 << 10;

/// Decodes one entry. `level` picks the compiled variant of each op; `checked` puts check ops before accesses.
pub(crate) fn decode(
    ast: &ModuleAst,
    function: &Function,
    level: Level,
    checked: bool,
) -> Result<Code, Error> {
    let body = resolve(function)?;
    let mut builder = Builder::new(ast, function, &body, level);
    builder.checked = checked;
    let mut shared = 0u64;
    for variable in shared_variables(ast, function) {
        let at = align_up(shared, variable.align);
        builder.shared.insert(variable.name.clone(), at);
        shared = at.saturating_add(variable.size.unwrap_or(0));
    }
    if shared > crate::exec::MAX_SHARED.into() {
        return Err((
            function.line,
            format!("{shared} bytes of static shared memory: at most {}", crate::exec::MAX_SHARED),
        ));
    }
    let unsized_shared = ast.variables.iter().filter(|v| v.space == Space::Shared && v.size.is_none());
    builder.dynamic_offset = align_up(shared, unsized_shared.map(|v| v.align).max().unwrap_or(16).max(16));
    let mut local = 0u64;
    for (index, variable) in body.variables.iter().enumerate() {
        match (variable.space, variable.size) {
            (Space::Local, Some(size)) => {
                let at = align_up(local, variable.align);
                builder.local.insert(index, at);
                local = at.saturating_add(size);
                if local > MAX_LOCAL {
                    let what = format!("{local} bytes of local memory a thread: at most {MAX_LOCAL}");
                    return Err((variable.line, what));
                }
            }
            (Space::Shared | Space::Param, _) => {}
            _ => {
                return Err((
                    variable.line,
                    format!("variable {} cannot be declared in a body", variable.name),
                ));
            }
        }
    }
    builder.find_copies();
    for item in &body.items {
        match item {
            Item::Label(label) => builder.place_label(*label),
            Item::Inst(inst) if builder.is_copy(inst) => {}
            Item::Inst(inst) => {
                builder.line = inst.line;
                builder.instruction(inst).map_err(|what| (inst.line, format!("{}: {what}", inst.opcode)))?;
            }
        }
    }
    builder.finish(shared as u32, align_up(local, 16) as u32).map_err(|what| (function.line, what))
}

impl Builder<'_> {
    fn instruction(&mut self, inst: &crate::ptx::ast::Instruction) -> Result<(), String> {
        if inst.opcode.split('.').any(|part| part == "ftz") {
            return Err("flushing denormals (.ftz) is refused: programs keep them".into());
        }
        if inst.opcode.split('.').any(|part| part == "approx") {
            return Err(
                "approximate operations are refused: their results are not defined bit for bit".into()
            );
        }
        let Some((Operand::Reg(guard), negated)) = &inst.guard else {
            return self.unguarded(inst, None);
        };
        let guard = self.predicate_register(*guard)?;
        self.unguarded(inst, Some((guard, *negated)))
    }

    fn unguarded(
        &mut self,
        inst: &crate::ptx::ast::Instruction,
        guard: Option<(builder::Place, bool)>,
    ) -> Result<(), String> {
        let mut modifiers = Modifiers::new(&inst.opcode);
        let base = modifiers.base();
        if self.control(base, &mut modifiers, &inst.operands, guard)? {
            return modifiers.finish();
        }
        let guarded = guard.map(|(place, negated)| self.open_guard(place, negated));
        let operands = &inst.operands;
        let known = self.integer(base, &mut modifiers, operands)?
            || self.floating(base, &mut modifiers, operands)?
            || self.half(base, &mut modifiers, operands)?
            || self.moving(base, &mut modifiers, operands)?
            || self.conversion(base, &mut modifiers, operands)?
            || self.memory(base, &mut modifiers, operands)?
            || self.warp_wide(base, &mut modifiers, operands)?
            || self.tensor(base, &mut modifiers, operands)?;
        if !known {
            return Err("this opcode is not supported".into());
        }
        if let Some(guarded) = guarded {
            self.close_guard(guarded);
        }
        modifiers.finish()
    }
}
