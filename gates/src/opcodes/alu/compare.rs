//! Comparisons and selections.

use super::super::form::{Modifiers, Type};
use super::super::soft::{self, Value};
use super::{Operation, Shape, float};
use std::cmp::Ordering;
use std::sync::Arc;

type Test = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

/// The comparison that `operator` means for operands of `ty`.
fn test(operator: &str, ty: Type) -> Option<Test> {
    if let Some(format) = float::format(ty) {
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            return None;
        }
        match operator {
            "num" => return Some(Box::new(move |a, b| !format.is_nan(a) && !format.is_nan(b))),
            "nan" => return Some(Box::new(move |a, b| format.is_nan(a) || format.is_nan(b))),
            _ => {}
        }
        // `ltu` and the like also hold when the operands cannot be ordered.
        let (base, unordered) = match operator.strip_suffix('u') {
            Some(base) => (base, true),
            None => (operator, operator == "neu"),
        };
        let holds = ordering(base)?;
        return Some(Box::new(move |a, b| {
            soft::compare(format.decode(a), format.decode(b)).map_or(unordered, holds)
        }));
    }
    let base = match operator {
        "lo" | "ls" | "hi" | "hs" if !ty.unsigned() => return None,
        "lo" => "lt",
        "ls" => "le",
        "hi" => "gt",
        "hs" => "ge",
        "eq" | "ne" => operator,
        // Untyped operands have no order.
        _ if ty.integer() => operator,
        _ => return None,
    };
    if ty.bits() < 16 {
        return None;
    }
    let holds = ordering(base)?;
    Some(Box::new(move |a, b| holds(ty.value(a).cmp(&ty.value(b)))))
}

fn ordering(operator: &str) -> Option<fn(Ordering) -> bool> {
    Some(match operator {
        "eq" => Ordering::is_eq,
        "ne" => Ordering::is_ne,
        "lt" => Ordering::is_lt,
        "le" => Ordering::is_le,
        "gt" => Ordering::is_gt,
        "ge" => Ordering::is_ge,
        _ => return None,
    })
}

fn combine(operator: Option<&str>) -> Option<fn(bool, bool) -> bool> {
    Some(match operator {
        None => |x, _| x,
        Some("and") => |x, y| x && y,
        Some("or") => |x, y| x || y,
        Some(_) => |x, y| x != y,
    })
}

/// `setp.op[.bool].type p[|q], a, b[, c]`.
pub(super) fn setp(m: &mut Modifiers<'_>, pair: bool) -> Option<Operation> {
    let ty = m.take_type()?;
    let test = test(m.take_first()?, ty)?;
    let with = m.take_one(&["and", "or", "xor"]);
    let combine = combine(with)?;
    if !m.done() {
        return None;
    }
    let mut inputs = vec![ty, ty];
    inputs.extend(with.map(|_| Type::Pred));
    let constants = ty.bits() > 16 || ty.integer();
    let mut operation = Operation::new(&inputs, Type::Pred, |_| 0);
    operation.constants = constants;
    operation.evaluate = Arc::new(move |x| {
        let holds = test(x[0], x[1]);
        let with = x.get(2).is_some_and(|&c| c & 1 == 1);
        [u64::from(combine(holds, with)), u64::from(combine(!holds, with)), 0, 0]
    });
    if pair {
        operation.outputs.push(Type::Pred);
        operation.shape = Shape::Pair;
    }
    Some(operation)
}

/// `set.op[.bool].dtype.stype`: all ones or 1.0 when the comparison holds, else 0.
pub(super) fn set(m: &mut Modifiers<'_>) -> Option<Operation> {
    let (ty, output) = (m.take_type()?, m.take_type()?);
    let test = test(m.take_first()?, ty)?;
    let with = m.take_one(&["and", "or", "xor"]);
    let combine = combine(with)?;
    let yes = match output {
        Type::U32 | Type::S32 => 0xffff_ffff,
        Type::F32 => 0x3f80_0000,
        _ => return None,
    };
    let mut inputs = vec![ty, ty];
    inputs.extend(with.map(|_| Type::Pred));
    let operation = Operation::new(&inputs, output, move |x| {
        let with = x.get(2).is_some_and(|&c| c & 1 == 1);
        if combine(test(x[0], x[1]), with) { yes } else { 0 }
    });
    m.done().then(|| operation.without_constants())
}

/// `selp.type d, a, b, p`.
pub(super) fn selp(m: &mut Modifiers<'_>) -> Option<Operation> {
    let ty = m.take_type()?;
    let operation = Operation::new(&[ty, ty, Type::Pred], ty, |x| if x[2] & 1 == 1 { x[0] } else { x[1] });
    let fits =
        m.done() && (ty.integer() || ty.untyped() || matches!(ty, Type::F32 | Type::F64)) && ty.bits() >= 16;
    fits.then_some(Operation { any_nan: false, ..operation })
}

