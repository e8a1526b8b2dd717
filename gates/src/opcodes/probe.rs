//! A probe: one entry that executes one form, launches of it, and what they must give.

use super::alu::{self, Operation, Shape};
use super::asm::{Asm, constant};
use super::form::Type;
use super::inputs::{self, Random};
use std::fmt::Write;

/// Bytes that fill the output before a launch; what a probe does not write must still hold them.
pub(super) const POISON: u8 = 0xa5;

/// One form's probe.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    /// The form.
    pub(super) form: String,
    /// Name of the entry.
    pub(super) entry: String,
    /// PTX of the entry, with what it needs declared before it at module level.
    pub(super) ptx: String,
    /// The launches.
    pub(super) launches: Vec<Launch>,
}

/// One launch of a probe.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// Blocks.
    pub(super) grid: [u32; 3],
    /// Threads of a block.
    pub(super) block: [u32; 3],
    /// Contents of the input buffer.
    pub(super) input: Vec<u8>,
    /// Parameters after the two pointers: offset in the parameter block, bytes.
    pub(super) extra: Vec<(usize, Vec<u8>)>,
    /// Contents of the output buffer afterwards.
    pub(super) expected: Vec<u8>,
    /// How the output is compared.
    pub(super) comparison: Compare,
    /// Values that the launch computes, of the output's bytes.
    pub(super) values: usize,
    /// Bytes of the input and of the output that one thread works on; for messages.
    pub(super) record: (usize, usize),
}

/// How an output is compared with what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    /// Every byte.
    Bits,
    /// Slots of 8 bytes; where an f64 NaN is expected any NaN will do.
    AnyF64Nan,
}

impl Launch {
    /// A launch of one-dimensional blocks with nothing out of the ordinary.
    pub(super) fn new(grid: u32, block: u32, input: Vec<u8>, expected: Vec<u8>, values: usize) -> Launch {
        let threads = (grid * block) as usize;
        let record = (input.len() / threads, expected.len() / threads);
        Launch {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            input,
            extra: Vec::new(),
            expected,
            comparison: Compare::Bits,
            values,
            record,
        }
    }

    /// Compares what a device wrote with what it must be. An error says where, and from which operands.
    pub(super) fn check(&self, got: &[u8]) -> Result<(), String> {
        self.compare(&self.expected, got)
    }

