//! Integer instructions over special and random bit patterns, against arithmetic in 128 bits.

mod common;

use common::{again_on_every_instruction_set, check, patterns32, triples};

#[test]
fn on_every_instruction_set() {
    again_on_every_instruction_set();
}

fn inputs32() -> Vec<[u64; 3]> {
    let values: Vec<u64> = patterns32().into_iter().map(u64::from).collect();
    triples(&values)
}

fn inputs64() -> Vec<[u64; 3]> {
    let p = patterns32();
    let mut values: Vec<u64> = p.iter().step_by(2).map(|&x| u64::from(x)).collect();
    values
        .extend(p.iter().enumerate().map(|(i, &x)| u64::from(x) << 32 | u64::from(p[(i * 5 + 3) % p.len()])));
    values.extend([u64::MAX, 1 << 63, (1 << 63) - 1, (1 << 63) + 1, 1 << 32, (1 << 32) - 1]);
    triples(&values)
}

/// The value of the low `bits` of `x` as a signed or unsigned number.
fn value(x: u64, bits: u32, signed: bool) -> i128 {
    let x = if bits == 64 { x } else { x & ((1 << bits) - 1) };
    if signed && x >> (bits - 1) & 1 == 1 { i128::from(x) - (1 << bits) } else { i128::from(x) }
}

fn low(x: i128, bits: u32) -> u64 {
    (x as u128 & ((1u128 << bits) - 1)) as u64
}