/// `slct.dtype.{s32,f32} d, a, b, c`: `a` where c ≥ 0.
pub(super) fn slct(m: &mut Modifiers<'_>) -> Option<Operation> {
    let (by, ty) = (m.take_type()?, m.take_type()?);
    let at_least_zero: fn(u64) -> bool = match by {
        Type::S32 => |c| (c as u32 as i32) >= 0,
        // −0 is not below 0; NaN is not at least 0.
        Type::F32 => |c| match soft::F32.decode(c) {
            Value::Nan => false,
            Value::Finite(x) if x.magnitude == 0 => true,
            value => !soft::negative(value),
        },
        _ => return None,
    };
    let operation = Operation::new(&[ty, ty, by], ty, move |x| if at_least_zero(x[2]) { x[0] } else { x[1] });
    (m.done() && ty.bits() >= 16).then_some(Operation { any_nan: false, ..operation.without_constants() })
}

/// `testp.op.type p, a`.
pub(super) fn testp(m: &mut Modifiers<'_>) -> Option<Operation> {
    let ty = m.take_type()?;
    let format = match ty {
        Type::F32 | Type::F64 => float::format(ty)?,
        _ => return None,
    };
    let subnormal = move |bits: u64| bits >> format.fraction & ((1 << format.exponent) - 1) == 0;
    let kind = m.take_first()?.to_owned();
    if !matches!(kind.as_str(), "finite" | "infinite" | "number" | "notanumber" | "normal" | "subnormal") {
        return None;
    }
    let operation = Operation::new(&[ty], Type::Pred, move |x| {
        let value = format.decode(x[0]);
        let zero = matches!(value, Value::Finite(x) if x.magnitude == 0);
        u64::from(match kind.as_str() {
            "finite" => matches!(value, Value::Finite(_)),
            "infinite" => matches!(value, Value::Infinite(_)),
            "number" => value != Value::Nan,
            "notanumber" => value == Value::Nan,
            // Zero counts as normal.
            "normal" => matches!(value, Value::Finite(_)) && (zero || !subnormal(x[0])),
            _ => matches!(value, Value::Finite(_)) && subnormal(x[0]) && !zero,
        })
    });
    m.done().then(|| operation.without_constants())
}

#[cfg(test)]
mod tests {
    use super::super::tests::eval;

    fn f(x: f32) -> u64 {
        x.to_bits().into()
    }

    #[test]
    fn floats() {
        let nan = 0x7fc0_0000;
        for (operator, below, equal, above, unordered) in [
            ("eq", 0, 1, 0, 0),
            ("ne", 1, 0, 1, 0),
            ("lt", 1, 0, 0, 0),
            ("le", 1, 1, 0, 0),
            ("gt", 0, 0, 1, 0),
            ("ge", 0, 1, 1, 0),
            ("equ", 0, 1, 0, 1),
            ("neu", 1, 0, 1, 1),
            ("ltu", 1, 0, 0, 1),
            ("leu", 1, 1, 0, 1),
            ("gtu", 0, 0, 1, 1),
            ("geu", 0, 1, 1, 1),
            ("num", 1, 1, 1, 0),
            ("nan", 0, 0, 0, 1),
        ] {
            let form = format!("setp.{operator}.f32");
            assert_eq!(eval(&form, &[f(-1.0), f(2.0)]), below, "{form}");
            assert_eq!(eval(&form, &[f(-0.0), f(0.0)]), equal, "{form}");
            assert_eq!(eval(&form, &[f(f32::INFINITY), f(2.0)]), above, "{form}");
            assert_eq!(eval(&form, &[nan, f(2.0)]), unordered, "{form}");
            assert_eq!(eval(&form, &[f(2.0), nan]), unordered, "{form}");
        }
    }

    #[test]
    fn integers() {
        assert_eq!(eval("setp.lt.s32", &[0xffff_ffff, 0]), 1);
        assert_eq!(eval("setp.lt.u32", &[0xffff_ffff, 0]), 0);
        assert_eq!(eval("setp.hi.u32", &[0xffff_ffff, 0]), 1);
        assert_eq!(eval("setp.ge.s64", &[1 << 63, 0]), 0);
        assert_eq!(eval("setp.eq.and.s32", &[1, 1, 0]), 0);
        assert_eq!(eval("setp.eq.xor.s32", &[1, 1, 1]), 0);
        assert_eq!(eval("setp.eq.or.s32", &[1, 2, 1]), 1);
        assert_eq!(eval("selp.b32", &[5, 6, 1]), 5);
        assert_eq!(eval("selp.f32", &[5, 0x7f80_0001, 0]), 0x7f80_0001);
        assert_eq!(eval("slct.u32.s32", &[5, 6, 0x8000_0000]), 6);
        assert_eq!(eval("slct.f32.f32", &[5, 6, f(-0.0)]), 5);
        assert_eq!(eval("set.gt.u32.s32", &[6, 5]), 0xffff_ffff);
        assert_eq!(eval("testp.subnormal.f32", &[1]), 1);
        assert_eq!(eval("testp.subnormal.f32", &[0]), 0);
        assert_eq!(eval("testp.normal.f32", &[0]), 1);
    }
}
