//! What the lanes of a warp do together, vector and sub-word memory, atomics, tables, matrix products.

mod common;

use common::{Run, again_on_every_instruction_set, module, params, read_words, words};
use ptx_sim::{FaultKind, Memory};

#[test]
fn on_every_instruction_set() {
    again_on_every_instruction_set();
}

/// Runs `body` over one warp: `%l` is the lane, `%in` and `%out` point to 32-bit words; it leaves a result in `%d`.
fn lanes(body: &str, input: &[u32]) -> Vec<u32> {
    let text = format!(
        "
.global .align 4 .u32 counter = 5;
.const .align 4 .b8 table[16] = {{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 255, 255, 255, 127}};
.visible .entry k(.param .u64 in, .param .u64 out) {{
 .reg .b64 %in, %out, %at, %x<8>; .reg .b32 %l, %a, %b, %c, %d, %e<8>, %o; .reg .b16 %h<4>; .reg .pred %p, %q;
 .shared .align 16 .b8 s[2048];
 ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
 mov.u32 %l, %laneid; shl.b32 %o, %l, 2;
 mul.wide.u32 %at, %l, 4; add.s64 %at, %at, %in; ld.global.u32 %a, [%at];
 {body}
 mul.wide.u32 %at, %l, 4; add.s64 %at, %at, %out; st.global.u32 [%at], %d;
 ret;
}}"
    );
    let module = module(&text);
    let memory = Memory::new();
    let (input, out) = (words(&memory, "in", input), words(&memory, "out", &[0; 32]));
    Run::new(&module, &memory, "k")
        .go(&params(&[input, out]))
        .unwrap_or_else(|fault| panic!("{body}: {fault}"));
    read_words(&memory, out, 32)
}

fn numbers() -> Vec<u32> {
    (0..64u32).map(|i| i.wrapping_mul(2654435761) ^ 0x5bd1_e995).collect()
}

