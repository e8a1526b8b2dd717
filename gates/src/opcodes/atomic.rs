//! Probes of integer atomics: on a word of each thread's own (the old value and the new), and where the order cannot
//! matter on a word that all threads share.

use super::asm::Asm;
use super::form::{Modifiers, Type};
use super::inputs::Random;
use super::probe::{Launch, Probe, entry_name};

/// Threads of each of two blocks.
const N: u32 = 64;

/// The probe of `atom` or `red`; none when the form is neither, or not known.
pub(super) fn probe(form: &str) -> Option<Probe> {
    let mut m = Modifiers::new(form);
    let returns = match m.name {
        "atom" => true,
        "red" => false,
        _ => return None,
    };
    let ty = m.take_type()?;
    let ordered = m.take_one(&["relaxed", "acquire", "release", "acq_rel"]);
    let scope = m.take_one(&["cta", "cluster", "gpu", "sys"]);
    if ordered.is_some() && scope.is_none() {
        return None;
    }
    let space = m.take_one(&["global", "shared", "shared::cta"]).unwrap_or("");
    let operation = m.take_first()?.to_owned();
    let kinds: &[Type] = match operation.as_str() {
        "add" => &[Type::U32, Type::S32, Type::U64],
        "min" | "max" => &[Type::U32, Type::S32, Type::U64, Type::S64],
        "inc" | "dec" => &[Type::U32],
        "and" | "or" | "xor" => &[Type::B32, Type::B64],
        "exch" | "cas" if returns => &[Type::B32, Type::B64],
        _ => return None,
    };
    if !m.done() || !kinds.contains(&ty) {
        return None;
    }
    Some(build(form, &operation, ty, space, returns))
}

/// What the word holds afterwards.
fn apply(operation: &str, ty: Type, old: u64, b: u64, c: u64) -> u64 {
    let mask = u64::MAX >> (64 - ty.bits());
    let value = |bits| ty.value(bits);
    let new = match operation {
        "add" => old.wrapping_add(b),
        "min" => {
            if value(b) < value(old) {
                b
            } else {
                old
            }
        }
        "max" => {
            if value(b) > value(old) {
                b
            } else {
                old
            }
        }
        // Counting up to b and over to 0; counting down to 0 and over to b, or to b from above it.
        "inc" => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        "dec" => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        "and" => old & b,
        "or" => old | b,
        "xor" => old ^ b,
        "cas" => {
            if old == b {
                c
            } else {
                old
            }
        }
        _ => b,
    };
    new & mask
}

/// Whether the last value does not depend on the order of many.
fn commutes(operation: &str) -> bool {
    !matches!(operation, "exch" | "cas" | "inc" | "dec")
}