/// Source registers, destination and result name for a width.
fn names(bits: u32) -> ([&'static str; 3], &'static str) {
    match bits {
        16 => (["%ha", "%hb", "%hc"], "hd"),
        32 => (["%a", "%b", "%c"], "d"),
        _ => (["%wa", "%wb", "%wc"], "wd"),
    }
}

type Reference = fn(i128, i128, i128, u32) -> i128;

#[test]
fn arithmetic_wraps() {
    let table: &[(&str, bool, usize, Reference)] = &[
        ("add.u", false, 2, |a, b, _, _| a + b),
        ("add.s", true, 2, |a, b, _, _| a + b),
        ("sub.u", false, 2, |a, b, _, _| a - b),
        ("sub.s", true, 2, |a, b, _, _| a - b),
        ("mul.lo.u", false, 2, |a, b, _, _| (a as u128).wrapping_mul(b as u128) as i128),
        ("mul.lo.s", true, 2, |a, b, _, _| a * b),
        ("mul.hi.u", false, 2, |a, b, _, w| ((a as u128).wrapping_mul(b as u128) >> w) as i128),
        ("mul.hi.s", true, 2, |a, b, _, w| (a * b) >> w),
        ("mad.lo.u", false, 3, |a, b, c, _| ((a as u128).wrapping_mul(b as u128) as i128).wrapping_add(c)),
        ("mad.lo.s", true, 3, |a, b, c, _| (a * b).wrapping_add(c)),
        ("min.u", false, 2, |a, b, _, _| a.min(b)),
        ("min.s", true, 2, |a, b, _, _| a.min(b)),
        ("max.u", false, 2, |a, b, _, _| a.max(b)),
        ("max.s", true, 2, |a, b, _, _| a.max(b)),
        ("abs.s", true, 1, |a, _, _, _| a.abs()),
        ("neg.s", true, 1, |a, _, _, _| -a),
        ("and.b", false, 2, |a, b, _, _| a & b),
        ("or.b", false, 2, |a, b, _, _| a | b),
        ("xor.b", false, 2, |a, b, _, _| a ^ b),
        ("not.b", false, 1, |a, _, _, _| !a),
        ("cnot.b", false, 1, |a, _, _, _| i128::from(a == 0)),
        ("sad.u", false, 3, |a, b, c, _| (a - b).abs() + c),
        ("sad.s", true, 3, |a, b, c, _| (a - b).abs() + c),
    ];
    for bits in [16, 32, 64] {
        let inputs = if bits == 64 { inputs64() } else { inputs32() };
        let (sources, d) = names(bits);
        for &(name, signed, arity, reference) in table {
            let text = format!("{name}{bits} %{d}, {};", sources[..arity].join(", "));
            check(&text, d, &inputs, |a, b, c| {
                let v = |x| value(x, bits, signed);
                low(reference(v(a), v(b), v(c), bits), bits)
            });
        }
    }
}

#[test]
fn division_truncates() {
    for bits in [16, 32, 64] {
        let inputs: Vec<_> = if bits == 64 { inputs64() } else { inputs32() };
        let inputs: Vec<_> = inputs.into_iter().filter(|[_, b, _]| value(*b, bits, false) != 0).collect();
        let ([a, b, _], d) = names(bits);
        for signed in [false, true] {
            let t = if signed { 's' } else { 'u' };
            let v = |x| value(x, bits, signed);
            check(&format!("div.{t}{bits} %{d}, {a}, {b};"), d, &inputs, |a, b, _| low(v(a) / v(b), bits));
            check(&format!("rem.{t}{bits} %{d}, {a}, {b};"), d, &inputs, |a, b, _| low(v(a) % v(b), bits));
        }
    }
}

#[test]
fn wide_products() {
    let inputs = inputs32();
    for signed in [false, true] {
        let t = if signed { 's' } else { 'u' };
        let v = |x, bits| value(x, bits, signed);
        check(&format!("mul.wide.{t}32 %wd, %a, %b;"), "wd", &inputs, |a, b, _| low(v(a, 32) * v(b, 32), 64));
        check(&format!("mul.wide.{t}16 %d, %ha, %hb;"), "d", &inputs, |a, b, _| low(v(a, 16) * v(b, 16), 32));
        check(&format!("mad.wide.{t}32 %wd, %a, %b, %wc;"), "wd", &inputs, |a, b, c| {
            low(v(a, 32) * v(b, 32) + i128::from(c), 64)
        });
        check(&format!("mad.wide.{t}16 %d, %ha, %hb, %c;"), "d", &inputs, |a, b, c| {
            low(v(a, 16) * v(b, 16) + i128::from(c), 32)
        });
        check(&format!("mad.hi.{t}32 %d, %a, %b, %c;"), "d", &inputs, |a, b, c| {
            low(((v(a, 32) * v(b, 32)) >> 32) + i128::from(c), 32)
        });
        check(&format!("mul24.lo.{t}32 %d, %a, %b;"), "d", &inputs, |a, b, _| low(v(a, 24) * v(b, 24), 32));
    }
}

#[test]
fn shift_counts_clamp() {
    for bits in [16, 32, 64] {
        let inputs = if bits == 64 { inputs64() } else { inputs32() };
        let (sources, d) = names(bits);
        let a = sources[0];
        check(&format!("shl.b{bits} %{d}, {a}, %b;"), d, &inputs, |a, b, _| {
            let n = (b as u32).min(bits);
            low(value(a, bits, false) << n, bits)
        });
        for signed in [false, true] {
            let t = if signed { 's' } else { 'u' };
            check(&format!("shr.{t}{bits} %{d}, {a}, %b;"), d, &inputs, |a, b, _| {
                low(value(a, bits, signed) >> (b as u32).min(bits), bits)
            });
        }
    }
    let inputs = inputs32();
    let pair = |a: u64, b: u64| u128::from(b & 0xffff_ffff) << 32 | u128::from(a & 0xffff_ffff);
    check("shf.l.wrap.b32 %d, %a, %b, %c;", "d", &inputs, |a, b, c| {
        (pair(a, b) << (c & 31) >> 32) as u32 as u64
    });
    check("shf.r.wrap.b32 %d, %a, %b, %c;", "d", &inputs, |a, b, c| (pair(a, b) >> (c & 31)) as u32 as u64);
    check("shf.l.clamp.b32 %d, %a, %b, %c;", "d", &inputs, |a, b, c| {
        (pair(a, b) << (c as u32).min(32) >> 32) as u32 as u64
    });
    check("shf.r.clamp.b32 %d, %a, %b, %c;", "d", &inputs, |a, b, c| {
        (pair(a, b) >> (c as u32).min(32)) as u32 as u64
    });
}

fn bit(x: u64, i: u32) -> u64 {
    x >> i & 1
}

#[test]
fn bits_and_fields() {
    for bits in [32u32, 64] {
        let inputs = if bits == 64 { inputs64() } else { inputs32() };
        let (sources, d) = names(bits);
        let a = sources[0];
        let width = move |x: u64| if bits == 64 { x } else { x & 0xffff_ffff };
        check(&format!("popc.b{bits} %d, {a};"), "d", &inputs, |a, _, _| (0..bits).map(|i| bit(a, i)).sum());
        check(&format!("clz.b{bits} %d, {a};"), "d", &inputs, |a, _, _| {
            (0..bits).rev().take_while(|&i| bit(a, i) == 0).count() as u64
        });
        check(&format!("brev.b{bits} %{d}, {a};"), d, &inputs, |a, _, _| {
            (0..bits).fold(0, |out, i| out | bit(a, i) << (bits - 1 - i))
        });
        for signed in [false, true] {
            let t = if signed { 's' } else { 'u' };
            let find = move |a: u64| {
                let a = if signed && bit(a, bits - 1) == 1 { !a } else { a };
                (0..bits).rev().find(|&i| bit(a, i) == 1)
            };
            check(&format!("bfind.{t}{bits} %d, {a};"), "d", &inputs, |a, _, _| {
                find(a).map_or(0xffff_ffff, u64::from)
            });
            check(&format!("bfind.shiftamt.{t}{bits} %d, {a};"), "d", &inputs, |a, _, _| {
                find(a).map_or(0xffff_ffff, |i| u64::from(bits - 1 - i))
            });
            // The definition in the PTX ISA, bit by bit.
            check(&format!("bfe.{t}{bits} %{d}, {a}, %b, %c;"), d, &inputs, |a, b, c| {
                let (at, len) = ((b & 0xff) as u32, (c & 0xff) as u32);
                let sign = if signed && len > 0 { bit(a, (at + len - 1).min(bits - 1)) } else { 0 };
                (0..bits)
                    .fold(0, |out, i| out | if i < len && at + i < bits { bit(a, at + i) } else { sign } << i)
            });
        }
        let (x, y) = (sources[0], sources[1]);
        check(&format!("bfi.b{bits} %{d}, {x}, {y}, %c, %b;"), d, &inputs, |a, b, c| {
            let (at, len) = ((c & 0xff) as u32, (b & 0xff) as u32);
            (0..bits).fold(0, |out, i| {
                out | if i >= at && i < at + len { bit(a, i - at) } else { bit(width(b), i) } << i
            })
        });
    }
    let inputs = inputs32();
    for table in [0x00, 0x96, 0xe8, 0xca, 0x3c, 0xff, 0x01, 0x80] {
        check(&format!("lop3.b32 %d, %a, %b, %c, {table};"), "d", &inputs, |a, b, c| {
            (0..32).fold(0, |out, i| {
                let row = bit(a, i) << 2 | bit(b, i) << 1 | bit(c, i);
                out | (table >> row & 1) << i
            })
        });
    }
}

#[test]
fn byte_permutation() {
    let inputs = inputs32();
    check("prmt.b32 %d, %a, %b, %c;", "d", &inputs, |a, b, c| {
        let bytes = (a & 0xffff_ffff | b << 32).to_le_bytes();
        (0..4).fold(0, |out, i| {
            let s = (c >> (4 * i) & 0xf) as usize;
            let byte = bytes[s & 7];
            let byte = if s & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
            out | u64::from(byte) << (8 * i)
        })
    });
    // The table of modes in the PTX ISA: the sources of bytes 3, 2, 1, 0 for the selector's values 0 to 3.
    let modes: [(&str, [[usize; 4]; 4]); 6] = [
        ("f4e", [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]]),
        ("b4e", [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]]),
        ("rc8", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecl", [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]]),
        ("ecr", [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]]),
        ("rc16", [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]]),
    ];
    for (mode, table) in modes {
        check(&format!("prmt.b32.{mode} %d, %a, %b, %c;"), "d", &inputs, |a, b, c| {
            let bytes = (a & 0xffff_ffff | b << 32).to_le_bytes();
            let row = table[(c & 3) as usize];
            (0..4).fold(0, |out, i| out | u64::from(bytes[row[3 - i]]) << (8 * i))
        });
    }
}

