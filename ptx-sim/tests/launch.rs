//! Launches: indices, parameters, bounds, barriers, atomics, cooperation, determinism.

mod common;

use common::{Run, module, params, read_words, words};
use ptx_sim::{FaultKind, Memory};

#[test]
fn every_thread_knows_where_it_is() {
    let module = module(
        "
.visible .entry k(.param .u64 out) {
 .reg .b32 %r<12>; .reg .b64 %rd<4>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, %ntid.y;
 mad.lo.u32 %r6, %r4, %r2, %r3;
 mul.lo.u32 %r7, %r2, %r5;
 mad.lo.u32 %r8, %r1, %r7, %r6;
 mul.wide.u32 %rd2, %r8, 4;
 add.s64 %rd3, %rd1, %rd2;
 mov.u32 %r9, %laneid; mov.u32 %r10, %nctaid.x;
 shl.b32 %r9, %r9, 8; or.b32 %r9, %r9, %r8; shl.b32 %r10, %r10, 16; or.b32 %r9, %r9, %r10;
 st.global.u32 [%rd3], %r9;
 ret;
}",
    );
    for threads in [1, 2, 3] {
        let memory = Memory::new();
        let out = words(&memory, "out", &[0; 3 * 40]);
        let mut run = Run::new(&module, &memory, "k").grid(3);
        run.block = [8, 5, 1];
        run.threads = threads;
        let stats = run.go(&params(&[out])).unwrap();
        assert_eq!(stats.blocks, 3);
        for (i, word) in read_words(&memory, out, 120).into_iter().enumerate() {
            let lane = i as u32 % 40 % 32;
            assert_eq!(word, 3 << 16 | lane << 8 | i as u32);
        }
    }
}

#[test]
fn branches_loops_and_early_exits() {
    // Collatz steps of the thread's number, by a loop with a divergent trip count, after some threads have left.
    let module = module(
        "
.visible .entry k(.param .u64 out) {
 .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %tid.x;
 setp.eq.u32 %p1, %r1, 0;
 @%p1 ret;
 mov.u32 %r2, %r1; mov.u32 %r3, 0;
LOOP:
 setp.eq.u32 %p2, %r2, 1;
 @%p2 bra DONE;
 and.b32 %r4, %r2, 1;
 setp.ne.u32 %p3, %r4, 0;
 @%p3 bra ODD;
 shr.u32 %r2, %r2, 1;
 bra NEXT;
ODD:
 mad.lo.u32 %r2, %r2, 3, 1;
NEXT:
 add.u32 %r3, %r3, 1;
 bra.uni LOOP;
DONE:
 activemask.b32 %r5;
 mul.wide.u32 %rd2, %r1, 8;
 add.s64 %rd3, %rd1, %rd2;
 st.global.v2.u32 [%rd3], {%r3, %r5};
}",
    );
    let memory = Memory::new();
    let out = words(&memory, "out", &[99; 128]);
    Run::new(&module, &memory, "k").block(64).go(&params(&[out])).unwrap();
    let words = read_words(&memory, out, 128);
    for i in 1..64usize {
        let (mut n, mut steps) = (i, 0);
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        assert_eq!(words[2 * i], steps, "thread {i}");
        // All lanes that are left meet again behind the loop.
        assert_eq!(words[2 * i + 1], if i < 32 { !1 } else { !0 });
    }
    assert_eq!(words[0], 99);
}

#[test]
fn barriers_order_shared_memory() {
    // Each warp reverses what the others wrote, 20 times.
    let module = module(
        "
.visible .entry k(.param .u64 out) {
 .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;
 .shared .align 4 .b8 s[512];
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %tid.x;
 shl.b32 %r2, %r1, 2;
 mov.u32 %r3, s; add.u32 %r4, %r3, %r2; sub.u32 %r5, %r3, %r2;
 mov.u32 %r6, %r1; mov.u32 %r7, 0;
LOOP:
 st.shared.u32 [%r4], %r6;
 bar.sync 0;
 ld.shared.u32 %r6, [%r5+508];
 add.u32 %r6, %r6, 1;
 bar.sync 0;
 add.u32 %r7, %r7, 1;
 setp.lt.u32 %p1, %r7, 21;
 @%p1 bra LOOP;
 mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
 st.global.u32 [%rd3], %r6;
 ret;
}",
    );
    let memory = Memory::new();
    let out = words(&memory, "out", &[0; 128]);
    Run::new(&module, &memory, "k").block(128).go(&params(&[out])).unwrap();
    for (i, word) in read_words(&memory, out, 128).into_iter().enumerate() {
        assert_eq!(word, 127 - i as u32 + 21);
    }
}

