//! Probes of control flow, barriers, fences, guards and special registers.

use super::asm::{Asm, Frame};
use super::form::Type;
use super::inputs::Random;
use super::probe::{Launch, POISON, Probe, entry_name, slot};

/// Threads of one block: four warps.
const N: u32 = 128;

/// Writes what a form's probe does, given the form, the thread's word and its number; names the result's register.
type Body = fn(&mut Asm, &str, &str, &str) -> String;

/// The probe of a form of control; none when it is none, or not known.
pub(super) fn probe(form: &str) -> Option<Probe> {
    if let Some(register) = form.strip_prefix('%') {
        return special_register(form, register);
    }
    let per_thread: Option<Body> = match form {
        "bra" => Some(branches),
        "bra.uni" => Some(uniform_branches),
        "@p" | "@!p" => Some(guards),
        "brx.idx" => Some(indexed_branch),
        "call" | "call.uni" | "st.param.b32" => Some(calls),
        "ret" | "exit" => Some(early_exit),
        "activemask.b32" => Some(active_mask),
        _ if is_fence(form) => Some(fence),
        _ => None,
    };
    if let Some(body) = per_thread {
        return Some(each_thread(form, body));
    }
    match form {
        "bar.sync" | "barrier.sync" | "barrier.sync.aligned" | "bar.warp.sync" => Some(barrier(form)),
        _ => None,
    }
}

/// Forms that order memory, or wait, and change no value of a lone thread.
fn is_fence(form: &str) -> bool {
    let levels = ["cta", "gl", "gpu", "sys", "cluster"];
    form.strip_prefix("membar.").is_some_and(|level| levels.contains(&level))
        || ["fence.acq_rel.", "fence.sc."]
            .iter()
            .any(|prefix| form.strip_prefix(prefix).is_some_and(|level| levels.contains(&level)))
        || matches!(form, "griddepcontrol.wait" | "griddepcontrol.launch_dependents" | "nanosleep.u32")
}

/// A probe in which each thread computes a word from a word and its number; what [`each_thread`]'s bodies give is
/// worked out by [`expected`].
fn each_thread(form: &str, body: Body) -> Probe {
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let Frame { input, output, index, .. } = asm.frame();
    let source = asm.element(&input, &index, 8);
    let target = asm.element(&output, &index, 8);
    let value = asm.load(Type::U32, &source, 0);
    if matches!(form, "ret" | "exit") {
        // Threads with an even value leave before they store.
        let odd = asm.r32();
        let p = asm.pred();
        asm.put(format!("and.b32 {odd}, {value}, 1"));
        asm.put(format!("setp.eq.s32 {p}, {odd}, 0"));
        asm.put(format!("@{p} {form}"));
    }
    let result = body(&mut asm, form, &value, &index);
    asm.store(Type::U32, &target, 0, &result);
    let mut ptx = asm.entry(&entry, &[]);
    if matches!(form, "call" | "call.uni" | "st.param.b32") {
        ptx = ptx.replace("CALLEE", &format!("{entry}_callee"));
        let callee = ".func (.param .b32 result) CALLEE(.param .b32 first, .param .b32 second)\n{\n\t.reg .b32 %r<3>;\n\
            \tld.param.b32 %r0, [first];\n\tld.param.b32 %r1, [second];\n\tmad.lo.s32 %r2, %r0, %r0, %r1;\n\
            \tst.param.b32 [result], %r2;\n\tret;\n}\n";
        ptx = callee.replace("CALLEE", &format!("{entry}_callee")) + &ptx;
    }
    let mut values: Vec<u64> = (0..2 * N).map(|_| random.integer(32)).collect();
    if form == "bra.uni" {
        // The same for a whole warp.
        values = values.iter().flat_map(|&value| [value; 32]).take(2 * N as usize).collect();
    }
    let results =
        values.iter().enumerate().flat_map(|(i, &value)| match expected(form, value as u32, i as u32) {
            Some(result) => slot(Type::U32, result.into()),
            None => [POISON; 8],
        });
    let launch = Launch::new(
        2,
        N,
        values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        results.collect(),
        values.len(),
    );
    Probe { form: form.into(), entry, ptx, launches: vec![launch] }
}