#[test]
fn dot_products() {
    let inputs = inputs32();
    for (t, first) in [("u", false), ("s", true)] {
        for (u, second) in [("u", false), ("s", true)] {
            check(&format!("dp4a.{t}32.{u}32 %d, %a, %b, %c;"), "d", &inputs, |a, b, c| {
                let sum: i128 =
                    (0..4).map(|i| value(a >> (8 * i), 8, first) * value(b >> (8 * i), 8, second)).sum();
                low(sum + i128::from(c), 32)
            });
            for (half, shift) in [("lo", 0), ("hi", 16)] {
                check(&format!("dp2a.{half}.{t}32.{u}32 %d, %a, %b, %c;"), "d", &inputs, |a, b, c| {
                    let sum: i128 = (0..2)
                        .map(|i| value(a >> (16 * i), 16, first) * value(b >> (8 * i + shift), 8, second))
                        .sum();
                    low(sum + i128::from(c), 32)
                });
            }
        }
    }
}

#[test]
fn carries_make_wider_sums() {
    let inputs = inputs64();
    check(
        "cvt.u32.u64 %a, %wa; cvt.u32.u64 %b, %wb; shr.u64 %wc, %wa, 32; cvt.u32.u64 %c, %wc; shr.u64 %wc, %wb, 32;
         cvt.u32.u64 %d, %wc; add.cc.u32 %e, %a, %b; addc.u32 %f, %c, %d; mov.b64 %wd, {%e, %f};",
        "wd",
        &inputs,
        |a, b, _| a.wrapping_add(b),
    );
    check(
        "shr.u64 %wc, %wa, 32; cvt.u32.u64 %c, %wc; shr.u64 %wc, %wb, 32;
         cvt.u32.u64 %d, %wc; sub.cc.u32 %e, %a, %b; subc.u32 %f, %c, %d; mov.b64 %wd, {%e, %f};",
        "wd",
        &inputs,
        |a, b, _| a.wrapping_sub(b),
    );
}

