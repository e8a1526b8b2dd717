//! Single and double precision arithmetic.

use super::builder::{Builder, Class, Place};
use super::modifiers::Modifiers;
use crate::num::Round;
use crate::ops::float as f;
use crate::ops::moves::SignP;
use crate::ops::{Handler, select};
use crate::ptx::ast::{Operand, Type};

fn code(round: Round) -> i32 {
    match round {
        Round::Nearest => 0,
        Round::Zero => 1,
        Round::Down => 2,
        Round::Up => 3,
    }
}

impl Builder<'_> {
    /// Decodes an instruction on f32 or f64; `false` when it is none.
    pub(super) fn floating(
        &mut self,
        base: &str,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
    ) -> Result<bool, String> {
        let arithmetic = matches!(
            base,
            "add"
                | "sub"
                | "mul"
                | "fma"
                | "mad"
                | "div"
                | "rcp"
                | "sqrt"
                | "neg"
                | "abs"
                | "min"
                | "max"
                | "copysign"
                | "testp"
        );
        let Some(ty @ (Type::F32 | Type::F64)) = modifiers.peek_type() else { return Ok(false) };
        if !arithmetic {
            return Ok(false);
        }
        let _ = modifiers.ty()?;
        let level = self.level;
        let single = ty == Type::F32;
        if base == "testp" {
            return self.test(modifiers, operands, ty);
        }
        let sources = match base {
            "fma" | "mad" => 3,
            "rcp" | "sqrt" | "neg" | "abs" => 1,
            _ => 2,
        };
        if operands.len() != sources + 1 {
            return Err(format!("needs {} operands", sources + 1));
        }
        if base == "div" && modifiers.has("full") {
            return Err(
                "approximate division (.full) is refused: its results are not defined bit for bit".into()
            );
        }
        let round = modifiers.round();
        if matches!(base, "div" | "rcp" | "sqrt" | "fma" | "mad") && round.is_none() {
            return Err("needs a rounding".into());
        }
        let round = round.unwrap_or(Round::Nearest);
        let saturate = single && modifiers.take("sat");
        let nan = modifiers.take("NaN");
        macro_rules! either {
            ($f32:ty, $f64:ty) => {
                if single { select::<$f32>(level) } else { select::<$f64>(level) }
            };
        }
        let run: Handler = if round != Round::Nearest {
            match (base, single) {
                ("add" | "sub", true) => select::<f::AddF32Rounded>(level),
                ("mul", true) => select::<f::MulF32Rounded>(level),
                ("fma" | "mad", true) => select::<f::FmaF32Rounded>(level),
                ("div" | "rcp", true) => select::<f::DivF32Rounded>(level),
                ("sqrt", true) => select::<f::SqrtF32Rounded>(level),
                _ => return Err("only rounding to nearest (.rn) is supported".into()),
            }
        } else {
            match (base, nan) {
                ("min", true) if single => select::<f::MinNanF32>(level),
                ("max", true) if single => select::<f::MaxNanF32>(level),
                (_, true) => return Err(".NaN is not supported here".into()),
                ("add", _) => either!(f::AddF32, f::AddF64),
                ("sub", _) => either!(f::SubF32, f::SubF64),
                ("mul", _) => either!(f::MulF32, f::MulF64),
                ("fma" | "mad", _) => either!(f::FmaF32, f::FmaF64),
                ("div", _) => either!(f::DivF32, f::DivF64),
                ("rcp", _) => either!(f::RcpF32, f::RcpF64),
                ("sqrt", _) => either!(f::SqrtF32, f::SqrtF64),
                ("neg", _) => either!(f::NegF32, f::NegF64),
                ("abs", _) => either!(f::AbsF32, f::AbsF64),
                ("min", _) => either!(f::MinF32, f::MinF64),
                ("max", _) => either!(f::MaxF32, f::MaxF64),
                _ => either!(f::CopysignF32, f::CopysignF64),
            }
        };
        let mut fields = [Place::Raw(0); 5];
        for (field, operand) in fields[1..].iter_mut().zip(&operands[1..]) {
            *field = self.src(operand, ty)?;
        }
        if base == "rcp" && round != Round::Nearest {
            (fields[1], fields[2]) = (Place::Const32(1.0f32.to_bits()), fields[1]);
        }
        if base == "sub" && round != Round::Nearest {
            let negated = self.temp(Class::W32);
            self.op::<crate::ops::bits::Xor32>(negated, &[fields[2], Place::Const32(1 << 31)]);
            fields[2] = negated;
        }
        let d = self.dst(&operands[0], ty)?;
        fields[0] = if saturate { self.temp(Class::W32) } else { d };
        self.push(run, fields, 1).imm = code(round);
        if saturate {
            self.op::<f::SatF32>(d, &[fields[0]]);
        }
        Ok(true)
    }

    fn test(
        &mut self,
        modifiers: &mut Modifiers<'_>,
        operands: &[Operand],
        ty: Type,
    ) -> Result<bool, String> {
        let [d, x] = operands else { return Err("needs two operands".into()) };
        if ty != Type::F32 {
            return Err("only .f32 is supported".into());
        }
        let property = modifiers.find(|part| f::PROPERTIES.iter().position(|p| *p == part));
        let Some(property) = property else { return Err("no property".into()) };
        let x = self.src(x, ty)?;
        let d = self.dst_class(d, Class::Pred)?;
        let truth = self.temp(Class::W32);
        self.op::<f::TestF32>(truth, &[x]).imm = property as i32;
        self.op::<SignP>(d, &[truth]);
        Ok(true)
    }
}