/// What the bodies below compute; none when the thread leaves before it stores.
fn expected(form: &str, value: u32, index: u32) -> Option<u32> {
    Some(match form {
        "bra" => {
            // A loop whose length differs by thread, with a branch inside that differs by turn.
            let (mut x, mut turns) = (value, 0u32);
            let limit = value % 37;
            while turns < limit {
                x = if x & 1 == 1 { x.wrapping_mul(3).wrapping_add(index) } else { x >> 1 };
                turns += 1;
            }
            x ^ turns
        }
        "bra.uni" => (0..value % 19).fold(value, |x, turn| x.wrapping_mul(5).wrapping_add(turn)),
        "@p" | "@!p" => {
            let x = if value & 2 != 0 { value.wrapping_add(7) } else { value };
            if value & 2 == 0 { x ^ 0x00ff_00ff } else { x }
        }
        "brx.idx" => [value.wrapping_add(11), value ^ 0x5555, value >> 3, !value][(value & 3) as usize],
        "call" | "call.uni" | "st.param.b32" => {
            let square = value.wrapping_mul(value).wrapping_add(3);
            square.wrapping_mul(square).wrapping_add(value)
        }
        "ret" | "exit" if value & 1 == 0 => return None,
        "activemask.b32" => u32::MAX,
        // Early exits and fences keep the value.
        _ => value,
    })
}

fn branches(asm: &mut Asm, _: &str, value: &str, index: &str) -> String {
    let [x, turns, limit, low] = [(); 4].map(|()| asm.r32());
    let [p, q] = [(); 2].map(|()| asm.pred());
    let [again, even, next, done] = [(); 4].map(|()| asm.label());
    for line in [
        format!("mov.u32 {x}, {value}"),
        format!("mov.u32 {turns}, 0"),
        format!("rem.u32 {limit}, {value}, 37"),
        format!("{again}:"),
        format!("setp.ge.u32 {p}, {turns}, {limit}"),
        format!("@{p} bra {done}"),
        format!("and.b32 {low}, {x}, 1"),
        format!("setp.eq.s32 {q}, {low}, 1"),
        format!("@!{q} bra {even}"),
        format!("mad.lo.s32 {x}, {x}, 3, {index}"),
        format!("bra {next}"),
        format!("{even}:"),
        format!("shr.u32 {x}, {x}, 1"),
        format!("{next}:"),
        format!("add.s32 {turns}, {turns}, 1"),
        format!("bra {again}"),
        format!("{done}:"),
        format!("xor.b32 {x}, {x}, {turns}"),
    ] {
        asm.put(line);
    }
    x
}

fn uniform_branches(asm: &mut Asm, _: &str, value: &str, _: &str) -> String {
    let [x, turn, limit] = [(); 3].map(|()| asm.r32());
    let p = asm.pred();
    let [again, done] = [(); 2].map(|()| asm.label());
    for line in [
        format!("mov.u32 {x}, {value}"),
        format!("mov.u32 {turn}, 0"),
        format!("rem.u32 {limit}, {value}, 19"),
        format!("{again}:"),
        format!("setp.ge.u32 {p}, {turn}, {limit}"),
        format!("@{p} bra.uni {done}"),
        format!("mad.lo.s32 {x}, {x}, 5, {turn}"),
        format!("add.s32 {turn}, {turn}, 1"),
        format!("bra.uni {again}"),
        format!("{done}:"),
    ] {
        asm.put(line);
    }
    x
}

fn guards(asm: &mut Asm, _: &str, value: &str, _: &str) -> String {
    let [x, bit] = [(); 2].map(|()| asm.r32());
    let p = asm.pred();
    asm.put(format!("mov.u32 {x}, {value}"));
    asm.put(format!("and.b32 {bit}, {value}, 2"));
    asm.put(format!("setp.ne.s32 {p}, {bit}, 0"));
    asm.put(format!("@{p} add.s32 {x}, {x}, 7"));
    asm.put(format!("@!{p} xor.b32 {x}, {x}, {}", 0x00ff_00ff));
    x
}

fn indexed_branch(asm: &mut Asm, _: &str, value: &str, _: &str) -> String {
    let [x, which] = [(); 2].map(|()| asm.r32());
    let cases = [(); 4].map(|()| asm.label());
    let (table, done) = (asm.label(), asm.label());
    asm.put(format!("and.b32 {which}, {value}, 3"));
    asm.put(format!("{table}: .branchtargets {}", cases.join(", ")));
    asm.put(format!("brx.idx {which}, {table}"));
    let work = [
        format!("add.s32 {x}, {value}, 11"),
        format!("xor.b32 {x}, {value}, {}", 0x5555),
        format!("shr.u32 {x}, {value}, 3"),
        format!("not.b32 {x}, {value}"),
    ];
    for (label, line) in cases.iter().zip(work) {
        asm.put(format!("{label}:"));
        asm.put(line);
        asm.put(format!("bra {done}"));
    }
    asm.put(format!("{done}:"));
    x
}