/// A comparison's name and what it means.
type Relation = (&'static str, fn(&i128, &i128) -> bool);

#[test]
fn comparisons_and_selection() {
    for (t, bits, signed) in [
        ("u16", 16, false),
        ("s16", 16, true),
        ("u32", 32, false),
        ("s32", 32, true),
        ("u64", 64, false),
        ("s64", 64, true),
    ] {
        let inputs = if bits == 64 { inputs64() } else { inputs32() };
        let ([a, b, _], _) = names(bits);
        let table: [Relation; 6] = [
            ("eq", i128::eq),
            ("ne", i128::ne),
            ("lt", i128::lt),
            ("le", i128::le),
            ("gt", i128::gt),
            ("ge", i128::ge),
        ];
        for (name, holds) in table {
            let result = |a, b| holds(&value(a, bits, signed), &value(b, bits, signed));
            check(&format!("setp.{name}.{t} %p, {a}, {b};"), "p", &inputs, |a, b, _| result(a, b).into());
            // %q is c != 0 in the low 32 bits.
            check(
                &format!("setp.{name}.and.{t} %p|%r, {a}, {b}, !%q; xor.pred %p, %p, %r;"),
                "p",
                &inputs,
                |_, _, c| u64::from(c as u32 == 0),
            );
            check(&format!("setp.{name}.or.{t} %p, {a}, {b}, %q;"), "p", &inputs, |a, b, c| {
                u64::from(result(a, b) || c as u32 != 0)
            });
            check(&format!("set.{name}.u32.{t} %d, {a}, {b};"), "d", &inputs, |a, b, _| {
                if result(a, b) { 0xffff_ffff } else { 0 }
            });
        }
    }
    let inputs = inputs64();
    check("selp.b64 %wd, %wa, %wb, %q;", "wd", &inputs, |a, b, c| if c as u32 != 0 { a } else { b });
    check(
        "slct.s32.s32 %d, %a, %b, %c;",
        "d",
        &inputs,
        |a, b, c| if c as i32 >= 0 { a } else { b } & 0xffff_ffff,
    );
}

#[test]
fn packed_halves() {
    let inputs = inputs32();
    let both = |a: u64, b: u64, signed: bool, f: fn(i128, i128) -> i128| {
        let half = |shift| low(f(value(a >> shift, 16, signed), value(b >> shift, 16, signed)), 16);
        half(0) | half(16) << 16
    };
    check("add.u16x2 %d, %a, %b;", "d", &inputs, |a, b, _| both(a, b, false, |x, y| x + y));
    check("max.s16x2 %d, %a, %b;", "d", &inputs, |a, b, _| both(a, b, true, i128::max));
    check("min.s16x2 %d, %a, %b;", "d", &inputs, |a, b, _| both(a, b, true, i128::min));
    check("max.u16x2 %d, %a, %b;", "d", &inputs, |a, b, _| both(a, b, false, i128::max));
    check("mov.b32 {%hc, %hd}, %a;", "hd", &inputs, |a, _, _| a >> 16 & 0xffff);
    check("mov.b64 %wd, {%ha, %hb, %hc, %ha};", "wd", &inputs, |a, b, c| {
        a & 0xffff | (b & 0xffff) << 16 | (c & 0xffff) << 32 | (a & 0xffff) << 48
    });
    check("mov.b64 {%d, %e}, %wa; xor.b32 %d, %d, %e;", "d", &inputs64(), |a, _, _| {
        (a ^ a >> 32) & 0xffff_ffff
    });
}