    /// Compares two outputs.
    pub(super) fn compare(&self, expected: &[u8], got: &[u8]) -> Result<(), String> {
        if got.len() != expected.len() {
            return Err(format!("{} bytes of output, {} expected", got.len(), expected.len()));
        }
        if got == expected {
            return Ok(());
        }
        let different = |at: usize| {
            let end = (at + 8).min(expected.len());
            let (want, have) = (&expected[at..end], &got[at..end]);
            let any_nan = self.comparison == Compare::AnyF64Nan && is_f64_nan(want) && is_f64_nan(have);
            want != have && !any_nan
        };
        let mut places = (0..expected.len()).step_by(8).filter(|&at| different(at));
        let Some(at) = places.next() else { return Ok(()) };
        let count = 1 + places.count();
        let end = (at + 8).min(expected.len());
        let (want, have) = (word(&expected[at..end]), word(&got[at..end]));
        let (input_record, output_record) = self.record;
        let mut message = format!("output byte {at}: expected {want:#x}, got {have:#x}");
        if output_record > 0 && input_record > 0 {
            let thread = at / output_record;
            let operands = &self.input[thread * input_record..(thread + 1) * input_record];
            let _ = write!(message, " (thread {thread}, result {} of", at % output_record / 8);
            for operand in operands.chunks(8).take(5) {
                let _ = write!(message, " {:#x}", word(operand));
            }
            message.push(')');
        }
        let _ = write!(message, "; {count} of {} slots differ", expected.len().div_ceil(8));
        Err(message)
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn is_f64_nan(bytes: &[u8]) -> bool {
    bytes.len() == 8 && f64::from_bits(word(bytes)).is_nan()
}

/// A name for a form's entry.
pub(super) fn entry_name(form: &str) -> String {
    let clean: String = form.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("probe_{clean}")
}

const THREADS: u32 = 128;

/// One instruction of a register probe: an operation, some of its operands replaced by constants.
struct Instruction {
    operation: Operation,
    constants: Vec<Option<u64>>,
}

impl Instruction {
    fn operands(&self, case: &[u64]) -> Vec<u64> {
        case.iter().zip(&self.constants).map(|(&x, constant)| constant.unwrap_or(x)).collect()
    }
}

/// The probes of a register operation, one for each list of operand types; none when the form is none that [`alu`]
/// knows.
///
/// The entry reads a record of operands (8 bytes each), executes the form on registers and again with each operand
/// in turn replaced by constants, and writes all results, each to a slot of 8 bytes.
pub(super) fn register_probes(form: &str) -> Option<Vec<Probe>> {
    let mut groups: Vec<Vec<Operation>> = Vec::new();
    for operation in alu::operations(form)? {
        match groups.iter_mut().find(|group| group[0].inputs == operation.inputs) {
            Some(group) => group.push(operation),
            None => groups.push(vec![operation]),
        }
    }
    groups.iter().enumerate().map(|(i, group)| register_probe(form, i, group)).collect()
}

fn register_probe(form: &str, number: usize, operations: &[Operation]) -> Option<Probe> {
    let opcode = form.split(' ').next().unwrap_or(form);
    let mut random = Random::from_text(form);
    let inputs = operations[0].inputs.clone();
    let mut cases = inputs::cases(&inputs, &mut random);
    if operations.len() > 8 {
        // Many tables over the same operands: each operand already holds 32 cases of a bitwise operation.
        let stride = cases.len().div_ceil(1024);
        cases = cases.into_iter().step_by(stride).collect();
    }
    cases.retain(|case| operations.iter().all(|o| (o.defined)(case)));
    let instructions = instructions(form, operations, &mut cases, &mut random);
    // Whole blocks: the last case is repeated.
    let last = cases.last()?.clone();
    cases.resize(cases.len().next_multiple_of(THREADS as usize), last);

    let entry = if number == 0 { entry_name(form) } else { format!("{}_{number}", entry_name(form)) };
    let slots = instructions.iter().map(|i| i.operation.outputs.len()).sum::<usize>();
    let mut asm = Asm::default();
    let frame = asm.frame();
    let input = asm.element(&frame.input, &frame.index, 8 * inputs.len());
    let output = asm.element(&frame.output, &frame.index, 8 * slots);
    let registers: Vec<String> =
        inputs.iter().enumerate().map(|(i, &ty)| asm.load(ty, &input, 8 * i)).collect();
    let mut at = 0;
    for instruction in &instructions {
        let results = write(&mut asm, opcode, instruction, &registers);
        for (ty, register) in instruction.operation.outputs.iter().zip(results) {
            asm.store(*ty, &output, 8 * at, &register);
            at += 1;
        }
    }
    let ptx = asm.entry(&entry, &[]);

    let (mut input, mut expected) = (Vec::new(), Vec::new());
    for case in &cases {
        case.iter().for_each(|x| input.extend(x.to_le_bytes()));
        for instruction in &instructions {
            let results = (instruction.operation.evaluate)(&instruction.operands(case));
            for (ty, result) in instruction.operation.outputs.iter().zip(results) {
                expected.extend(slot(*ty, result));
            }
        }
    }
    let grid = cases.len() as u32 / THREADS;
    let mut launch = Launch::new(grid, THREADS, input, expected, cases.len() * slots);
    if operations.iter().any(|o| o.any_nan) {
        launch.comparison = Compare::AnyF64Nan;
    }
    Some(Probe { form: form.into(), entry, ptx, launches: vec![launch] })
}

/// Each operation on registers, then with one operand a constant. Cases whose result some of them leaves undefined
/// are dropped.
fn instructions(
    form: &str,
    operations: &[Operation],
    cases: &mut Vec<Vec<u64>>,
    random: &mut Random,
) -> Vec<Instruction> {
    let mut out = Vec::new();
    for operation in operations {
        let n = operation.inputs.len();
        out.push(Instruction { operation: operation.clone(), constants: vec![None; n] });
        if !operation.constants {
            continue;
        }
        for (at, &ty) in operation.inputs.iter().enumerate() {
            if ty == Type::Pred && form != "mov.pred" {
                continue;
            }
            for value in alu::constants(ty, random) {
                let mut constants = vec![None; n];
                constants[at] = Some(value);
                let instruction = Instruction { operation: operation.clone(), constants };
                let usable = |case: &Vec<u64>| (operation.defined)(&instruction.operands(case));
                if cases.iter().filter(|case| usable(case)).count() > cases.len() / 2 {
                    cases.retain(usable);
                    out.push(instruction);
                }
            }
        }
    }
    out
}

/// A result's slot of 8 bytes: what the store leaves of the poison stays.
pub(super) fn slot(ty: Type, result: u64) -> [u8; 8] {
    let mut slot = [POISON; 8];
    let bytes = (ty.register_bits() / 8) as usize;
    slot[..bytes].copy_from_slice(&result.to_le_bytes()[..bytes]);
    slot
}

fn write(asm: &mut Asm, opcode: &str, instruction: &Instruction, registers: &[String]) -> Vec<String> {
    let operation = &instruction.operation;
    let results: Vec<String> = operation.outputs.iter().map(|&ty| asm.register_for(ty)).collect();
    let mut sources: Vec<String> = Vec::new();
    for (i, &ty) in operation.inputs.iter().enumerate() {
        sources
            .push(instruction.constants[i].map_or_else(|| registers[i].clone(), |bits| constant(ty, bits)));
    }
    sources.extend(operation.suffix.map(|table| table.to_string()));
    let (d, s) = (results.join(", "), sources.join(", "));
    asm.put(match operation.shape {
        Shape::Plain => format!("{opcode} {d}, {s}"),
        Shape::Pack => format!("{opcode} {d}, {{{s}}}"),
        Shape::Unpack => format!("{opcode} {{{d}}}, {s}"),
        Shape::Pair => format!("{opcode} {}|{}, {s}", results[0], results[1]),
    });
    results
}
