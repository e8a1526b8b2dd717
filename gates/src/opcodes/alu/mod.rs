//! Operations on registers: what each form computes, from the PTX ISA.

mod compare;
mod convert;
mod float;
mod integer;

use super::bits;
use super::form::{Modifiers, Type};
use super::inputs::Random;
use std::sync::Arc;

/// Up to four results of one instruction.
pub(super) type Results = [u64; 4];
/// The results for some operands.
pub(super) type Evaluate = Arc<dyn Fn(&[u64]) -> Results + Send + Sync>;

/// How operands are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `d, a, b, …`
    Plain,
    /// `d, {a, b}`
    Pack,
    /// `{d, e}, a`
    Unpack,
    /// `p|q, a, b`
    Pair,
}

/// One form's meaning.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) inputs: Vec<Type>,
    pub(super) outputs: Vec<Type>,
    pub(super) shape: Shape,
    /// Whether sources may be written as constants.
    pub(super) constants: bool,
    /// A constant that ends the operand list (`lop3`'s table).
    pub(super) suffix: Option<u64>,
    pub(super) evaluate: Evaluate,
    /// Operands whose result the PTX ISA defines.
    pub(super) defined: fn(&[u64]) -> bool,
    /// A NaN result's bits are not defined (double precision), only that it is one.
    pub(super) any_nan: bool,
}

impl Operation {
    fn new(
        inputs: &[Type],
        output: Type,
        evaluate: impl Fn(&[u64]) -> u64 + Send + Sync + 'static,
    ) -> Operation {
        let mask = match output {
            Type::Pred => 1,
            other => u64::MAX >> (64 - other.register_bits()),
        };
        Operation {
            inputs: inputs.to_vec(),
            outputs: vec![output],
            shape: Shape::Plain,
            constants: true,
            suffix: None,
            evaluate: Arc::new(move |x| [evaluate(x) & mask, 0, 0, 0]),
            defined: |_| true,
            any_nan: output == Type::F64,
        }
    }

    fn without_constants(self) -> Operation {
        Operation { constants: false, ..self }
    }

    fn defined_if(self, defined: fn(&[u64]) -> bool) -> Operation {
        Operation { defined, ..self }
    }
}

/// The operations to execute for `form`, and operands of their own where the general ones do not fit; none when
/// the form is not a register operation known here.
pub(super) fn operations(form: &str) -> Option<Vec<Operation>> {
    let (opcode, note) = form.split_once(' ').map_or((form, None), |(opcode, note)| (opcode, Some(note)));
    let mut m = Modifiers::new(opcode);
    let found = match (m.name, note) {
        ("mov", None) => vec![mov(&mut m)?],
        ("mov", Some(note @ ("pack" | "unpack"))) => mov_vector(&mut m, note == "pack")?,
        ("setp", note @ (None | Some("|q"))) => vec![compare::setp(&mut m, note.is_some())?],
        (_, Some(_)) => return None,
        ("selp", _) => vec![compare::selp(&mut m)?],
        ("slct", _) => vec![compare::slct(&mut m)?],
        ("set", _) => vec![compare::set(&mut m)?],
        ("testp", _) => vec![compare::testp(&mut m)?],
        ("cvt", _) => convert::wider(convert::cvt(&mut m)?),
        ("lop3", _) => lop3(&mut m)?,
        ("prmt", _) => vec![prmt(&mut m)?],
        ("and" | "or" | "xor" | "not" | "cnot", _) => vec![logic(&mut m)?],
        _ => vec![integer::operation(&mut m.clone()).or_else(|| float::operation(&mut m))?],
    };
    Some(found)
}

fn mov(m: &mut Modifiers<'_>) -> Option<Operation> {
    let ty = m.take_type()?;
    let half = matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
    let operation = Operation::new(&[ty], ty, |x| x[0]);
    (m.done() && ty.bits() != 8).then_some(Operation { constants: !half, any_nan: false, ..operation })
}

