//! Floating-point arithmetic: the exact result, rounded once.

use super::super::form::{Modifiers, Type};
use super::super::soft::{self, Format, Rounding, Value};
use super::Operation;
use std::cmp::Ordering;

/// The format of a scalar float type.
pub(super) fn format(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16 | Type::F16x2 => soft::F16,
        Type::Bf16 | Type::Bf16x2 => soft::BF16,
        Type::F32 => soft::F32,
        Type::F64 => soft::F64,
        _ => return None,
    })
}

/// Clamps to [0, 1]; NaN becomes +0 (`.sat`).
pub(super) fn saturate(format: Format, bits: u64) -> u64 {
    let one = format.encode(Value::Finite(soft::Exact::integer(1)), Rounding::Even);
    match format.decode(bits) {
        Value::Nan => 0,
        value if soft::negative(value) => 0,
        value if soft::compare(value, format.decode(one)) == Some(Ordering::Greater) => one,
        _ => bits,
    }
}

type Scalar = Box<dyn Fn(&[u64]) -> u64 + Send + Sync>;

pub(super) fn operation(m: &mut Modifiers<'_>) -> Option<Operation> {
    let name = m.name;
    let ty = m.take_type()?;
    let format = format(ty)?;
    let (inputs, scalar) = match name {
        "add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" => arithmetic(m, ty, format)?,
        "abs" | "neg" => {
            let sign = 1u64 << (format.bits() - 1);
            let negate = name == "neg";
            let scalar: Scalar = Box::new(move |x| match format.is_nan(x[0]) {
                true => format.nan(),
                false if negate => x[0] ^ sign,
                false => x[0] & !sign,
            });
            (1, scalar)
        }
        "min" | "max" => {
            let (least, propagate) = (name == "min", m.take("NaN"));
            let scalar: Scalar = Box::new(move |x| extremum(format, least, propagate, x[0], x[1]));
            (2, scalar)
        }
        "copysign" if matches!(ty, Type::F32 | Type::F64) => {
            let sign = 1u64 << (format.bits() - 1);
            let scalar: Scalar = Box::new(move |x| x[0] & sign | x[1] & !sign);
            (2, scalar)
        }
        _ => return None,
    };
    if !m.done() {
        return None;
    }
    let pair = matches!(ty, Type::F16x2 | Type::Bf16x2);
    let operation = Operation::new(&vec![ty; inputs], ty, move |x| {
        if !pair {
            return scalar(x);
        }
        let half = |shift: u32| {
            let operands: Vec<u64> = x.iter().map(|x| x >> shift & 0xffff).collect();
            scalar(&operands) << shift
        };
        half(0) | half(16)
    });
    Some(if matches!(ty, Type::F32 | Type::F64) { operation } else { operation.without_constants() })
}

/// The operations that round: how many operands, and the result.
fn arithmetic(m: &mut Modifiers<'_>, ty: Type, format: Format) -> Option<(usize, Scalar)> {
    let name = m.name;
    let single = matches!(ty, Type::F32 | Type::F64);
    let rounding = match m.take_rounding() {
        Some((rounding, false)) if rounding != Rounding::Away => rounding,
        // Without a modifier add, sub and mul round to nearest but may be fused into fma: no defined result.
        // Halves have no such licence once `.rn` is written, so they too must say it.
        _ => return None,
    };
    if !single && (rounding != Rounding::Even || !matches!(name, "add" | "sub" | "mul" | "fma")) {
        return None;
    }
    let clamp = m.take("sat");
    if clamp && (ty == Type::F64 || matches!(name, "div" | "rcp" | "sqrt")) {
        return None;
    }
    let inputs = match name {
        "rcp" | "sqrt" => 1,
        "fma" | "mad" => 3,
        _ => 2,
    };
    let name = name.to_owned();
    let scalar = move |x: &[u64]| {
        let v: Vec<Value> = x.iter().map(|&bits| format.decode(bits)).collect();
        let exact = match name.as_str() {
            "add" => soft::add(v[0], v[1], rounding),
            "sub" => {
                let sign = 1u64 << (format.bits() - 1);
                soft::add(v[0], format.decode(x[1] ^ sign), rounding)
            }
            "mul" => soft::mul(v[0], v[1]),
            "div" => soft::div(v[0], v[1]),
            "rcp" => soft::div(Value::Finite(soft::Exact::integer(1)), v[0]),
            "sqrt" => soft::sqrt(v[0]),
            _ => soft::add(soft::mul(v[0], v[1]), v[2], rounding),
        };
        let rounded = format.encode(exact, rounding);
        if clamp { saturate(format, rounded) } else { rounded }
    };
    Some((inputs, Box::new(scalar)))
}

