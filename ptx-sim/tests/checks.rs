//! The checkers: for each, kernels that it must catch and kernels that it must not flag.

mod common;

use common::{module, params, words};
use ptx_sim::{Access, Checks, ExecOptions, Fault, FaultKind, LaunchConfig, Memory, PointerAccess};

/// A launch with every check.
struct Launch<'a> {
    memory: &'a Memory,
    text: &'a str,
    grid: u32,
    block: u32,
    access: &'a [PointerAccess],
    cooperative: bool,
    programmatic: bool,
    checks: Checks,
}

impl<'a> Launch<'a> {
    fn new(memory: &'a Memory, text: &'a str) -> Launch<'a> {
        Launch {
            memory,
            text,
            grid: 1,
            block: 64,
            access: &[],
            cooperative: false,
            programmatic: false,
            checks: Checks::ALL,
        }
    }

    fn go(&self, arguments: &[u64]) -> Result<(), Fault> {
        let module = module(&format!(
            "
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
 .reg .b64 %a, %b, %c, %at, %x<8>; .reg .b32 %t, %w, %l, %blk, %o, %r<16>; .reg .b16 %h<4>; .reg .pred %p<8>;
 .shared .align 16 .b8 s[4096];
 .local .align 8 .b8 depot[64];
 ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c];
 mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; mov.u32 %l, %laneid; mov.u32 %blk, %ctaid.x; shl.b32 %o, %t, 2;
 {}
 ret;
}}",
            self.text
        ));
        let mut bytes = params(arguments);
        bytes.resize(24, 0);
        let launch = LaunchConfig {
            kernel: module.entry("k").unwrap(),
            grid: [self.grid, 1, 1],
            block: [self.block, 1, 1],
            dynamic_shared: 0,
            params: &bytes,
            device: 0,
            access: self.access,
            cooperative: self.cooperative,
            programmatic: self.programmatic,
        };
        let options = ExecOptions { threads: 2, checks: self.checks, budget: Some(10_000_000) };
        ptx_sim::exec::run(self.memory, &launch, &options).map(|_| ())
    }
}

fn tracked() -> Memory {
    let memory = Memory::new();
    memory.track_values();
    memory
}

/// The fault of a kernel on three buffers of 4 KiB that hold values.
fn run(text: &str, grid: u32, block: u32) -> Result<(), Fault> {
    let memory = tracked();
    let buffers: Vec<u64> = ["a", "b", "c"].iter().map(|name| words(&memory, name, &[0; 1024])).collect();
    let mut launch = Launch::new(&memory, text);
    (launch.grid, launch.block) = (grid, block);
    launch.go(&buffers)
}

fn caught(text: &str, grid: u32, block: u32, is: impl Fn(&FaultKind) -> bool) -> Fault {
    let fault = run(text, grid, block).expect_err("a fault");
    assert!(is(&fault.kind), "{fault}");
    assert!(fault.line > 0 && fault.to_string().contains("test.ptx:"), "{fault}");
    fault
}

fn clean(text: &str, grid: u32, block: u32) {
    if let Err(fault) = run(text, grid, block) {
        panic!("{fault}\n{text}");
    }
}

