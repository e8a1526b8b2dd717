//! Probes of `mma.sync` and `ldmatrix`: whole matrices, handed out to the lanes by the fragment layouts of the PTX ISA.

use super::asm::Asm;
use super::form::{Modifiers, Type};
use super::inputs::Random;
use super::probe::{Launch, Probe, entry_name};
use super::soft::{self, Exact, Rounding, Value};

const WARPS: usize = 8;

/// The probe of a matrix operation; none when it is none, or not known.
pub(super) fn probe(form: &str) -> Option<Probe> {
    let mut m = Modifiers::new(form);
    match m.name {
        "mma" => multiply(form, &mut m),
        "ldmatrix" => load_matrix(form, &mut m),
        _ => None,
    }
}

/// A fragment's element `i` of register `r` in `lane`: (row, k) of A, or (column, k) of B.
fn place(lane: usize, register: usize, i: usize, per_register: usize, rows: usize) -> (usize, usize) {
    let (group, in_group) = (lane / 4, lane % 4);
    // With 16 rows, registers alternate between the upper and the lower eight.
    let (lower, step) = if rows == 16 { (register % 2, register / 2) } else { (0, register) };
    (group + 8 * lower, step * 4 * per_register + in_group * per_register + i)
}

/// `mma.sync.aligned.m{16,8}n8k{…}.row.col` on 8-bit integers with s32 sums, or on halves with f32 sums. Halves hold
/// small integers: then every product and partial sum is exact, and the result does not depend on the order of
/// summation, which is not specified.
fn multiply(form: &str, m: &mut Modifiers<'_>) -> Option<Probe> {
    let (c, b, a, d) = (m.take_type()?, m.take_type()?, m.take_type()?, m.take_type()?);
    (m.take("sync") && m.take("aligned") && m.take("row") && m.take("col")).then_some(())?;
    let shape = m.take_one(&["m8n8k16", "m16n8k16", "m16n8k32", "m16n8k8"])?;
    let saturate = m.take("satfinite");
    let integers =
        matches!((a, b), (Type::S8 | Type::U8, Type::S8 | Type::U8)) && (c, d) == (Type::S32, Type::S32);
    let floats =
        a == b && matches!(a, Type::F16 | Type::Bf16) && (c, d) == (Type::F32, Type::F32) && !saturate;
    let (rows, depth) = match (shape, integers) {
        ("m8n8k16", true) => (8, 16),
        ("m16n8k16", _) => (16, 16),
        ("m16n8k32", true) => (16, 32),
        ("m16n8k8", false) => (16, 8),
        _ => return None,
    };
    if !m.done() || !(integers || floats) {
        return None;
    }
    let mut random = Random::from_text(form);
    let per_register = if integers { 4 } else { 2 };
    let a_registers = rows / 8 * depth / (4 * per_register);
    let b_registers = depth / (4 * per_register);
    let c_registers = rows / 4;
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    let inputs = a_registers + b_registers + c_registers;
    let source = asm.element(&frame.input, &frame.index, 4 * inputs);
    let loaded: Vec<String> = (0..inputs).map(|i| asm.load(Type::U32, &source, 4 * i)).collect();
    let results: Vec<String> = (0..c_registers).map(|_| asm.r32()).collect();
    let list = |registers: &[String]| format!("{{{}}}", registers.join(", "));
    asm.put(format!(
        "{form} {}, {}, {}, {}",
        list(&results),
        list(&loaded[..a_registers]),
        list(&loaded[a_registers..a_registers + b_registers]),
        list(&loaded[a_registers + b_registers..])
    ));
    let output = asm.element(&frame.output, &frame.index, 4 * c_registers);
    for (i, register) in results.iter().enumerate() {
        asm.put(format!("st.global.u32 [{output}+{}], {register}", 4 * i));
    }
    let ptx = asm.entry(&entry, &[]);

    let (mut input, mut expected) = (Vec::new(), Vec::new());
    let bits = 32 / per_register as u32;
    for warp in 0..WARPS {
        let mut element = |ty: Type| match ty {
            Type::S8 | Type::U8 if warp == 0 => [0x80, 0x7f, 0xff][random.below(3) as usize],
            Type::S8 | Type::U8 => random.bits() & 0xff,
            Type::F16 => small_integer(soft::F16, &mut random, 32),
            Type::Bf16 => small_integer(soft::BF16, &mut random, 32),
            Type::F32 => small_integer(soft::F32, &mut random, 4096),
            // Sums that overflow, so that saturating shows.
            _ if warp < 2 => [0x7fff_ff00, 0x8000_0100][random.below(2) as usize],
            _ => random.integer(32),
        };
        let left: Vec<Vec<u64>> = (0..rows).map(|_| (0..depth).map(|_| element(a)).collect()).collect();
        let right: Vec<Vec<u64>> = (0..8).map(|_| (0..depth).map(|_| element(b)).collect()).collect();
        let sums: Vec<Vec<u64>> = (0..rows).map(|_| (0..8).map(|_| element(c)).collect()).collect();
        let accumulator = |lane: usize, i: usize| (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
        for lane in 0..32 {
            for (registers, matrix, height) in [(a_registers, &left, rows), (b_registers, &right, 8)] {
                for register in 0..registers {
                    let word = (0..per_register).rev().fold(0, |word, i| {
                        let (row, k) = place(lane, register, i, per_register, height);
                        word << bits | matrix[row][k]
                    });
                    input.extend((word as u32).to_le_bytes());
                }
            }
            for i in 0..c_registers {
                let (row, column) = accumulator(lane, i);
                input.extend((sums[row][column] as u32).to_le_bytes());
                let products = left[row].iter().zip(&right[column]);
                let result = if integers {
                    let total = products
                        .fold(c.value(sums[row][column]), |sum, (&x, &y)| sum + a.value(x) * b.value(y));
                    let bounds = (i128::from(i32::MIN), i128::from(i32::MAX));
                    if saturate { total.clamp(bounds.0, bounds.1) as u32 } else { total as u32 }
                } else {
                    let format = if a == Type::F16 { soft::F16 } else { soft::BF16 };
                    let start = soft::F32.decode(sums[row][column]);
                    let total = products.fold(start, |sum, (&x, &y)| {
                        let sum =
                            soft::add(sum, soft::mul(format.decode(x), format.decode(y)), Rounding::Even);
                        // Exact, so that folding on from the rounded sum loses nothing.
                        soft::F32.decode(soft::F32.encode(sum, Rounding::Even))
                    });
                    soft::F32.encode(total, Rounding::Even) as u32
                };
                expected.extend(result.to_le_bytes());
            }
        }
    }
    let values = expected.len() / 4;
    let mut launch = Launch::new(WARPS as u32 / 2, 64, input, expected, values);
    launch.record = (0, 0);
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}

fn small_integer(format: soft::Format, random: &mut Random, bound: u64) -> u64 {
    let n = random.below(2 * bound + 1) as i128 - i128::from(bound);
    format.encode(Value::Finite(Exact::integer(n)), Rounding::Even)
}

/// `ldmatrix`: lane `8·j + r` names row `r` of matrix `j`; every lane gets two halves of each matrix.
fn load_matrix(form: &str, m: &mut Modifiers<'_>) -> Option<Probe> {
    let ty = m.take_type()?;
    (m.take("sync") && m.take("aligned") && m.take("m8n8")).then_some(())?;
    let count = match m.take_one(&["x1", "x2", "x4"])? {
        "x1" => 1,
        "x2" => 2,
        _ => 4,
    };
    let transposed = m.take("trans");
    m.take_one(&["shared", "shared::cta"])?;
    if !m.done() || ty != Type::B16 {
        return None;
    }
    let mut random = Random::from_text(form);
    let entry = entry_name(form);
    let mut asm = Asm::default();
    let frame = asm.frame();
    // 32 rows of 16 bytes for each warp, at places that the input shuffles.
    asm.declare(".shared .align 16 .b8 staged[512]");
    let (base, row) = (asm.r32(), asm.r32());
    asm.put(format!("mov.u32 {base}, staged"));
    let words = asm.element(&frame.input, &frame.index, 16);
    let at = asm.r32();
    asm.put(format!("mad.lo.s32 {at}, {}, 16, {base}", frame.thread));
    for i in 0..4 {
        let word = asm.r32();
        asm.put(format!("ld.global.u32 {word}, [{words}+{}]", 4 * i));
        asm.put(format!("st.shared.u32 [{at}+{}], {word}", 4 * i));
    }
    asm.put("bar.sync 0");
    let order_at = asm.element(&frame.input, &frame.index, 8);
    asm.put(format!("ld.global.u32 {row}, [{order_at}+{}]", WARPS * 512));
    let address = asm.r32();
    asm.put(format!("mad.lo.s32 {address}, {row}, 16, {base}"));
    let results: Vec<String> = (0..count).map(|_| asm.r32()).collect();
    asm.put(format!("{form} {{{}}}, [{address}]", results.join(", ")));
    let output = asm.element(&frame.output, &frame.index, 4 * count);
    for (i, register) in results.iter().enumerate() {
        asm.put(format!("st.global.u32 [{output}+{}], {register}", 4 * i));
    }
    let ptx = asm.entry(&entry, &[]);

    let halves: Vec<u16> = (0..WARPS * 256).map(|_| random.bits() as u16).collect();
    let rows: Vec<u64> = (0..WARPS * 32).map(|_| random.below(32)).collect();
    let mut expected = Vec::new();
    for warp in 0..WARPS {
        for lane in 0..32 {
            for matrix in 0..count {
                for i in 0..2 {
                    let (mut r, mut column) = (lane / 4, lane % 4 * 2 + i);
                    if transposed {
                        (r, column) = (column, r);
                    }
                    let row = rows[warp * 32 + 8 * matrix + r] as usize;
                    expected.extend(halves[warp * 256 + row * 8 + column].to_le_bytes());
                }
            }
        }
    }
    let mut input: Vec<u8> = halves.iter().flat_map(|x| x.to_le_bytes()).collect();
    input.extend(rows.iter().flat_map(|x| x.to_le_bytes()));
    let values = WARPS * 32 * count;
    let mut launch = Launch::new(WARPS as u32, 32, input, expected, values);
    launch.record = (0, 0);
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}
