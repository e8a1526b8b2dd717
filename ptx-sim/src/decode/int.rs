//! Integer arithmetic, logic, shifts and bit fields.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::ops::bits as b;
use crate::ops::int as i;
use crate::ops::moves as m;
use crate::ops::{Handler, select};
use crate::ptx::ast::{Operand, Type};

/// How wide an integer operation is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    W16,
    W32,
    W64,
}

fn width(ty: Type) -> Option<Width> {
    match ty.bits() {
        _ if !ty.integer() => None,
        16 => Some(Width::W16),
        32 => Some(Width::W32),
        64 => Some(Width::W64),
        _ => None,
    }
}

/// `pick!(level, width, signed; U16 S16 U32 S32 U64 S64)`
macro_rules! pick {
    ($level:expr, $width:expr, $signed:expr; $u16:ty, $s16:ty, $u32:ty, $s32:ty, $u64:ty, $s64:ty) => {
        match ($width, $signed) {
            (Width::W16, false) => select::<$u16>($level),
            (Width::W16, true) => select::<$s16>($level),
            (Width::W32, false) => select::<$u32>($level),
            (Width::W32, true) => select::<$s32>($level),
            (Width::W64, false) => select::<$u64>($level),
            (Width::W64, true) => select::<$s64>($level),
        }
    };
}