#[test]
fn values_that_were_never_written() {
    let memory = tracked();
    let partly = memory.allocate(0, 1024, "partly").unwrap();
    memory.write(partly + 64, &[1; 64]).unwrap();
    let load = "cvt.u64.u32 %x1, %o; add.s64 %at, %a, %x1; ld.global.u32 %r1, [%at+64];";
    let mut launch = Launch::new(&memory, load);
    launch.block = 16;
    launch.go(&[partly]).unwrap();
    launch.block = 17;
    let fault = launch.go(&[partly]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Uninitialised { space: "global", bytes: 4 });
    assert_eq!((fault.thread, fault.allocation.as_deref()), ([16, 0, 0], Some("partly")));
    assert_eq!(fault.address, Some(partly + 128));
    // A kernel's store, a copy and a fill give values.
    let mut launch = Launch::new(
        &memory,
        "cvt.u64.u32 %x1, %o; add.s64 %at, %a, %x1; st.global.u32 [%at+128], %t; ld.global.u32 %r1, [%at+128];",
    );
    launch.block = 32;
    launch.go(&[partly]).unwrap();
    let copy = memory.allocate(0, 1024, "copy").unwrap();
    memory.copy(copy, partly + 64, 192).unwrap();
    let mut launch =
        Launch::new(&memory, "cvt.u64.u32 %x1, %o; add.s64 %at, %a, %x1; ld.global.u32 %r1, [%at];");
    launch.block = 48;
    launch.go(&[copy]).unwrap();
    launch.block = 49;
    assert!(matches!(launch.go(&[copy]).unwrap_err().kind, FaultKind::Uninitialised { .. }));
    memory.fill(copy, 0, 1024).unwrap();
    launch.go(&[copy]).unwrap();
    // Without the check nobody asks.
    let other = memory.allocate(0, 1024, "other").unwrap();
    launch.checks = Checks::ALL.without(Checks::UNINITIALISED);
    launch.go(&[other]).unwrap();

    let uninitialised = |kind: &FaultKind| matches!(kind, FaultKind::Uninitialised { .. });
    caught("mov.u32 %r1, s; add.u32 %r1, %r1, %o; ld.shared.u32 %r2, [%r1];", 1, 32, uninitialised);
    caught("st.local.u32 [depot], %t; ld.local.u32 %r2, [depot+4];", 1, 32, uninitialised);
    caught("mov.u32 %r1, s; st.shared.u8 [%r1], %t; ld.shared.u16 %r2, [%r1];", 1, 1, uninitialised);
    clean("st.local.v2.u32 [depot], {%t, %l}; ld.local.u64 %x1, [depot];", 1, 64);
    clean("mov.u32 %r1, s; add.u32 %r1, %r1, %o; st.shared.u32 [%r1], %t; ld.shared.u8 %r2, [%r1+3];", 1, 64);
}