/// `f` of each lane.
fn each(f: impl Fn(usize) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles() {
    let n = numbers();
    for distance in [1, 2, 3, 4, 5, 8, 15, 16, 21, 31] {
        let got = lanes(&format!("shfl.sync.bfly.b32 %d, %a, {distance}, 31, -1;"), &n);
        assert_eq!(got, each(|i| n[i ^ distance]));
        // The distance in a register.
        let got = lanes(&format!("mov.u32 %b, {distance}; shfl.sync.bfly.b32 %d, %a, %b, 31, -1;"), &n);
        assert_eq!(got, each(|i| n[i ^ distance]));
        let got = lanes(&format!("shfl.sync.up.b32 %d|%p, %a, {distance}, 0, -1; @!%p mov.u32 %d, 7;"), &n);
        assert_eq!(got, each(|i| if i >= distance { n[i - distance] } else { 7 }));
        let got = lanes(&format!("shfl.sync.down.b32 %d, %a, {distance}, 31, -1;"), &n);
        assert_eq!(got, each(|i| if i + distance < 32 { n[i + distance] } else { n[i] }));
        let got = lanes(&format!("shfl.sync.idx.b32 %d, %a, {distance}, 31, -1;"), &n);
        assert_eq!(got, each(|_| n[distance]));
        // Segments of 8 lanes: the mask 0b11000 in the upper byte, the clamp 7 within a segment.
        let got = lanes(&format!("shfl.sync.down.b32 %d, %a, {distance}, 6175, -1;"), &n);
        let d = distance % 32;
        assert_eq!(got, each(|i| if i % 8 + d < 8 { n[i + d] } else { n[i] }));
        let got = lanes(&format!("shfl.sync.idx.b32 %d, %a, {distance}, 6175, -1;"), &n);
        assert_eq!(got, each(|i| n[i / 8 * 8 + d % 8]));
    }
    let got = lanes("xor.b32 %b, %l, 5; mul.lo.u32 %b, %b, 7; shfl.sync.idx.b32 %d, %a, %b, 31, -1;", &n);
    assert_eq!(got, each(|i| n[(i ^ 5) * 7 % 32]));
    // Two tiles of 16 lanes, each naming itself.
    let got = lanes(
        "setp.lt.u32 %p, %l, 16; selp.u32 %b, 0xffff, 0xffff0000, %p; shfl.sync.bfly.b32 %d, %a, 3, 4127, %b;",
        &n,
    );
    assert_eq!(got, each(|i| n[i ^ 3]));
}

#[test]
fn votes_matches_and_reductions() {
    let n: Vec<u32> = (0..64).map(|i| i / 3 % 5).collect();
    let ballot = |f: &dyn Fn(u32) -> bool| (0..32).fold(0u32, |m, i| m | u32::from(f(n[i])) << i);
    let got = lanes("setp.eq.u32 %p, %a, 2; vote.sync.ballot.b32 %d, %p, -1;", &n);
    assert_eq!(got, vec![ballot(&|x| x == 2); 32]);
    let got = lanes("setp.lt.u32 %p, %a, 5; vote.sync.all.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;", &n);
    assert_eq!(got, vec![1; 32]);
    let got = lanes("setp.eq.u32 %p, %a, 9; vote.sync.any.pred %q, !%p, -1; selp.u32 %d, 1, 0, %q;", &n);
    assert_eq!(got, vec![1; 32]);
    let got = lanes("match.any.sync.b32 %d, %a, -1;", &n);
    assert_eq!(got, each(|i| ballot(&|x| x == n[i])));
    let got = lanes("match.all.sync.b32 %d|%p, %a, -1; selp.u32 %b, 16, 0, %p; or.b32 %d, %d, %b;", &n);
    assert_eq!(got, vec![0; 32]);
    let got = lanes("setp.gt.u32 %p, %l, 3; @%p bra X; activemask.b32 %d; bra Y; X: mov.u32 %d, 1; Y:", &n);
    assert_eq!(got, each(|i| if i > 3 { 1 } else { 15 }));
    let n = numbers();
    let fold = |f: fn(u32, u32) -> u32| n[..32].iter().copied().reduce(f).unwrap();
    for (op, want) in [
        ("add.u32", fold(u32::wrapping_add)),
        ("min.u32", fold(u32::min)),
        ("max.u32", fold(u32::max)),
        ("min.s32", fold(|a, b| (a as i32).min(b as i32) as u32)),
        ("max.s32", fold(|a, b| (a as i32).max(b as i32) as u32)),
        ("and.b32", fold(|a, b| a & b)),
        ("or.b32", fold(|a, b| a | b)),
        ("xor.b32", fold(|a, b| a ^ b)),
    ] {
        assert_eq!(lanes(&format!("redux.sync.{op} %d, %a, -1;"), &n), vec![want; 32], "{op}");
    }
}

#[test]
fn a_mask_that_names_absent_lanes_is_a_fault() {
    let module = module(
        ".visible .entry k() { .reg .b32 %r<4>; .reg .pred %p; mov.u32 %r1, %laneid; setp.lt.u32 %p, %r1, 8;
         @!%p bra X;
         shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
         X: ret; }",
    );
    let fault = Run::new(&module, &Memory::new(), "k").go(&[]).unwrap_err();
    let FaultKind::Divergence(what) = &fault.kind else { panic!("{fault}") };
    assert!(what.contains("0xffffff00"), "{what}");
    assert_eq!(fault.line, 6);
}