impl Builder<'_> {
    fn simple(
        &mut self,
        run: Handler,
        ty: Type,
        d: &Operand,
        sources: &[(&Operand, Type)],
    ) -> Result<(), String> {
        let mut fields = [Place::Raw(0); 5];
        for (field, (operand, ty)) in fields[1..].iter_mut().zip(sources) {
            *field = self.src(operand, *ty)?;
        }
        fields[0] = self.dst(d, ty)?;
        self.push(run, fields, 1);
        Ok(())
    }

    /// Decodes an integer instruction; `false` when it is none.
    pub(super) fn integer(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        let Some(ty) = modifiers.peek_type() else { return Ok(false) };
        if matches!(base, "dp4a" | "dp2a") {
            return self.dot(base, modifiers, operands);
        }
        if matches!(base, "add" | "min" | "max") && matches!(ty, Type::U16x2 | Type::S16x2) {
            return self.packed(base, modifiers, operands, ty);
        }
        if ty == Type::Pred && matches!(base, "and" | "or" | "xor" | "not") {
            return self.predicate_logic(base, modifiers, operands);
        }
        let Some(width) = width(ty) else { return Ok(false) };
        let (level, signed) = (self.level, ty.signed());
        match (base, operands) {
            ("add" | "sub" | "addc" | "subc", [d, x, y])
                if modifiers.has("cc") || matches!(base, "addc" | "subc") =>
            {
                let sets = modifiers.take("cc");
                let run = match width {
                    Width::W32 => select::<i::Carry32>(level),
                    Width::W64 => select::<i::Carry64>(level),
                    Width::W16 => return Ok(false),
                };
                self.simple(run, ty, d, &[(x, ty), (y, ty)])?;
                let reads = base.ends_with('c');
                let imm = i32::from(reads) | i32::from(sets) << 1 | i32::from(base.starts_with("sub")) << 2;
                self.drafts.last_mut().expect("just pushed").imm = imm;
            }
            ("add" | "sub", [d, x, y]) => {
                let saturate = modifiers.take("sat");
                let run = match (base, saturate) {
                    ("add", false) => {
                        pick!(level, width, false; i::Add16, i::Add16, i::Add32, i::Add32, i::Add64, i::Add64)
                    }
                    (_, false) => {
                        pick!(level, width, false; i::Sub16, i::Sub16, i::Sub32, i::Sub32, i::Sub64, i::Sub64)
                    }
                    _ if ty != Type::S32 => return Err("saturation is for .s32".into()),
                    ("add", true) => select::<i::AddSatS32>(level),
                    (_, true) => select::<i::SubSatS32>(level),
                };
                self.simple(run, ty, d, &[(x, ty), (y, ty)])?;
            }
            ("mul" | "mul24", [d, x, y]) => self.multiply(base, modifiers, ty, width, d, &[x, y])?,
            ("mad" | "mad24" | "madc", [d, x, y, z]) => {
                self.multiply(base, modifiers, ty, width, d, &[x, y, z])?
            }
            ("div" | "rem" | "min" | "max", [d, x, y]) => {
                let relu = base != "div" && modifiers.take("relu");
                let run = match (base, relu) {
                    ("div", _) => {
                        pick!(level, width, signed; i::DivU16, i::DivS16, i::DivU32, i::DivS32, i::DivU64, i::DivS64)
                    }
                    ("rem", _) => {
                        pick!(level, width, signed; i::RemU16, i::RemS16, i::RemU32, i::RemS32, i::RemU64, i::RemS64)
                    }
                    ("min", true) => select::<i::MinReluS32>(level),
                    (_, true) => select::<i::MaxReluS32>(level),
                    ("min", _) => {
                        pick!(level, width, signed; i::MinU16, i::MinS16, i::MinU32, i::MinS32, i::MinU64, i::MinS64)
                    }
                    _ => {
                        pick!(level, width, signed; i::MaxU16, i::MaxS16, i::MaxU32, i::MaxS32, i::MaxU64, i::MaxS64)
                    }
                };
                if relu && ty != Type::S32 {
                    return Err(".relu is for .s32".into());
                }
                self.simple(run, ty, d, &[(x, ty), (y, ty)])?;
            }
            ("abs" | "neg", [d, x]) => {
                let run = match base {
                    "abs" => {
                        pick!(level, width, true; i::AbsS16, i::AbsS16, i::AbsS32, i::AbsS32, i::AbsS64, i::AbsS64)
                    }
                    _ => {
                        pick!(level, width, true; i::Neg16, i::Neg16, i::Neg32, i::Neg32, i::Neg64, i::Neg64)
                    }
                };
                self.simple(run, ty, d, &[(x, ty)])?;
            }
            ("sad", [d, x, y, z]) => {
                let run = pick!(level, width, signed; i::SadU16, i::SadS16, i::SadU32, i::SadS32, i::SadU64, i::SadS64);
                self.simple(run, ty, d, &[(x, ty), (y, ty), (z, ty)])?;
            }
            ("and" | "or" | "xor", [d, x, y]) => {
                let run = match base {
                    "and" => {
                        pick!(level, width, false; b::And32, b::And32, b::And32, b::And32, b::And64, b::And64)
                    }
                    "or" => pick!(level, width, false; b::Or32, b::Or32, b::Or32, b::Or32, b::Or64, b::Or64),
                    _ => {
                        pick!(level, width, false; b::Xor32, b::Xor32, b::Xor32, b::Xor32, b::Xor64, b::Xor64)
                    }
                };
                self.simple(run, ty, d, &[(x, ty), (y, ty)])?;
            }
            ("not" | "cnot", [d, x]) => {
                let run = match base {
                    "not" => {
                        pick!(level, width, false; b::Not16, b::Not16, b::Not32, b::Not32, b::Not64, b::Not64)
                    }
                    _ => {
                        pick!(level, width, false; b::Cnot32, b::Cnot32, b::Cnot32, b::Cnot32, b::Cnot64, b::Cnot64)
                    }
                };
                self.simple(run, ty, d, &[(x, ty)])?;
            }
            ("shl", [d, x, y]) => {
                let run =
                    pick!(level, width, false; b::Shl16, b::Shl16, b::Shl32, b::Shl32, b::Shl64, b::Shl64);
                self.simple(run, ty, d, &[(x, ty), (y, Type::U32)])?;
            }
            ("shr", [d, x, y]) => {
                let run = pick!(level, width, signed; b::ShrU16, b::ShrS16, b::ShrU32, b::ShrS32, b::ShrU64, b::ShrS64);
                self.simple(run, ty, d, &[(x, ty), (y, Type::U32)])?;
            }
            ("shf", [d, x, y, z]) => {
                let left = modifiers.take("l");
                let right = modifiers.take("r");
                let clamp = modifiers.take("clamp");
                let wrap = modifiers.take("wrap");
                let run = match (left, right, clamp, wrap) {
                    (true, false, true, false) => select::<b::ShfLClamp>(level),
                    (true, false, false, true) => select::<b::ShfLWrap>(level),
                    (false, true, true, false) => select::<b::ShfRClamp>(level),
                    (false, true, false, true) => select::<b::ShfRWrap>(level),
                    _ => return Err("needs .l or .r, and .clamp or .wrap".into()),
                };
                self.simple(run, ty, d, &[(x, ty), (y, ty), (z, Type::U32)])?;
            }
            ("popc" | "clz", [d, x]) => {
                let run = match base {
                    "popc" => {
                        pick!(level, width, false; b::Popc32, b::Popc32, b::Popc32, b::Popc32, b::Popc64, b::Popc64)
                    }
                    _ => {
                        pick!(level, width, false; b::Clz32, b::Clz32, b::Clz32, b::Clz32, b::Clz64, b::Clz64)
                    }
                };
                self.simple(run, Type::U32, d, &[(x, ty)])?;
            }
            ("brev", [d, x]) => {
                let run = pick!(level, width, false; b::Brev32, b::Brev32, b::Brev32, b::Brev32, b::Brev64, b::Brev64);
                self.simple(run, ty, d, &[(x, ty)])?;
            }
            ("bfind", [d, x]) => {
                let run = if modifiers.take("shiftamt") {
                    pick!(level, width, signed; b::BfindShiftU32, b::BfindShiftS32, b::BfindShiftU32, b::BfindShiftS32, b::BfindShiftU64, b::BfindShiftS64)
                } else {
                    pick!(level, width, signed; b::BfindU32, b::BfindS32, b::BfindU32, b::BfindS32, b::BfindU64, b::BfindS64)
                };
                self.simple(run, Type::U32, d, &[(x, ty)])?;
            }
            ("fns", [d, x, y, z]) => {
                self.simple(select::<b::Fns>(level), ty, d, &[(x, ty), (y, ty), (z, Type::S32)])?;
            }
            ("bfe", [d, x, y, z]) => {
                let run = pick!(level, width, signed; b::BfeU32, b::BfeS32, b::BfeU32, b::BfeS32, b::BfeU64, b::BfeS64);
                self.simple(run, ty, d, &[(x, ty), (y, Type::U32), (z, Type::U32)])?;
            }
            ("bfi", [d, x, y, z, w]) => {
                let run =
                    pick!(level, width, false; b::Bfi32, b::Bfi32, b::Bfi32, b::Bfi32, b::Bfi64, b::Bfi64);
                self.simple(run, ty, d, &[(x, ty), (y, ty), (z, Type::U32), (w, Type::U32)])?;
            }
            ("bmsk", [d, x, y]) => {
                let clamp = modifiers.take("clamp");
                modifiers.ignore(&["wrap"]);
                let run = if clamp { select::<b::BmskClamp>(level) } else { select::<b::BmskWrap>(level) };
                self.simple(run, ty, d, &[(x, ty), (y, ty)])?;
            }
            ("szext", [d, x, y]) => {
                let clamp = modifiers.take("clamp");
                modifiers.ignore(&["wrap"]);
                let run = match (clamp, signed) {
                    (true, false) => select::<b::SzextClampU32>(level),
                    (false, false) => select::<b::SzextWrapU32>(level),
                    (true, true) => select::<b::SzextClampS32>(level),
                    (false, true) => select::<b::SzextWrapS32>(level),
                };
                self.simple(run, ty, d, &[(x, ty), (y, Type::U32)])?;
            }
            ("lop3", [d, x, y, z, Operand::Int(table)]) => {
                let table = *table as u8;
                self.simple(b::lop3_for(table, level), ty, d, &[(x, ty), (y, ty), (z, ty)])?;
                self.drafts.last_mut().expect("just pushed").imm = table.into();
            }
            ("prmt", [d, x, y, Operand::Int(by)]) if modifiers.only_type() && by & 0x8888 == 0 => {
                self.simple(select::<b::PrmtBy>(level), ty, d, &[(x, ty), (y, ty)])?;
                self.drafts.last_mut().expect("just pushed").imm = (by & 0xffff) as i32;
            }
            ("prmt", [d, x, y, z]) => {
                let run = match modifiers.find(|part| match part {
                    "f4e" => Some(select::<b::PrmtF4e>(level)),
                    "b4e" => Some(select::<b::PrmtB4e>(level)),
                    "rc8" => Some(select::<b::PrmtRc8>(level)),
                    "ecl" => Some(select::<b::PrmtEcl>(level)),
                    "ecr" => Some(select::<b::PrmtEcr>(level)),
                    "rc16" => Some(select::<b::PrmtRc16>(level)),
                    _ => None,
                }) {
                    Some(run) => run,
                    None => select::<b::Prmt>(level),
                };
                self.simple(run, ty, d, &[(x, ty), (y, ty), (z, ty)])?;
            }
            _ => return Ok(false),
        }
        let _ = modifiers.ty()?;
        Ok(true)
    }

    fn multiply(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        ty: Type,
        width: Width,
        d: &Operand,
        sources: &[&Operand],
    ) -> Result<(), String> {
        let (level, signed) = (self.level, ty.signed());
        let [low, high, wide] = ["lo", "hi", "wide"].map(|name| modifiers.take(name));
        let carry = base == "madc" || modifiers.take("cc");
        let typed: Vec<(&Operand, Type)> = sources.iter().map(|operand| (*operand, ty)).collect();
        let add = sources.len() == 3;
        if carry {
            return Err("multiply-add with carry is not supported".into());
        }
        if base.ends_with("24") {
            if low == high || width != Width::W32 {
                return Err("needs .lo or .hi, and 32 bits".into());
            }
            let run = match (low, signed) {
                (true, true) => select::<i::Mul24LoS>(level),
                (true, false) => select::<i::Mul24LoU>(level),
                (false, true) => select::<i::Mul24HiS>(level),
                (false, false) => select::<i::Mul24HiU>(level),
            };
            if !add {
                return self.simple(run, ty, d, &typed);
            }
            let product = self.temp(Class::W32);
            let (x, y, z) = (self.src(sources[0], ty)?, self.src(sources[1], ty)?, self.src(sources[2], ty)?);
            let zero = Place::Raw(0);
            self.push(run, [product, x, y, zero, zero], 1);
            let d = self.dst(d, ty)?;
            self.op::<i::Add32>(d, &[product, z]);
            return Ok(());
        }
        if wide {
            let (out, run) = match (width, signed, add) {
                (Width::W16, false, false) => (Type::U32, select::<i::MulWideU16>(level)),
                (Width::W16, true, false) => (Type::U32, select::<i::MulWideS16>(level)),
                (Width::W32, false, false) => (Type::U64, select::<i::MulWideU32>(level)),
                (Width::W32, true, false) => (Type::U64, select::<i::MulWideS32>(level)),
                (Width::W16, false, true) => (Type::U32, select::<i::MadWideU16>(level)),
                (Width::W16, true, true) => (Type::U32, select::<i::MadWideS16>(level)),
                (Width::W32, false, true) => (Type::U64, select::<i::MadWideU32>(level)),
                (Width::W32, true, true) => (Type::U64, select::<i::MadWideS32>(level)),
                _ => return Err("no wide product of 64 bits".into()),
            };
            let mut typed = typed;
            if add {
                typed[2].1 = out;
            }
            return self.simple(run, out, d, &typed);
        }
        if add && high && ty == Type::S32 && modifiers.take("sat") {
            return self.simple(select::<i::MadHiSatS32>(level), ty, d, &typed);
        }
        let run = match (low, high, add) {
            (true, _, false) => {
                pick!(level, width, false; i::MulLo16, i::MulLo16, i::MulLo32, i::MulLo32, i::MulLo64, i::MulLo64)
            }
            (true, _, true) => {
                pick!(level, width, false; i::MadLo16, i::MadLo16, i::MadLo32, i::MadLo32, i::MadLo64, i::MadLo64)
            }
            (_, true, false) => {
                pick!(level, width, signed; i::MulHiU16, i::MulHiS16, i::MulHiU32, i::MulHiS32, i::MulHiU64, i::MulHiS64)
            }
            (_, true, true) if width != Width::W16 => {
                pick!(level, width, signed; i::MadHiU32, i::MadHiS32, i::MadHiU32, i::MadHiS32, i::MadHiU64, i::MadHiS64)
            }
            _ => return Err("needs .lo, .hi or .wide".into()),
        };
        if modifiers.has("sat") {
            return Err(".sat is not supported".into());
        }
        self.simple(run, ty, d, &typed)
    }

    fn dot(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        let [d, x, y, z] = operands else { return Err("needs four operands".into()) };
        let level = self.level;
        let high = modifiers.take("hi");
        let low = modifiers.take("lo");
        let (first, second) = (modifiers.ty()?, modifiers.ty()?);
        for ty in [first, second] {
            if !matches!(ty, Type::S32 | Type::U32) {
                return Err("only .s32 and .u32 are defined".into());
            }
        }
        let run = match (base, high, first.signed(), second.signed()) {
            ("dp4a", _, false, false) => select::<i::Dp4aUU>(level),
            ("dp4a", _, false, true) => select::<i::Dp4aUS>(level),
            ("dp4a", _, true, false) => select::<i::Dp4aSU>(level),
            ("dp4a", _, true, true) => select::<i::Dp4aSS>(level),
            _ if high == low => return Err("needs .lo or .hi".into()),
            (_, false, false, false) => select::<i::Dp2aLoUU>(level),
            (_, false, false, true) => select::<i::Dp2aLoUS>(level),
            (_, false, true, false) => select::<i::Dp2aLoSU>(level),
            (_, false, true, true) => select::<i::Dp2aLoSS>(level),
            (_, true, false, false) => select::<i::Dp2aHiUU>(level),
            (_, true, false, true) => select::<i::Dp2aHiUS>(level),
            (_, true, true, false) => select::<i::Dp2aHiSU>(level),
            (_, true, true, true) => select::<i::Dp2aHiSS>(level),
        };
        self.simple(run, Type::B32, d, &[(x, Type::B32), (y, Type::B32), (z, Type::B32)])?;
        Ok(true)
    }

    fn packed(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
        ty: Type,
    ) -> Result<bool, String> {
        let [d, x, y] = operands else { return Err("needs three operands".into()) };
        let level = self.level;
        let run = match (base, ty.signed()) {
            ("add", _) => select::<i::AddX2>(level),
            ("min", false) => select::<i::MinU16x2>(level),
            ("min", true) => select::<i::MinS16x2>(level),
            (_, false) => select::<i::MaxU16x2>(level),
            (_, true) => select::<i::MaxS16x2>(level),
        };
        let _ = modifiers.ty()?;
        self.simple(run, ty, d, &[(x, ty), (y, ty)])?;
        Ok(true)
    }

    fn predicate_logic(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        let _ = modifiers.ty()?;
        let d = self.dst_class(&operands[0], Class::Pred)?;
        match (base, operands) {
            ("not", [_, x]) => {
                let x = self.predicate(x)?;
                self.op::<m::NotP>(d, &[x]);
            }
            (_, [_, x, y]) => {
                let (x, y) = (self.predicate(x)?, self.predicate(y)?);
                match base {
                    "and" => self.op::<m::AndP>(d, &[x, y]),
                    "or" => self.op::<m::OrP>(d, &[x, y]),
                    _ => self.op::<m::XorP>(d, &[x, y]),
                };
            }
            _ => return Err("wrong number of operands".into()),
        }
        Ok(true)
    }
}