#[test]
fn shared_memory_races() {
    let race = |kind: &FaultKind| matches!(kind, FaultKind::SharedRace { .. });
    let address = "mov.u32 %r1, s; add.u32 %r2, %r1, %o; xor.b32 %r3, %o, 128; add.u32 %r3, %r3, %r1;";
    // A read of what another warp wrote, without a barrier; with one.
    caught(
        &format!("{address} st.shared.u32 [%r3], %t; st.shared.u32 [%r2], %t; ld.shared.u32 %r4, [%r3];"),
        1,
        64,
        race,
    );
    clean(&format!("{address} st.shared.u32 [%r2], %t; bar.sync 0; ld.shared.u32 %r4, [%r3];"), 1, 64);
    // The next round's writes come after the last one's reads: a second barrier is needed, or a second buffer.
    let twice = |second: &str| {
        format!(
            "{address} st.shared.u32 [%r2], %t; bar.sync 0; ld.shared.u32 %r4, [%r3]; {second} st.shared.u32 [%r2], %r4; bar.sync 0; ld.shared.u32 %r5, [%r3];"
        )
    };
    caught(&twice(""), 1, 64, race);
    clean(&twice("bar.sync 0;"), 1, 64);
    clean(
        &format!(
            "{address} st.shared.u32 [%r2], %t; bar.sync 0; ld.shared.u32 %r4, [%r3]; st.shared.u32 [%r2+2048], %r4; bar.sync 0; ld.shared.u32 %r5, [%r3+2048];"
        ),
        1,
        64,
    );
    // Two warps write one word; bytes of one word are no conflict; neither are lanes of one warp, nor atomics.
    caught("mov.u32 %r1, s; st.shared.u32 [%r1], %t;", 1, 64, race);
    clean("mov.u32 %r1, s; st.shared.u32 [%r1], %t;", 1, 32);
    clean("mov.u32 %r1, s; add.u32 %r1, %r1, %w; st.shared.u8 [%r1], %t;", 1, 64);
    clean(
        "mov.u32 %r1, s; setp.eq.u32 %p1, %t, 0; mov.u32 %r2, 0; @%p1 st.shared.u32 [%r1], %r2; bar.sync 0; red.shared.add.u32 [%r1], 1; bar.sync 0; ld.shared.u32 %r3, [%r1];",
        1,
        128,
    );
    caught(
        "mov.u32 %r1, s; setp.eq.u32 %p1, %t, 0; mov.u32 %r2, 0; @%p1 st.shared.u32 [%r1], %r2; bar.sync 0; red.shared.add.u32 [%r1], 1; ld.shared.u32 %r3, [%r1];",
        1,
        128,
        race,
    );
    // A barrier that only some warps take orders only those.
    let some = |threads: u32| {
        format!(
            "{address} setp.ge.u32 %p1, %t, 64; setp.eq.u32 %p2, %w, 0; @%p2 st.shared.u32 [%r2], %t; @%p1 bra OUT; bar.sync 1, 64; OUT: setp.eq.u32 %p3, %t, {threads}; @%p3 ld.shared.u32 %r4, [%r1];"
        )
    };
    clean(&some(40), 1, 96);
    caught(&some(70), 1, 96, race);
    // Shuffles need no barrier.
    clean(
        "shfl.sync.bfly.b32 %r1, %t, 1, 31, -1; mov.u32 %r2, s; shl.b32 %r3, %w, 2; add.u32 %r2, %r2, %r3; setp.eq.u32 %p1, %l, 0; @%p1 st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r4, [s];",
        1,
        128,
    );
    // Lanes of one warp need bar.warp.sync, in both directions; what one instruction does at once is no race.
    let lanes = |sync: &str| {
        format!(
            "mov.u32 %r1, s; add.u32 %r2, %r1, %o; xor.b32 %r3, %o, 4; add.u32 %r3, %r3, %r1;
             st.shared.u32 [%r2], %t; {sync} ld.shared.u32 %r4, [%r3];"
        )
    };
    let warp = |kind: &FaultKind| matches!(kind, FaultKind::SharedRace { lanes: true, .. });
    clean(&lanes("bar.warp.sync -1;"), 1, 32);
    let fault = caught(&lanes(""), 1, 32, warp);
    assert!(fault.to_string().contains("another lane"), "{fault}");
    clean(&lanes("shfl.sync.bfly.b32 %r9, %t, 1, 31, -1; bar.sync 0;"), 1, 32);
    let again = |sync: &str| format!("{} {sync} st.shared.u32 [%r2], %r4;", lanes("bar.warp.sync -1;"));
    clean(&again("bar.warp.sync -1;"), 1, 32);
    caught(&again(""), 1, 32, warp);
    // Three warps read, one of them and another after a barrier of two: the third's read is still unordered.
    let readers = |threads: u32| {
        format!(
            "mov.u32 %r1, s; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [%r1], %t; bar.sync 0; ld.shared.u32 %r2, [%r1];
             setp.ge.u32 %p2, %t, {threads}; @%p2 bra OUT; bar.sync 1, {threads}; @%p1 st.shared.u32 [%r1], %r2; OUT:"
        )
    };
    clean(&readers(96), 1, 96);
    caught(&readers(64), 1, 96, race);
    // A flag in shared memory orders too, after a fence.
    let flag = |fence: &str| {
        format!(
        "mov.u32 %r1, s; setp.ne.u32 %p1, %t, 0; mov.u32 %r9, 0; @!%p1 st.shared.u32 [%r1], %r9; bar.sync 0;
         setp.eq.u32 %p2, %w, 1; @%p2 bra WAIT; setp.eq.u32 %p3, %t, 0; @!%p3 bra DONE; mov.u32 %r3, 5; st.shared.u32 [%r1+64], %r3;
         {fence} atom.shared.exch.b32 %r4, [%r1], 1; bra DONE;
         WAIT: atom.shared.add.u32 %r5, [%r1], 0; setp.eq.u32 %p4, %r5, 0; @%p4 bra WAIT; ld.shared.u32 %r6, [%r1+64]; DONE:"
    )
    };
    clean(&flag("membar.cta;"), 1, 64);
    caught(&flag(""), 1, 64, race);
}