/// `min` and `max`: the operand that is a number, unless NaN is to propagate; −0 lies below +0.
fn extremum(format: Format, least: bool, propagate: bool, a: u64, b: u64) -> u64 {
    let (x, y) = (format.decode(a), format.decode(b));
    match (x, y) {
        (Value::Nan, Value::Nan) => format.nan(),
        (Value::Nan, _) | (_, Value::Nan) if propagate => format.nan(),
        (Value::Nan, _) => b,
        (_, Value::Nan) => a,
        _ => {
            let first_below = match soft::compare(x, y) {
                Some(Ordering::Less) => true,
                Some(Ordering::Equal) => soft::negative(x),
                _ => false,
            };
            if first_below == least { a } else { b }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::eval;

    fn f(x: f32) -> u64 {
        x.to_bits().into()
    }

    const NAN: u64 = 0x7fff_ffff;

    #[test]
    fn special_values() {
        assert_eq!(eval("add.rn.f32", &[f(f32::INFINITY), f(f32::NEG_INFINITY)]), NAN);
        assert_eq!(eval("add.rn.f32", &[0x7f80_0001, f(1.0)]), NAN);
        assert_eq!(eval("sub.rn.f32", &[f(1.0), f(1.0)]), f(0.0));
        assert_eq!(eval("sub.rm.f32", &[f(1.0), f(1.0)]), f(-0.0));
        assert_eq!(eval("mul.rn.f32", &[f(-0.0), f(3.0)]), f(-0.0));
        assert_eq!(eval("div.rn.f32", &[f(1.0), f(-0.0)]), f(f32::NEG_INFINITY));
        assert_eq!(eval("rcp.rn.f32", &[f(3.0)]), f(1.0 / 3.0));
        assert_eq!(eval("sqrt.rn.f32", &[f(-0.0)]), f(-0.0));
        assert_eq!(eval("sqrt.rn.f32", &[f(-1.0)]), NAN);
        assert_eq!(
            eval("fma.rn.f32", &[f(1.0 + f32::EPSILON), f(1.0 - f32::EPSILON), f(-1.0)]),
            f(-1.421_085_5e-14)
        );
        assert_eq!(eval("add.rn.sat.f32", &[f(0.75), f(0.75)]), f(1.0));
        assert_eq!(eval("add.rn.sat.f32", &[NAN, f(0.75)]), 0);
        assert_eq!(eval("neg.f32", &[f(0.0)]), f(-0.0));
        assert_eq!(eval("abs.f32", &[f(-2.5)]), f(2.5));
    }

    #[test]
    fn min_and_max() {
        assert_eq!(eval("min.f32", &[f(0.0), f(-0.0)]), f(-0.0));
        assert_eq!(eval("min.f32", &[f(-0.0), f(0.0)]), f(-0.0));
        assert_eq!(eval("max.f32", &[f(-0.0), f(0.0)]), f(0.0));
        assert_eq!(eval("max.f32", &[f(0.0), f(-0.0)]), f(0.0));
        assert_eq!(eval("max.f32", &[0x7fc0_0001, f(-3.0)]), f(-3.0));
        assert_eq!(eval("max.f32", &[f(-3.0), 0x7f80_0001]), f(-3.0));
        assert_eq!(eval("max.NaN.f32", &[f(-3.0), 0x7f80_0001]), NAN);
        assert_eq!(eval("min.f32", &[0xffc0_0001, 0x7fc0_0002]), NAN);
    }

    #[test]
    fn halves() {
        assert_eq!(eval("fma.rn.f16", &[0x3c00, 0x3c00, 0x3c00]), 0x4000);
        assert_eq!(eval("add.rn.f16x2", &[0x3c00_7c00, 0x3c00_fc00]), 0x4000_7fff);
        assert_eq!(eval("mul.rn.bf16", &[0x4000, 0x3f80]), 0x4000);
    }
}