fn calls(asm: &mut Asm, form: &str, value: &str, _: &str) -> String {
    let call = if form == "call" { "call" } else { "call.uni" };
    let mut last = value.to_owned();
    for (first, second) in [(true, "3"), (false, value)] {
        let result = asm.r32();
        let (a, b) = (if first { value.to_owned() } else { last.clone() }, asm.r32());
        asm.put(format!("mov.u32 {b}, {second}"));
        asm.put(format!(
            "{{\n\t.param .b32 argument0;\n\t.param .b32 argument1;\n\t.param .b32 returned;\n\
             \tst.param.b32 [argument0], {a};\n\tst.param.b32 [argument1], {b};\n\
             \t{call} (returned), CALLEE, (argument0, argument1);\n\
             \tld.param.b32 {result}, [returned];\n\t}}"
        ));
        last = result;
    }
    last
}

fn early_exit(asm: &mut Asm, _: &str, value: &str, _: &str) -> String {
    let x = asm.r32();
    asm.put(format!("mov.u32 {x}, {value}"));
    x
}

fn active_mask(asm: &mut Asm, form: &str, _: &str, _: &str) -> String {
    let mask = asm.r32();
    asm.put(format!("{form} {mask}"));
    mask
}

fn fence(asm: &mut Asm, form: &str, value: &str, _: &str) -> String {
    asm.declare(".shared .align 4 .b8 staged[512]");
    let [base, thread, at, x] = [(); 4].map(|()| asm.r32());
    asm.put(format!("mov.u32 {base}, staged"));
    asm.put(format!("mov.u32 {thread}, %tid.x"));
    asm.put(format!("mad.lo.s32 {at}, {thread}, 4, {base}"));
    asm.put(format!("st.shared.u32 [{at}], {value}"));
    asm.put(if form == "nanosleep.u32" { "nanosleep.u32 10".into() } else { form.to_owned() });
    asm.put(format!("ld.shared.u32 {x}, [{at}]"));
    x
}

/// Rounds of an exchange through shared memory: in each, every thread writes a word and, past the barrier, reads
/// that of a thread of another warp (of the same warp for `bar.warp.sync`). The first two warps do further rounds at
/// a barrier of their own where the form can name how many threads take part.
fn barrier(form: &str) -> Probe {
    const ROUNDS: usize = 5;
    let warp = form == "bar.warp.sync";
    let wait = match form {
        "bar.warp.sync" => "bar.warp.sync -1".to_owned(),
        other => format!("{other} 0"),
    };
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    asm.declare(format!(".shared .align 4 .b8 staged[{}]", 4 * N));
    let source = asm.element(&frame.input, &frame.index, 8);
    let target = asm.element(&frame.output, &frame.index, 8);
    let value = asm.load(Type::U32, &source, 0);
    let [base, own, partner, at, got] = [(); 5].map(|()| asm.r32());
    asm.put(format!("mov.u32 {base}, staged"));
    asm.put(format!("mad.lo.s32 {own}, {}, 4, {base}", frame.thread));
    let mut distances: Vec<u32> =
        (0..ROUNDS as u32).map(|round| if warp { 1 + 7 * round } else { 32 + 13 * round }).collect();
    let modulus = if warp { 32 } else { N };
    for distance in &distances {
        asm.put(format!("add.s32 {partner}, {}, {distance}", frame.thread));
        asm.put(format!("and.b32 {partner}, {partner}, {}", modulus - 1));
        if warp {
            // Within the thread's own warp.
            let first = asm.r32();
            asm.put(format!("and.b32 {first}, {}, {}", frame.thread, !31i32));
            asm.put(format!("add.s32 {partner}, {partner}, {first}"));
        }
        asm.put(format!("mad.lo.s32 {at}, {partner}, 4, {base}"));
        asm.put(format!("st.shared.u32 [{own}], {value}"));
        asm.put(&wait);
        asm.put(format!("ld.shared.u32 {got}, [{at}]"));
        asm.put(format!("mad.lo.s32 {value}, {value}, 3, {got}"));
        asm.put(&wait);
    }
    if !warp {
        let p = asm.pred();
        let done = asm.label();
        asm.put(format!("setp.ge.u32 {p}, {}, 64", frame.thread));
        asm.put(format!("@{p} bra {done}"));
        asm.put(format!("xor.b32 {partner}, {}, 32", frame.thread));
        asm.put(format!("mad.lo.s32 {at}, {partner}, 4, {base}"));
        asm.put(format!("st.shared.u32 [{own}], {value}"));
        asm.put(format!("{form} 1, 64"));
        asm.put(format!("ld.shared.u32 {got}, [{at}]"));
        asm.put(format!("add.s32 {value}, {value}, {got}"));
        asm.put(format!("{done}:"));
    }
    asm.store(Type::U32, &target, 0, &value);
    let ptx = asm.entry(&entry, &[]);

    let values: Vec<u64> = (0..2 * N).map(|_| random.integer(32)).collect();
    let mut expected = Vec::new();
    for block in values.chunks(N as usize) {
        let mut x: Vec<u32> = block.iter().map(|&value| value as u32).collect();
        for distance in distances.iter_mut() {
            let before = x.clone();
            for (i, x) in x.iter_mut().enumerate() {
                let i = i as u32;
                let partner = if warp { i & !31 | (i + *distance) & 31 } else { (i + *distance) & (N - 1) };
                *x = x.wrapping_mul(3).wrapping_add(before[partner as usize]);
            }
        }
        if !warp {
            let before = x.clone();
            for i in 0..64 {
                x[i] = before[i].wrapping_add(before[i ^ 32]);
            }
        }
        expected.extend(x.into_iter().flat_map(|x| slot(Type::U32, x.into())));
    }
    let input = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let launch = Launch::new(2, N, input, expected, values.len());
    Probe { form: form.into(), entry, ptx, launches: vec![launch] }
}