#[test]
fn barriers_that_not_all_reach() {
    let divergence = |kind: &FaultKind| matches!(kind, FaultKind::Divergence(_));
    // Some lanes of a warp.
    let fault = caught("setp.lt.u32 %p1, %l, 7; @%p1 bra X; bar.sync 0; X:", 1, 32, divergence);
    assert!(fault.to_string().contains("0x0000007f"), "{fault}");
    // Warps by different barriers.
    caught("setp.lt.u32 %p1, %t, 32; @%p1 bra X; bar.sync 0; bra Y; X: bar.sync 0; Y:", 1, 64, divergence);
    // One warp waits for a count that never comes.
    caught("setp.lt.u32 %p1, %t, 32; @%p1 bra X; bar.sync 1, 64; X:", 1, 64, |kind| {
        matches!(kind, FaultKind::Deadlock(_))
    });
    clean("bar.sync 0; setp.lt.u32 %p1, %t, 32; @%p1 bra X; bar.sync 1, 32; X: bar.sync 0;", 1, 64);
    // Warps that disagree about who takes part, and arrivals that nobody waits for.
    caught(
        "setp.lt.u32 %p1, %t, 32; @%p1 bra X; bar.sync 1, 64; bra Y; X: bar.sync 1, 96; Y:",
        1,
        96,
        |kind| matches!(kind, FaultKind::Divergence(what) if what.contains("96 threads")),
    );
    let fault = caught("setp.ge.u32 %p1, %t, 32; @%p1 bra X; bar.arrive 1, 64; X:", 1, 64, |kind| {
        matches!(kind, FaultKind::MissedArrival(_))
    });
    assert!(fault.to_string().contains("1 of 2 warps arrived at barrier 1"), "{fault}");
    // A barrier of some warps may be taken at several places.
    clean("setp.lt.u32 %p1, %t, 32; @%p1 bra X; bar.sync 1, 64; bra Y; X: bar.sync 1, 64; Y:", 1, 64);
    // The same barrier in a loop, and a producer that arrives without waiting.
    clean("mov.u32 %r1, 0; L: bar.sync 0; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra L;", 1, 96);
    clean("setp.lt.u32 %p1, %t, 32; @%p1 bra X; bar.sync 1, 64; bra Y; X: bar.arrive 1, 64; Y:", 1, 64);
}