/// Record of a thread's input: the word's value before, `b`, `c`. Output: a slot for the old value, then the words
/// (own and shared) as they are left.
fn build(form: &str, operation: &str, ty: Type, space: &str, returns: bool) -> Probe {
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let bytes = (ty.bits() / 8) as usize;
    let shared = space.starts_with("shared");
    let threads = 2 * N as usize;
    let mut asm = Asm::default();
    let frame = asm.frame();
    let source = asm.element(&frame.input, &frame.index, 24);
    let [before, b, c] = [0, 8, 16].map(|at| asm.load(ty, &source, at));
    let old_at = asm.element(&frame.output, &frame.index, 8);
    // The own word, and one for the block: in shared memory, or in the output past the old values.
    let own_out = asm.element(&frame.output, &frame.index, 16);
    let (own_out, old_bytes) = (format!("{own_out}+{}", 8 * threads), 8 * threads);
    let (own, common) = if shared {
        asm.declare(format!(".shared .align 8 .b8 staged[{}]", 16 * N + 16));
        let (base, at) = (asm.r32(), asm.r32());
        asm.put(format!("mov.u32 {base}, staged"));
        asm.put(format!("mad.lo.s32 {at}, {}, 16, {base}", frame.thread));
        (at, format!("{base}+{}", 16 * N))
    } else {
        let base = if space.is_empty() {
            let generic = asm.r64();
            asm.put(format!("cvta.global.u64 {generic}, {}", frame.output));
            generic
        } else {
            frame.output.clone()
        };
        let at = asm.element(&base, &frame.index, 16);
        asm.put(format!("add.s64 {at}, {at}, {old_bytes}"));
        (at, format!("{base}+{}", old_bytes + 16 * threads))
    };
    let memory = if shared { "shared" } else { "global" };
    let width = ty.bits();
    let operands = |b: &str, c: &str| if operation == "cas" { format!("{b}, {c}") } else { b.to_owned() };
    let plain = if shared {
        own.clone()
    } else {
        format!("{}+{old_bytes}", asm.element(&frame.output, &frame.index, 16))
    };
    asm.put(format!("st.{memory}.u{width} [{plain}], {before}"));
    let p = asm.pred();
    if shared {
        asm.put(format!("setp.eq.s32 {p}, {}, 0", frame.thread));
        asm.put(format!("@{p} st.shared.u{width} [{common}], {before}"));
        asm.put("bar.sync 0");
    }
    if returns {
        let old = asm.register_for(ty);
        asm.put(format!("{form} {old}, [{own}], {}", operands(&b, &c)));
        asm.store(ty, &old_at, 0, &old);
    } else {
        asm.put(format!("{form} [{own}], {b}"));
    }
    if commutes(operation) {
        if returns {
            let ignored = asm.register_for(ty);
            asm.put(format!("{form} {ignored}, [{common}], {b}"));
        } else {
            asm.put(format!("{form} [{common}], {b}"));
        }
    }
    if shared {
        asm.put("bar.sync 0");
        let word = asm.register_for(ty);
        asm.put(format!("ld.shared.u{width} {word}, [{own}]"));
        asm.put(format!("st.global.u{width} [{own_out}], {word}"));
        let (place, block) = (asm.r64(), asm.r32());
        asm.put(format!("mov.u32 {block}, %ctaid.x"));
        asm.put(format!("mul.wide.u32 {place}, {block}, 16"));
        asm.put(format!("add.s64 {place}, {place}, {}", frame.output));
        asm.put(format!("ld.shared.u{width} {word}, [{common}]"));
        asm.put(format!("@{p} st.global.u{width} [{place}+{}], {word}", old_bytes + 16 * threads));
    }
    let ptx = asm.entry(&entry, &[]);

    let records: Vec<[u64; 3]> = (0..threads)
        .map(|_| {
            let [old, b, c] = [(); 3].map(|()| random.integer(width));
            // Often equal or near, where a comparison decides.
            match random.below(4) {
                0 => [old, old, c],
                1 => [old, old.wrapping_add(1) & (u64::MAX >> (64 - width)), c],
                2 => [0, b, c],
                _ => [old, b, c],
            }
        })
        .collect();
    let word = |value: u64| {
        let mut slot = [super::probe::POISON; 16];
        slot[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        slot
    };
    let mut expected = Vec::new();
    for [old, ..] in &records {
        expected.extend(if returns { word(*old)[..8].to_vec() } else { vec![super::probe::POISON; 8] });
    }
    for [old, b, c] in &records {
        expected.extend(word(apply(operation, ty, *old, *b, *c)));
    }
    // The common word starts as the poison in global memory, as the first thread's word in shared memory.
    let poison = u64::from_le_bytes([super::probe::POISON; 8]) & u64::MAX >> (64 - width);
    for block in records.chunks(N as usize) {
        let fold = |start, records: &[[u64; 3]]| {
            if !commutes(operation) {
                return start;
            }
            records.iter().fold(start, |old, [_, b, _]| apply(operation, ty, old, *b, 0))
        };
        expected.extend(word(match shared {
            true => fold(block[0][0], block),
            false if block == &records[..N as usize] => fold(poison, &records),
            false => poison,
        }));
    }
    let input = records.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    let mut launch = Launch::new(2, N, input, expected, threads * (1 + usize::from(returns)) + 2);
    launch.record = (0, 0);
    Probe { form: form.into(), entry, ptx, launches: vec![launch] }
}
