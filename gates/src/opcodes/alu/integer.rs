//! Integer arithmetic, in 128-bit integers where nothing wraps by accident.

use super::super::bits;
use super::super::form::{Modifiers, Type};
use super::Operation;

/// The least and largest value of a type.
pub(super) fn range(ty: Type) -> (i128, i128) {
    let width = ty.bits();
    if ty.signed() { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

/// The register that holds `n` wrapped to `ty`; values narrower than 16 bits are extended to it.
pub(super) fn register(ty: Type, n: i128) -> u64 {
    ty.value(n as u64) as u64
}

fn wider(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

pub(super) fn operation(m: &mut Modifiers<'_>) -> Option<Operation> {
    let name = m.name;
    match name {
        "dp4a" | "dp2a" => return dot(m),
        "shf" => return funnel(m),
        _ => {}
    }
    let ty = m.take_type()?;
    let operation = match name {
        "add" | "sub" if ty.integer() && ty.bits() >= 16 => {
            let saturate = m.take("sat");
            if saturate && ty != Type::S32 {
                return None;
            }
            let minus = name == "sub";
            Operation::new(&[ty; 2], ty, move |x| {
                let (a, b) = (ty.value(x[0]), ty.value(x[1]));
                let sum = if minus { a - b } else { a + b };
                let (low, high) = range(ty);
                register(ty, if saturate { sum.clamp(low, high) } else { sum })
            })
        }
        "mul" | "mad" if ty.integer() && ty.bits() >= 16 => multiply(m, ty)?,
        "mul24" | "mad24" if matches!(ty, Type::U32 | Type::S32) => multiply24(m, ty)?,
        "div" | "rem" if ty.integer() && ty.bits() >= 16 => {
            let quotient = name == "div";
            let operation = Operation::new(&[ty; 2], ty, move |x| {
                let (a, b) = (ty.value(x[0]), ty.value(x[1]));
                register(ty, if quotient { a / b } else { a % b })
            });
            // Dividing by zero is undefined, and so is a quotient that does not fit.
            operation.defined_if(match (ty.signed(), ty.bits()) {
                (false, 64) => |x| x[1] != 0,
                (false, 32) => |x| x[1] & 0xffff_ffff != 0,
                (false, _) => |x| x[1] & 0xffff != 0,
                (true, 64) => |x| x[1] != 0 && x[1] != u64::MAX,
                (true, 32) => |x| x[1] as u32 != 0 && x[1] as u32 != u32::MAX,
                (true, _) => |x| x[1] as u16 != 0 && x[1] as u16 != u16::MAX,
            })
        }
        "abs" if ty.signed() => Operation::new(&[ty], ty, move |x| register(ty, ty.value(x[0]).abs())),
        "neg" if ty.signed() => Operation::new(&[ty], ty, move |x| register(ty, -ty.value(x[0]))),
        "min" | "max" if ty.integer() && ty.bits() >= 16 => {
            let least = name == "min";
            Operation::new(&[ty; 2], ty, move |x| {
                let (a, b) = (ty.value(x[0]), ty.value(x[1]));
                register(ty, if least { a.min(b) } else { a.max(b) })
            })
        }
        "sad" if ty.integer() && ty.bits() >= 16 => Operation::new(&[ty; 3], ty, move |x| {
            register(ty, ty.value(x[2]) + (ty.value(x[0]) - ty.value(x[1])).abs())
        }),
        "shl" if matches!(ty, Type::B16 | Type::B32 | Type::B64) => {
            Operation::new(&[ty, Type::Amount], ty, move |x| {
                if x[1] < u64::from(ty.bits()) { x[0] << x[1] } else { 0 }
            })
        }
        "shr" if ty.bits() >= 16 && (ty.integer() || ty.untyped()) => {
            // `value` sign-extends a signed operand, so that clamping the amount fills with its sign.
            Operation::new(&[ty, Type::Amount], ty, move |x| {
                (ty.value(x[0]) >> x[1].min(u64::from(ty.bits()))) as u64
            })
        }
        "popc" | "clz" if matches!(ty, Type::B32 | Type::B64) => {
            let count = if name == "popc" { bits::popc } else { bits::clz };
            Operation::new(&[ty], Type::U32, move |x| count(x[0], ty.bits()))
        }
        "brev" if matches!(ty, Type::B32 | Type::B64) => {
            Operation::new(&[ty], ty, move |x| bits::brev(x[0], ty.bits()))
        }
        "bfind" if ty.integer() && ty.bits() >= 32 => {
            let shift_amount = m.take("shiftamt");
            Operation::new(&[ty], Type::U32, move |x| bits::bfind(x[0], ty.bits(), ty.signed(), shift_amount))
        }
        "bfe" if ty.integer() && ty.bits() >= 32 => {
            Operation::new(&[ty, Type::Field, Type::Field], ty, move |x| {
                bits::bfe(x[0], x[1], x[2], ty.bits(), ty.signed())
            })
        }
        "bfi" if matches!(ty, Type::B32 | Type::B64) => {
            Operation::new(&[ty, ty, Type::Field, Type::Field], ty, move |x| {
                bits::bfi(x[0], x[1], x[2], x[3], ty.bits())
            })
        }
        _ => return None,
    };
    m.done().then_some(operation)
}

fn multiply(m: &mut Modifiers<'_>, ty: Type) -> Option<Operation> {
    let add = m.name == "mad";
    let half = m.take_one(&["lo", "hi", "wide"])?;
    let saturate = m.take("sat");
    if saturate && !(add && half == "hi" && ty == Type::S32) {
        return None;
    }
    let output = if half == "wide" { wider(ty)? } else { ty };
    let high = if half == "hi" { ty.bits() } else { 0 };
    let inputs = if add { vec![ty, ty, output] } else { vec![ty, ty] };
    Some(Operation::new(&inputs, output, move |x| {
        // An arithmetic shift of the full product: 64-bit products fit 128 bits, unsigned ones as u128.
        let product = if ty == Type::U64 {
            ((u128::from(x[0]) * u128::from(x[1])) >> high) as u64 as i128
        } else {
            (ty.value(x[0]) * ty.value(x[1])) >> high
        };
        let sum = product + if add { output.value(x[2]) } else { 0 };
        let (low, top) = range(output);
        register(output, if saturate { sum.clamp(low, top) } else { sum })
    }))
}

fn multiply24(m: &mut Modifiers<'_>, ty: Type) -> Option<Operation> {
    let add = m.name == "mad24";
    let high = if m.take_one(&["lo", "hi"])? == "hi" { 16 } else { 0 };
    let inputs = vec![ty; if add { 3 } else { 2 }];
    Some(Operation::new(&inputs, ty, move |x| {
        let low24 = |bits: u64| {
            let low = i128::from(bits & 0xff_ffff);
            if ty.signed() && low >> 23 == 1 { low - (1 << 24) } else { low }
        };
        let sum = ((low24(x[0]) * low24(x[1])) >> high) + if add { ty.value(x[2]) } else { 0 };
        register(ty, sum)
    }))
}

/// `dp4a` and `dp2a`: a sum of products of bytes, or of halves and bytes, added to `c` modulo 2^32.
fn dot(m: &mut Modifiers<'_>) -> Option<Operation> {
    let four = m.name == "dp4a";
    let high = if four { false } else { m.take_one(&["lo", "hi"])? == "hi" };
    let (b, a) = (m.take_type()?, m.take_type()?);
    let kind = |ty| matches!(ty, Type::U32 | Type::S32);
    if !m.done() || !kind(a) || !kind(b) {
        return None;
    }
    let c = if a == Type::S32 || b == Type::S32 { Type::S32 } else { Type::U32 };
    Some(Operation::new(&[a, b, c], c, move |x| {
        let part = |ty: Type, bits: u64, width: u32, i: u32| {
            let low = i128::from(bits >> (width * i) & ((1 << width) - 1));
            if ty.signed() && low >> (width - 1) == 1 { low - (1 << width) } else { low }
        };
        let products: i128 = if four {
            (0..4).map(|i| part(a, x[0], 8, i) * part(b, x[1], 8, i)).sum()
        } else {
            let first = if high { 2 } else { 0 };
            (0..2).map(|i| part(a, x[0], 16, i) * part(b, x[1], 8, first + i)).sum()
        };
        register(c, c.value(x[2]) + products)
    }))
}

fn funnel(m: &mut Modifiers<'_>) -> Option<Operation> {
    let left = m.take_one(&["l", "r"])? == "l";
    let wrap = m.take_one(&["wrap", "clamp"])? == "wrap";
    if m.take_type()? != Type::B32 || !m.done() {
        return None;
    }
    let types = [Type::B32, Type::B32, Type::Amount];
    Some(Operation::new(&types, Type::B32, move |x| bits::shf(left, wrap, x[0], x[1], x[2])))
}

#[cfg(test)]
mod tests {
    use super::super::tests::eval;
    use crate::opcodes::inputs::Random;

    #[test]
    fn agrees_with_wrapping_arithmetic() {
        let mut random = Random::new(5);
        for _ in 0..20_000 {
            let (x, y, z) = (random.integer(64), random.integer(64), random.integer(64));
            let (a, b, c) = (x as u32, y as u32, z as u32);
            let (i, j) = (a as i32, b as i32);
            let small = [u64::from(a), u64::from(b)];
            let all = [u64::from(a), u64::from(b), u64::from(c)];
            assert_eq!(eval("add.s32", &small), u64::from(a.wrapping_add(b)));
            assert_eq!(eval("sub.s32", &small), u64::from(a.wrapping_sub(b)));
            assert_eq!(eval("add.sat.s32", &small), u64::from(i.saturating_add(j) as u32));
            assert_eq!(eval("mul.lo.s32", &small), u64::from(a.wrapping_mul(b)));
            assert_eq!(eval("mad.lo.s32", &all), u64::from(a.wrapping_mul(b).wrapping_add(c)));
            assert_eq!(eval("mul.hi.u32", &small), (u64::from(a) * u64::from(b)) >> 32);
            assert_eq!(
                eval("mul.hi.s32", &small),
                ((i64::from(i) * i64::from(j)) >> 32) as u64 & 0xffff_ffff
            );
            assert_eq!(eval("mul.wide.s32", &small), (i64::from(i) * i64::from(j)) as u64);
            assert_eq!(eval("mul.wide.u32", &small), u64::from(a) * u64::from(b));
            assert_eq!(eval("mul.lo.s64", &[x, y]), x.wrapping_mul(y));
            assert_eq!(eval("mul.hi.u64", &[x, y]), ((u128::from(x) * u128::from(y)) >> 64) as u64);
            let wide = i128::from(x as i64) * i128::from(y as i64);
            assert_eq!(eval("mul.hi.s64", &[x, y]), (wide >> 64) as u64);
            assert_eq!(eval("min.s32", &small), u64::from(i.min(j) as u32));
            assert_eq!(eval("max.u32", &small), u64::from(a.max(b)));
            let n = z & 63;
            let shifted = |f: fn(u32, u32) -> Option<u32>| u64::from(f(a, n as u32).unwrap_or(0));
            assert_eq!(eval("shl.b32", &[a.into(), n]), shifted(u32::checked_shl));
            assert_eq!(eval("shr.u32", &[a.into(), n]), shifted(u32::checked_shr));
            assert_eq!(eval("shr.s32", &[a.into(), n]), u64::from((i >> n.min(31)) as u32));
            if b != 0 && b != u32::MAX {
                assert_eq!(eval("div.u32", &small), u64::from(a / b));
                assert_eq!(eval("rem.s32", &small), u64::from((i % j) as u32));
            }
        }
    }

    #[test]
    fn dot_products_by_hand() {
        // 1·2 + (−1)·3 + 127·(−128) + (−128)·(−128), plus 10.
        assert_eq!(
            eval("dp4a.s32.s32", &[0x807f_ff01, 0x8080_0302, 10]),
            (2 - 3 - 16256 + 16384 + 10) as u64
        );
        assert_eq!(eval("dp4a.u32.u32", &[0xffff_ffff, 0xffff_ffff, 0xffff_ffff]), 4 * 65025 - 1);
        // −32768 · −128 + 32767 · 127.
        assert_eq!(eval("dp2a.lo.s32.s32", &[0x7fff_8000, 0x0000_7f80, 0]), 32768 * 128 + 32767 * 127);
        assert_eq!(eval("dp2a.hi.s32.s32", &[0x7fff_8000, 0x7f80_0000, 0]), 32768 * 128 + 32767 * 127);
        assert_eq!(eval("dp2a.lo.s32.u32", &[0xffff, 0xff, 0]), 0xffff_ff01);
    }

    #[test]
    fn edges() {
        assert_eq!(eval("abs.s32", &[0x8000_0000]), 0x8000_0000);
        assert_eq!(eval("neg.s32", &[0x8000_0000]), 0x8000_0000);
        assert_eq!(eval("shl.b32", &[1, 32]), 0);
        assert_eq!(eval("shr.s32", &[0x8000_0000, 0xffff_ffff]), 0xffff_ffff);
        assert_eq!(eval("mad.wide.u16", &[0xffff, 0xffff, 1]), 0xfffe_0002);
        assert_eq!(eval("mul24.lo.s32", &[0xff_ffff, 0xff_ffff]), 1);
        assert_eq!(eval("shr.u64", &[u64::MAX, 64]), 0);
        assert_eq!(eval("shl.b64", &[1, 63]), 1 << 63);
    }
}