#[test]
fn a_cooperative_grid_barrier_works() {
    // Every block adds its number, waits until all have, and reads the sum.
    let module = module(
        "
.visible .entry k(.param .u64 sum, .param .u64 count, .param .u64 out) {
 .reg .b32 %r<9>; .reg .b64 %rd<6>; .reg .pred %p<4>;
 ld.param.u64 %rd1, [sum]; ld.param.u64 %rd2, [count]; ld.param.u64 %rd3, [out];
 mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %tid.x;
 setp.ne.u32 %p1, %r3, 0;
 @%p1 bra WAIT;
 red.global.add.u32 [%rd1], %r1;
 membar.gl;
 red.release.gpu.global.add.u32 [%rd2], 1;
SPIN:
 ld.acquire.gpu.global.u32 %r4, [%rd2];
 setp.lt.u32 %p2, %r4, %r2;
 @%p2 bra SPIN;
WAIT:
 bar.sync 0;
 ld.global.u32 %r5, [%rd1];
 mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd3, %rd4;
 @!%p1 st.global.u32 [%rd5], %r5;
 ret;
}",
    );
    for threads in [1, 2, 4] {
        let memory = Memory::new();
        let (sum, count, out) =
            (words(&memory, "sum", &[0]), words(&memory, "count", &[0]), words(&memory, "out", &[0; 50]));
        let mut run = Run::new(&module, &memory, "k").grid(50).block(64);
        run.cooperative = true;
        run.threads = threads;
        run.go(&params(&[sum, count, out])).unwrap();
        assert_eq!(read_words(&memory, out, 50), vec![49 * 50 / 2; 50]);
    }
}

#[test]
fn faults_name_line_block_thread_and_allocation() {
    let module = module(
        "
.visible .entry k(.param .u64 out, .param .u64 by) {
 .reg .b32 %r<4>; .reg .b64 %rd<6>;
 ld.param.u64 %rd1, [out]; ld.param.u64 %rd4, [by];
 mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
 mul.wide.u32 %rd2, %r2, 64;
 cvt.u64.u32 %rd5, %r1;
 mad.lo.u64 %rd2, %rd5, %rd4, %rd2;
 add.s64 %rd3, %rd1, %rd2;
 st.global.u32 [%rd3], %r1;
 ret;
}",
    );
    let memory = Memory::new();
    let out = memory.allocate(0, 130, "out").unwrap();
    let run = Run::new(&module, &memory, "k").grid(3).block(16);
    let fault = run.go(&params(&[out, 4])).unwrap_err();
    assert_eq!((fault.entry.as_str(), fault.line), ("k", 13));
    assert_eq!((fault.block, fault.thread), ([2, 0, 0], [0, 0, 0]));
    assert_eq!((fault.address, fault.allocation.as_deref()), (Some(out + 128), Some("out")));
    assert_eq!(fault.kind, FaultKind::OutOfBounds { space: "global", store: true, bytes: 4, size: 130 });
    assert!(fault.to_string().contains("test.ptx:13"), "{fault}");

    let fault = run.go(&params(&[out, 3])).unwrap_err();
    assert_eq!((fault.kind, fault.thread), (FaultKind::Misaligned { space: "global", bytes: 4 }, [1, 0, 0]));

    memory.free(out).unwrap();
    let fault = run.go(&params(&[out, 4])).unwrap_err();
    assert_eq!((fault.kind, fault.allocation.as_deref()), (FaultKind::UseAfterFree, Some("out")));
    let fault = run.go(&params(&[0, 4])).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { size: 0, .. }));
}

#[test]
fn launches_that_cannot_be() {
    let module = module(
        "
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 out) .maxntid 64, 1, 1 { .shared .align 4 .b8 s[1024]; ret; }",
    );
    let memory = Memory::new();
    let good = || Run::new(&module, &memory, "k");
    good().go(&params(&[0])).unwrap();
    let refused = |run: Run<'_>, bytes: &[u8]| {
        let fault = run.go(bytes).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Launch(_)), "{fault}");
        assert!(fault.to_string().contains("kernel k"), "{fault}");
    };
    refused(good().block(65), &params(&[0]));
    refused(good().block(0), &params(&[0]));
    refused(good().grid(0), &params(&[0]));
    refused(good(), &[0; 7]);
    let mut run = good();
    run.dynamic_shared = 232_000;
    refused(run, &params(&[0]));
    let mut run = good().grid(1 << 20);
    run.cooperative = true;
    refused(run, &params(&[0]));
}

#[test]
fn a_kernel_that_never_ends_runs_out_of_budget() {
    let module = module(".visible .entry k() { .reg .b32 %r<2>; L: add.u32 %r1, %r1, 1; bra L; }");
    let memory = Memory::new();
    let fault = Run::new(&module, &memory, "k").go(&[]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Budget { .. }), "{fault}");
}
