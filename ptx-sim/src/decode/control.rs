//! Branches and the end: the instructions whose guard is part of the op.

use super::builder::{Builder, Next, Place};
use super::modifiers::Modifiers;
use crate::ops::check::CheckExit;
use crate::ops::control::{BranchIf, BranchUnless, Exit, ExitIf, Jump};
use crate::ptx::ast::{Operand, Type};

impl Builder<'_> {
    /// Decodes a control-flow instruction; `false` when it is none.
    pub(super) fn control(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
        guard: Option<(Place, bool)>,
    ) -> Result<bool, String> {
        let zero = Place::Raw(0);
        match (base, operands) {
            ("bra", [Operand::Label(label)]) => {
                modifiers.ignore(&["uni"]);
                match guard {
                    None => self.raw::<Jump>([zero; 5], 0).next = Next::Jump(*label),
                    Some((predicate, negated)) => {
                        let fields = [zero, predicate, zero, zero, zero];
                        let draft = if negated {
                            self.raw::<BranchUnless>(fields, 0)
                        } else {
                            self.raw::<BranchIf>(fields, 0)
                        };
                        draft.next = Next::Branch(*label);
                    }
                }
            }
            ("bra", [other]) => return Err(format!("unknown label ({})", super::builder::describe(other))),
            ("brx", [index, Operand::Table(table)]) if modifiers.take("idx") => {
                modifiers.ignore(&["uni"]);
                if guard.is_some() {
                    return Err("a guarded indexed branch is not supported".into());
                }
                let index = self.src(index, Type::U32)?;
                let labels = self.body.tables[*table].clone();
                self.raw::<Jump>([zero, index, zero, zero, zero], 0).next = Next::Table(labels);
            }
            ("ret" | "exit", []) => {
                modifiers.ignore(&["uni"]);
                if self.checked {
                    let (predicate, imm) = match guard {
                        None => (zero, 0),
                        Some((predicate, negated)) => (predicate, 1 | i32::from(negated) << 1),
                    };
                    self.raw::<CheckExit>([zero, predicate, zero, zero, zero], 0).imm = imm;
                }
                match guard {
                    None => self.raw::<Exit>([zero; 5], 0).next = Next::End,
                    Some((predicate, negated)) => {
                        let fields = [zero, predicate, Place::Raw(negated.into()), zero, zero];
                        self.raw::<ExitIf>(fields, 0).next = Next::MayEnd;
                    }
                }
            }
            ("call", operands) => {
                modifiers.ignore(&["uni"]);
                let callee = operands.iter().find_map(|operand| match operand {
                    Operand::Name(name) => Some(name.as_str()),
                    _ => None,
                });
                return Err(format!(
                    "a call of `{}` cannot be simulated: inline it",
                    callee.unwrap_or("a pointer")
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