#[test]
fn memory_of_every_width() {
    let n = numbers();
    let byte = |i: usize| n[i / 4] >> (8 * (i % 4)) & 0xff;
    let got = lanes("cvt.u64.u32 %x1, %l; add.s64 %x1, %x1, %in; ld.global.u8 %d, [%x1+3];", &n);
    assert_eq!(got, each(|i| byte(i + 3)));
    let got = lanes("cvt.u64.u32 %x1, %l; add.s64 %x1, %x1, %in; ld.global.s8 %d, [%x1];", &n);
    assert_eq!(got, each(|i| byte(i) as i8 as u32));
    let got = lanes(
        "cvt.u64.u32 %x1, %l; add.s64 %x1, %x1, %in; ld.global.s8 %h1, [%x1]; cvt.u32.u16 %d, %h1;",
        &n,
    );
    assert_eq!(got, each(|i| byte(i) as i8 as u32 & 0xffff));
    let half = |i: usize| n[i / 2] >> (16 * (i % 2)) & 0xffff;
    let got = lanes("mul.wide.u32 %x1, %l, 2; add.s64 %x1, %x1, %in; ld.global.s16 %d, [%x1+2];", &n);
    assert_eq!(got, each(|i| half(i + 1) as i16 as u32));
    let got = lanes(
        "mul.wide.u32 %x1, %l, 2; add.s64 %x1, %x1, %in; ld.global.s16 %x2, [%x1]; shr.u64 %x2, %x2, 24; cvt.u32.u64 %d, %x2;",
        &n,
    );
    assert_eq!(got, each(|i| ((i64::from(half(i) as i16)) as u64 >> 24) as u32));
    // Vectors: contiguous, strided, uniform, scattered.
    for (stride, what) in [(8u32, "contiguous"), (24, "strided"), (0, "uniform")] {
        let text = format!(
            "mul.lo.u32 %b, %l, {stride}; rem.u32 %b, %b, 248; cvt.u64.u32 %x1, %b; add.s64 %x1, %x1, %in;
             ld.global.v2.u32 {{%e1, %e2}}, [%x1]; mad.lo.u32 %d, %e1, 3, %e2;"
        );
        let got = lanes(&text, &n);
        let at = |i: usize| (i * stride as usize) % 248 / 4;
        assert_eq!(got, each(|i| n[at(i)].wrapping_mul(3).wrapping_add(n[at(i) + 1])), "{what}");
    }
    for stride in [0usize, 16, 48, 112] {
        let text = format!(
            "mul.lo.u32 %b, %l, {stride}; and.b32 %b, %b, 0xf0; cvt.u64.u32 %x1, %b; add.s64 %x1, %x1, %in;
             ld.global.v4.u32 {{%e1, %e2, %e3, %e4}}, [%x1];
             mad.lo.u32 %d, %e1, 3, %e2; mad.lo.u32 %d, %d, 3, %e3; mad.lo.u32 %d, %d, 3, %e4;"
        );
        let want = each(|i| {
            let at = ((i * stride) & 0xf0) / 4;
            n[at..at + 4].iter().fold(0u32, |d, x| d.wrapping_mul(3).wrapping_add(*x))
        });
        assert_eq!(lanes(&text, &n), want, "stride {stride}");
    }
    // Through shared memory, transposed: v4 stores, strided loads; then sub-word vectors.
    let got = lanes(
        "mov.u32 %b, s; mad.lo.u32 %c, %l, 16, %b; add.u32 %e1, %a, 1; add.u32 %e2, %a, 2; add.u32 %e3, %a, 3;
         st.shared.v4.u32 [%c], {%a, %e1, %e2, %e3};
         bar.warp.sync -1;
         xor.b32 %e4, %l, 13; mad.lo.u32 %c, %e4, 16, %b; ld.shared.u32 %d, [%c+8];",
        &n,
    );
    assert_eq!(got, each(|i| n[i ^ 13].wrapping_add(2)));
    let got = lanes(
        "mov.u32 %b, s; add.u32 %c, %b, %o; st.shared.u32 [%c], %a;
         ld.shared.v2.u16 {%h1, %h2}, [%c]; mov.b32 %d, {%h2, %h1};",
        &n,
    );
    assert_eq!(got, each(|i| n[i].rotate_left(16)));
    let got = lanes(
        "mov.u32 %b, s; shl.b32 %c, %l, 3; add.u32 %c, %c, %b; mov.b64 %x1, {%a, %l}; st.shared.u64 [%c], %x1;
         ld.shared.v2.u64 {%x2, %x3}, [s+32]; cvt.u32.u64 %d, %x3;",
        &n,
    );
    assert_eq!(got, vec![n[5]; 32]);
    // Only some lanes, and the rest keep what they had.
    let got = lanes("mov.u32 %d, 77; setp.gt.u32 %p, %l, 20; @%p ld.global.u32 %d, [%at+4];", &n);
    assert_eq!(got, each(|i| if i > 20 { n[i + 1] } else { 77 }));
}

#[test]
fn local_generic_and_constant_memory() {
    let n = numbers();
    let got = lanes(
        ".local .align 16 .b8 depot[64];
         mov.u64 %x1, depot; st.local.v2.u32 [%x1+8], {%a, %l};
         cvta.local.u64 %x2, %x1; ld.u32 %b, [%x2+8]; ld.local.u32 %c, [depot+12]; xor.b32 %d, %b, %c;",
        &n,
    );
    assert_eq!(got, each(|i| n[i] ^ i as u32));
    let got = lanes(
        "mov.u64 %x1, s; cvta.shared.u64 %x2, %x1; mul.wide.u32 %x3, %l, 4; add.s64 %x2, %x2, %x3; st.u32 [%x2], %a;
         bar.warp.sync -1; xor.b32 %b, %l, 1; mul.wide.u32 %x3, %b, 4; add.s64 %x1, %x1, %x3; ld.shared.u32 %d, [%x1];",
        &n,
    );
    assert_eq!(got, each(|i| n[i ^ 1]));
    let got = lanes(
        "and.b32 %b, %l, 3; mul.wide.u32 %x1, %b, 4; mov.u64 %x2, table; add.s64 %x1, %x1, %x2; ld.const.u32 %d, [%x1];
         ld.const.u32 %c, [table+4]; add.u32 %d, %d, %c;",
        &n,
    );
    assert_eq!(got, each(|i| [1, 2, 3, 0x7fff_ffff][i % 4] + 2));
}

