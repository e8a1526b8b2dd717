//! `cvt`: between integers, floats and packed pairs.

use super::super::form::{Modifiers, Type};
use super::super::soft::{self, Exact, Rounding, Value};
use super::{Operation, float, integer};
use std::sync::Arc;

pub(super) fn cvt(m: &mut Modifiers<'_>) -> Option<Operation> {
    let (from, to) = (m.take_type()?, m.take_type()?);
    let rounding = m.take_rounding();
    let saturate = m.take("sat");
    if !m.done() {
        return None;
    }
    let plain = rounding.is_none();
    let operation = match (from, to) {
        (_, Type::F16x2 | Type::Bf16x2) => return pair(from, to, rounding?, saturate),
        (Type::F32, Type::Tf32) if rounding == Some((Rounding::Away, false)) && !saturate => {
            // Hardware truncates a NaN's payload, even to an infinity: no result to rely on.
            Operation::new(&[from], Type::B32, |x| tf32(x[0])).defined_if(|x| !soft::F32.is_nan(x[0]))
        }
        _ if from.integer() && to.integer() && plain => {
            let (low, high) = integer::range(to);
            Operation::new(&[from], to, move |x| {
                let value = from.value(x[0]);
                integer::register(to, if saturate { value.clamp(low, high) } else { value })
            })
        }
        _ if from.integer() => {
            let format = float::format(to)?;
            let (rounding, false) = rounding? else { return None };
            Operation::new(&[from], to, move |x| {
                let value = Value::Finite(Exact::integer(from.value(x[0])));
                let bits = format.encode(value, rounding);
                if saturate { float::saturate(format, bits) } else { bits }
            })
        }
        _ if to.integer() => {
            float::format(from)?;
            let (rounding, true) = rounding? else { return None };
            Operation::new(&[from], to, move |x| to_integer(from, to, rounding, x[0]))
        }
        // bf16 is the upper half of f32, and hardware takes it so: a NaN keeps its payload.
        (Type::Bf16, Type::F32) if plain && !saturate => Operation::new(&[from], to, |x| x[0] << 16),
        _ => {
            let (source, target) = (float::format(from)?, float::format(to)?);
            // Narrowing says how to round; widening is exact and does not; the same type rounds to integral
            // values, or copies.
            let narrower = target.fraction < source.fraction || target.exponent < source.exponent;
            let (rounding, integral) = match rounding {
                Some((rounding, integral)) if integral == (from == to) && narrower != integral => {
                    (rounding, integral)
                }
                None if !narrower && (from != to || saturate) => (Rounding::Even, false),
                _ => return None,
            };
            let operation = Operation::new(&[from], to, move |x| {
                let value = match source.decode(x[0]) {
                    Value::Finite(exact) if integral => {
                        let magnitude = exact.to_integer(rounding).unsigned_abs();
                        // What has no fraction, however large, is integral already.
                        if exact.exponent >= 0 {
                            Value::Finite(exact)
                        } else {
                            Value::Finite(Exact { magnitude, exponent: 0, ..exact })
                        }
                    }
                    value => value,
                };
                let bits = target.encode(value, rounding);
                if saturate { float::saturate(target, bits) } else { bits }
            });
            // From f64 a NaN's payload is kept in part, unlike elsewhere: not relied on.
            operation.defined_if(if from == Type::F64 { |x| !soft::F64.is_nan(x[0]) } else { |_| true })
        }
    };
    Some(operation.without_constants())
}

/// The conversion with registers of its types, and with wider ones where an integer may live in such: of a source only
/// the low bits count, a result is extended to its register by its type.
pub(super) fn wider(operation: Operation) -> Vec<Operation> {
    let (from, to) = (operation.inputs[0], operation.outputs[0]);
    let word = |ty: Type| ty.integer() && ty.bits() < 32;
    let mut out = vec![operation.clone()];
    if word(from) {
        out.push(Operation { inputs: vec![Type::B32], ..operation.clone() });
    }
    if word(to) {
        let evaluate = operation.evaluate.clone();
        let extend = move |x: &[u64]| [to.value(evaluate(x)[0]) as u64 & 0xffff_ffff, 0, 0, 0];
        out.push(Operation { outputs: vec![Type::B32], evaluate: Arc::new(extend), ..operation });
    }
    out
}

/// Float to integer: rounded, then clamped to the integer's range. NaN gives 0, except that conversions from f64
/// or to a 64-bit type give the integer with only the top bit set.
fn to_integer(from: Type, to: Type, rounding: Rounding, bits: u64) -> u64 {
    let Some(format) = float::format(from) else { return 0 };
    let (low, high) = integer::range(to);
    let value = match format.decode(bits) {
        Value::Nan if from == Type::F64 || to.bits() == 64 => 1 << (to.bits() - 1),
        Value::Nan => 0,
        Value::Infinite(true) => low,
        Value::Infinite(false) => high,
        Value::Finite(exact) => exact.to_integer(rounding).clamp(low, high),
    };
    integer::register(to, value)
}

