//! Probes of loads, stores and address conversions.

use super::asm::Asm;
use super::form::{Modifiers, Type};
use super::inputs::{self, Random};
use super::probe::{Launch, POISON, Probe, entry_name, slot};

/// What [`scan`](super::form::scan) adds to a form whose address is a variable's name.
pub(super) const SYMBOL: &str = " [symbol]";
/// Threads of one block: two warps.
const N: usize = 64;
/// The thread that stores where only one may.
const STORING: usize = 41;
/// Bytes before the data, so that addresses carry an offset; a multiple of a block's words.
const HEAD: usize = 4 * N;

/// A load's or store's form, taken apart.
struct Access {
    space: String,
    vector: usize,
    ty: Type,
}

impl Access {
    fn parse(m: &mut Modifiers<'_>) -> Option<Access> {
        let ty = m.take_type()?;
        let vector = match m.take_one(&["v2", "v4"]) {
            None => 1,
            Some("v2") => 2,
            Some(_) => 4,
        };
        let space = m.take_one(&["global", "shared", "shared::cta", "local", "param", "const"]).unwrap_or("");
        // None of these changes what a lone thread reads or writes.
        let ordered = m.take_one(&["weak", "volatile", "relaxed", "acquire", "release"]);
        if matches!(ordered, Some("relaxed" | "acquire" | "release")) {
            m.take_one(&["cta", "cluster", "gpu", "sys"])?;
        }
        m.take("nc");
        m.take_one(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
        let hints = ["evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate"];
        m.take_one(&hints.map(|hint| ["L1::", hint].concat()).each_ref().map(String::as_str));
        m.take_one(&["L2::64B", "L2::128B", "L2::256B"]);
        let fits = m.done() && ty != Type::Pred && ty.bits() as usize * vector <= 128;
        fits.then(|| Access { space: space.replace("::cta", ""), vector, ty })
    }

    /// Bytes of one value in memory.
    fn part(&self) -> usize {
        (self.ty.bits() / 8) as usize
    }

    /// Bytes of the access.
    fn bytes(&self) -> usize {
        self.part() * self.vector
    }

    fn operand(&self, registers: &[String]) -> String {
        match registers {
            [one] => one.clone(),
            all => format!("{{{}}}", all.join(", ")),
        }
    }

    /// The registers of type `into` that bytes in memory load to: extended to their width by the access's type.
    fn loaded(&self, into: Type, bytes: &[u8]) -> Vec<u8> {
        bytes
            .chunks(self.part())
            .flat_map(|part| {
                let raw = part.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
                slot(into, self.ty.value(raw) as u64)
            })
            .collect()
    }

    /// The registers that may take a loaded value, or give one to store: of its own width, and wider where it is no
    /// float.
    fn containers(&self) -> Vec<Type> {
        let float = !(self.ty.integer() || self.ty.untyped());
        let wider =
            [Type::B32, Type::B64].into_iter().filter(|t| !float && t.bits() > self.ty.register_bits());
        std::iter::once(self.ty).chain(wider).collect()
    }
}

/// The probe of a memory form; none when it is none, or not known.
pub(super) fn probe(form: &str) -> Option<Probe> {
    let (opcode, by_name) = form.strip_suffix(SYMBOL).map_or((form, false), |opcode| (opcode, true));
    let mut m = Modifiers::new(opcode);
    match m.name {
        "ld" => {
            let access = Access::parse(&mut m)?;
            match access.space.as_str() {
                "param" => (!by_name).then(|| load_parameter(form, &access)),
                _ => load(form, opcode, by_name, &access),
            }
        }
        "st" => store(form, opcode, by_name, &Access::parse(&mut m)?),
        _ if by_name => None,
        "cvta" => convert_address(form, &mut m),
        "cp" => copy_async(form, &mut m),
        _ => match form {
            "mov.u32 symbol" | "mov.b32 symbol" => Some(symbol(form, 32)),
            "mov.u64 symbol" | "mov.b64 symbol" => Some(symbol(form, 64)),
            _ => None,
        },
    }
}

fn random_bytes(random: &mut Random, n: usize) -> Vec<u8> {
    (0..n).map(|_| random.bits() as u8).collect()
}

/// A permutation of the block's threads.
fn shuffled(random: &mut Random) -> Vec<u64> {
    let mut order: Vec<u64> = (0..N as u64).collect();
    for i in (1..N).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Copies `bytes` (a multiple of a block's words) between global and shared memory, then waits for the block.
fn copy_words(asm: &mut Asm, thread: &str, global: &str, shared: &str, bytes: usize, to_shared: bool) {
    let from = asm.element(global, thread, 4);
    let (offset, at) = (asm.r32(), asm.r32());
    asm.put(format!("shl.b32 {offset}, {thread}, 2"));
    asm.put(format!("add.s32 {at}, {offset}, {shared}"));
    for i in (0..bytes).step_by(4 * N) {
        let word = asm.r32();
        if to_shared {
            asm.put(format!("ld.global.u32 {word}, [{from}+{i}]"));
            asm.put(format!("st.shared.u32 [{at}+{i}], {word}"));
        } else {
            asm.put(format!("ld.shared.u32 {word}, [{at}+{i}]"));
            asm.put(format!("st.global.u32 [{from}+{i}], {word}"));
        }
    }
    if to_shared {
        asm.put("bar.sync 0");
    }
}

/// Loads of element `order[i]` by thread `i` from global, shared, local or constant memory.
fn load(form: &str, opcode: &str, by_name: bool, access: &Access) -> Option<Probe> {
    let mut random = Random::from_text(form);
    let size = access.bytes();
    let data = HEAD + (N * size).next_multiple_of(4 * N);
    let entry = entry_name(form);
    let bytes = random_bytes(&mut random, data);
    let mut order = shuffled(&mut random);
    if by_name {
        // Every thread loads the same elements, whose places are written in the instruction.
        order.fill(0);
    } else if access.space == "local" {
        // Each thread has a local copy of 8 elements only.
        order.iter_mut().for_each(|i| *i %= 8);
    }
    let mut asm = Asm::default();
    let frame = asm.frame();
    let order_at = asm.element(&frame.input, &frame.thread, 8);
    let index = asm.r32();
    asm.put(format!("ld.global.u32 {index}, [{order_at}+{data}]"));
    let mut module = String::new();
    let address = match access.space.as_str() {
        "global" => asm.element(&frame.input, &index, size),
        "" => {
            let generic = asm.r64();
            asm.put(format!("cvta.global.u64 {generic}, {}", frame.input));
            asm.element(&generic, &index, size)
        }
        "shared" => {
            asm.declare(format!(".shared .align 16 .b8 staged[{data}]"));
            let base = asm.r32();
            asm.put(format!("mov.u32 {base}, staged"));
            copy_words(&mut asm, &frame.thread, &frame.input, &base, data, true);
            let address = asm.r32();
            asm.put(format!("mad.lo.s32 {address}, {index}, {size}, {base}"));
            address
        }
        "local" => {
            let copied = HEAD + (8 * size).next_multiple_of(4);
            asm.declare(format!(".local .align 16 .b8 mine[{copied}]"));
            let base = asm.r64();
            asm.put(format!("mov.u64 {base}, mine"));
            for i in (0..copied).step_by(4) {
                let word = asm.r32();
                asm.put(format!("ld.global.u32 {word}, [{}+{i}]", frame.input));
                asm.put(format!("st.local.u32 [{base}+{i}], {word}"));
            }
            asm.element(&base, &index, size)
        }
        "const" => {
            let name = format!("{entry}_table");
            let list: Vec<String> = bytes.iter().map(u8::to_string).collect();
            module = format!(".const .align 16 .b8 {name}[{data}] = {{{}}};\n", list.join(", "));
            let base = asm.r64();
            asm.put(format!("mov.u64 {base}, {name}"));
            asm.element(&base, &index, size)
        }
        _ => return None,
    };
    // Into every width of register, and once with a negative offset.
    let containers = access.containers();
    let beyond = asm.register_for(if address.starts_with("%r") { Type::B32 } else { Type::B64 });
    asm.put(format!(
        "add.s{} {beyond}, {address}, {}",
        if beyond.starts_with("%r") { 32 } else { 64 },
        2 * HEAD
    ));
    let mut loads: Vec<(Type, String)> =
        containers.iter().map(|&container| (container, format!("[{address}+{HEAD}]"))).collect();
    loads.push((access.ty, format!("[{beyond}+-{HEAD}]")));
    if by_name {
        let name = match access.space.as_str() {
            "shared" => "staged",
            "const" => &format!("{entry}_table"),
            _ => return None,
        };
        loads.iter_mut().for_each(|(_, place)| *place = format!("[{name}+{HEAD}]"));
    }
    let output = asm.element(&frame.output, &frame.index, 8 * access.vector * loads.len());
    let mut at = 0;
    for (container, place) in &loads {
        let registers: Vec<String> = (0..access.vector).map(|_| asm.register_for(*container)).collect();
        asm.put(format!("{opcode} {}, {place}", access.operand(&registers)));
        for register in registers {
            asm.store(*container, &output, at, &register);
            at += 8;
        }
    }
    let expected: Vec<u8> = order
        .iter()
        .flat_map(|&i| {
            let element = &bytes[HEAD + i as usize * size..HEAD + (i as usize + 1) * size];
            loads.iter().flat_map(|(container, _)| access.loaded(*container, element)).collect::<Vec<u8>>()
        })
        .collect();
    let ptx = module + &asm.entry(&entry, &[]);
    let mut launch =
        Launch::new(1, N as u32, [bytes, words(&order)].concat(), expected, N * access.vector * loads.len());
    launch.record = (0, 0);
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}

/// Loads of a kernel parameter that stands behind a byte, so that its offset comes from its alignment.
fn load_parameter(form: &str, access: &Access) -> Probe {
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    let registers: Vec<String> = (0..access.vector).map(|_| asm.register_for(access.ty)).collect();
    asm.put(format!("{form} {}, [p_value]", access.operand(&registers)));
    let output = asm.element(&frame.output, &frame.index, 8 * access.vector);
    for (i, register) in registers.iter().enumerate() {
        asm.store(access.ty, &output, 8 * i, register);
    }
    let size = access.bytes();
    let parameters = [".param .u8 p_before".into(), format!(".param .align {size} .b8 p_value[{size}]")];
    let ptx = asm.entry(&entry, &parameters);
    let mut values: Vec<Vec<u8>> = inputs::specials(access.ty)
        .into_iter()
        .step_by(4)
        .map(|value| value.to_le_bytes()[..access.part()].repeat(access.vector))
        .collect();
    values.extend((0..16).map(|_| random_bytes(&mut random, size)));
    let offset = 17usize.next_multiple_of(size);
    let launches = values.into_iter().map(|value| {
        let expected = access.loaded(access.ty, &value).repeat(32);
        let mut launch = Launch::new(1, 32, vec![0; 8], expected, 32 * access.vector);
        launch.extra = vec![(16, vec![0xee]), (offset, value)];
        launch.record = (0, 0);
        launch
    });
    Probe { form: form.into(), entry, ptx, launches: launches.collect() }
}

/// Stores to element `order[i]` by thread `i`, elements two apart so that what lies between must stay.
///
/// With the place named in the instruction only one thread stores.
fn store(form: &str, opcode: &str, by_name: bool, access: &Access) -> Option<Probe> {
    if by_name && access.space != "shared" {
        return None;
    }
    let mut random = Random::from_text(form);
    let (size, containers) = (access.bytes(), access.containers());
    let stride = (containers.len() + 1) * size;
    let data = HEAD + (N * stride).next_multiple_of(4 * N);
    let entry = entry_name(form);
    let order = shuffled(&mut random);
    let values: Vec<u64> = (0..N * access.vector).map(|_| random.bits()).collect();
    let mut asm = Asm::default();
    let frame = asm.frame();
    let order_at = asm.element(&frame.input, &frame.thread, 8);
    let index = asm.r32();
    asm.put(format!("ld.global.u32 {index}, [{order_at}]"));
    let source = asm.element(&frame.input, &frame.thread, 8 * access.vector);
    // The same value out of every width of register, side by side.
    let mut operands = Vec::new();
    for &container in &containers {
        let registers: Vec<String> =
            (0..access.vector).map(|i| asm.load(container, &source, 8 * N + 8 * i)).collect();
        operands.push(access.operand(&registers));
    }
    let put = |asm: &mut Asm, guard: &str, address: &str| {
        for (i, operand) in operands.iter().enumerate() {
            asm.put(format!("{guard}{opcode} [{address}+{}], {operand}", HEAD + i * size));
        }
    };
    let mut input = [words(&order), words(&values)].concat();
    let mut expected = vec![POISON; data];
    match access.space.as_str() {
        "global" => {
            let address = asm.element(&frame.output, &index, stride);
            put(&mut asm, "", &address);
        }
        "" => {
            let generic = asm.r64();
            asm.put(format!("cvta.global.u64 {generic}, {}", frame.output));
            let address = asm.element(&generic, &index, stride);
            put(&mut asm, "", &address);
        }
        "shared" => {
            let before = random_bytes(&mut random, data);
            let at = asm.r64();
            asm.put(format!("add.s64 {at}, {}, {}", frame.input, input.len()));
            asm.declare(format!(".shared .align 16 .b8 staged[{data}]"));
            let base = asm.r32();
            asm.put(format!("mov.u32 {base}, staged"));
            copy_words(&mut asm, &frame.thread, &at, &base, data, true);
            let address = asm.r32();
            asm.put(format!("mad.lo.s32 {address}, {index}, {stride}, {base}"));
            if by_name {
                let p = asm.pred();
                asm.put(format!("setp.eq.s32 {p}, {}, {STORING}", frame.thread));
                put(&mut asm, &format!("@{p} "), "staged");
            } else {
                put(&mut asm, "", &address);
            }
            asm.put("bar.sync 0");
            copy_words(&mut asm, &frame.thread, &frame.output, &base, data, false);
            expected.clone_from(&before);
            input.extend(before);
        }
        "local" => return Some(store_local(form, access)),
        _ => return None,
    }
    for (thread, &i) in order.iter().enumerate() {
        let i = match by_name {
            true if thread != STORING => continue,
            true => 0,
            false => i,
        };
        for copy in 0..containers.len() {
            for (part, value) in
                values[thread * access.vector..(thread + 1) * access.vector].iter().enumerate()
            {
                let at = HEAD + i as usize * stride + copy * size + part * access.part();
                expected[at..at + access.part()].copy_from_slice(&value.to_le_bytes()[..access.part()]);
            }
        }
    }
    let ptx = asm.entry(&entry, &[]);
    let stored = if by_name { 1 } else { N };
    let mut launch = Launch::new(1, N as u32, input, expected, stored * access.vector * containers.len());
    launch.record = (0, 0);
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}

/// Stores to one of eight elements of local memory, which is then written out whole.
fn store_local(form: &str, access: &Access) -> Probe {
    const BEFORE: u32 = 0x5a69_7887;
    let mut random = Random::from_text(form);
    let size = access.bytes();
    let bytes = (8 * size).next_multiple_of(8);
    let order: Vec<u64> = (0..N).map(|_| random.below(8)).collect();
    let values: Vec<u64> = (0..N * access.vector).map(|_| random.bits()).collect();
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    asm.declare(format!(".local .align 16 .b8 mine[{bytes}]"));
    let order_at = asm.element(&frame.input, &frame.thread, 8);
    let (index, base) = (asm.r32(), asm.r64());
    asm.put(format!("ld.global.u32 {index}, [{order_at}]"));
    asm.put(format!("mov.u64 {base}, mine"));
    for i in (0..bytes).step_by(4) {
        asm.put(format!("st.local.u32 [{base}+{i}], {BEFORE}"));
    }
    let source = asm.element(&frame.input, &frame.thread, 8 * access.vector);
    let registers: Vec<String> =
        (0..access.vector).map(|i| asm.load(access.ty, &source, 8 * N + 8 * i)).collect();
    let address = asm.element(&base, &index, size);
    asm.put(format!("{form} [{address}], {}", access.operand(&registers)));
    let output = asm.element(&frame.output, &frame.thread, bytes);
    for i in (0..bytes).step_by(4) {
        let word = asm.r32();
        asm.put(format!("ld.local.u32 {word}, [{base}+{i}]"));
        asm.put(format!("st.global.u32 [{output}+{i}], {word}"));
    }
    let mut expected = BEFORE.to_le_bytes().repeat(N * bytes / 4);
    for (thread, &i) in order.iter().enumerate() {
        for part in 0..access.vector {
            let at = thread * bytes + i as usize * size + part * access.part();
            let value = values[thread * access.vector + part].to_le_bytes();
            expected[at..at + access.part()].copy_from_slice(&value[..access.part()]);
        }
    }
    let ptx = asm.entry(&entry, &[]);
    let mut launch =
        Launch::new(1, N as u32, [words(&order), words(&values)].concat(), expected, N * access.vector);
    launch.record = (0, 0);
    Probe { form: form.into(), entry, ptx, launches: vec![launch] }
}

/// Addresses carried through a conversion, by what is then found there.
fn convert_address(form: &str, m: &mut Modifiers<'_>) -> Option<Probe> {
    let ty = m.take_type()?;
    m.take("to");
    let space = m.take_one(&["global", "shared", "local"])?;
    if ty != Type::U64 || !m.done() {
        return None;
    }
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    let source = asm.element(&frame.input, &frame.index, 8);
    let value = asm.load(Type::U32, &source, 0);
    let (own, offset) = (asm.r64(), asm.element("0", &frame.thread, 4));
    match space {
        "global" => asm.put(format!("mov.u64 {own}, {}", source)),
        "shared" => {
            asm.declare(format!(".shared .align 4 .b8 staged[{}]", 4 * N));
            asm.put(format!("mov.u64 {own}, staged"));
            asm.put(format!("add.s64 {own}, {own}, {offset}"));
            asm.put(format!("st.shared.u32 [{own}], {value}"));
        }
        _ => {
            asm.declare(".local .align 4 .b8 mine[8]");
            asm.put(format!("mov.u64 {own}, mine"));
            asm.put(format!("st.local.u32 [{own}+4], {value}"));
            asm.put(format!("add.s64 {own}, {own}, 4"));
        }
    }
    // There and back: the generic address must reach the value, and so must the one converted back.
    let (generic, back) = (asm.r64(), asm.r64());
    asm.put(format!("cvta.{space}.u64 {generic}, {own}"));
    asm.put(format!("cvta.to.{space}.u64 {back}, {generic}"));
    let (first, second) = (asm.r32(), asm.r32());
    asm.put(format!("ld.u32 {first}, [{generic}]"));
    asm.put(format!("ld.{space}.u32 {second}, [{back}]"));
    let output = asm.element(&frame.output, &frame.index, 16);
    asm.store(Type::U32, &output, 0, &first);
    asm.store(Type::U32, &output, 8, &second);
    let values: Vec<u64> = (0..N).map(|_| random.integer(32)).collect();
    let expected = values.iter().flat_map(|&value| [slot(Type::U32, value); 2]).flatten().collect();
    let ptx = asm.entry(&entry, &[]);
    let launch = Launch::new(1, N as u32, words(&values), expected, 2 * N);
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}

/// A variable's address taken into a register: shared memory, and for 64 bits an initialised global table too.
fn symbol(form: &str, bits: u32) -> Probe {
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let opcode = form.split(' ').next().unwrap_or(form);
    let table: Vec<u64> = (0..N).map(|_| random.integer(32)).collect();
    let mut asm = Asm::default();
    let frame = asm.frame();
    let output = asm.element(&frame.output, &frame.thread, 16);
    let source = asm.element(&frame.input, &frame.thread, 8);
    let value = asm.load(Type::U32, &source, 0);
    asm.declare(format!(".shared .align 4 .b8 before[{}]", 4 * N));
    asm.declare(format!(".shared .align 4 .b8 staged[{}]", 4 * N));
    let (found, expected_second): (String, Vec<u64>) = (asm.r32(), table.iter().rev().copied().collect());
    let mut module = String::new();
    // Every thread writes its word, the mirrored thread reads it.
    let mirror = asm.r32();
    asm.put(format!("sub.s32 {mirror}, {}, {}", N - 1, frame.thread));
    let address = |asm: &mut Asm, name: &str, index: &str| {
        if bits == 64 {
            let base = asm.r64();
            asm.put(format!("{opcode} {base}, {name}"));
            asm.element(&base, index, 4)
        } else {
            let (base, at) = (asm.r32(), asm.r32());
            asm.put(format!("{opcode} {base}, {name}"));
            asm.put(format!("mad.lo.s32 {at}, {index}, 4, {base}"));
            at
        }
    };
    for name in ["before", "staged"] {
        let at = address(&mut asm, name, &frame.thread);
        asm.put(format!("st.shared.u32 [{at}], {}", if name == "staged" { &value } else { &frame.thread }));
    }
    asm.put("bar.sync 0");
    let at = address(&mut asm, "staged", &mirror);
    asm.put(format!("ld.shared.u32 {found}, [{at}]"));
    asm.store(Type::U32, &output, 0, &found);
    let second = asm.r32();
    if bits == 64 {
        let list: Vec<String> = table.iter().map(u64::to_string).collect();
        let name = format!("{entry}_table");
        module = format!(".global .align 4 .u32 {name}[{N}] = {{{}}};\n", list.join(", "));
        let at = address(&mut asm, &name, &mirror);
        asm.put(format!("ld.global.u32 {second}, [{at}]"));
    } else {
        let at = address(&mut asm, "before", &mirror);
        asm.put(format!("ld.shared.u32 {second}, [{at}]"));
    }
    asm.store(Type::U32, &output, 8, &second);
    let values: Vec<u64> = (0..N).map(|_| random.integer(32)).collect();
    let expected = (0..N)
        .flat_map(|i| {
            let second = if bits == 64 { expected_second[i] } else { (N - 1 - i) as u64 };
            [slot(Type::U32, values[N - 1 - i]), slot(Type::U32, second)]
        })
        .flatten()
        .collect();
    let ptx = module + &asm.entry(&entry, &[]);
    let launch = Launch::new(1, N as u32, words(&values), expected, 2 * N);
    Probe { form: form.into(), entry, ptx, launches: vec![launch] }
}

/// `cp.async` copies and their waits: global to shared memory in permuted order, then out.
fn copy_async(form: &str, m: &mut Modifiers<'_>) -> Option<Probe> {
    let copy = if m.take("async") && m.take_one(&["commit_group", "wait_group", "wait_all"]).is_some() {
        "cp.async.ca.shared.global"
    } else {
        m.take_one(&["ca", "cg"])?;
        m.take_one(&["shared", "shared::cta"])?;
        m.take("global").then_some(())?;
        m.take_one(&["L2::64B", "L2::128B", "L2::256B"]);
        form
    };
    if !m.done() {
        return None;
    }
    let wait_all = form == "cp.async.wait_all";
    let sizes: &[usize] = if copy.contains(".cg") { &[16] } else { &[4, 8, 16] };
    let mut random = Random::from_text(form);
    let total: usize = sizes.iter().map(|size| N * size).sum();
    let bytes = random_bytes(&mut random, total);
    let order = shuffled(&mut random);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    asm.declare(format!(".shared .align 16 .b8 staged[{total}]"));
    let (base, index) = (asm.r32(), asm.r32());
    asm.put(format!("mov.u32 {base}, staged"));
    let order_at = asm.element(&frame.input, &frame.thread, 8);
    asm.put(format!("ld.global.u32 {index}, [{order_at}+{total}]"));
    let (mut at, mut expected) = (0, Vec::new());
    for &size in sizes {
        let source = asm.element(&frame.input, &index, size);
        let target = asm.r32();
        asm.put(format!("mad.lo.s32 {target}, {}, {size}, {base}", frame.thread));
        asm.put(format!("{copy} [{target}+{at}], [{source}+{at}], {size}"));
        if !wait_all {
            asm.put("cp.async.commit_group");
        }
        for &i in &order {
            let from = at + i as usize * size;
            expected.extend(&bytes[from..from + size]);
        }
        at += N * size;
    }
    asm.put(if wait_all { "cp.async.wait_all" } else { "cp.async.wait_group 0" });
    asm.put("bar.sync 0");
    copy_words(&mut asm, &frame.thread, &frame.output, &base, total, false);
    let ptx = asm.entry(&entry, &[]);
    let mut launch = Launch::new(1, N as u32, [bytes, words(&order)].concat(), expected, N * sizes.len());
    launch.record = (0, 0);
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}