#[test]
fn conflicts_between_blocks() {
    let conflict = |kind: &FaultKind| matches!(kind, FaultKind::BlockConflict { .. });
    let own = "mad.lo.u32 %r1, %blk, 128, %o; cvt.u64.u32 %x1, %r1; add.s64 %at, %a, %x1;";
    clean(&format!("{own} st.global.u32 [%at], %t;"), 4, 32);
    let fault =
        caught("cvt.u64.u32 %x1, %o; add.s64 %at, %a, %x1; st.global.u32 [%at], %t;", 4, 32, conflict);
    assert!(fault.to_string().contains("block (0, 0, 0)"), "{fault}");
    // Overlapping by one word; reading what another block writes, in either order of blocks.
    caught(
        "mad.lo.u32 %r1, %blk, 124, %o; cvt.u64.u32 %x1, %r1; add.s64 %at, %a, %x1; st.global.u32 [%at], %t;",
        4,
        32,
        conflict,
    );
    caught(
        &format!(
            "{own} st.global.u32 [%at], %t; setp.gt.u32 %p1, %blk, 0; @%p1 ld.global.u32 %r2, [%at+-128];"
        ),
        4,
        32,
        conflict,
    );
    caught(&format!("{own} ld.global.u32 %r2, [%at+128]; st.global.u32 [%at], %t;"), 4, 32, conflict);
    // Bytes of one word are different places.
    clean("cvt.u64.u32 %x1, %blk; add.s64 %at, %a, %x1; st.global.u8 [%at], %t;", 4, 1);
    clean("red.global.add.u32 [%a], 1;", 8, 64);
    // An atomic operation of the block's scope is none to other blocks.
    clean("red.relaxed.cta.global.add.u32 [%a], 1;", 1, 64);
    caught("red.relaxed.cta.global.add.u32 [%a], 1;", 8, 64, conflict);
    // All blocks read what the last one writes; the writer is a reader too.
    let counter = "ld.global.u32 %r1, [%a]; setp.eq.u32 %p1, %blk, 3; setp.eq.u32 %p2, %t, 0; and.pred %p1, %p1, %p2; @%p1 st.global.u32 [%a], %r1;";
    caught(counter, 4, 32, conflict);
    clean(&counter.replace("[%a]; setp", "[%b]; setp"), 4, 32);
    // Warps of one block: a barrier orders their accesses to global memory.
    let warps = |sync: &str| {
        format!(
            "cvt.u64.u32 %x1, %o; add.s64 %at, %a, %x1; xor.b32 %r1, %o, 128; cvt.u64.u32 %x1, %r1; add.s64 %x2, %a, %x1;
             st.global.u32 [%at], %t; {sync} ld.global.u32 %r2, [%x2];"
        )
    };
    clean(&warps("bar.sync 0;"), 1, 64);
    caught(&warps("membar.gl;"), 1, 64, |kind| matches!(kind, FaultKind::GlobalRace { .. }));
    caught("red.global.add.u32 [%a], 1; ld.global.u32 %r1, [%a];", 8, 32, conflict);
    caught("red.global.add.u32 [%a], 1; ld.global.u32 %r1, [%a];", 1, 64, |kind| {
        matches!(kind, FaultKind::GlobalRace { .. })
    });

    // The last block folds what all wrote: fences before the count and after it.
    let fold = |fence: &str| {
        format!(
            "{own} st.global.u32 [%at], %t; {fence} bar.sync 0;
             setp.ne.u32 %p1, %t, 0; @%p1 bra NOT; atom.global.inc.u32 %r2, [%b], 3; setp.ne.u32 %p2, %r2, 3; @%p2 bra NOT;
             ld.global.u32 %r3, [%a]; ld.global.u32 %r4, [%a+128]; ld.global.u32 %r5, [%a+384]; NOT:"
        )
    };
    // Every warp's stores must be there before the count: a barrier of the block comes between.
    let wide = |fence: &str| fold(fence).replace("%blk, 128", "%blk, 256");
    let early = wide("membar.gl;").replace("bar.sync 0;", "");
    clean(&early, 4, 32);
    let fault = caught(&early, 4, 64, conflict);
    assert_eq!((fault.block, fault.address.map(|a| a & 0xfff)), ([3, 0, 0], Some(128)), "{fault}");
    clean(&fold("membar.gl;"), 4, 32);
    // The counting thread's fence covers what its block's barrier ordered before.
    clean(&wide("").replace("atom.global.inc", "membar.gl; atom.global.inc"), 4, 64);
    caught(&fold(""), 4, 32, conflict);
    caught(&fold("membar.cta;"), 4, 32, conflict);
}

#[test]
fn a_grid_barrier_orders_blocks() {
    let grid = |fence: &str| {
        format!(
            "mad.lo.u32 %r1, %blk, 256, %o; cvt.u64.u32 %x1, %r1; add.s64 %at, %a, %x1; st.global.u32 [%at], %t;
             bar.sync 0; setp.ne.u32 %p1, %t, 0; @%p1 bra IN;
             {fence} red.global.add.u32 [%b], 1;
             SPIN: ld.acquire.gpu.global.u32 %r2, [%b]; setp.lt.u32 %p2, %r2, 4; @%p2 bra SPIN;
             IN: bar.sync 0;
             xor.b32 %r3, %blk, 1; mad.lo.u32 %r3, %r3, 256, %o; cvt.u64.u32 %x1, %r3; add.s64 %at, %a, %x1; ld.global.u32 %r4, [%at];"
        )
    };
    let go = |text: &str| {
        let memory = tracked();
        let buffers: Vec<u64> = ["a", "b"].iter().map(|name| words(&memory, name, &[0; 1024])).collect();
        let mut launch = Launch::new(&memory, text);
        (launch.grid, launch.block, launch.cooperative) = (4, 64, true);
        launch.go(&buffers)
    };
    go(&grid("membar.gl;")).unwrap();
    go(&grid("").replace("red.global", "red.release.gpu.global")).unwrap();
    let fault = go(&grid("")).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::BlockConflict { .. }), "{fault}");
}

