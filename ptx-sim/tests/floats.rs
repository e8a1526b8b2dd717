//! Floating-point instructions over special and random bit patterns.
//!
//! f32 sums, products, quotients and roots are checked against f64 rounded once more, which is exact for them (53 ≥ 2 · 24 + 2
//! bits); NaNs, signs of zero and ordering against the rules in the PTX ISA.

mod common;

use common::{again_on_every_instruction_set, check, patterns32, triples};

const NAN: u64 = 0x7fff_ffff;

#[test]
fn on_every_instruction_set() {
    again_on_every_instruction_set();
}

fn inputs() -> Vec<[u64; 3]> {
    let values: Vec<u64> = patterns32().into_iter().map(u64::from).collect();
    triples(&values)
}

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn wide(x: u64) -> f64 {
    f(x).into()
}

fn bits(x: f32) -> u64 {
    if x.is_nan() { NAN } else { x.to_bits().into() }
}

#[test]
fn arithmetic_rounds_once() {
    let inputs = inputs();
    check("add.rn.f32 %d, %a, %b;", "d", &inputs, |a, b, _| bits((wide(a) + wide(b)) as f32));
    check("add.f32 %d, %a, %b;", "d", &inputs, |a, b, _| bits((wide(a) + wide(b)) as f32));
    check("sub.rn.f32 %d, %a, %b;", "d", &inputs, |a, b, _| bits((wide(a) - wide(b)) as f32));
    check("mul.rn.f32 %d, %a, %b;", "d", &inputs, |a, b, _| bits((wide(a) * wide(b)) as f32));
    check("div.rn.f32 %d, %a, %b;", "d", &inputs, |a, b, _| bits((wide(a) / wide(b)) as f32));
    check("rcp.rn.f32 %d, %a;", "d", &inputs, |a, _, _| bits((1.0 / wide(a)) as f32));
    check("sqrt.rn.f32 %d, %a;", "d", &inputs, |a, _, _| bits(wide(a).sqrt() as f32));
    check("fma.rn.f32 %d, %a, %b, %c;", "d", &inputs, |a, b, c| bits(f(a).mul_add(f(b), f(c))));
    check("mov.f32 %e, 0f3FC00000; fma.rn.f32 %d, %a, %e, 0fBF800000;", "d", &inputs, |a, _, _| {
        bits(f(a).mul_add(1.5, -1.0))
    });
}

#[test]
fn directed_roundings_are_neighbours() {
    // The directed result is the nearest one or its neighbour, on the right side of the exact value, which f64 holds for
    // products; for sums only where the exponents are close.
    let inputs = inputs();
    let step = |exact: f64, mode: &str| -> u64 {
        if !exact.is_finite() || exact == 0.0 {
            return bits(exact as f32);
        }
        let nearest = exact as f32;
        let down = if f64::from(nearest) > exact { nearest.next_down() } else { nearest };
        let up = if f64::from(nearest) < exact { nearest.next_up() } else { nearest };
        bits(match (mode, exact > 0.0) {
            ("rz", true) | ("rm", _) => down,
            _ => up,
        })
    };
    for mode in ["rz", "rm", "rp"] {
        check(&format!("mul.{mode}.f32 %d, %a, %b;"), "d", &inputs, |a, b, _| step(wide(a) * wide(b), mode));
        // A quotient of 24-bit numbers is a f32, halfway between two, or further from both than f64 rounds.
        check(&format!("div.{mode}.f32 %d, %a, %b;"), "d", &inputs, |a, b, _| step(wide(a) / wide(b), mode));
        check(&format!("rcp.{mode}.f32 %d, %a;"), "d", &inputs, |a, _, _| step(1.0 / wide(a), mode));
        check(&format!("sqrt.{mode}.f32 %d, %a;"), "d", &inputs, |a, _, _| step(wide(a).sqrt(), mode));
        let close: Vec<_> = inputs
            .iter()
            .copied()
            .filter(|[a, b, _]| {
                let e = |x: u64| (x >> 23 & 0xff) as i32;
                (e(*a) - e(*b)).abs() < 25 && wide(*a) + wide(*b) != 0.0
            })
            .collect();
        check(&format!("add.{mode}.f32 %d, %a, %b;"), "d", &close, |a, b, _| step(wide(a) + wide(b), mode));
    }
}

#[test]
fn least_and_greatest() {
    let inputs = inputs();
    // Rank of a number's code: −0 just below +0.
    let rank = |x: u64| if x >> 31 != 0 { -1 - (x & 0x7fff_ffff) as i64 } else { x as i64 };
    let pick = |a: u64, b: u64, least: bool| match (f(a).is_nan(), f(b).is_nan()) {
        (true, true) => NAN,
        (true, false) => b,
        (false, true) => a,
        _ if (rank(a) < rank(b)) == least => a,
        _ => b,
    };
    check("min.f32 %d, %a, %b;", "d", &inputs, |a, b, _| pick(a, b, true));
    check("max.f32 %d, %a, %b;", "d", &inputs, |a, b, _| pick(a, b, false));
    let nan = |a: u64, b: u64, least| if f(a).is_nan() || f(b).is_nan() { NAN } else { pick(a, b, least) };
    check("min.NaN.f32 %d, %a, %b;", "d", &inputs, |a, b, _| nan(a, b, true));
    check("max.NaN.f32 %d, %a, %b;", "d", &inputs, |a, b, _| nan(a, b, false));
}