#[test]
fn atomics_return_what_was_there() {
    let n = numbers();
    let got = lanes("mov.u64 %x1, counter; atom.global.add.u32 %d, [%x1], 2;", &n);
    assert_eq!(got, each(|i| 5 + 2 * i as u32));
    let got = lanes("mov.u64 %x1, counter; atom.global.inc.u32 %d, [%x1], 6;", &n);
    assert_eq!(got, each(|i| (5 + i as u32) % 7));
    let got = lanes("mov.u64 %x1, counter; atom.global.dec.u32 %d, [%x1], 6;", &n);
    assert_eq!(got, each(|i| (5 + 7 * 32 - i as u32) % 7));
    let got = lanes("mov.u64 %x1, counter; atom.global.exch.b32 %d, [%x1], %l;", &n);
    assert_eq!(got, each(|i| if i == 0 { 5 } else { i as u32 - 1 }));
    let got = lanes(
        "mov.u64 %x1, counter; add.u32 %b, %l, 5; add.u32 %c, %l, 6; atom.global.cas.b32 %d, [%x1], %b, %c;",
        &n,
    );
    assert_eq!(got, each(|i| 5 + i as u32));
    let got = lanes(
        "mov.u32 %b, s; mov.u32 %c, 0; st.shared.u32 [%b], %c; red.shared.max.s32 [%b], %a; red.shared.or.b32 [%b+4], %l;
         ld.shared.u32 %d, [%b]; ld.shared.u32 %c, [%b+4]; xor.b32 %d, %d, %c;",
        &n,
    );
    let most = n[..32].iter().map(|&x| x as i32).max().unwrap().max(0) as u32;
    assert_eq!(got, vec![most ^ 31; 32]);
}

#[test]
fn indexed_branches() {
    let n = numbers();
    let got = lanes(
        "and.b32 %b, %a, 3; brx.idx %b, T; T: .branchtargets A, B, C, B; A: mov.u32 %d, 10; bra E; B: mov.u32 %d, 20; bra E;
         C: mov.u32 %d, 30; E: activemask.b32 %c; and.b32 %c, %c, 1; add.u32 %d, %d, %c;",
        &n,
    );
    assert_eq!(got, each(|i| [11, 21, 31, 21][n[i] as usize & 3]));
}

#[test]
fn asynchronous_copies_and_matrices() {
    let n = numbers();
    let got = lanes(
        "mov.u32 %b, s; add.u32 %c, %b, %o; cp.async.ca.shared.global [%c], [%at+4], 4; cp.async.commit_group;
         cp.async.wait_group 0; bar.warp.sync -1; ld.shared.u32 %d, [%c];",
        &n,
    );
    assert_eq!(got, each(|i| n[i + 1]));
    // ldmatrix: 8 × 8 halves, row r at 16 r; lane i gets row i / 4, halves 2 (i % 4) and the next.
    let got = lanes(
        "mov.u32 %b, s; add.u32 %c, %b, %o; st.shared.u32 [%c], %a; bar.warp.sync -1; mad.lo.u32 %c, %l, 16, %b;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d}, [%c];",
        &n,
    );
    assert_eq!(got, each(|i| n[i]));
    let got = lanes(
        "mov.u32 %b, s; add.u32 %c, %b, %o; st.shared.u32 [%c], %a; bar.warp.sync -1; mad.lo.u32 %c, %l, 16, %b;
         ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%d}, [%c];",
        &n,
    );
    let half = |row: usize, column: usize| n[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
    assert_eq!(got, each(|i| half(2 * (i % 4), i / 4) | half(2 * (i % 4) + 1, i / 4) << 16));
}

