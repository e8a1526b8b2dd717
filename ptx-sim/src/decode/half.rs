//! Half-precision arithmetic.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::num::Round;
use crate::ops::convert as v;
use crate::ops::half::{self as h, Bf16, F16};
use crate::ops::{Handler, select};
use crate::ptx::ast::{Operand, Type};

/// `pick!(level, two, bf16; Op)`: the op for one or two values a lane, in either format.
macro_rules! pick {
    ($level:expr, $two:expr, $bf:expr; $op:ty) => {
        match ($two, $bf) {
            (false, false) => select::<h::One<F16, $op>>($level),
            (true, false) => select::<h::Two<F16, $op>>($level),
            (false, true) => select::<h::One<Bf16, $op>>($level),
            (true, true) => select::<h::Two<Bf16, $op>>($level),
        }
    };
}

impl Builder<'_> {
    /// Decodes half-precision arithmetic; `false` when it is none.
    pub(super) fn half(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        let Some(ty @ (Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)) = modifiers.peek_type() else {
            return Ok(false);
        };
        if !matches!(base, "add" | "sub" | "mul" | "fma" | "neg" | "abs" | "min" | "max") {
            return Ok(false);
        }
        let level = self.level;
        let two = matches!(ty, Type::F16x2 | Type::Bf16x2);
        let bf = matches!(ty, Type::Bf16 | Type::Bf16x2);
        let _ = modifiers.ty()?;
        if modifiers.round().is_some_and(|round| round != Round::Nearest) {
            return Err("only rounding to nearest (.rn) is supported".into());
        }
        let (saturate, relu, nan) = (modifiers.take("sat"), modifiers.take("relu"), modifiers.take("NaN"));
        let run: Handler = match (base, nan) {
            ("min", true) => pick!(level, two, bf; h::MinNan),
            ("max", true) => pick!(level, two, bf; h::MaxNan),
            (_, true) => return Err(".NaN is not supported here".into()),
            ("add", _) => pick!(level, two, bf; h::Add),
            ("sub", _) => pick!(level, two, bf; h::Sub),
            ("mul", _) => pick!(level, two, bf; h::Mul),
            ("min", _) => pick!(level, two, bf; h::Min),
            ("max", _) => pick!(level, two, bf; h::Max),
            ("fma", _) => match (two, bf) {
                (false, false) => select::<h::FmaOne<F16>>(level),
                (true, false) => select::<h::FmaTwo<F16>>(level),
                (false, true) => select::<h::FmaOne<Bf16>>(level),
                (true, true) => select::<h::FmaTwo<Bf16>>(level),
            },
            ("neg", _) => pick!(level, two, bf; h::Neg),
            _ => pick!(level, two, bf; h::Abs),
        };
        let sources = match base {
            "fma" => 3,
            "neg" | "abs" => 1,
            _ => 2,
        };
        if operands.len() != sources + 1 {
            return Err(format!("needs {} operands", sources + 1));
        }
        let mut fields = [Place::Raw(0); 5];
        for (field, operand) in fields[1..].iter_mut().zip(&operands[1..]) {
            *field = self.src(operand, ty)?;
        }
        if sources == 1 {
            fields[2] = fields[1]; // read and not used
        }
        let d = self.dst(&operands[0], ty)?;
        fields[0] = if saturate || relu { self.temp(Class::W32) } else { d };
        self.push(run, fields, 1);
        if saturate {
            if two || bf {
                return Err(".sat is supported for .f16 only".into());
            }
            self.op::<v::SatF16>(d, &[fields[0]]);
        } else if relu {
            if bf {
                return Err(".relu is supported for .f16 only".into());
            }
            if two {
                self.op::<v::ReluF16x2>(d, &[fields[0]]);
            } else {
                self.op::<v::ReluF16>(d, &[fields[0]]);
            }
        }
        Ok(true)
    }
}