#[test]
fn signs_and_saturation() {
    let inputs = inputs();
    check("neg.f32 %d, %a;", "d", &inputs, |a, _, _| if f(a).is_nan() { NAN } else { a ^ 1 << 31 });
    check("abs.f32 %d, %a;", "d", &inputs, |a, _, _| if f(a).is_nan() { NAN } else { a & 0x7fff_ffff });
    check("copysign.f32 %d, %a, %b;", "d", &inputs, |a, b, _| a & 1 << 31 | b & 0x7fff_ffff);
    check("cvt.sat.f32.f32 %d, %a;", "d", &inputs, |a, _, _| {
        let x = f(a);
        if x.is_nan() || x <= 0.0 { 0 } else { bits(x.min(1.0)) }
    });
    check("testp.finite.f32 %p, %a;", "p", &inputs, |a, _, _| u64::from(a >> 23 & 0xff != 0xff));
    check("testp.notanumber.f32 %p, %a;", "p", &inputs, |a, _, _| u64::from(a & 0x7fff_ffff > 0x7f80_0000));
    check("testp.subnormal.f32 %p, %a;", "p", &inputs, |a, _, _| {
        u64::from(a >> 23 & 0xff == 0 && a & 0x7f_ffff != 0)
    });
}

/// Name, what holds between numbers, and what holds where one is NaN.
type Relation = (&'static str, fn(&f32, &f32) -> bool, bool);

#[test]
fn comparisons_with_nan() {
    let inputs = inputs();
    let table: [Relation; 14] = [
        ("eq", f32::eq, false),
        ("ne", |a, b| a != b, false),
        ("lt", f32::lt, false),
        ("le", f32::le, false),
        ("gt", f32::gt, false),
        ("ge", f32::ge, false),
        ("equ", f32::eq, true),
        ("neu", |a, b| a != b, true),
        ("ltu", f32::lt, true),
        ("leu", f32::le, true),
        ("gtu", f32::gt, true),
        ("geu", f32::ge, true),
        ("num", |_, _| true, false),
        ("nan", |_, _| false, true),
    ];
    for (name, holds, unordered) in table {
        let expected = |a: u64, b: u64| {
            if f(a).is_nan() || f(b).is_nan() { unordered } else { holds(&f(a), &f(b)) }
        };
        check(&format!("setp.{name}.f32 %p, %a, %b;"), "p", &inputs, |a, b, _| expected(a, b).into());
        check(&format!("set.{name}.f32.f32 %d, %a, %b;"), "d", &inputs, |a, b, _| {
            if expected(a, b) { 0x3f80_0000 } else { 0 }
        });
    }
}

fn halves() -> Vec<[u64; 3]> {
    let mut values: Vec<u64> = vec![
        0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
        0x7c01, 0xffff, 0x3555, 0x1400, 0x6800,
    ];
    values.extend((0..30u64).map(|i| (i * 40503 + 12345) & 0xffff));
    triples(&values)
}

fn h(x: u64) -> f64 {
    half::f16::from_bits(x as u16).to_f64()
}

/// The half nearest to `x`, found among all of them; ties to the even code.
fn h_bits(x: f64) -> u64 {
    if x.is_nan() {
        return 0x7fff;
    }
    let sign = u64::from(x.is_sign_negative()) << 15;
    let magnitude = x.abs();
    if magnitude >= 65520.0 {
        return sign | 0x7c00; // from halfway above the largest finite half
    }
    let (mut low, mut high) = (0u64, 0x7c00u64);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if h(middle) <= magnitude { low = middle } else { high = middle }
    }
    let above = if high == 0x7c00 { 65536.0 } else { h(high) };
    let (down, up) = (magnitude - h(low), above - magnitude);
    sign | if down < up || down == up && low % 2 == 0 { low } else { high }
}