/// `mov` between a register and the narrower registers that it is made of, lowest first.
fn mov_vector(m: &mut Modifiers<'_>, pack: bool) -> Option<Vec<Operation>> {
    let whole = m.take_type()?;
    let parts: &[Type] = match whole {
        Type::B32 => &[Type::B16],
        Type::B64 => &[Type::B32, Type::B16],
        _ => return None,
    };
    let one = |&part: &Type| {
        let (bits, n) = (part.bits(), (whole.bits() / part.bits()) as usize);
        let mask = u64::MAX >> (64 - bits);
        let (inputs, outputs) =
            if pack { (vec![part; n], vec![whole]) } else { (vec![whole], vec![part; n]) };
        let evaluate: Evaluate = if pack {
            Arc::new(move |x| [x.iter().rev().fold(0, |out, &x| out << bits | x & mask), 0, 0, 0])
        } else {
            Arc::new(move |x| [0, 1, 2, 3].map(|i| if i < n { x[0] >> (i as u32 * bits) & mask } else { 0 }))
        };
        Operation {
            inputs,
            outputs,
            shape: if pack { Shape::Pack } else { Shape::Unpack },
            constants: false,
            suffix: None,
            evaluate,
            defined: |_| true,
            any_nan: false,
        }
    };
    m.done().then(|| parts.iter().map(one).collect())
}

fn lop3(m: &mut Modifiers<'_>) -> Option<Vec<Operation>> {
    if m.take_type()? != Type::B32 || !m.done() {
        return None;
    }
    let one = |table| {
        let evaluate = move |x: &[u64]| bits::lop3(x[0], x[1], x[2], table);
        let operation = Operation::new(&[Type::B32; 3], Type::B32, evaluate);
        // Constants for one table are enough.
        Operation { suffix: Some(table), constants: table == 0xca, ..operation }
    };
    Some((0..256).map(one).collect())
}

fn prmt(m: &mut Modifiers<'_>) -> Option<Operation> {
    let mode = m.take_one(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]).map(str::to_owned);
    if m.take_type()? != Type::B32 || !m.done() {
        return None;
    }
    let evaluate = move |x: &[u64]| match &mode {
        None => bits::prmt(x[0], x[1], x[2]),
        Some(mode) => bits::prmt_mode(mode, x[0], x[1], x[2]).unwrap_or_default(),
    };
    Some(Operation::new(&[Type::B32; 3], Type::B32, evaluate))
}

fn logic(m: &mut Modifiers<'_>) -> Option<Operation> {
    let name = m.name;
    let ty = m.take_type()?;
    let kind = ty == Type::Pred && name != "cnot" || matches!(ty, Type::B16 | Type::B32 | Type::B64);
    if !m.done() || !kind {
        return None;
    }
    let operation = match name {
        "and" => Operation::new(&[ty; 2], ty, |x| x[0] & x[1]),
        "or" => Operation::new(&[ty; 2], ty, |x| x[0] | x[1]),
        "xor" => Operation::new(&[ty; 2], ty, |x| x[0] ^ x[1]),
        "not" => Operation::new(&[ty], ty, |x| !x[0]),
        _ => Operation::new(&[ty], ty, |x| u64::from(x[0] == 0)),
    };
    Some(if ty == Type::Pred { operation.without_constants() } else { operation })
}

/// Values of an operand's type to write as constants.
pub(super) fn constants(ty: Type, random: &mut Random) -> Vec<u64> {
    if ty == Type::Amount {
        // Beyond 16 bits assemblers disagree on what a constant amount for a 16-bit shift means.
        return vec![
            random.pick(&[1, 15, 31, 63]),
            random.pick(&[16, 32, 64]),
            random.pick(&[17, 33, 65, 200]),
        ];
    }
    let specials = super::inputs::specials(ty);
    [random.pick(&specials), random.value(ty), random.pick(&specials)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::operations;

    /// The first result of a form for some operands.
    pub(super) fn eval(form: &str, operands: &[u64]) -> u64 {
        let found = operations(form).unwrap_or_else(|| panic!("no operation for {form}"));
        assert_eq!(found[0].inputs.len(), operands.len(), "{form}");
        (found[0].evaluate)(operands)[0]
    }

    #[test]
    fn unknown_modifiers_are_not_guessed() {
        for form in
            ["add.ftz.f32", "frob.u32", "cvt.u32", "mul.u32", "mov.b32 symbol", "setp.lt.and", "lop3.and.b32"]
        {
            assert!(operations(form).is_none(), "{form}");
        }
    }

    #[test]
    fn moves() {
        assert_eq!(eval("mov.b32 pack", &[0x1111, 0x2222]), 0x2222_1111);
        let unpack = operations("mov.b64 unpack").unwrap();
        assert_eq!((unpack[0].evaluate)(&[0x4444_3333_2222_1111]), [0x2222_1111, 0x4444_3333, 0, 0]);
        assert_eq!((unpack[1].evaluate)(&[0x4444_3333_2222_1111]), [0x1111, 0x2222, 0x3333, 0x4444]);
        assert_eq!(eval("mov.f32", &[0x7f80_0001]), 0x7f80_0001);
    }
}