#[test]
fn declared_accesses_are_kept() {
    let memory = tracked();
    let (a, b) = (words(&memory, "a", &[1; 64]), words(&memory, "b", &[1; 64]));
    let access = [(0, Access::Read), (1, Access::Write)].map(|(param, access)| PointerAccess {
        param,
        access,
        bytes: 0,
    });
    let go = |text: &str, arguments: &[u64]| {
        let mut launch = Launch::new(&memory, text);
        launch.access = &access;
        launch.block = 16;
        launch.go(arguments)
    };
    let at = "cvt.u64.u32 %x1, %o; add.s64 %at, %b, %x1; add.s64 %x2, %a, %x1;";
    go(
        &format!("{at} ld.global.u32 %r1, [%x2]; st.global.u32 [%at], %r1; ld.global.u32 %r2, [%at];"),
        &[a, b],
    )
    .unwrap();
    let fault = go(&format!("{at} st.global.u32 [%x2], %t;"), &[a, b]).unwrap_err();
    assert_eq!((fault.kind, fault.allocation.as_deref()), (FaultKind::ReadOnly { param: 0 }, Some("a")));
    let fault =
        go(&format!("{at} ld.global.u32 %r1, [%at]; st.global.u32 [%at], %r1;"), &[a, b]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutRead { param: 1 });
    // Two arguments in one allocation are told apart by where they begin.
    go(&format!("{at} ld.global.u32 %r1, [%x2]; st.global.u32 [%at], %r1;"), &[a, a + 128]).unwrap();
    let fault = go(&format!("{at} st.global.u32 [%x2+64], %t;"), &[a, a + 128]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::ReadOnly { param: 0 });

    // With lengths: places beside the arguments, and arguments that overlap.
    let go = |text: &str, arguments: &[u64], bytes: u64, second: Access| {
        let access =
            [(0, Access::Read), (1, second)].map(|(param, access)| PointerAccess { param, access, bytes });
        let mut launch = Launch::new(&memory, text);
        (launch.access, launch.block) = (&access, 16);
        launch.go(arguments)
    };
    let copy = format!("{at} ld.global.u32 %r1, [%x2]; st.global.u32 [%at], %r1;");
    go(&copy, &[a, a + 64], 64, Access::Write).unwrap();
    let fault = go(&copy, &[a, a + 128], 60, Access::Write).unwrap_err();
    assert_eq!((fault.kind, fault.address), (FaultKind::OutsideArguments { writes: false }, Some(a + 60)));
    assert_eq!((fault.thread, fault.allocation.as_deref()), ([15, 0, 0], Some("a")));
    let fault = go(&copy, &[a + 64, a], 68, Access::Write).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Aliasing { written: 1, other: 0 });
    assert_eq!((fault.allocation.as_deref(), fault.address), (Some("a"), Some(a + 64)));
    assert!(fault.line > 0 && fault.to_string().contains("parameters 1 and 0 overlap"), "{fault}");
    assert!(go(&copy, &[a, a], 64, Access::ReadWrite).is_err());
    let read = format!("{at} ld.global.u32 %r1, [%x2]; ld.global.u32 %r2, [%at];");
    go(&read, &[a, a], 64, Access::Read).unwrap();
}