/// Special registers over a grid and blocks of three dimensions.
fn special_register(form: &str, register: &str) -> Option<Probe> {
    const GRID: [u32; 3] = [3, 2, 2];
    const BLOCK: [u32; 3] = [5, 4, 4];
    let dimension = |name: &str| match register.strip_prefix(name)?.strip_prefix('.')? {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    type Value = Box<dyn Fn([u32; 3], [u32; 3], u32) -> u32>;
    let value: Value = if let Some(d) = dimension("tid") {
        Box::new(move |_, thread, _| thread[d])
    } else if let Some(d) = dimension("ctaid") {
        Box::new(move |block, _, _| block[d])
    } else if let Some(d) = dimension("ntid") {
        Box::new(move |_, _, _| BLOCK[d])
    } else if let Some(d) = dimension("nctaid") {
        Box::new(move |_, _, _| GRID[d])
    } else {
        match register {
            "laneid" => Box::new(|_, _, lane| lane),
            "lanemask_eq" => Box::new(|_, _, lane| 1 << lane),
            "lanemask_lt" => Box::new(|_, _, lane| (1 << lane) - 1),
            "lanemask_le" => Box::new(|_, _, lane| ((1 << lane) - 1) | (1 << lane)),
            "lanemask_ge" => Box::new(|_, _, lane| !((1 << lane) - 1)),
            "lanemask_gt" => Box::new(|_, _, lane| !(((1 << lane) - 1) | (1 << lane))),
            _ => return None,
        }
    };
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let output = asm.frame().output;
    // The thread's number in the grid, all six dimensions counted, innermost first.
    let index = asm.r32();
    asm.put(format!("mov.u32 {index}, 0"));
    let order = [
        ("ctaid.z", GRID[2]),
        ("ctaid.y", GRID[1]),
        ("ctaid.x", GRID[0]),
        ("tid.z", BLOCK[2]),
        ("tid.y", BLOCK[1]),
        ("tid.x", BLOCK[0]),
    ];
    for (name, size) in order {
        let part = asm.r32();
        asm.put(format!("mov.u32 {part}, %{name}"));
        asm.put(format!("mad.lo.s32 {index}, {index}, {size}, {part}"));
    }
    let target = asm.element(&output, &index, 8);
    let result = asm.r32();
    asm.put(format!("mov.u32 {result}, {form}"));
    asm.store(Type::U32, &target, 0, &result);
    let ptx = asm.entry(&entry, &[]);
    let mut expected = Vec::new();
    let all = |size: [u32; 3]| {
        let n = size.iter().product::<u32>();
        (0..n).map(move |i| [i % size[0], i / size[0] % size[1], i / size[0] / size[1]])
    };
    for block in all(GRID) {
        for (i, thread) in all(BLOCK).enumerate() {
            expected.extend(slot(Type::U32, value(block, thread, i as u32 % 32).into()));
        }
    }
    let values = expected.len() / 8;
    let mut launch = Launch::new(1, 1, vec![0; 8], expected, values);
    (launch.grid, launch.block, launch.record) = (GRID, BLOCK, (0, 0));
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}