/// Two floats into one register: the first operand becomes the upper half.
fn pair(from: Type, to: Type, rounding: (Rounding, bool), saturate: bool) -> Option<Operation> {
    let (rounding, false) = rounding else { return None };
    if from != Type::F32 || saturate || !matches!(rounding, Rounding::Even | Rounding::Zero) {
        return None;
    }
    let format = float::format(to)?;
    let half = move |bits| format.encode(soft::F32.decode(bits), rounding);
    let operation = Operation::new(&[from; 2], to, move |x| half(x[0]) << 16 | half(x[1]));
    Some(operation.without_constants())
}

/// f32 rounded to ten bits of fraction, ties away from zero; the low 13 bits are zero.
fn tf32(bits: u64) -> u64 {
    const TF32: soft::Format = soft::Format { exponent: 8, fraction: 10 };
    match soft::F32.decode(bits) {
        Value::Nan => soft::F32.nan(),
        value => TF32.encode(value, Rounding::Away) << 13,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::eval;
    use crate::opcodes::form::Type;
    use crate::opcodes::inputs::{Random, specials};

    fn f(x: f32) -> u64 {
        x.to_bits().into()
    }

    // Rust's `as` rounds integers to nearest even and saturates towards zero from floats, as cvt does.
    #[test]
    fn agrees_with_the_processor() {
        let mut random = Random::new(6);
        let mut floats: Vec<u64> = (0..20_000).map(|_| random.value(Type::F32)).collect();
        floats.extend(specials(Type::F32));
        for bits in floats {
            let x = f32::from_bits(bits as u32);
            assert_eq!(eval("cvt.rzi.s32.f32", &[bits]), u64::from(x as i32 as u32), "{x:e}");
            assert_eq!(eval("cvt.rzi.u32.f32", &[bits]), u64::from(x as u32), "{x:e}");
            assert_eq!(
                eval("cvt.rni.s32.f32", &[bits]),
                u64::from(x.round_ties_even() as i32 as u32),
                "{x:e}"
            );
            assert_eq!(eval("cvt.rmi.s32.f32", &[bits]), u64::from(x.floor() as i32 as u32), "{x:e}");
            if !x.is_nan() {
                assert_eq!(eval("cvt.rzi.s64.f32", &[bits]), x as i64 as u64, "{x:e}");
                assert_eq!(eval("cvt.rpi.f32.f32", &[bits]), f(x.ceil()), "{x:e}");
                assert_eq!(eval("cvt.rni.f32.f32", &[bits]), f(x.round_ties_even()), "{x:e}");
                assert_eq!(
                    eval("cvt.rn.f16.f32", &[bits]),
                    u64::from(half::f16::from_f32(x).to_bits()),
                    "{x:e}"
                );
                assert_eq!(
                    eval("cvt.rn.bf16.f32", &[bits]),
                    u64::from(half::bf16::from_f32(x).to_bits()),
                    "{x:e}"
                );
                assert_eq!(eval("cvt.f64.f32", &[bits]), f64::from(x).to_bits(), "{x:e}");
            }
        }
        for bits in 0..=0xffffu64 {
            let x = half::f16::from_bits(bits as u16).to_f32();
            let want = if x.is_nan() { 0x7fff_ffff } else { f(x) };
            assert_eq!(eval("cvt.f32.f16", &[bits]), want);
        }
        for _ in 0..20_000 {
            let n = random.integer(64);
            let i = n as u32 as i32;
            let low = n & 0xffff_ffff;
            assert_eq!(eval("cvt.rn.f32.s32", &[low]), f(i as f32));
            assert_eq!(eval("cvt.rn.f32.u32", &[low]), f(low as u32 as f32));
            assert_eq!(eval("cvt.rn.f32.u64", &[n]), f(n as f32));
            assert_eq!(eval("cvt.u64.u32", &[low]), low);
            assert_eq!(eval("cvt.s64.s32", &[low]), i64::from(i) as u64);
            assert_eq!(eval("cvt.u32.u64", &[n]), low);
            assert_eq!(eval("cvt.s32.s8", &[n & 0xffff]), u64::from(i32::from(n as u8 as i8) as u32));
            assert_eq!(eval("cvt.u16.u32", &[low]), n & 0xffff);
        }
    }

    #[test]
    fn by_hand() {
        assert_eq!(eval("cvt.rn.f16.f32", &[0x7f80_0001]), 0x7fff);
        assert_eq!(eval("cvt.rni.s32.f32", &[0xffc0_0000]), 0);
        assert_eq!(eval("cvt.rzi.s64.f32", &[0x7fff_ffff]), 1 << 63);
        assert_eq!(eval("cvt.rni.s32.f32", &[f(2.5)]), 2);
        assert_eq!(eval("cvt.rzi.u8.f32", &[f(300.0)]), 255);
        assert_eq!(eval("cvt.rzi.s8.f32", &[f(-300.0)]), 0xff80);
        assert_eq!(eval("cvt.sat.u8.s32", &[0xffff_ffff]), 0);
        assert_eq!(eval("cvt.u8.u32", &[0x1234]), 0x34);
        assert_eq!(eval("cvt.s8.u32", &[0x80]), 0xff80);
        assert_eq!(eval("cvt.rn.f16x2.f32", &[f(1.0), f(2.0)]), 0x3c00_4000);
        assert_eq!(eval("cvt.rna.tf32.f32", &[0x3f80_1000]), 0x3f80_2000);
        assert_eq!(eval("cvt.sat.f32.f32", &[f(-3.0)]), 0);
    }
}