#[test]
fn dependent_launches_wait() {
    let memory = tracked();
    let (a, b) = (words(&memory, "a", &[1; 64]), words(&memory, "b", &[1; 64]));
    let at = "cvt.u64.u32 %x1, %o; add.s64 %at, %b, %x1; add.s64 %x2, %a, %x1;";
    let go = |text: &str| {
        let before = Launch {
            block: 32,
            ..Launch::new(&memory, "cvt.u64.u32 %x1, %o; add.s64 %at, %b, %x1; st.global.u32 [%at], %t;")
        };
        before.go(&[a, b]).unwrap();
        Launch { block: 32, programmatic: true, ..Launch::new(&memory, &format!("{at} {text}")) }.go(&[a, b])
    };
    go("ld.global.u32 %r1, [%x2]; griddepcontrol.wait; ld.global.u32 %r2, [%at]; st.global.u32 [%at], %r1;")
        .unwrap();
    for early in
        ["ld.global.u32 %r1, [%at]; griddepcontrol.wait;", "st.global.u32 [%at], %t; griddepcontrol.wait;"]
    {
        let fault = go(early).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Dependency(_)), "{fault}");
    }
    // What the launch before did not touch may be used at once; every path must wait.
    go("griddepcontrol.launch_dependents; griddepcontrol.wait;").unwrap();
    let fault = go("setp.gt.u32 %p1, %t, 5; @%p1 ret; griddepcontrol.wait;").unwrap_err();
    assert!(matches!(&fault.kind, FaultKind::Dependency(what) if what.contains("leaves")), "{fault}");
    assert_eq!(fault.thread, [6, 0, 0]);
    // A launch that is not dependent need not wait.
    Launch { block: 32, ..Launch::new(&memory, &format!("{at} ld.global.u32 %r1, [%at];")) }
        .go(&[a, b])
        .unwrap();
}

/// Dependent launches that let the next begin before they have waited themselves may all be running at once.
#[test]
fn dependence_reaches_back_past_early_triggers() {
    let memory = tracked();
    let (a, b) = (words(&memory, "a", &[1; 64]), words(&memory, "b", &[1; 64]));
    let run = |text: &str, programmatic: bool| {
        let text = format!("cvt.u64.u32 %x1, %o; add.s64 %at, %b, %x1; add.s64 %x2, %a, %x1; {text}");
        Launch { block: 32, programmatic, ..Launch::new(&memory, &text) }.go(&[a, b])
    };
    let (trigger, wait) = ("griddepcontrol.launch_dependents;", "griddepcontrol.wait;");
    for (middle, early) in [(format!("{trigger} {wait}"), true), (format!("{wait} {trigger}"), false)] {
        run("st.global.u32 [%at], %t;", false).unwrap();
        run(&middle, true).unwrap();
        let result = run(&format!("ld.global.u32 %r1, [%at]; {wait}"), true);
        assert_eq!(result.is_err(), early, "{middle}: {result:?}");
    }
    // Writing what the launch before reads; that launch is dependent, or not.
    run("ld.global.u32 %r1, [%at];", false).unwrap();
    let fault = run(&format!("st.global.u32 [%at], %t; {wait}"), true).unwrap_err();
    assert!(matches!(&fault.kind, FaultKind::Dependency(what) if what.contains("writes")), "{fault}");
    // A path that no thread takes still has to wait.
    let fault =
        run(&format!("setp.gt.u32 %p1, %t, 500; @%p1 bra OUT; {wait} ret; OUT: ret;"), true).unwrap_err();
    assert!(matches!(&fault.kind, FaultKind::Dependency(what) if what.contains("a path")), "{fault}");
    assert!(fault.line > 0);
    run(&format!("setp.gt.u32 %p1, %t, 500; @%p1 bra OUT; {wait} ret; OUT: {wait} ret;"), true).unwrap();
    let fault = run(&format!("setp.gt.u32 %p1, %t, 500; @!%p1 {wait}"), true).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Dependency(_)), "{fault}");
}

#[test]
fn checks_can_be_named() {
    assert!(Checks::ALL.has(Checks::RACE) && !Checks::NONE.has(Checks::RACE));
    let some = Checks::RACE.with(Checks::BLOCK);
    assert!(
        some.has(Checks::BLOCK)
            && !some.has(Checks::UNINITIALISED)
            && !some.without(Checks::RACE).has(Checks::RACE)
    );
}