#[test]
fn integer_matrix_products() {
    // D = A · B + C with A[r][k] = r + 2 k − 20 and B[k][c] = 3 c − k, both s8, C = 1000 (r + c): fragments are made from
    // the layout in the PTX ISA, and each element is checked in plain arithmetic.
    let a = |r: i32, k: i32| r + 2 * k - 20;
    let b = |k: i32, c: i32| 3 * c - k;
    for which in 0..4usize {
        let text = format!(
            "shr.u32 %b, %l, 2; and.b32 %c, %l, 3; shl.b32 %c, %c, 2;
             .reg .b32 %k, %v, %w<8>, %z<4>, %y<4>, %t;
             {}
             mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {{%y0, %y1, %y2, %y3}}, {{%w0, %w1, %w2, %w3}}, {{%w4, %w5}}, {{%z0, %z1, %z2, %z3}};
             mov.u32 %d, %y{which};",
            (0..6)
                .map(|register| {
                    // Four bytes of a register, from k = 4 t (+ 16 for the later registers).
                    let bytes: String = (0..4)
                        .map(|i| {
                            let (row, far) = if register < 4 { (register % 2 * 8, register / 2 * 16) } else { (0, (register - 4) * 16) };
                            let value = if register < 4 {
                                format!("mad.lo.s32 %v, %k, 2, %b; add.s32 %v, %v, {};", row - 20)
                            } else {
                                "mul.lo.s32 %v, %b, 3; sub.s32 %v, %v, %k;".to_string()
                            };
                            format!("add.s32 %k, %c, {}; {value} and.b32 %v, %v, 255; shl.b32 %v, %v, {}; or.b32 %w{register}, %w{register}, %v;\n", far + i, 8 * i)
                        })
                        .collect();
                    format!("mov.b32 %w{register}, 0;\n{bytes}")
                })
                .chain((0..4).map(|register| {
                    // Row g (+ 8), column 2 t (+ 1).
                    format!(
                        "shr.u32 %t, %c, 1; add.s32 %t, %t, {}; add.s32 %t, %t, %b; mul.lo.s32 %z{register}, %t, 1000;\n",
                        register % 2 + register / 2 * 8
                    )
                }))
                .collect::<String>()
        );
        let got = lanes(&text, &numbers());
        for (lane, got) in got.into_iter().enumerate() {
            let (r, c) = ((lane / 4 + 8 * (which / 2)) as i32, (2 * (lane % 4) + which % 2) as i32);
            let sum: i32 = (0..32).map(|k| i32::from(a(r, k) as i8) * i32::from(b(k, c) as i8)).sum();
            assert_eq!(got as i32, sum + 1000 * (r + c), "register {which}, lane {lane}");
        }
    }
}

#[test]
fn integer_matrix_products_of_any_bytes() {
    // Bytes that are no pattern, in all of B or only in the words of lanes 4 n + n / 2, of whose columns n those lanes are the only
    // ones to have any; against plain arithmetic over the layout in the PTX ISA.
    let hash = |i: u32| {
        let h = (i + 1).wrapping_mul(0x9e37_79b9);
        (h ^ h >> 15).wrapping_mul(0x85eb_ca6b)
    };
    for own in [false, true] {
        let word = |register: u32, lane: u32| match register {
            4 | 5 if own && lane % 4 != lane / 8 => 0,
            _ => hash(32 * register + lane),
        };
        for which in 0..4u32 {
            let registers: String = (0..10u32)
                .map(|register| {
                    let name =
                        if register < 6 { format!("%w{register}") } else { format!("%z{}", register - 6) };
                    let lanes: String = (0..32)
                        .map(|lane| {
                            let value = word(register, lane);
                            format!("setp.eq.u32 %p, %l, {lane}; @%p mov.u32 {name}, {value};\n")
                        })
                        .collect();
                    format!("mov.u32 {name}, 0;\n{lanes}")
                })
                .collect();
            let text = format!(
                ".reg .b32 %w<6>, %z<4>; {registers}
                 mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {{%z0, %z1, %z2, %z3}}, {{%w0, %w1, %w2, %w3}}, {{%w4, %w5}}, {{%z0, %z1, %z2, %z3}};
                 mov.u32 %d, %z{which};"
            );
            for (lane, got) in (0u32..).zip(lanes(&text, &numbers())) {
                let (row, column) = (lane / 4 + 8 * (which / 2), 2 * (lane % 4) + which % 2);
                let byte = |word: u32, k: u32| i32::from((word >> (8 * (k % 4))) as u8 as i8);
                let sum = (0..32u32).fold(word(6 + which, lane) as i32, |sum, k| {
                    let a = byte(word(row / 8 + k / 16 * 2, row % 8 * 4 + k % 16 / 4), k);
                    let b = byte(word(4 + k / 16, column * 4 + k % 16 / 4), k);
                    sum.wrapping_add(a * b)
                });
                assert_eq!(got as i32, sum, "own {own}, register {which}, lane {lane}");
            }
        }
    }
}
