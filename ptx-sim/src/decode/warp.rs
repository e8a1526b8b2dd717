//! Barriers and what the lanes of a warp do together.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::ops::check::{CheckTrigger, CheckWarpSync};
use crate::ops::control::{Barrier, BarrierResult, GridWait, Nop, Trap, Yield};
use crate::ops::warp_wide as w;
use crate::ptx::ast::{Operand, Type};

impl Builder<'_> {
    /// Decodes a warp-wide or synchronising instruction; `false` when it is none.
    pub(super) fn warp_wide(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        let zero = Place::Raw(0);
        match (base, operands) {
            ("shfl", [d, x, b, c, member]) if modifiers.take("sync") => {
                self.shuffle(modifiers, d, [x, b, c, member])?
            }
            ("vote", [d, p, member]) if modifiers.take("sync") => {
                let mode =
                    modifiers.find(|part| ["all", "any", "uni", "ballot"].iter().position(|m| *m == part));
                let Some(mode) = mode else { return Err("no mode".into()) };
                let _ = modifiers.ty()?;
                let (p, member) = (self.predicate(p)?, self.src(member, Type::B32)?);
                let d = self.dst_class(d, if mode == 3 { Class::W32 } else { Class::Pred })?;
                self.raw::<w::Vote>([d, p, zero, zero, member], 1).imm = mode as i32;
            }
            ("activemask", [d]) => {
                let d = self.dst(d, modifiers.ty()?)?;
                self.op::<w::ActiveMask>(d, &[]);
            }
            ("match", [d, x, member]) if modifiers.take("sync") => self.matching(modifiers, d, x, member)?,
            ("redux", [d, x, member]) if modifiers.take("sync") => {
                let ty = modifiers.ty()?;
                let Some(name) = modifiers.find(|part| {
                    matches!(part, "add" | "and" | "or" | "xor" | "min" | "max").then(|| part.to_string())
                }) else {
                    return Err("no operation".into());
                };
                if ty.bits() != 32 || !ty.integer() {
                    return Err("only 32-bit integers are supported".into());
                }
                let mode = match (name.as_str(), ty.signed()) {
                    ("add", _) => 0,
                    ("and", _) => 1,
                    ("or", _) => 2,
                    ("xor", _) => 3,
                    ("min", false) => 4,
                    ("max", false) => 5,
                    ("min", true) => 6,
                    _ => 7,
                };
                let (x, member) = (self.src(x, ty)?, self.src(member, Type::B32)?);
                let d = self.dst(d, ty)?;
                self.raw::<w::Reduce>([d, x, zero, zero, member], 1).imm = mode;
            }
            ("elect", [Operand::Pair(d, p), member]) if modifiers.take("sync") => {
                let member = self.src(member, Type::B32)?;
                let p = self.dst_class(p, Class::Pred)?;
                let d = self.dst_class(d, Class::W32)?;
                self.raw::<w::Elect>([p, zero, d, zero, member], 0b101);
            }
            ("bar", [member]) if modifiers.take("warp") => {
                modifiers.ignore(&["sync"]);
                let member = self.src(member, Type::B32)?;
                if self.checked {
                    self.raw::<CheckWarpSync>([zero; 5], 0);
                }
                self.raw::<w::WarpSync>([zero, zero, zero, zero, member], 0);
            }
            ("bar" | "barrier", operands) => self.barrier(modifiers, operands)?,
            ("griddepcontrol", []) => {
                if modifiers.take("wait") {
                    self.raw::<GridWait>([zero; 5], 0).waits = true;
                } else {
                    modifiers.ignore(&["launch_dependents"]);
                    if self.checked {
                        self.raw::<CheckTrigger>([zero; 5], 0);
                    }
                    self.raw::<Nop>([zero; 5], 0);
                }
            }
            ("nanosleep", [_]) => {
                modifiers.ignore(&["u32"]);
                self.raw::<Yield>([zero; 5], 0);
            }
            ("trap", []) => {
                self.raw::<Trap>([zero; 5], 0);
            }
            ("brkpt" | "pmevent" | "setmaxnreg", _) => return Err("this opcode is not supported".into()),
            _ => return Ok(false),
        }
        if matches!(base, "shfl" | "vote" | "match" | "redux" | "elect" | "bar") {
            self.mark_constant_mask();
        }
        Ok(true)
    }

    /// Tells an op with a membership mask that the mask is a constant, by the sign of its immediate.
    fn mark_constant_mask(&mut self) {
        if let Some(draft) = self.drafts.last_mut()
            && matches!(draft.fields[4], Place::Const32(_))
        {
            draft.imm |= i32::MIN;
        }
    }

    fn shuffle(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        d: &Operand,
        [x, b, c, member]: [&Operand; 4],
    ) -> Result<(), String> {
        let mode = modifiers.find(|part| ["up", "down", "bfly", "idx"].iter().position(|m| *m == part));
        let Some(mode) = mode else { return Err("no mode".into()) };
        let ty = modifiers.ty()?;
        let (value, p) = match d {
            Operand::Pair(value, p) => (&**value, Some(&**p)),
            d => (d, None),
        };
        let (x, member) = (self.src(x, ty)?, self.src(member, Type::B32)?);
        let (b, c) = (self.src(b, Type::B32)?, self.src(c, Type::B32)?);
        if let Some(p) = p
            && self.mentioned_elsewhere(p)
        {
            let p = self.dst_class(p, Class::Pred)?;
            // Before the value, which may overwrite `b`.
            self.raw::<w::ShuffleInRange>([p, Place::Raw(0), b, c, Place::Raw(0)], 1).imm = mode as i32;
        }
        let d = self.dst(value, ty)?;
        match (mode, b, c) {
            (2, Place::Const32(distance @ 0..32), Place::Const32(clamp))
                if w::whole_butterfly(distance, clamp) =>
            {
                self.raw::<w::Butterfly>([d, x, Place::Raw(0), Place::Raw(0), member], 1).imm =
                    distance as i32;
            }
            _ => self.raw::<w::Shuffle>([d, x, b, c, member], 1).imm = mode as i32,
        }
        Ok(())
    }

    fn matching(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        d: &Operand,
        x: &Operand,
        member: &Operand,
    ) -> Result<(), String> {
        let all = modifiers.take("all");
        modifiers.ignore(&["any"]);
        let ty = modifiers.ty()?;
        let (value, p) = match d {
            Operand::Pair(value, p) => (&**value, Some(&**p)),
            d => (d, None),
        };
        let (x, member) = (self.src(x, ty)?, self.src(member, Type::B32)?);
        let d = self.dst_class(value, Class::W32)?;
        let p = match p {
            Some(p) => self.dst_class(p, Class::Pred)?,
            None => self.temp(Class::Pred),
        };
        let wide = i32::from(ty.bits() == 64);
        self.raw::<w::Match>([d, x, Place::Raw(0), p, member], 0b1001).imm = wide | i32::from(all) << 1;
        Ok(())
    }

    fn barrier(&mut self, modifiers: &mut Modifiers<'_>, operands: &[Operand]) -> Result<(), String> {
        modifiers.ignore(&["cta", "aligned"]);
        if modifiers.has("cluster") {
            return Err("clusters are not supported".into());
        }
        let zero = Place::Raw(0);
        if modifiers.take("red") {
            let mode = modifiers.find(|part| ["and", "or", "popc"].iter().position(|m| *m == part));
            let Some(mode) = mode else { return Err("no operation".into()) };
            let _ = modifiers.ty()?;
            let (d, id, threads, p) = match operands {
                [d, id, p] => (d, id, None, p),
                [d, id, threads, p] => (d, id, Some(threads), p),
                _ => return Err("wrong number of operands".into()),
            };
            let id = self.src(id, Type::U32)?;
            let count = threads.map(|t| self.src(t, Type::U32)).transpose()?;
            let p = self.predicate(p)?;
            let fields = [zero, id, count.unwrap_or(zero), p, zero];
            self.raw::<Barrier>(fields, 0).imm = i32::from(count.is_some()) | 2 << 1;
            let d = self.dst_class(d, if mode == 2 { Class::W32 } else { Class::Pred })?;
            self.op::<BarrierResult>(d, &[id]).imm = mode as i32;
            return Ok(());
        }
        let arrive = modifiers.take("arrive");
        modifiers.ignore(&["sync"]);
        let (id, threads) = match operands {
            [id] => (id, None),
            [id, threads] => (id, Some(threads)),
            _ => return Err("wrong number of operands".into()),
        };
        if arrive && threads.is_none() {
            return Err("arriving needs a thread count".into());
        }
        let id = self.src(id, Type::U32)?;
        let count = threads.map(|t| self.src(t, Type::U32)).transpose()?;
        let fields = [zero, id, count.unwrap_or(zero), zero, zero];
        self.raw::<Barrier>(fields, 0).imm = i32::from(count.is_some()) | i32::from(arrive) << 1;
        Ok(())
    }
}