#[test]
fn half_arithmetic() {
    let inputs = halves();
    check("add.f16 %hd, %ha, %hb;", "hd", &inputs, |a, b, _| h_bits(h(a) + h(b)));
    check("sub.f16 %hd, %ha, %hb;", "hd", &inputs, |a, b, _| h_bits(h(a) - h(b)));
    check("mul.f16 %hd, %ha, %hb;", "hd", &inputs, |a, b, _| h_bits(h(a) * h(b)));
    // In f64 the product is exact and the sum wrong only below 2^-53 of it, which these inputs' grids exclude except where
    // exponents lie 53 apart: none do for halves, whose sums span at most 48 + 16 bits with 11 kept.
    let near: Vec<_> = inputs
        .iter()
        .copied()
        .filter(|[a, b, c]| {
            let (p, c) = ((h(*a) * h(*b)).abs(), h(*c).abs());
            !(p.is_finite() && c.is_finite() && p > 0.0 && c > 0.0) || (p / c).log2().abs() < 30.0
        })
        .collect();
    check("fma.rn.f16 %hd, %ha, %hb, %hc;", "hd", &near, |a, b, c| h_bits(h(a) * h(b) + h(c)));
    check(
        "mov.b32 %e, {%ha, %hb}; mov.b32 %f, {%hb, %hc}; add.f16x2 %d, %e, %f;",
        "d",
        &inputs,
        |a, b, c| h_bits(h(a) + h(b)) | h_bits(h(b) + h(c)) << 16,
    );
    // An H200 makes its NaN of every NaN here too.
    check("neg.f16 %hd, %ha;", "hd", &inputs, |a, _, _| if h(a).is_nan() { 0x7fff } else { a ^ 0x8000 });
    check("abs.f16 %hd, %ha;", "hd", &inputs, |a, _, _| if h(a).is_nan() { 0x7fff } else { a & 0x7fff });
    check("setp.lt.f16 %p, %ha, %hb;", "p", &inputs, |a, b, _| u64::from(h(a) < h(b)));
    check("setp.geu.f16 %p, %ha, %hb;", "p", &inputs, |a, b, _| {
        u64::from(h(a) >= h(b) || h(a).is_nan() || h(b).is_nan())
    });
    check("max.f16 %hd, %ha, %hb;", "hd", &inputs, |a, b, _| match (h(a).is_nan(), h(b).is_nan()) {
        (true, true) => 0x7fff,
        (true, false) => b,
        (false, true) => a,
        _ if h(a) > h(b) || h(a) == h(b) && a == 0 => a,
        _ if h(a) == h(b) && b == 0 => b,
        _ if h(a) == h(b) => a,
        _ => b,
    });
}

#[test]
fn brain_float_arithmetic() {
    let b16 = |x: u64| f64::from(half::bf16::from_bits(x as u16).to_f32());
    let to = |x: f64| if x.is_nan() { 0x7fff } else { u64::from(half::bf16::from_f32(x as f32).to_bits()) };
    let inputs = halves();
    check("add.bf16 %hd, %ha, %hb;", "hd", &inputs, |a, b, _| to(f64::from(b16(a) as f32 + b16(b) as f32)));
    check("mul.bf16 %hd, %ha, %hb;", "hd", &inputs, |a, b, _| to(f64::from(b16(a) as f32 * b16(b) as f32)));
    // The upper half of an f32, NaNs and all.
    check("cvt.f32.bf16 %d, %ha;", "d", &inputs, |a, _, _| a << 16);
}

#[test]
fn double_precision() {
    let p = patterns32();
    let values: Vec<u64> = p
        .iter()
        .map(|&x| f64::from(f32::from_bits(x)).to_bits())
        .chain([
            0,
            1 << 63,
            1,
            0x7fef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0x0010_0000_0000_0000,
            0x3ff0_0000_0000_0001,
        ])
        .filter(|&x| !f64::from_bits(x).is_nan())
        .collect();
    let inputs = triples(&values);
    let d = f64::from_bits;
    // NaN results are compared as NaNs only.
    let same = |text: &str, expected: &dyn Fn(f64, f64, f64) -> f64| {
        let got = common::each(text, "wd", &inputs);
        for ([a, b, c], got) in inputs.iter().zip(got) {
            let want = expected(d(*a), d(*b), d(*c));
            assert!(
                got == want.to_bits() || want.is_nan() && d(got).is_nan(),
                "{text}: {a:#x} {b:#x} {c:#x}: {got:#x}"
            );
        }
    };
    same("add.rn.f64 %wd, %wa, %wb;", &|a, b, _| a + b);
    same("mul.rn.f64 %wd, %wa, %wb;", &|a, b, _| a * b);
    same("div.rn.f64 %wd, %wa, %wb;", &|a, b, _| a / b);
    same("sqrt.rn.f64 %wd, %wa;", &|a, _, _| a.sqrt());
    same("fma.rn.f64 %wd, %wa, %wb, %wc;", &|a, b, c| a.mul_add(b, c));
    same("neg.f64 %wd, %wa;", &|a, _, _| -a);
}

#[test]
fn what_has_no_defined_bits_is_refused() {
    for (text, word) in [
        ("ex2.approx.f32 %d, %a;", "approx"),
        ("rcp.approx.ftz.f32 %d, %a;", "ftz"),
        ("add.ftz.f32 %d, %a, %b;", "ftz"),
        ("div.full.f32 %d, %a, %b;", "full"),
        ("atom.global.add.f32 %d, [%wa], %b;", "atomics"),
        ("frobnicate.u32 %d, %a;", "not supported"),
        ("add.rn.f32.strange %d, %a, %b;", "strange"),
        ("div.f32 %d, %a, %b;", "rounding"),
    ] {
        let module = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %a, %b, %d;\n.reg .b64 %wa;\n{text}\nret; }}"
        );
        let error = ptx_sim::Module::parse("m", &module).unwrap_err();
        let opcode = text.split(' ').next().unwrap();
        assert_eq!(error.line, 7, "{error}");
        let message = error.to_string();
        assert!(
            message.contains(opcode) && message.contains(word) && message.starts_with("m.ptx:7:"),
            "{message}"
        );
    }
}
