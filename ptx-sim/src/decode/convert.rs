//! `cvt`.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::num::Round;
use crate::ops::convert as v;
use crate::ops::{Handler, bits, float, half, int, moves, select};
use crate::ptx::ast::{Operand, Type};

/// A rounding to an integer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Integral {
    Nearest,
    Zero,
    Down,
    Up,
}

macro_rules! integral {
    ($level:expr, $round:expr, $op:ident) => {
        match $round {
            Integral::Nearest => select::<v::$op<v::Rni>>($level),
            Integral::Zero => select::<v::$op<v::Rzi>>($level),
            Integral::Down => select::<v::$op<v::Rmi>>($level),
            Integral::Up => select::<v::$op<v::Rpi>>($level),
        }
    };
}

macro_rules! directed {
    ($level:expr, $round:expr, $nearest:ty, $op:ident) => {
        match $round {
            Round::Nearest => select::<$nearest>($level),
            Round::Zero => select::<v::$op<v::TowardsZero>>($level),
            Round::Down => select::<v::$op<v::Downwards>>($level),
            Round::Up => select::<v::$op<v::Upwards>>($level),
        }
    };
}

impl Builder<'_> {
    /// Decodes a conversion; `false` when it is none.
    pub(super) fn conversion(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        if base != "cvt" || modifiers.has("pack") {
            return Ok(false);
        }
        let round = modifiers.round();
        let integral = modifiers.find(|part| match part {
            "rni" => Some(Integral::Nearest),
            "rzi" => Some(Integral::Zero),
            "rmi" => Some(Integral::Down),
            "rpi" => Some(Integral::Up),
            _ => None,
        });
        let away = modifiers.take("rna");
        let saturate = modifiers.take("sat");
        let finite = modifiers.take("satfinite");
        let relu = modifiers.take("relu");
        let (to, from) = (modifiers.ty()?, modifiers.ty()?);
        if let [d, x, y] = operands {
            return self.packed_conversion(to, from, finite, relu, d, x, y).map(|()| true);
        }
        let [d, x] = operands else { return Err("needs two operands".into()) };
        if relu && to != Type::F16 {
            return Err(".relu is supported for .f16 and .f16x2 only".into());
        }
        let unsupported = || Err("this conversion is not supported".to_string());
        match (to, from) {
            (Type::F16x2, Type::E4m3x2 | Type::E5m2x2) => {
                let x = self.src(x, Type::B16)?;
                let d = self.dst(d, Type::B32)?;
                if from == Type::E4m3x2 {
                    self.op::<v::E4m3x2ToF16x2>(d, &[x]);
                } else {
                    self.op::<v::E5m2x2ToF16x2>(d, &[x]);
                }
                return Ok(true);
            }
            (Type::E4m3x2 | Type::E5m2x2, Type::F16x2) if finite => {
                let x = self.src(x, Type::B32)?;
                let d = self.dst(d, Type::B16)?;
                if to == Type::E4m3x2 {
                    self.op::<v::F16x2ToE4m3x2>(d, &[x]);
                } else {
                    self.op::<v::F16x2ToE5m2x2>(d, &[x]);
                }
                return Ok(true);
            }
            (Type::Tf32, Type::F32) if away => {
                let x = self.src(x, Type::F32)?;
                let d = self.dst(d, Type::B32)?;
                self.op::<v::F32ToTf32Away>(d, &[x]);
                return Ok(true);
            }
            _ if finite || away => return unsupported(),
            _ => {}
        }
        let floating = |ty| matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64);
        match (floating(to), floating(from)) {
            (false, false) if to.integer() && from.integer() => {
                self.integer_conversion(to, from, saturate, d, x)?
            }
            (false, true) if to.integer() => {
                let Some(integral) = integral else { return Err("needs an integer rounding".into()) };
                self.float_to_integer(to, from, integral, d, x)?;
            }
            (true, false) if from.integer() => {
                let Some(round) = round else { return Err("needs a rounding".into()) };
                self.integer_to_float(to, from, round, saturate, d, x)?;
            }
            (true, true) => self.float_to_float(to, from, round, integral, (saturate, relu), d, x)?,
            _ => return unsupported(),
        }
        Ok(true)
    }

    fn packed_conversion(
        &mut self,
        to: Type,
        from: Type,
        finite: bool,
        relu: bool,
        d: &Operand,
        x: &Operand,
        y: &Operand,
    ) -> Result<(), String> {
        if from != Type::F32 {
            return Err("this conversion is not supported".into());
        }
        let (x, y) = (self.src(x, from)?, self.src(y, from)?);
        let out = self.dst(d, to)?;
        match (to, finite, relu) {
            (Type::F16x2, false, false) => self.op::<half::F32ToF16x2>(out, &[x, y]),
            (Type::F16x2, false, true) => {
                let packed = self.temp(Class::W32);
                self.op::<half::F32ToF16x2>(packed, &[x, y]);
                self.op::<v::ReluF16x2>(out, &[packed])
            }
            (Type::Bf16x2, false, false) => self.op::<half::F32ToBf16x2>(out, &[x, y]),
            (Type::E4m3x2, true, false) => self.op::<v::F32ToE4m3x2>(out, &[x, y]),
            (Type::E5m2x2, true, false) => self.op::<v::F32ToE5m2x2>(out, &[x, y]),
            _ => return Err("this conversion is not supported".into()),
        };
        Ok(())
    }

    /// A register that holds a value of an integer type: its class, and whether its lanes keep 16 bits only.
    fn container(&self, operand: &Operand, ty: Type) -> Result<(Class, bool), String> {
        let class = match operand {
            Operand::Sink => Class::of(ty)?,
            operand => self.class(operand)?,
        };
        Ok((class, class == Class::W32 && self.declared_bits(operand) <= 16))
    }

    /// A source of an integer type, which may sit in a wider register: its place and the width of its lanes.
    fn integer_source(&mut self, x: &Operand, ty: Type) -> Result<(Place, Class), String> {
        let class = match x {
            Operand::Reg(_) => self.class(x)?,
            _ => Class::of(ty)?,
        };
        if class == Class::Pred {
            return Err("a predicate cannot be converted".into());
        }
        let wide = if class == Class::W64 { Type::B64 } else { Type::B32 };
        if matches!(x, Operand::Reg(_)) && self.declared_bits(x) < ty.bits() {
            return Err("the source's register is too small".into());
        }
        Ok((self.src(x, wide)?, class))
    }

    /// The low `bits` of 32-bit lanes, extended by `signed` into a register of `narrow` (16) or 32 bits.
    fn extend(&mut self, d: Place, x: Place, bits: u32, signed: bool, narrow: bool) {
        let kept = if narrow { bits.min(16) } else { bits };
        match (kept, signed) {
            (32, _) => {
                self.op::<moves::Mov32>(d, &[x]);
            }
            (16, _) if narrow => {
                self.op::<moves::Low16>(d, &[x]);
            }
            (_, true) if narrow => self.op::<v::SignExtend16>(d, &[x]).imm = 32 - kept as i32,
            (_, true) => self.op::<v::SignExtend>(d, &[x]).imm = 32 - kept as i32,
            (_, false) => self.op::<v::Keep>(d, &[x]).imm = ((1u32 << kept) - 1) as i32,
        }
    }

    fn integer_conversion(
        &mut self,
        to: Type,
        from: Type,
        saturate: bool,
        d: &Operand,
        x: &Operand,
    ) -> Result<(), String> {
        let (container, narrow) = self.container(d, to)?;
        let (x, x_class) = self.integer_source(x, from)?;
        let out = self.dst_class(d, container)?;
        // The source's value in lanes of 32 or 64 bits.
        let mut value = x;
        let wide = from.bits() == 64;
        if !wide {
            if x_class == Class::W64 {
                value = self.temp(Class::W32);
                self.op::<v::Truncate64>(value, &[x]);
            }
            // What lies above the value's bits does not count, unless the conversion cuts them off anyway.
            if from.bits() < 32 && (to.bits() > from.bits() || saturate || container == Class::W64) {
                let clean = self.temp(Class::W32);
                self.extend(clean, value, from.bits(), from.signed(), false);
                value = clean;
            }
        }
        if saturate {
            value = self.clamp(value, to, from);
        }
        match (container, wide) {
            (Class::W64, true) if to.bits() == 64 => {
                self.op::<moves::Mov64>(out, &[value]);
            }
            (_, true) => {
                let low = self.temp(Class::W32);
                self.op::<v::Truncate64>(low, &[value]);
                self.narrow_into(out, low, container, to.bits().min(32), to.signed(), narrow);
            }
            (Class::W64, false) if to.bits() == 64 => {
                if from.signed() {
                    self.op::<v::Sext64>(out, &[value]);
                } else {
                    self.op::<v::Zext64>(out, &[value]);
                }
            }
            (_, false) => {
                self.narrow_into(out, value, container, to.bits().min(32), to.signed(), narrow);
            }
        }
        Ok(())
    }

    /// The low `bits` of 32-bit lanes, extended into a register of any class.
    fn narrow_into(&mut self, out: Place, x: Place, container: Class, bits: u32, signed: bool, narrow: bool) {
        if container != Class::W64 {
            self.extend(out, x, bits, signed, narrow);
            return;
        }
        let clean = self.temp(Class::W32);
        self.extend(clean, x, bits, signed, false);
        if signed {
            self.op::<v::Sext64>(out, &[clean]);
        } else {
            self.op::<v::Zext64>(out, &[clean]);
        }
    }

    /// Clamps a value of type `from` to the range of `to`.
    fn clamp(&mut self, mut value: Place, to: Type, from: Type) -> Place {
        let (low, high): (i128, i128) = range(to);
        let (from_low, from_high) = range(from);
        let wide = from.bits() == 64;
        let constant = |n: i128| if wide { Place::Const64(n as u64) } else { Place::Const32(n as u32) };
        if low > from_low {
            let out = self.temp(if wide { Class::W64 } else { Class::W32 });
            match (wide, from.signed()) {
                (true, true) => self.op::<int::MaxS64>(out, &[value, constant(low)]),
                (true, false) => self.op::<int::MaxU64>(out, &[value, constant(low)]),
                (false, true) => self.op::<int::MaxS32>(out, &[value, constant(low)]),
                (false, false) => self.op::<int::MaxU32>(out, &[value, constant(low)]),
            };
            value = out;
        }
        if high < from_high {
            let out = self.temp(if wide { Class::W64 } else { Class::W32 });
            match (wide, from.signed()) {
                (true, true) => self.op::<int::MinS64>(out, &[value, constant(high)]),
                (true, false) => self.op::<int::MinU64>(out, &[value, constant(high)]),
                (false, true) => self.op::<int::MinS32>(out, &[value, constant(high)]),
                (false, false) => self.op::<int::MinU32>(out, &[value, constant(high)]),
            };
            value = out;
        }
        value
    }

    /// A half or single as f32; f64 as it is.
    fn float_source(&mut self, x: &Operand, from: Type) -> Result<Place, String> {
        let x = self.src(x, from)?;
        Ok(match from {
            Type::F16 | Type::Bf16 => {
                let wide = self.temp(Class::W32);
                if from == Type::F16 {
                    self.op::<half::F16ToF32>(wide, &[x]);
                } else {
                    self.op::<half::Bf16ToF32>(wide, &[x]);
                }
                wide
            }
            _ => x,
        })
    }

    fn float_to_integer(
        &mut self,
        to: Type,
        from: Type,
        round: Integral,
        d: &Operand,
        x: &Operand,
    ) -> Result<(), String> {
        let (container, narrow) = self.container(d, to)?;
        let x = self.float_source(x, from)?;
        let out = self.dst_class(d, container)?;
        let double = from == Type::F64;
        let level = self.level;
        let run: Handler = match (double, to.bits() == 64, to.signed()) {
            (false, false, true) => integral!(level, round, F32ToS32),
            (false, false, false) => integral!(level, round, F32ToU32),
            (false, true, true) => integral!(level, round, F32ToS64),
            (false, true, false) => integral!(level, round, F32ToU64),
            (true, false, true) => integral!(level, round, F64ToS32),
            (true, false, false) => integral!(level, round, F64ToU32),
            (true, true, true) => integral!(level, round, F64ToS64),
            (true, true, false) => integral!(level, round, F64ToU64),
        };
        let zero = Place::Raw(0);
        if to.bits() == 64 {
            if container != Class::W64 {
                return Err("the destination's register is too small".into());
            }
            self.push(run, [out, x, zero, zero, zero], 1);
            return Ok(());
        }
        let whole = if to.signed() { Type::S32 } else { Type::U32 };
        let direct = container == Class::W32 && to.bits() == 32;
        let word = if direct { out } else { self.temp(Class::W32) };
        self.push(run, [word, x, zero, zero, zero], 1);
        if !direct {
            let clamped = self.clamp(word, to, whole);
            self.narrow_into(out, clamped, container, to.bits(), to.signed(), narrow);
        }
        Ok(())
    }

    fn integer_to_float(
        &mut self,
        to: Type,
        from: Type,
        round: Round,
        saturate: bool,
        d: &Operand,
        x: &Operand,
    ) -> Result<(), String> {
        let (mut x, class) = self.integer_source(x, from)?;
        let out = self.dst(d, to)?;
        if class == Class::W64 && from.bits() < 64 {
            let low = self.temp(Class::W32);
            self.op::<v::Truncate64>(low, &[x]);
            x = low;
        }
        if from.bits() < 32 {
            let clean = self.temp(Class::W32);
            self.extend(clean, x, from.bits(), from.signed(), false);
            x = clean;
        }
        let (level, wide, signed) = (self.level, from.bits() == 64, from.signed());
        let double = to != Type::F32;
        let run: Handler = match (double, wide, signed) {
            (false, false, true) => directed!(level, round, v::S32ToF32, S32ToF32Directed),
            (false, false, false) => directed!(level, round, v::U32ToF32, U32ToF32Directed),
            (false, true, true) => directed!(level, round, v::S64ToF32, S64ToF32Directed),
            (false, true, false) => directed!(level, round, v::U64ToF32, U64ToF32Directed),
            (true, false, true) => select::<v::S32ToF64>(level),
            (true, false, false) => select::<v::U32ToF64>(level),
            (true, true, true) => directed!(level, round, v::S64ToF64, S64ToF64Directed),
            (true, true, false) => directed!(level, round, v::U64ToF64, U64ToF64Directed),
        };
        let zero = Place::Raw(0);
        if saturate {
            return Err(".sat is not supported here".into());
        }
        match to {
            Type::F32 | Type::F64 => {
                self.push(run, [out, x, zero, zero, zero], 1);
            }
            // Through f64, exact for what f16 can hold: larger integers overflow either way.
            Type::F16 if round == Round::Nearest => {
                let value = self.temp(Class::W64);
                self.push(run, [value, x, zero, zero, zero], 1);
                self.op::<half::F64ToF16>(out, &[value]);
            }
            // Integers of 32 bits are exact in f64.
            Type::Bf16 if round == Round::Nearest && !wide => {
                let value = self.temp(Class::W64);
                self.push(run, [value, x, zero, zero, zero], 1);
                self.op::<half::F64ToBf16>(out, &[value]);
            }
            _ => return Err("this conversion is not supported".into()),
        }
        Ok(())
    }

    fn float_to_float(
        &mut self,
        to: Type,
        from: Type,
        round: Option<Round>,
        integral: Option<Integral>,
        (saturate, relu): (bool, bool),
        d: &Operand,
        x: &Operand,
    ) -> Result<(), String> {
        let level = self.level;
        let x = self.float_source(x, from)?;
        let out = self.dst(d, to)?;
        let zero = Place::Raw(0);
        let class = Class::of(to)?;
        let target = if saturate || relu { self.temp(class) } else { out };
        let single = from != Type::F64;
        if let Some(integral) = integral {
            if to != from {
                return Err("rounding to an integer keeps the type".into());
            }
            let run = match to {
                Type::F64 => integral!(level, integral, RoundF64),
                _ => integral!(level, integral, RoundF32),
            };
            match to {
                Type::F32 | Type::F64 => {
                    self.push(run, [target, x, zero, zero, zero], 1);
                }
                Type::F16 => {
                    let rounded = self.temp(Class::W32);
                    self.push(run, [rounded, x, zero, zero, zero], 1);
                    self.op::<half::F32ToF16>(target, &[rounded]);
                }
                _ => return Err("this conversion is not supported".into()),
            }
        } else {
            let nearest = round.unwrap_or(Round::Nearest) == Round::Nearest;
            match (to, single) {
                (Type::F32, true) => {
                    self.op::<bits::Or32>(target, &[x, Place::Const32(0)]);
                }
                (Type::F32, false) => {
                    let round = round.ok_or("needs a rounding")?;
                    let run = directed!(level, round, v::F64ToF32, F64ToF32Directed);
                    self.push(run, [target, x, zero, zero, zero], 1);
                }
                (Type::F64, true) => {
                    self.op::<v::F32ToF64>(target, &[x]);
                }
                (Type::F64, false) => {
                    self.op::<moves::Mov64>(target, &[x]);
                }
                (Type::F16, true) if nearest => {
                    self.op::<half::F32ToF16>(target, &[x]);
                }
                (Type::F16, true) if round == Some(Round::Zero) => {
                    self.op::<half::F32ToF16Rz>(target, &[x]);
                }
                (Type::F16, false) if nearest => {
                    self.op::<half::F64ToF16>(target, &[x]);
                }
                (Type::Bf16, true) if nearest => {
                    self.op::<half::F32ToBf16>(target, &[x]);
                }
                (Type::Bf16, true) if round == Some(Round::Zero) => {
                    self.op::<half::F32ToBf16Rz>(target, &[x]);
                }
                _ => return Err("this conversion is not supported".into()),
            }
        }
        match (saturate, relu, to) {
            (false, false, _) => {}
            (true, false, Type::F32) => {
                self.op::<float::SatF32>(out, &[target]);
            }
            (true, false, Type::F16) => {
                self.op::<v::SatF16>(out, &[target]);
            }
            (false, true, Type::F16) => {
                self.op::<v::ReluF16>(out, &[target]);
            }
            _ => return Err("this conversion is not supported".into()),
        }
        Ok(())
    }
}

/// The least and greatest value of an integer type.
fn range(ty: Type) -> (i128, i128) {
    let bits = ty.bits();
    if ty.signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
}
